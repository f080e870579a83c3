"""A small real HTTP server that answers, or misbehaves, as a test says."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    """One request: path, query parameters (first values), headers."""

    path: str
    params: dict[str, str]
    headers: dict[str, str]


Behaviour = Callable[[BaseHTTPRequestHandler, Asked], None]


@dataclass
class Script:
    """What the server does: ``behave`` for each request. ``asked`` is what it was asked so far; ``over`` ends its waits."""

    url: str
    behave: Behaviour
    asked: list[Asked] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def queries(self) -> list[str]:
        """The PromQL it was asked."""
        return [a.params["query"] for a in self.asked if "query" in a.params]


def reply(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "application/json", **headers: str
) -> None:
    """A complete answer."""
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def matrix(series: list[dict[str, Any]], **more: Any) -> bytes:
    """A successful reply to a range query."""
    return json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": series}, **more}
    ).encode()


def says(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Behaviour:
    """Always that answer."""
    return lambda handler, asked: reply(handler, status, body, kind, **headers)


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One behaviour a request; the last one stays."""
    left = list(behaviours)

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(handler, asked)

    return behave


def hangs(script: Callable[[], Script]) -> Behaviour:
    """Take the request and say nothing until the test is over."""
    return lambda handler, asked: void(script().over.wait(30))


def drips(script: Callable[[], Script], every: float = 0.05) -> Behaviour:
    """Send a byte now and then, never an end."""

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not script().over.is_set():
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(every)

    return behave


def breaks_off(body: bytes) -> Behaviour:
    """Promise more bytes than are sent."""

    def behave(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body) + 1000))
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def void(_: object) -> None:
    """Turn an expression into a statement."""


@contextmanager
def scripted(behave: Behaviour | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[Script]:
    """Run the server on a loopback port; ``script.behave`` may be changed at any time. With ``tls`` it is an HTTPS server."""
    script = Script("", behave or says(200, matrix([])))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            params = {k: v[0] for k, v in parse_qs(parts.query).items()}
            asked = Asked(parts.path, params, {k.lower(): v for k, v in self.headers.items()})
            script.asked.append(asked)
            try:
                script.behave(self, asked)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that breaks off a handshake is what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    script.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        script.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
