"""REST beside the screens: health, metrics, targets, series, incidents. JSON out, one shape for every error.
What can be sent is in :mod:`app.api_intake`.

An error is ``{"error": {"code", "message", "fix"}}`` with a 4xx or 5xx status. Times in answers are ISO 8601 in UTC; times in
queries are ISO 8601 or Unix seconds; ranges are half open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app import api_intake
from app.api_metrics import render_metrics
from app.openapi import document
from app.services.api_views import incident_json, incidents_json, series_json, targets_json
from app.storage import shared_store
from core.errors import ConfigError, GustfrontError, StoreError

Answer = Mapping[str, Any]


class ApiError(Exception):
    """An error with its HTTP status."""

    def __init__(self, status: int, code: str, message: str, fix: str = "") -> None:
        self.status, self.code, self.message, self.fix = status, code, message, fix
        super().__init__(message)


def error_response(status: int, code: str, message: str, fix: str = "") -> JSONResponse:
    """The one shape."""
    return JSONResponse({"error": {"code": code, "message": message, "fix": fix}}, status_code=status)


def json_route(function: Callable[[Request], Answer]) -> Callable[[Request], Any]:
    """A route that reads the store: runs in a worker thread, errors raised on purpose become answers."""

    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await anyio.to_thread.run_sync(function, request))
        except ApiError as error:
            return error_response(error.status, error.code, error.message, error.fix)
        except ConfigError as error:
            return error_response(400, "bad_request", f"{error.path}: {error.problem}", error.fix)
        except StoreError as error:
            return error_response(503, "store_unavailable", str(error))
        except GustfrontError as error:
            return error_response(500, "failed", str(error))

    return endpoint


def targets(request: Request) -> Answer:
    """Targets, optionally of one pool."""
    return targets_json(shared_store(), request.query_params)


def series(request: Request) -> Answer:
    """One signal over time."""
    return series_json(shared_store(), request.query_params)


def incidents(request: Request) -> Answer:
    """Incidents that touch a range."""
    return incidents_json(shared_store(), request.query_params)


def incident(request: Request) -> Answer:
    """One incident with its log."""
    found = incident_json(shared_store(), request.path_params["id"])
    if found is None:
        raise ApiError(
            404, "not_found", f"no incident {request.path_params['id']}", "list them at /api/v1/incidents"
        )
    return found


async def healthz(_: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


async def readyz(_: Request) -> Response:
    """The database can be read."""

    def ask() -> dict[str, Any]:
        store = shared_store()
        return {"status": "ready", **store.ping(), "newest": store.newest()}

    try:
        return JSONResponse(await anyio.to_thread.run_sync(ask))
    except ConfigError as error:
        return error_response(503, "bad_configuration", str(error), error.fix)
    except GustfrontError as error:
        return error_response(503, "store_unavailable", str(error))


async def metrics(_: Request) -> Response:
    """Gustfront's own state in Prometheus text format."""
    body = await anyio.to_thread.run_sync(lambda: render_metrics(shared_store, time.time()))
    return Response(body, media_type=CONTENT_TYPE_LATEST)


async def openapi(_: Request) -> Response:
    """The description of this API."""
    return JSONResponse(document())


async def unknown(request: Request) -> Response:
    """Any other path under /api, and any other method."""
    if request.method not in ("GET", "HEAD"):
        return error_response(
            405, "method_not_allowed", f"{request.method} is not supported", "see /api/v1/openapi.json"
        )
    return error_response(
        404, "not_found", f"no such resource: {request.url.path}", "see /api/v1/openapi.json"
    )


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


def routes() -> list[Route]:
    """All routes, before Streamlit's own."""
    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/api/v1/openapi.json", openapi),
        Route("/api/v1/targets", json_route(targets)),
        Route("/api/v1/series", json_route(series)),
        Route("/api/v1/incidents", json_route(incidents)),
        Route("/api/v1/incidents/{id}", json_route(incident)),
        *api_intake.routes(),
        Route("/api/{path:path}", unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]
