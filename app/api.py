"""REST beside the screens: health, metrics, the description, and the modules of ``/api/v1``. JSON out, one shape for every error.
What can be sent in bulk is in :mod:`app.api_intake`.

A part of the API is a module with ``ENDPOINTS`` and ``SCHEMAS`` (see :mod:`app.api_parts`); add it to ``MODULES``, and
its routes, their roles and scopes, and their descriptions are there. An error is ``{"error": {"code", "message", "fix"}}``
with a 4xx or 5xx status. Times in answers are ISO 8601 in UTC; times in queries are ISO 8601 or Unix seconds; ranges are
half open.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import anyio
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app import (
    api_deliveries,
    api_events,
    api_incidents,
    api_intake,
    api_people,
    api_read,
    api_silences,
    api_slos,
)
from app.api_metrics import render_metrics
from app.api_parts import Endpoint, Schema, as_error, error_response
from app.auth import principal_of
from app.openapi import document
from app.services.people import Forbidden, allow
from app.storage import shared_store
from core.errors import ConfigError, GustfrontError


class ApiModule(Protocol):
    """A part of the API."""

    ENDPOINTS: tuple[Endpoint, ...]
    SCHEMAS: dict[str, Schema]


MODULES: tuple[ApiModule, ...] = (
    api_read,
    api_incidents,
    api_silences,
    api_slos,
    api_people,
    api_deliveries,
    api_events,
)


def endpoints() -> list[Endpoint]:
    """All endpoints of all modules."""
    return [one for module in MODULES for one in module.ENDPOINTS]


async def healthz(_: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


async def readyz(_: Request) -> Response:
    """The database can be read."""

    def ask() -> dict[str, Any]:
        store = shared_store()
        return {"status": "ready", "revision": store.ping()["revision"], "newest": store.newest()}

    try:
        return JSONResponse(await anyio.to_thread.run_sync(ask))
    except ConfigError as error:
        return error_response(503, "bad_configuration", str(error), error.fix)
    except GustfrontError as error:
        return error_response(503, "store_unavailable", str(error))


async def metrics(request: Request) -> Response:
    """Gustfront's own state in Prometheus text format."""
    try:
        allow(principal_of(request), "viewer", "metrics:read")
    except Forbidden as error:
        return as_error(error)
    body = await anyio.to_thread.run_sync(lambda: render_metrics(shared_store, time.time()))
    return Response(body, media_type=CONTENT_TYPE_LATEST)


async def openapi(_: Request) -> Response:
    """The description of this API."""
    schemas = {name: schema for module in MODULES for name, schema in module.SCHEMAS.items()}
    return JSONResponse(document(endpoints(), schemas))


async def unknown(request: Request) -> Response:
    """Any other path under /api, and any other method."""
    fix = "see /api/v1/openapi.json"
    known = {m for r in _described() if r.path_regex.match(request.url.path) for m in r.methods or ()}
    if known:
        allowed = ", ".join(sorted(known))
        message = f"{request.method} is not supported here, but {allowed}"
        return error_response(405, "method_not_allowed", message, fix, Allow=allowed)
    return error_response(404, "not_found", f"no such resource: {request.url.path}", fix)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own errors, in our shape under /api and as plain text elsewhere."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "internal error"
    if request.url.path.startswith("/api"):
        code = {404: "not_found", 405: "method_not_allowed"}.get(status, "failed")
        return error_response(status, code, str(detail))
    return PlainTextResponse(str(detail), status_code=status)


def exception_handlers() -> dict[Any, Any]:
    """Handlers for errors outside our routes."""
    return {HTTPException: on_http_error}


def _described() -> list[Route]:
    return [
        Route("/api/v1/openapi.json", openapi),
        *(one.route() for one in endpoints()),
        *api_intake.routes(),
    ]


def routes() -> list[Route]:
    """All routes, before Streamlit's own."""
    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *_described(),
        Route("/api/{path:path}", unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]
