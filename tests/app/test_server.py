"""How ``gustfront serve`` listens."""

from __future__ import annotations

import socket

import pytest
from streamlit.web.server.starlette import starlette_server

from app.server import _without_delay, server_options


def test_small_answers_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this each answer on a kept connection waits 40 ms for the acknowledgement of its own head."""
    monkeypatch.setattr(starlette_server, "_bind_socket", starlette_server._bind_socket)
    _without_delay()
    with starlette_server._bind_socket("127.0.0.1", 0, 5) as listening:
        listening.setblocking(True)
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_nothing_is_asked_of_strangers_and_other_origins_are_refused() -> None:
    options = server_options("0.0.0.0", 8501)
    assert options["browser.gatherUsageStats"] is False
    assert options["logger.hideWelcomeMessage"] is True
    assert options["server.enableXsrfProtection"] is True
    assert options["server.enableCORS"] is True
    assert options["server.enableAgentApi"] is False
