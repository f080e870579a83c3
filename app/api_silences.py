"""``/api/v1/silences`` and ``/api/v1/mutes``: what nobody is to be told of, until a time or every week."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field
from starlette.requests import Request

from app.api_incidents import Body, told
from app.api_parts import PAGED, Answer, ApiError, Endpoint, Schema, list_of, nullable, page, query, ref
from app.auth import principal_of
from app.services import silencing
from app.services.incident_json import mute_json, silence_json
from app.storage import shared_store, writing_store
from core.errors import ConfigError
from core.silences import DAYS, MuteWindow, Silence
from core.times import parse_duration, parse_time


class SilenceBody(Body):
    """A silence."""

    matchers: str = Field(
        description='Matchers over kind, pool, class, severity, tenant, replica: pool="a",kind=~"kv_.*".'
    )
    reason: str = Field(min_length=1, description="Why; shown beside what it hides.")
    duration: str | None = Field(default=None, description="How long, such as 2h; or ends_at.")
    starts_at: str | None = Field(default=None, description="ISO 8601 or Unix seconds. Default: now.")
    ends_at: str | None = Field(default=None, description="ISO 8601 or Unix seconds.")


class MuteBody(Body):
    """A mute window."""

    matchers: str = Field(description="As of a silence.")
    reason: str = Field(min_length=1, description="Why.")
    days: list[str] = Field(default=list(DAYS), description="Days on which it begins: mon … sun.")
    start: str = Field(description="Time of day, such as 22:00.")
    end: str = Field(description="Time of day; not after start: on the next day.")
    zone: str = Field(default="UTC", description="Time zone, such as Europe/Berlin.")


def _all(request: Request) -> bool:
    text = request.query_params.get("all", "false").lower()
    if text not in ("true", "false"):
        raise ConfigError("all", "must be true or false", "write all=true", text)
    return text == "true"


def silences(request: Request) -> Answer:
    """Silences, the first to be made first."""
    now = time.time()
    found = silencing.silences(shared_store(), all_=_all(request), at=now)

    def key(s: Silence) -> tuple[Any, ...]:
        return (float(s.made_at), s.id)

    some, following = page(sorted(found, key=key), key, request)
    return {"silences": [silence_json(s, now) for s in some], "next": following}


def silence(request: Request) -> Answer:
    """One silence."""
    wanted = request.path_params["id"]
    for s in shared_store().silences():
        if s.id == wanted:
            return silence_json(s, time.time())
    raise ApiError(404, "not_found", f"no silence {wanted}", "list them at /api/v1/silences?all=true")


def add_silence(request: Request) -> Answer:
    """Make one."""
    body: SilenceBody = request.state.body
    now, who = time.time(), principal_of(request)
    if (body.duration is None) == (body.ends_at is None):
        raise ConfigError("duration", "give either duration or ends_at", 'write "duration": "2h"')
    begin = now if body.starts_at is None else parse_time(body.starts_at, "starts_at")
    end = (
        begin + parse_duration(body.duration, "duration")
        if body.duration is not None
        else parse_time(body.ends_at or "", "ends_at")
    )
    store = writing_store()
    made = silencing.silence(
        store, body.matchers, who, reason=body.reason, ends_at=end, starts_at=begin, at=now
    )
    return silence_json(made, now)


def remove_silence(request: Request) -> Answer:
    """Take one back."""
    store, who = writing_store(), principal_of(request)
    done = told(lambda: silencing.unsilence(store, request.path_params["id"], who))
    return silence_json(done, time.time())


def mutes(request: Request) -> Answer:
    """Mute windows, the first to be made first."""

    def key(m: MuteWindow) -> tuple[Any, ...]:
        return (float(m.made_at), m.id)

    some, following = page(sorted(shared_store().mutes(withdrawn=_all(request)), key=key), key, request)
    now = time.time()
    return {"mutes": [mute_json(m, now) for m in some], "next": following}


def add_mute(request: Request) -> Answer:
    """Make one."""
    body: MuteBody = request.state.body
    store, who = writing_store(), principal_of(request)
    made = silencing.mute(
        store,
        body.matchers,
        who,
        days=body.days,
        start=body.start,
        end=body.end,
        zone=body.zone,
        reason=body.reason,
    )
    return mute_json(made, time.time())


def remove_mute(request: Request) -> Answer:
    """Take one back."""
    store, who = writing_store(), principal_of(request)
    done = told(lambda: silencing.unmute(store, request.path_params["id"], who))
    return mute_json(done, time.time())


_ALL = query("all", "Those over and taken back too.", enum=["true", "false"], default="false")

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/api/v1/silences",
        silences,
        "Silences",
        list_of("silences", "Silence", paged=True),
        "incidents:read",
        parameters=(_ALL, *PAGED),
    ),
    Endpoint("GET", "/api/v1/silences/{id}", silence, "One silence", ref("Silence"), "incidents:read"),
    Endpoint(
        "POST",
        "/api/v1/silences",
        add_silence,
        "Nobody is told of what matches, until a time",
        ref("Silence"),
        "incidents:write",
        role="responder",
        action="silence",
        body=SilenceBody,
        status=201,
    ),
    Endpoint(
        "DELETE",
        "/api/v1/silences/{id}",
        remove_silence,
        "Take a silence back",
        ref("Silence"),
        "incidents:write",
        role="responder",
        action="unsilence",
    ),
    Endpoint(
        "GET",
        "/api/v1/mutes",
        mutes,
        "Mute windows",
        list_of("mutes", "MuteWindow", paged=True),
        "incidents:read",
        parameters=(_ALL, *PAGED),
    ),
    Endpoint(
        "POST",
        "/api/v1/mutes",
        add_mute,
        "Nobody is told of what matches, at the same hours of every week",
        ref("MuteWindow"),
        "incidents:write",
        role="responder",
        action="mute",
        body=MuteBody,
        status=201,
    ),
    Endpoint(
        "DELETE",
        "/api/v1/mutes/{id}",
        remove_mute,
        "Take a mute window back",
        ref("MuteWindow"),
        "incidents:write",
        role="responder",
        action="unmute",
    ),
)

_TEXT: Schema = {"type": "string"}
_WHEN = nullable("string", format="date-time")
_MADE: Schema = {
    **dict.fromkeys(("id", "matchers", "author", "reason"), _TEXT),
    "made_at": _WHEN,
    "withdrawn_by": nullable("string"),
    "withdrawn_at": _WHEN,
}

SCHEMAS: dict[str, Schema] = {
    "SilenceBody": SilenceBody.model_json_schema(),
    "MuteBody": MuteBody.model_json_schema(),
    "Silence": {
        "type": "object",
        "properties": {
            **_MADE,
            "state": {"type": "string", "enum": ["pending", "active", "expired", "withdrawn"]},
            "starts_at": _WHEN,
            "ends_at": _WHEN,
        },
    },
    "MuteWindow": {
        "type": "object",
        "properties": {
            **_MADE,
            "active": {"type": "boolean"},
            "until": _WHEN,
            "days": {"type": "array", "items": {"type": "string", "enum": list(DAYS)}},
            **dict.fromkeys(("start", "end", "zone"), _TEXT),
        },
    },
}
