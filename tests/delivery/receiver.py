"""A receiver of the tests: a real HTTP server on the loopback that counts what it is given and can be busy, broken or away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to say: a status, headers, a body."""

    status: int = 200
    body: str = "ok"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Receiver:
    """``taken`` are the requests answered with 2xx, ``seen`` all of them. ``answer`` decides."""

    url: str
    seen: list[Request] = field(default_factory=list)
    taken: list[Request] = field(default_factory=list)
    answer: Callable[[Request], Answer] = lambda _: Answer()

    def items(self) -> list[dict[str, Any]]:
        """Items of the generic webhook, as they were taken."""
        return [i for r in self.taken for i in r.json.get("items", ())]


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """A server until the block ends."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            request = Request(
                self.command,
                self.path,
                {k.lower(): v for k, v in self.headers.items()},
                self.rfile.read(length),
            )
            with lock:
                here.seen.append(request)
                answer = here.answer(request)
                if 200 <= answer.status < 300:
                    here.taken.append(request)
            raw = answer.body.encode()
            self.send_response(answer.status)
            for k, v in {**answer.headers, "Content-Length": str(len(raw))}.items():
                self.send_header(k, v)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_PATCH = _any

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    here = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
