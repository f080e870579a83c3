"""The one ASGI application: screens at ``/``, REST under ``/api/v1``, health and metrics beside them, on one port.

``uvicorn app.asgi:app`` from any folder; the configuration comes from ``$GUSTFRONT_CONFIG`` and ``$GUSTFRONT_DATABASE``.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from app.api import exception_handlers, routes
from app.gate import Gate
from app.oidc import routes as oidc_routes
from app.oidc import streamlit_secrets
from app.storage import configuration
from core.errors import ConfigError, EnvironmentProblem

SCRIPT = Path(__file__).resolve().parent / "streamlit_app.py"

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?")


def content_policy(host: str) -> str:
    """What a page may load: nothing from any other host, whatever text ends up on it. Streamlit needs inline styles and eval."""
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""
    return (
        "default-src 'self'; img-src 'self' data: blob:; font-src 'self' data:; style-src 'self' 'unsafe-inline'; "
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; object-src 'none'; "
        f"base-uri 'self'; frame-ancestors 'self'; connect-src 'self'{sockets}"
    )


class SafeHeaders(BaseHTTPMiddleware):
    """Headers that Streamlit leaves out."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if response.headers.get("content-type", "").startswith("text/html"):
            response.headers.setdefault(
                "Content-Security-Policy", content_policy(request.headers.get("host", ""))
            )
        return response


def _check_proxy_headers() -> None:
    """EnvironmentProblem where uvicorn would put an address from ``X-Forwarded-For`` in place of the proxy's own."""
    try:
        mode = configuration().auth.mode
    except ConfigError:
        return
    if mode == "proxy" and os.environ.get("FORWARDED_ALLOW_IPS") != "":
        raise EnvironmentProblem(
            "auth: mode proxy needs to see the proxy's own address. Fix: start with `gustfront serve`, or set "
            "FORWARDED_ALLOW_IPS to nothing"
        )


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[dict[str, Any]]:
    """Import what the first page needs before the first visitor, and close the stores at the end."""
    _check_proxy_headers()
    from app.services.intake import close_intake
    from app.storage import forget_stores
    from app.warm_up import warm_up

    await anyio.to_thread.run_sync(warm_up)
    yield {}
    close_intake()
    forget_stores()


def _secrets() -> dict[str, Any] | None:
    """Settings of the sign-in. A configuration that is wrong has none; the pages say what is wrong with it."""
    try:
        return streamlit_secrets(configuration().auth)
    except ConfigError:
        return None


app = st.App(
    SCRIPT,
    routes=[*oidc_routes(), *routes()],
    lifespan=lifespan,
    middleware=[Middleware(SafeHeaders), Middleware(Gate)],
    secrets=_secrets(),
    exception_handlers=exception_handlers(),
)
