"""About people: who am I, and the audit log."""

from __future__ import annotations

from starlette.requests import Request

from app.api_parts import (
    PAGED,
    TIME,
    Answer,
    Endpoint,
    Schema,
    decode_cursor,
    encode_cursor,
    limit_of,
    list_of,
    nullable,
    query,
    ref,
)
from app.auth import principal_of
from app.services.audit import as_json
from app.services.people import may_read_texts
from app.storage import configuration, shared_store
from core.times import parse_time

_TEXT: Schema = {"type": "string"}


def whoami(request: Request) -> Answer:
    """Who sends this, and what they may."""
    me = principal_of(request)
    return {
        "name": me.name,
        "role": me.role,
        "via": me.via,
        "scopes": None if me.scopes is None else sorted(me.scopes),
        "texts": may_read_texts(me, configuration().auth),
    }


def audit(request: Request) -> Answer:
    """The audit log, the newest first."""
    asked, limit = request.query_params, limit_of(request)
    before = decode_cursor(asked["cursor"], (float, str)) if "cursor" in asked else None
    rows = shared_store().audit(
        limit=limit + 1,
        before=None if before is None else (float(before[0]), str(before[1])),
        start=parse_time(asked["start"], "start") if "start" in asked else None,
        end=parse_time(asked["end"], "end") if "end" in asked else None,
        who=asked.get("who"),
        action=asked.get("action"),
    )
    shown = rows[:limit]
    more = encode_cursor((float(shown[-1].ts), shown[-1].id)) if len(rows) > limit else None
    return {"audit": [as_json(r) for r in shown], "next": more}


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/api/v1/whoami", whoami, "Who sends this request, and what they may", ref("Whoami"), ""),
    Endpoint(
        "GET",
        "/api/v1/audit",
        audit,
        "Who did what, and who looked at texts of outputs; the newest first",
        list_of("audit", "AuditLine", paged=True),
        "audit:read",
        role="admin",
        parameters=(
            query("start", TIME),
            query("end", TIME + " Exclusive."),
            query("who", "Only this person or token."),
            query("action", "Only this action."),
            *PAGED,
        ),
    ),
)

SCHEMAS: dict[str, Schema] = {
    "Whoami": {
        "type": "object",
        "required": ["name", "role", "via", "scopes", "texts"],
        "properties": {
            "name": _TEXT,
            "role": {"type": "string", "enum": ["viewer", "responder", "admin"]},
            "via": {"type": "string", "enum": ["local", "proxy", "oidc", "token"]},
            "scopes": {
                "type": ["array", "null"],
                "items": _TEXT,
                "description": "Of a token; null for a person.",
            },
            "texts": {"type": "boolean", "description": "Whether texts of outputs may be read."},
        },
    },
    "AuditLine": {
        "type": "object",
        "required": ["id", "at", "who", "role", "via", "action", "subject", "origin", "allowed", "detail"],
        "properties": {
            **dict.fromkeys(("id", "who", "role", "via", "action", "subject", "origin"), _TEXT),
            "at": nullable("string", format="date-time"),
            "allowed": {"type": "boolean", "description": "False: it was refused."},
            "detail": {"type": "object"},
        },
    },
}
