"""``POST /api/v1/events`` (one line of curl, as a form or JSON) and ``/api/v1/webhooks/{sender}``: deploys and other events
come in.

GitHub signs what it sends; where its secret is configured, the signature stands in for a token and nothing unsigned is taken.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.api_parts import Answer, ApiError, Endpoint, Schema, as_error, query, ref
from app.auth import PRINCIPAL
from app.services.hooks import KINDS, SENDERS, Context, Taken, plain
from app.services.people import Principal
from app.storage import configuration, writing_store
from core.config import read_secret

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
GITHUB = "/api/v1/webhooks/github"


@dataclass(frozen=True)
class RawEndpoint(Endpoint):
    """An endpoint that reads its own body: ``request.state.raw``, at most webhooks.max_body bytes."""

    takes: tuple[str, ...] = (JSON,)

    async def _endpoint(self, request: Request) -> Response:
        try:
            limit = configuration().webhooks.max_body
            raw = bytearray()
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > limit:
                    raise ApiError(413, "too_long", f"the body is longer than {limit} bytes", "send less")
            request.state.raw = bytes(raw)
            if self.path == GITHUB:
                _signed(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return as_error(error)
        return await super()._endpoint(request)

    def described(self) -> Schema:
        """The operation for OpenAPI, with its body."""
        schema: Schema = ref("Event") if self.path == "/api/v1/events" else {"type": "object"}
        return {
            **super().described(),
            "requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in self.takes}},
        }


def _signed(request: Request) -> None:
    """GitHub's X-Hub-Signature-256 over the body; ApiError (401) where a secret is configured and it does not fit."""
    file = configuration().webhooks.github_secret_file
    if file is None:
        return
    given = request.headers.get("x-hub-signature-256", "")
    made = "sha256=" + hmac.new(read_secret(file).encode(), request.state.raw, sha256).hexdigest()
    if not hmac.compare_digest(given.encode("utf-8", "replace"), made.encode()):
        why = "is not right" if given else "is missing"
        fix = "give GitHub's webhook the secret in webhooks.github_secret_file"
        raise ApiError(401, "bad_signature", f"the signature X-Hub-Signature-256 {why}", fix)
    scopes = frozenset({"events:write"})
    request.scope[PRINCIPAL] = Principal("github webhook", "viewer", scopes, "token")


def _media(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "not_json", f"the body is not JSON: {error}", "send JSON") from None


def _form(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode(), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=20, errors="strict"
        )
    except (ValueError, UnicodeDecodeError):
        fix = "send -d kind=deploy -d text=..., or JSON"
        raise ApiError(400, "not_a_form", "the body is not a form", fix) from None
    if len({k for k, _ in pairs}) != len(pairs):
        raise ApiError(400, "bad_request", "a field is given twice", "give each field once")
    return {k: v for k, v in pairs if v}


def _context(request: Request) -> Context:
    store = writing_store()
    headers = request.headers
    delivery = headers.get("x-github-delivery") or headers.get("idempotency-key") or ""
    return Context(
        now=time.time(),
        delivery=delivery[:200],
        pool=request.query_params.get("pool", "")[:200],
        pools=frozenset(t.target.pool for t in store.targets() if t.target.pool),
        headers={"x-github-event": headers.get("x-github-event", "")},
    )


def _stored(taken: Taken) -> Answer:
    stored = writing_store().add_events(taken.events) if taken.events else 0
    answer = {"received": len(taken.events), "stored": stored, "already_there": len(taken.events) - stored}
    return {**answer, "ignored": taken.ignored} if taken.ignored else answer


def events(request: Request) -> Answer:
    """One event as a form, or one or several as JSON."""
    media, raw = _media(request), request.state.raw
    if media not in (FORM, JSON):
        raise ApiError(
            415, "bad_content_type", f"content type {media[:60] or '(none)'} is not taken", f"send {JSON}"
        )
    body: Any = _form(raw) if media == FORM else _json(raw)
    return _stored(plain(body, _context(request)))


def _webhook(sender: str) -> Callable[[Request], Answer]:
    def function(request: Request) -> Answer:
        raw = request.state.raw
        if _media(request) == FORM:  # GitHub's other way: the JSON in a field
            raw = _form(raw).get("payload", "").encode()
        return _stored(SENDERS[sender](_json(raw), _context(request)))

    function.__doc__ = f"What {sender} sends."
    return function


_POOL = query("pool", "Where it happens, where the payload does not say so.")
_TITLES = {
    "argocd": "Argo CD: an Application was synced",
    "github": "GitHub: deployments, releases, workflows that deploy; signed",
    "kubernetes": "Kubernetes: Event objects, rolled out workloads, kubewatch",
    "generic": "Anything else: the form of /api/v1/events",
    "alertmanager": "Alertmanager: alerts of others become events",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    RawEndpoint(
        "POST",
        "/api/v1/events",
        events,
        "Mark a deploy or another event",
        ref("EventsTaken"),
        "events:write",
        role="responder",
        parameters=(_POOL,),
        errors=(413, 415),
        takes=(JSON, FORM),
    ),
    *(
        RawEndpoint(
            "POST",
            f"/api/v1/webhooks/{sender}",
            _webhook(sender),
            _TITLES[sender],
            ref("EventsTaken"),
            "events:write",
            role="responder",
            parameters=(_POOL,),
            errors=(413,),
        )
        for sender in SENDERS
    ),
)

_TEXT: Schema = {"type": "string"}
SCHEMAS: dict[str, Schema] = {
    "Event": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": list(KINDS), "default": "note"},
            "text": {"type": "string", "description": "What happened, for people."},
            "pool": {"type": "string", "description": "Where; absent: everywhere."},
            "replica": _TEXT,
            "at": {
                "oneOf": [_TEXT, {"type": "number"}],
                "description": "ISO 8601 or Unix seconds. Default: now.",
            },
            "id": {"type": "string", "description": "The sender's own id: the same one twice is one event."},
        },
    },
    "EventsTaken": {
        "type": "object",
        "required": ["received", "stored", "already_there"],
        "properties": {
            **{key: {"type": "integer"} for key in ("received", "stored", "already_there")},
            "ignored": {"type": "string", "description": "Why nothing was made of it, where that is right."},
        },
    },
}
