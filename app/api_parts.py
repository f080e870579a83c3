"""What every part of the REST interface is made of: an :class:`Endpoint` is a route and its description in one, so that neither
can be without the other. A module of the API offers ``ENDPOINTS`` and ``SCHEMAS`` (components); :mod:`app.api` lists the modules.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.auth import origin_of, principal_of
from app.services import audit
from app.services.people import Forbidden, Principal, Role, allow
from app.storage import writing_store
from core.errors import ConfigError, GustfrontError, InputError, StoreError

Answer = Mapping[str, Any]
Schema = dict[str, Any]
Item = TypeVar("Item")

MAX_BODY = 64 << 10
_DETAIL = 500
PAGE, MAX_PAGE = 100, 1000
TIME = "ISO 8601 (UTC where no zone is named) or Unix seconds."
STATUSES = {
    400: "A parameter or the body is wrong.",
    401: "A token or a signed-in person is needed, or the token is not valid.",
    403: "The role or scope is missing; the message names it. Or the request comes from a foreign web page.",
    404: "There is none.",
    409: "It cannot be done in the state it is in.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    429: "Too many requests: wait as Retry-After says.",
    502: "Whom it was passed on to has not taken it.",
    503: "The database is away: wait as Retry-After says.",
}


class ApiError(Exception):
    """An error with its HTTP status."""

    def __init__(self, status: int, code: str, message: str, fix: str = "") -> None:
        self.status, self.code, self.message, self.fix = status, code, message, fix
        super().__init__(message)


def error_response(status: int, code: str, message: str, fix: str = "", **headers: str) -> JSONResponse:
    """The one shape of every error."""
    body = {"error": {"code": code, "message": message, "fix": fix}}
    return JSONResponse(body, status_code=status, headers=headers)


def as_error(error: Exception) -> Response:
    """The answer to an error that was raised on purpose; others are raised again."""
    if isinstance(error, ApiError):
        return error_response(error.status, error.code, error.message, error.fix)
    if isinstance(error, Forbidden):
        return error_response(403, "forbidden", str(error), error.fix)
    if isinstance(error, ConfigError):
        return error_response(400, "bad_request", f"{error.path}: {error.problem}", error.fix)
    if isinstance(error, InputError):
        return error_response(400, "bad_request", f"{error.where}: {error.problem}", error.fix)
    if isinstance(error, StoreError):
        return error_response(503, "store_unavailable", str(error), **{"Retry-After": "5"})
    if isinstance(error, GustfrontError):
        return error_response(500, "failed", str(error))
    raise error


@dataclass(frozen=True)
class Endpoint:
    """One method on one path. ``function`` reads the store or writes to it; it runs in a worker thread and gets the request,
    whose ``state.body`` is the checked body where there is a ``body`` model. It returns what is sent as JSON, or a response.

    ``answer`` is the JSON schema of the answer. ``role`` is the least a person needs, ``scope`` what a token needs besides.
    """

    method: str
    path: str
    function: Callable[[Request], Answer | Response]
    summary: str
    answer: Schema
    scope: str
    role: Role = "viewer"
    parameters: tuple[Schema, ...] = ()
    body: type[BaseModel] | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    media_types: tuple[str, ...] = ("application/json",)
    action: str = ""
    """What the audit log calls it; "" for a path that ends in a verb (``…/{id}/note``), or method and path."""

    def route(self) -> Route:
        """For Starlette."""
        return Route(self.path, self._endpoint, methods=[self.method])

    async def _endpoint(self, request: Request) -> Response:
        try:
            who = principal_of(request)
            writes = self.method not in ("GET", "HEAD")
            try:
                allow(who, self.role, self.scope)
            except Forbidden:
                if writes:
                    await anyio.to_thread.run_sync(_note, request, self.logged_as, who, False)
                raise
            if self.body is not None:
                request.state.body = await _body(request, self.body)
            if writes:  # first the line in the log, then the act: what cannot be logged is not done
                await anyio.to_thread.run_sync(_note, request, self.logged_as, who, True)
            made = await anyio.to_thread.run_sync(self.function, request)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return as_error(error)
        return made if isinstance(made, Response) else JSONResponse(made, status_code=self.status)

    @property
    def logged_as(self) -> str:
        """The action in the audit log."""
        verb = re.search(r"\}/(\w+)$", self.path)
        return self.action or (verb[1] if verb else f"{self.method} {self.path}")

    def described(self) -> Schema:
        """The operation for OpenAPI."""
        content = {kind: {"schema": self.answer} for kind in self.media_types}
        answers: Schema = {str(self.status): {"description": "Done.", "content": content}}
        usual = {400, 401, 403, 429, 503, *self.errors}
        usual |= {404} if "{" in self.path else set()
        usual |= {413, 415} if self.body is not None else set()
        error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        answers |= {str(s): {"description": STATUSES[s], "content": error} for s in sorted(usual)}
        inside = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)", self.path)
        ]
        told: Schema = {
            "operationId": f"{self.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', self.path.removeprefix('/api/v1')).rstrip('_')}",
            "summary": self.summary,
            "description": f"Least role: {self.role}. Scope of a token: {self.scope or 'any'}.",
            "security": [{}, {"token": []}],
            "parameters": [*inside, *self.parameters],
            "responses": answers,
        }
        if self.body is not None:
            schema = {"$ref": f"#/components/schemas/{self.body.__name__}"}
            told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        return told


def _note(request: Request, action: str, who: Principal, allowed: bool) -> None:
    body = getattr(request.state, "body", None)
    given = body.model_dump(mode="json", exclude_none=True) if isinstance(body, BaseModel) else {}
    detail = {k: v[:_DETAIL] if isinstance(v, str) else v for k, v in given.items()}
    audit.record(
        writing_store(),
        who,
        action,
        ", ".join(str(v) for v in request.path_params.values()),
        origin=origin_of(request),
        allowed=allowed,
        detail=detail,
    )


async def _body(request: Request, model: type[BaseModel]) -> BaseModel:
    """The checked body; ApiError (400, 413, 415). A form, which any web page can send, is not taken."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise ApiError(
            415,
            "bad_content_type",
            f"content type {given[:60] or '(none)'} is not taken",
            "send application/json",
        )
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise ApiError(413, "too_long", f"the body is longer than {MAX_BODY} bytes", "send less")
    try:
        return model.model_validate_json(bytes(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        known = ", ".join(model.model_fields)
        raise ApiError(
            400, "bad_request", f"{where}: {first['msg'][:300]}", f"the body has: {known}"
        ) from None


def query(name: str, description: str, *, required: bool = False, **schema: Any) -> Schema:
    """A query parameter for OpenAPI."""
    told: Schema = {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": "string", **schema},
    }
    return {**told, "required": True} if required else told


PAGED = (
    query("limit", "At most so many.", type="integer", minimum=1, maximum=MAX_PAGE, default=PAGE),
    query("cursor", "Where the page before ended: its `next`."),
)
"""Parameters of a list that is given in pages."""


def list_of(name: str, item: str, *, paged: bool = False) -> Schema:
    """An object with one list; ``next`` is the cursor of the page after, null on the last."""
    many: Schema = {"type": "array", "items": {"$ref": f"#/components/schemas/{item}"}}
    told: Schema = {"type": "object", "required": [name], "properties": {name: many}}
    if paged:
        told["properties"]["next"] = nullable("string")
        told["required"] = [name, "next"]
    return told


def nullable(kind: str, **more: Any) -> Schema:
    """That, or null."""
    return {"type": [kind, "null"], **more}


def ref(name: str) -> Schema:
    """A component."""
    return {"$ref": f"#/components/schemas/{name}"}


def limit_of(request: Request) -> int:
    """``limit`` of the query; ConfigError unless it is 1 to 1000."""
    text = request.query_params.get("limit", str(PAGE))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_PAGE:
        raise ConfigError("limit", f"must be a whole number from 1 to {MAX_PAGE}", "leave it out", text[:40])
    return int(text)


def encode_cursor(key: Sequence[str | int | float]) -> str:
    """An opaque word for the place after ``key``."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def decode_cursor(text: str, like: Sequence[type]) -> tuple[Any, ...]:
    """The key in a cursor, whose parts have the types ``like``; ConfigError where it was made by nobody or by another list."""
    try:
        key = json.loads(base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
        if not isinstance(key, list) or [type(k) for k in key] != list(like):
            raise ValueError
    except (ValueError, binascii.Error):
        raise ConfigError("cursor", "is not one of this list", "take `next` of the page before") from None
    return tuple(key)


def page(
    items: Sequence[Item], key: Callable[[Item], tuple[Any, ...]], request: Request
) -> tuple[list[Item], str | None]:
    """The items after the query's cursor, at most ``limit``, and the cursor of the next page. ``items`` are sorted by ``key``,
    ascending, and keys are unique: then nothing is given twice or left out while the list grows."""
    limit = limit_of(request)
    cursor = request.query_params.get("cursor")
    if cursor is not None:
        if not items:
            return [], None
        after = decode_cursor(cursor, [type(k) for k in key(items[0])])
        items = [i for i in items if key(i) > after]
    found = list(items[:limit])
    return found, encode_cursor(key(found[-1])) if len(items) > limit else None
