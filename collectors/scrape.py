"""Direct scraping of one target: each failure named and recorded, none costing another target.

When a target's slot comes, :meth:`TargetScraper.fire` asks it over the kept connection and everything else happens
in callbacks: read the numbers, hand a reading on. What is unusual (a first scrape, a new connection, an error, a
redirect, a very large body) runs step by step in a task. A failed scrape is recorded as ``up`` = False each
interval; after ten failures in a row the target is only *contacted* once a minute. Answers are not asked to be
compressed (that costs the engine more than the network saves) but are understood when they are.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin, urlsplit

import numpy as np
import orjson

from collectors.bodies import BodyReader, BodyTools
from collectors.discovery import Endpoint
from collectors.http_parts import Response, WireError, get_request
from collectors.scrape_access import FIXES, ScrapeFailure, Token
from collectors.selfmetrics import SelfMetrics
from collectors.slots import Gathering
from collectors.wire import Session
from core.config_models import ScrapeSource
from core.frames import Layout, Reading, Target
from core.records import Problem

log = logging.getLogger(__name__)

ACCEPT = "text/plain;version=0.0.4"
AGENT = "gustfront"
BACKOFF_AFTER = 10
BACKOFF_SECONDS = 60.0
INLINE_BYTES = 256 * 1024
"""Larger bodies are read in a thread: they would hold up the other targets."""
VERSION_OF = frozenset({"vllm", "sglang"})
"""Components that answer ``GET /version`` and do not export their version."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_EMPTY = Layout(())
_NO_FLOATS = np.empty(0)
_NO_COUNTS = np.empty(0, np.int64)


class TargetScraper:
    """Scrapes one endpoint whenever :meth:`fire` is called. ``emit`` and ``problem`` take what comes out."""

    def __init__(
        self,
        endpoint: Endpoint,
        source: ScrapeSource,
        tools: BodyTools,
        *,
        emit: Callable[[Reading], None],
        problem: Callable[[Problem], None],
        metrics: SelfMetrics,
        tls: ssl.SSLContext | None,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.endpoint, self.source = endpoint, source
        self._emit, self._problem, self._metrics, self._pool = emit, problem, metrics, pool
        parts = urlsplit(endpoint.url)
        self._origin = (
            parts.scheme,
            parts.hostname or "",
            parts.port or (443 if parts.scheme == "https" else 80),
        )
        self._host_header = parts.netloc
        self._path = self._start_path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._session = Session(self._origin[1], self._origin[2], tls if parts.scheme == "https" else None)
        self._token = Token(source.token_file)
        self._known: tuple[str, str, bytes | None] = ("", "", None)
        self._reader = BodyReader(tools, tools.target(endpoint, source.name or "scrape"), source)
        self._version: str | None = None
        self._started: float | None = None
        self.failures = 0
        self.up: bool | None = None
        self._contact_at = 0.0
        self._asked_at: float | None = None
        self._begin = 0.0
        self._task: asyncio.Task[None] | None = None
        self._together: Gathering | None = None

    @property
    def target(self) -> Target:
        """The target as far as it is known now."""
        return self._reader.target

    def fire(self, t: float, together: Gathering) -> bool:
        """Begin the scrape that is due at ``t``; True if it now only waits for its answer, to be given up with :meth:`expire`.

        In the steady state (kept connection, known body) everything happens in callbacks, without a task, and values become
        readings ``together`` with those of other targets; whatever is unusual goes to :meth:`scrape`.
        """
        if self._asked_at is not None or (self._task is not None and not self._task.done()):
            self._metrics.missed.inc()
            return False
        request = None if self._reader.fresh or self.failures else self._request(self._path)
        if request is None or not self._session.ready:
            self._task = asyncio.get_running_loop().create_task(self.scrape(t))
            return False
        self._asked_at, self._begin, self._together = round(t, 3), time.perf_counter(), together
        together.expect()
        self._session.ask(request, self.source.max_bytes, self._answered)
        return self._asked_at is not None

    def _answered(self, outcome: Response | WireError) -> None:
        t, self._asked_at = self._asked_at, None
        if t is None or self._together is None:
            return
        if isinstance(outcome, Response) and outcome.status == 200 and len(outcome.body) <= INLINE_BYTES:
            try:
                values, problems = self._reader.values(outcome.body, t)
                self._note(problems, values is not None, outcome.body)
                assert values is not None
            except Exception as error:
                self._together.miss()
                self._failed(error, t)
                return

            def done(reading: Reading | Exception) -> None:
                if isinstance(reading, Exception):
                    self._failed(reading, t)
                else:
                    self._succeeded(reading)

            self._together.add(self._reader, values, t, done)
            return
        self._together.miss()
        if isinstance(outcome, Response):
            self._task = asyncio.get_running_loop().create_task(self.scrape(t, outcome))
        elif outcome.kind == "reset":  # the server closed the kept connection: not a failure
            self._task = asyncio.get_running_loop().create_task(self.scrape(t))
        else:
            self._failed(outcome, t)

    def expire(self, t: float) -> None:
        """Give up on the scrape of ``t`` if its answer is not there yet."""
        if self._asked_at == round(t, 3):
            self._asked_at = None
            self._session.close()
            if self._together is not None:
                self._together.miss()
            text = f"no complete answer within {self.source.timeout:g} s"
            self._failed(WireError("timeout", text), round(t, 3))

    def close(self) -> None:
        """Drop the connection and what is under way."""
        self._asked_at = None
        if self._task is not None:
            self._task.cancel()
        self._session.close()

    async def scrape(self, t: float, response: Response | None = None) -> None:
        """One scrape at ``t``, step by step, from ``response`` on where there is one. A reading is emitted in any case."""
        t, self._begin = round(t, 3), time.perf_counter()
        try:
            if self.failures >= BACKOFF_AFTER and t < self._contact_at:
                raise ScrapeFailure("backing_off", "")
            self._contact_at = t + BACKOFF_SECONDS - self.source.every / 2
            body = await self._fetch(response)
            if len(body) > INLINE_BYTES:
                loop = asyncio.get_running_loop()
                reading, problems = await loop.run_in_executor(self._pool, self._reader.read, body, t)
            else:
                reading, problems = self._reader.read(body, t)
            self._note(problems, reading is not None, body)
            assert reading is not None
        except Exception as error:
            self._failed(error, t)
            return
        self._succeeded(reading, ask=False)
        if self._wants_version:
            await self._ask_version()

    def _note(self, problems: list[Problem], readable: bool, body: bytes) -> None:
        for problem in problems:
            self._problem(problem)
        if not readable:
            text = body[:60].decode("utf-8", "replace")
            raise ScrapeFailure("no_metrics", f"the answer holds no metrics; it begins with {text!r}")

    def _succeeded(self, reading: Reading, *, ask: bool = True) -> None:
        if reading.start != self._started:  # another process answers: it may be another version
            self._started, self._version = reading.start, None
        self.failures = 0
        self.up = True
        self._metrics.scraped(time.perf_counter() - self._begin)
        self._emit(reading)
        if ask and self._version is None and self._wants_version:
            self._task = asyncio.get_running_loop().create_task(self._ask_version())

    @property
    def _wants_version(self) -> bool:
        return self._version is None and bool(self._reader.unversioned & VERSION_OF)

    def _failed(self, error: Exception, t: float) -> None:
        self.up = False
        if isinstance(error, ScrapeFailure | WireError):
            kind, message = error.kind, str(error)
        else:  # a bug or a body we did not foresee: it costs this target one scrape
            log.error("scraping %s failed unexpectedly", self.endpoint.url, exc_info=error)
            kind, message = "internal", f"{type(error).__name__}: {error}"
        if kind != "backing_off":
            self.failures += 1
            self._version = None
            self._tell(kind, message)
        self._metrics.scrapes.labels(kind).inc()
        self._emit(Reading(self._reader.target, t, _EMPTY, _NO_FLOATS, _NO_COUNTS, _NO_FLOATS, up=False))

    async def _fetch(self, response: Response | None = None) -> bytes:
        if response is None:
            response = await self._get(self._path)
        for _ in range(3):
            if response.status not in REDIRECTS:
                break
            self._path = self._redirected(response)
            response = await self._get(self._path)
        if response.status != 200:
            self._path = self._start_path
            raise ScrapeFailure("http_error", f"the target answered HTTP {response.status}")
        return response.body

    async def _get(self, path: str, timeout: float | None = None) -> Response:
        request = self._build(path, self._token.value())
        if path == self._path:
            self._known = (path, self._token.last, request)
        return await self._session.get(
            request, timeout=timeout or self.source.timeout, limit=self.source.max_bytes
        )

    def _request(self, path: str) -> bytes | None:
        """The request as sent before, None where path or token have changed since."""
        try:
            return self._known[2] if self._known[:2] == (path, self._token.value()) else None
        except ScrapeFailure:
            return None

    def _build(self, path: str, token: str) -> bytes:
        headers = {
            "Accept": ACCEPT,
            "Accept-Encoding": "identity",
            "User-Agent": AGENT,
            "X-Prometheus-Scrape-Timeout-Seconds": f"{self.source.timeout:g}",
        }
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            return get_request(self._host_header, path, headers)
        except ValueError as error:
            raise ScrapeFailure("http_error", str(error)) from None

    def _redirected(self, response: Response) -> str:
        """The path to ask instead; only within the same scheme, host and port."""
        where = urljoin(self.endpoint.url, response.headers.get("location", ""))
        try:
            parts = urlsplit(where)
            origin = (
                parts.scheme,
                parts.hostname or "",
                parts.port or (443 if parts.scheme == "https" else 80),
            )
        except ValueError:
            raise ScrapeFailure(
                "redirect", f"the target redirects to something that is no URL: {where[:200]!r}"
            ) from None
        if origin != self._origin:
            raise ScrapeFailure(
                "redirect", f"the target redirects to another server, {where[:200]!r}; this is not followed"
            )
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def _tell(self, kind: str, message: str) -> None:
        self._problem(
            Problem(
                time.time(),
                self.source.name or "scrape",
                f"scrape_{kind}",
                self.endpoint.address,
                message[:1].upper() + message[1:500] + ".",
                FIXES.get(kind, ""),
            )
        )

    async def _ask_version(self) -> None:
        """Ask the engine its version once per process start; whatever goes wrong is harmless."""
        self._version = ""
        try:
            response = await self._get(
                "/version", timeout=min(3.0, self.source.timeout, self.source.every / 4)
            )
            if response.status == 200 and len(response.body) < 4096:
                answer = orjson.loads(response.body)
                found = answer.get("version") if isinstance(answer, dict) else None
                if (
                    isinstance(found, str)
                    and 0 < len(found) <= 64
                    and found.isascii()
                    and found.isprintable()
                ):
                    self._version = found
        except (ScrapeFailure, WireError, orjson.JSONDecodeError):
            pass
        self._reader.set_version(self._version)
