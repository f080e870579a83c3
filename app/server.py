"""Start the one ASGI application of ``gustfront serve``, with the project's own theme from whatever folder it is started in."""

from __future__ import annotations

import os
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.supervisor import check_port

THEME = Path(__file__).resolve().parent / ".streamlit" / "config.toml"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``{"theme": {"base": "light"}}`` as ``("theme.base", "light")``."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def server_options(host: str, port: int) -> dict[str, Any]:
    """Streamlit's options: the theme file's, then what this start decides. No telemetry leaves, no browser is opened."""
    options = dict(_flat(tomllib.loads(THEME.read_text("utf-8")))) if THEME.is_file() else {}
    return options | {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "browser.gatherUsageStats": False,
        # Streamlit's greeting asks the internet for this machine's own address where it listens on all of them.
        "logger.hideWelcomeMessage": True,
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,  # Streamlit's name for refusing other origins
        "server.enableAgentApi": False,
    }


def _without_delay() -> None:
    """Let Streamlit's listening socket, and so every connection, send small packets at once.

    It makes the socket without naming TCP, asyncio therefore does not switch Nagle's algorithm off, and each answer waits 40 ms
    for the acknowledgement of its own head. A release of Streamlit that binds in another way is left as it is.
    """
    from streamlit.web.server.starlette import starlette_server

    bind = getattr(starlette_server, "_bind_socket", None)
    if bind is None:
        return

    def quick(*args: Any) -> socket.socket:
        bound: socket.socket = bind(*args)
        if bound.family in (socket.AF_INET, socket.AF_INET6):
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound

    setattr(starlette_server, "_bind_socket", quick)  # noqa: B010


def run_server(host: str, port: int) -> None:
    """Serve until a signal. EnvironmentProblem when the port is taken."""
    check_port(host, port)
    # Who sent a request is what it is, not what X-Forwarded-For says: the gate decides whom to believe (auth.proxy).
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    from app.asgi import app

    _without_delay()
    shown = f"[{host}]" if ":" in host else host
    print(f"gustfront: screens and API at http://{shown}:{port}", file=sys.stderr, flush=True)
    app.run(config=server_options(host, port))
