"""``/api/v1/deliveries`` and ``/api/v1/receivers``: what was told to whom, what waits, tests and further tries."""

from __future__ import annotations

import time

from starlette.requests import Request

from app.api_parts import (
    PAGED,
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
from app.services import deliveries as service
from app.storage import configuration, shared_store, writing_store
from core.deliveries import Delivery
from core.errors import InputError

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_WHEN = nullable("string", format="date-time")


def deliveries(request: Request) -> Answer:
    """Deliveries, newest first."""
    given, limit = request.query_params, limit_of(request)
    cursor = given.get("cursor")
    before = decode_cursor(cursor, (float, str)) if cursor is not None else None
    rows = shared_store().delivery_page(
        limit=limit + 1,
        before=(before[0], before[1]) if before is not None else None,
        receiver=given.get("receiver"),
        state=service.check_state(given.get("state")),
        subject=given.get("incident"),
    )
    following = encode_cursor((rows[limit - 1].made_at, rows[limit - 1].id)) if len(rows) > limit else None
    return {"deliveries": [service.delivery_json(d) for d in rows[:limit]], "next": following}


def delivery(request: Request) -> Answer:
    """One delivery with its message."""
    d = _one(request)
    return {**service.delivery_json(d), "message": dict(d.message)}


def _one(request: Request) -> Delivery:
    wanted = request.path_params["id"]
    for d in shared_store().deliveries_like(wanted):
        if d.id == wanted:
            return d
    raise ApiError(404, "not_found", f"no delivery {wanted}", "list them at /api/v1/deliveries")


def retry(request: Request) -> Answer:
    """Try one again."""
    d = _one(request)
    try:
        service.retry(writing_store(), principal_of(request), delivery=d.id)
    except InputError as error:
        raise ApiError(409, "conflict", f"{error.where}: {error.problem}", error.fix) from None
    return service.delivery_json(_one(request))


def receivers(request: Request) -> Answer:
    """Configured receivers and how they stand."""
    store, config, now = shared_store(), configuration(), time.time()
    found = service.receivers(store, config, now)
    stopped = service.not_running(store, config, now) or None
    return {"receivers": [r.as_json() for r in found], "stopped": stopped}


def test(request: Request) -> Answer:
    """Send a test message."""
    name = request.path_params["name"]
    config = configuration()
    try:
        service.receiver_named(config, name)
    except InputError as error:
        raise ApiError(404, "not_found", f"no receiver {name}", error.fix) from None
    done = service.send_test(writing_store(), config, name, principal_of(request))
    if done.state != "sent":
        raise ApiError(
            502, "not_taken", f"{name} has not taken the test message: {done.error}", "correct the receiver"
        )
    return service.delivery_json(done)


_RECEIVERS: Schema = {
    "type": "object",
    "required": ["receivers", "stopped"],
    "properties": {
        "receivers": {"type": "array", "items": ref("Receiver")},
        "stopped": {
            **nullable("string"),
            "description": "Why nobody is told of anything; null while delivery runs.",
        },
    },
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/api/v1/deliveries",
        deliveries,
        "What receivers were told and what waits, newest first",
        list_of("deliveries", "Delivery", paged=True),
        "incidents:read",
        parameters=(
            query("receiver", "Only to this receiver."),
            query("state", "Only these.", enum=list(service.STATES)),
            query("incident", "Only about this incident."),
            *PAGED,
        ),
    ),
    Endpoint(
        "GET",
        "/api/v1/deliveries/{id}",
        delivery,
        "One delivery with its message",
        ref("Delivery"),
        "incidents:read",
    ),
    Endpoint(
        "POST",
        "/api/v1/deliveries/{id}/retry",
        retry,
        "Try a delivery again that was refused or waits",
        ref("Delivery"),
        "deliveries:write",
        role="responder",
        errors=(409,),
    ),
    Endpoint(
        "GET",
        "/api/v1/receivers",
        receivers,
        "Receivers, without secrets, and how they stand",
        _RECEIVERS,
        "incidents:read",
    ),
    Endpoint(
        "POST",
        "/api/v1/receivers/{name}/test",
        test,
        "Send a test message to a receiver now",
        ref("Delivery"),
        "deliveries:write",
        role="responder",
        errors=(502,),
    ),
)

SCHEMAS: dict[str, Schema] = {
    "Delivery": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("id", "receiver", "title", "reason"), _TEXT),
            "subject": {"type": "string", "description": "Id of the incident; event:… or test:… otherwise."},
            "sequence": {
                "type": "integer",
                "description": "Place in the order of this subject and receiver.",
            },
            "action": {"type": "string", "enum": ["open", "update", "resolve", "event", "test"]},
            "state": {"type": "string", "enum": list(service.STATES)},
            "attempts": _COUNT,
            "error": nullable("string"),
            **dict.fromkeys(("made_at", "next_at", "sent_at"), _WHEN),
            "message": {"type": "object", "description": "What is said; only of a single delivery."},
        },
    },
    "Receiver": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("name", "kind", "where"), _TEXT),
            "state": {
                "type": "string",
                "enum": ["ok", "failing", "parked", "unused", "not configured"],
            },
            **dict.fromkeys(("pending", "failing", "parked", "sent"), _COUNT),
            **dict.fromkeys(("oldest_pending", "last_sent"), _WHEN),
            "error": nullable("string"),
        },
    },
}
