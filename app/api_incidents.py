"""``/api/v1/incidents``: the list in pages, one with its log, similar ones, the post-mortem, and what people do to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api_parts import (
    PAGED,
    TIME,
    Answer,
    ApiError,
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
from app.services import labelling, lifecycle, merging
from app.services.incident_json import log_json, many, one
from app.services.lifecycle import Acted, Conflict, NotFound
from app.services.people import Principal
from app.services.postmortem import post_mortem
from app.services.similar import similar
from app.storage import configuration, shared_store, writing_store
from core.errors import ConfigError
from core.incidents import Incident
from core.lifecycle import LABELS
from core.times import parse_duration, parse_time
from sql.store import Store

CHUNK = 200
FILTERS = (
    "start",
    "end",
    "open",
    "kind",
    "severity",
    "pool",
    "class",
    "acknowledged",
    "owner",
    "limit",
    "cursor",
)
R = TypeVar("R")


class Body(BaseModel):
    """A body; what is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class TextBody(Body):
    """Words for the log."""

    text: str = Field(default="", description="Stands in the log.")


class NoteBody(Body):
    """A note."""

    text: str = Field(min_length=1, description="What is to be written down.")


class ReasonBody(Body):
    """Why."""

    reason: str = Field(default="", description="Stands in the log.")


class AssignBody(Body):
    """Who gets it."""

    to: str = Field(description="A person or team; empty: nobody.")


class SnoozeBody(ReasonBody):
    """Until it is worse."""

    duration: str | None = Field(default=None, description="At most so long, such as 2h.")


class MergeBody(ReasonBody):
    """Into which."""

    into: str = Field(description="Id of the incident that it is a part of.")


class LabelBody(ReasonBody):
    """What it was."""

    label: str = Field(description=f"One of {', '.join(LABELS)}; empty takes it back.")
    kind: str = Field(default="", description="With cause_wrong: the kind that it really was.")


def told(function: Callable[[], R]) -> R:
    """Run it; what is not there is 404, what cannot be done now is 409."""
    try:
        return function()
    except NotFound as error:
        raise ApiError(404, "not_found", f"{error.where}: {error.problem}", error.fix) from None
    except Conflict as error:
        raise ApiError(409, "conflict", f"{error.where}: {error.problem}", error.fix) from None


def incidents(request: Request) -> Answer:
    """Incidents that match, the newest first, in pages."""
    q, store = request.query_params, shared_store()
    for name in q:
        if name not in FILTERS:
            raise ConfigError(name, "is no filter of incidents", f"use {', '.join(FILTERS)}")
    start = parse_time(q["start"], "start") if "start" in q else None
    end = parse_time(q["end"], "end") if "end" in q else None
    limit = limit_of(request)
    before = decode_cursor(q["cursor"], (float, str)) if "cursor" in q else None
    found: list[Incident] = []
    while len(found) <= limit:
        some = store.incident_page(
            limit=CHUNK,
            before=None if before is None else (before[0], before[1]),
            start=start,
            end=end,
            open_only=_flag(request, "open") or False,
            kinds=q.getlist("kind") or None,
            severities=q.getlist("severity") or None,
        )
        found += _passing(store, request, some)
        if len(some) < CHUNK:
            break
        before = (some[-1].started_at, some[-1].id)
    page, more = found[:limit], len(found) > limit
    return {
        "incidents": many(store, configuration(), page, at=time.time()),
        "next": encode_cursor((float(page[-1].started_at), page[-1].id)) if more else None,
    }


def _passing(store: Store, request: Request, some: list[Incident]) -> list[Incident]:
    """Those that pass the filters which the database does not know."""
    q = request.query_params
    acknowledged, owner = _flag(request, "acknowledged"), q.get("owner")
    out = [
        i
        for i in some
        if ("pool" not in q or q["pool"] in i.pools) and ("class" not in q or q["class"] in i.classes)
    ]
    if acknowledged is None and owner is None:
        return out
    from app.services import attention

    stands = attention.load(store, configuration(), out)
    return [
        i
        for i in out
        if (acknowledged is None or stands.handling(i).acknowledged == acknowledged)
        and (owner is None or stands.standing(i).owner == owner)
    ]


def _flag(request: Request, name: str) -> bool | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise ConfigError(name, "must be true or false", f"write {name}=true", text)
    return text.lower() == "true"


def _found(request: Request) -> Incident:
    return told(lambda: lifecycle.find(shared_store(), request.path_params["id"]))


def incident(request: Request) -> Answer:
    """One incident with its log."""
    return one(shared_store(), configuration(), _found(request), at=time.time())


def log(request: Request) -> Answer:
    """Its log."""
    return {"log": log_json(shared_store().incident_log(_found(request).id))}


def alike(request: Request) -> Answer:
    """Earlier ones like it."""
    found = similar(shared_store(), _found(request), limit=min(limit_of(request), 50))
    return {"similar": [s.as_json() for s in found]}


def postmortem(request: Request) -> Response:
    """Markdown with its pictures inside, or an archive with them beside it."""
    form = request.query_params.get("format", "markdown")
    if form not in ("markdown", "zip"):
        raise ConfigError("format", "is not known", "write markdown or zip", form)
    base = str(request.base_url).rstrip("/")
    made = told(lambda: post_mortem(shared_store(), configuration(), request.path_params["id"], base=base))
    if form == "zip":
        headers = {"Content-Disposition": f'attachment; filename="{made.name}.zip"'}
        return Response(made.zip(), media_type="application/zip", headers=headers)
    headers = {"Content-Disposition": f'attachment; filename="{made.name}.md"'}
    return Response(made.inline(), media_type="text/markdown; charset=utf-8", headers=headers)


Act = Callable[[Store, str, Principal, Any], Acted]


def _doing(act: Act) -> Callable[[Request], Answer]:
    """A function of an endpoint that does one act and answers with the incident."""

    def function(request: Request) -> Answer:
        store, who = writing_store(), principal_of(request)
        i = told(lambda: lifecycle.find(store, request.path_params["id"]))
        body = getattr(request.state, "body", None)
        done = told(lambda: act(store, i.id, who, body))
        return one(store, configuration(), done.incident, at=time.time())

    return function


def _seconds(body: SnoozeBody) -> float | None:
    return None if body.duration is None else parse_duration(body.duration, "duration")


ACTIONS: tuple[tuple[str, type[Body], Act, str], ...] = (
    (
        "acknowledge",
        TextBody,
        lambda s, i, p, b: lifecycle.acknowledge(s, i, p, text=b.text),
        "You have it until it is resolved",
    ),
    (
        "unacknowledge",
        TextBody,
        lambda s, i, p, b: lifecycle.unacknowledge(s, i, p, text=b.text),
        "Take an acknowledgement back",
    ),
    (
        "assign",
        AssignBody,
        lambda s, i, p, b: lifecycle.assign(s, i, p, to=b.to),
        "Give it to a person or team",
    ),
    ("note", NoteBody, lambda s, i, p, b: lifecycle.note(s, i, p, text=b.text), "Write something down"),
    (
        "snooze",
        SnoozeBody,
        lambda s, i, p, b: lifecycle.snooze(s, i, p, reason=b.reason, seconds=_seconds(b)),
        "Nobody is told of it until it is worse",
    ),
    ("wake", Body, lambda s, i, p, b: lifecycle.wake(s, i, p), "Take a snooze back"),
    (
        "reopen",
        ReasonBody,
        lambda s, i, p, b: lifecycle.reopen(s, i, p, reason=b.reason),
        "A resolved one is not over",
    ),
    (
        "resolve",
        ReasonBody,
        lambda s, i, p, b: lifecycle.resolve(s, i, p, reason=b.reason),
        "End one that a person opened again",
    ),
    (
        "merge",
        MergeBody,
        lambda s, i, p, b: merging.merge(s, i, b.into, p, reason=b.reason),
        "Make it a part of another; answers with the whole",
    ),
    (
        "split",
        ReasonBody,
        lambda s, i, p, b: merging.split(s, i, p, reason=b.reason),
        "Take it out of the one that it was merged into",
    ),
    (
        "label",
        LabelBody,
        lambda s, i, p, b: labelling.label(s, i, p, label=b.label, kind=b.kind, reason=b.reason),
        "Say what it was",
    ),
    (
        "accept",
        ReasonBody,
        lambda s, i, p, b: lifecycle.accept_new_normal(s, i, p, reason=b.reason),
        "What it shows is the new normal",
    ),
)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/api/v1/incidents",
        incidents,
        "Incidents, the newest first",
        list_of("incidents", "Incident", paged=True),
        "incidents:read",
        parameters=(
            query("start", TIME + " Only those that had not ended before."),
            query("end", TIME + " Only those that began before."),
            query("open", "Only open ones.", enum=["true", "false"]),
            query("kind", "Only this kind; may be given several times."),
            query(
                "severity", "Only this severity; may be given several times.", enum=["info", "ticket", "page"]
            ),
            query("pool", "Only those of this pool."),
            query("class", "Only those of this class."),
            query("acknowledged", "Whether somebody has it.", enum=["true", "false"]),
            query("owner", "Only those of this person or team."),
            *PAGED,
        ),
    ),
    Endpoint(
        "GET",
        "/api/v1/incidents/{id}",
        incident,
        "One incident with its log",
        ref("Incident"),
        "incidents:read",
    ),
    Endpoint(
        "GET", "/api/v1/incidents/{id}/log", log, "Its log", list_of("log", "LogEntry"), "incidents:read"
    ),
    Endpoint(
        "GET",
        "/api/v1/incidents/{id}/similar",
        alike,
        "Earlier incidents like it, and what ended them",
        list_of("similar", "SimilarIncident"),
        "incidents:read",
        parameters=(PAGED[0],),
    ),
    Endpoint(
        "GET",
        "/api/v1/incidents/{id}/postmortem",
        postmortem,
        "A post-mortem, filled in as far as the data go",
        {"type": "string"},
        "incidents:read",
        parameters=(
            query("format", "One file, or an archive.", enum=["markdown", "zip"], default="markdown"),
        ),
        errors=(409,),
        media_types=("text/markdown", "application/zip"),
    ),
    *(
        Endpoint(
            "POST",
            f"/api/v1/incidents/{{id}}/{name}",
            _doing(act),
            summary,
            ref("Incident"),
            "incidents:write",
            role="responder",
            body=body,
            errors=(409,),
        )
        for name, body, act, summary in ACTIONS
    ),
)

_TEXT: Schema = {"type": "string"}
_NAMES: Schema = {"type": "array", "items": _TEXT}
_WHEN = nullable("string", format="date-time")
_SOME = nullable("string")


def _object(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties}


SCHEMAS: dict[str, Schema] = {
    **{
        m.__name__: m.model_json_schema()
        for m in (Body, TextBody, NoteBody, ReasonBody, AssignBody, SnoozeBody, MergeBody, LabelBody)
    },
    "LogEntry": _object(
        seq={"type": "integer"},
        at=_WHEN,
        action={"type": "string", "description": "Such as opened, resolved, acknowledged, note."},
        text=_TEXT,
        who={"type": "string", "description": "A person, or detector."},
        data={"type": "object"},
    ),
    "SimilarIncident": _object(
        id=_TEXT,
        kind=_TEXT,
        title=_TEXT,
        started_at=_WHEN,
        ended_at=_WHEN,
        score={"type": "number"},
        why=_NAMES,
        ended_by=_TEXT,
        label=_SOME,
    ),
    "Handling": _object(
        **dict.fromkeys(("acknowledged_by", "assignee", "team", "true_kind", "merged_into", "why"), _SOME),
        **dict.fromkeys(("acknowledged_at", "reopened_at", "until"), _WHEN),
        label={"type": ["string", "null"], "enum": [*LABELS, None]},
        merged=_NAMES,
        snoozed={"type": ["object", "null"], "properties": {"by": _TEXT, "at": _WHEN, "until": _WHEN}},
        notes={"type": "integer"},
        told={"type": "boolean", "description": "Whether somebody is to be told of it now."},
        not_told_by={"type": ["string", "null"], "enum": ["merged", "silenced", "muted", "snoozed", None]},
    ),
    "Incident": _object(
        **dict.fromkeys(("id", "kind", "title", "cause", "runner_up"), _TEXT),
        severity={"type": "string", "enum": ["info", "ticket", "page"]},
        state={"type": "string", "enum": ["announced", "open", "resolved"]},
        **dict.fromkeys(
            ("started_at", "announced_at", "detected_at", "diagnosed_at", "ended_at", "updated_at"), _WHEN
        ),
        **dict.fromkeys(("classes", "pools", "replicas", "ranks"), _NAMES),
        load_correlated=nullable("boolean"),
        confidence={"type": "number"},
        evidence={"type": "array", "items": {"type": "object"}},
        ruled_out={"type": "array", "items": {"type": "object"}},
        detail={"type": "object"},
        handling=ref("Handling"),
        log={"type": "array", "items": ref("LogEntry"), "description": "Of one incident only."},
    ),
}
