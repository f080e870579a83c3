"""Direct scraping: each target at its own phase of the interval, each failure named, none costing another target.

A target is scraped by one task: wait for its time, GET, read the numbers, hand a reading on. Its phase is a
stable hash of its address, so that five hundred targets spread over the interval and keep their rhythm across
restarts. A failed scrape is recorded as ``up`` = False each interval; after ten failures in a row the target is
only *contacted* once a minute. Answers are not asked to be compressed (that costs the engine more than the
network saves) but are understood when they are.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import numpy as np
import orjson

from collectors.bodies import BodyReader, BodyTools
from collectors.discovery import Endpoint
from collectors.selfmetrics import SelfMetrics
from collectors.wire import Response, Session, WireError, get_request
from core.config_models import ScrapeSource
from core.frames import Layout, Reading, Target
from core.records import Problem

log = logging.getLogger(__name__)

ACCEPT = "text/plain;version=0.0.4"
AGENT = "gustfront"
BACKOFF_AFTER = 10
BACKOFF_SECONDS = 60.0
INLINE_BYTES = 256 * 1024
"""Larger bodies, and the first one of each target, are read in a thread: they would hold up the other targets' timers."""
VERSION_OF = frozenset({"vllm", "sglang"})
"""Components that answer ``GET /version`` and do not export their version."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_EMPTY = Layout(())
_NO_FLOATS = np.empty(0)
_NO_COUNTS = np.empty(0, np.int64)

FIXES = {
    "refused": "Start the engine, or correct host and port; some engines export metrics only with a flag.",
    "unreachable": "Check address, network and firewall.",
    "dns": "Correct the host name, or the resolver of this machine.",
    "timeout": "Look whether the engine is overloaded or hung; raise `timeout` of the source if its answers are slow but good.",
    "too_large": "Drop families at the engine, or raise `max_bytes` of the source.",
    "truncated": "Look at the engine's log and at proxies on the way.",
    "reset": "Look at the engine's log and at proxies on the way; http against an https port looks like this too.",
    "bad_http": "Check that host and port belong to an HTTP server and whether the scheme is https.",
    "bad_encoding": "Make the server or proxy answer uncompressed or with gzip.",
    "tls": "Give the right host name and certificate authority, or set `insecure: true` for this source.",
    "http_error": "Check the path (`path` of the source or in the address) and the token.",
    "redirect": "Give the final address in the configuration: redirects to other servers are not followed.",
    "no_metrics": "Point the target at the metrics path, usually /metrics.",
    "internal": "Please report this with the target's /metrics text.",
}


class ScrapeFailure(Exception):
    """One scrape failed; ``kind`` is a key of ``FIXES``."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


def phase(key: str, every: float) -> float:
    """A stable offset in ``[0, every)`` seconds for a target."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64 * every


def next_due(now: float, every: float, offset: float) -> float:
    """The first time after ``now`` that is ``offset`` seconds into an interval."""
    due = math.floor((now - offset) / every) * every + offset
    while due <= now:
        due += every
    return due


class Token:
    """A bearer token in a file, read again when the file changes."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._value = ""

    def value(self) -> str:
        """The token, "" without a file. Raises ScrapeFailure when the file cannot be read."""
        if self._path is None:
            return ""
        try:
            stat = Path(self._path).stat()
            if (version := (stat.st_mtime_ns, stat.st_size)) != self._version:
                self._value = Path(self._path).read_text("utf-8").strip()
                self._version = version
        except (OSError, UnicodeDecodeError) as error:
            raise ScrapeFailure(
                "http_error", f"the token file {self._path} cannot be read: {error}"
            ) from None
        return self._value


def tls_context(source: ScrapeSource) -> ssl.SSLContext:
    """The TLS settings of a source."""
    context = ssl.create_default_context()
    if source.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class TargetScraper:
    """Scrapes one endpoint until cancelled. ``emit`` and ``problem`` take what comes out."""

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
        self._requests: dict[tuple[str, str], bytes] = {}
        self._reader = BodyReader(tools, tools.target(endpoint, source.name or "scrape"), source)
        self._version: str | None = None
        self._version_of: float | None = None
        self.failures = 0
        self.up: bool | None = None
        self._contact_at = 0.0

    @property
    def target(self) -> Target:
        """The target as far as it is known now."""
        return self._reader.target

    async def run(self) -> None:
        """Scrape at each due time, for ever."""
        every = self.source.every
        offset = phase(self.endpoint.key, every)
        try:
            due = next_due(time.time(), every, offset)
            while True:
                await asyncio.sleep(max(0.0, due - time.time()))
                begin = time.time()
                late = begin - due
                if late > every:
                    self._metrics.missed.inc(int(late // every))
                self._metrics.late.set(max(0.0, late))
                await self.scrape(begin)
                # From ``due``, not from the clock: a timer that fires a little early must not scrape twice; a clock that was
                # set back must not stop the target.
                now = time.time()
                due = next_due(max(now, due) if now > due - every else now, every, offset)
        finally:
            self._session.close()

    async def scrape(self, t: float) -> Reading:
        """One scrape at ``t``; whatever happens, a reading is emitted and returned."""
        begin = time.perf_counter()
        t = round(t, 3)
        outcome = "ok"
        try:
            if self.failures >= BACKOFF_AFTER and t < self._contact_at:
                raise ScrapeFailure("backing_off", "")
            self._contact_at = t + BACKOFF_SECONDS - self.source.every / 2
            body = await self._fetch()
            reading = await self._read(body, t)
        except (ScrapeFailure, WireError) as error:
            outcome = error.kind
            reading = self._down(t)
            if error.kind != "backing_off":
                self.failures += 1
                self._version = None
                self._tell(error.kind, str(error))
        except Exception as error:  # a bug or a body we did not foresee: it costs this target one scrape
            log.exception("scraping %s failed unexpectedly", self.endpoint.url)
            outcome = "internal"
            self.failures += 1
            reading = self._down(t)
            self._tell("internal", f"{type(error).__name__}: {error}")
        else:
            self.failures = 0
            self._metrics.scrape_seconds.observe(time.perf_counter() - begin)
        self.up = reading.up
        self._metrics.scrapes.labels(outcome).inc()
        self._emit(reading)
        if (
            reading.up
            and self._reader.unversioned & VERSION_OF
            and (self._version is None or reading.start != self._version_of)
        ):
            self._version_of = reading.start
            await self._ask_version()
        return reading

    async def _fetch(self) -> bytes:
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
        token = self._token.value()
        request = self._requests.get((path, token))
        if request is None:
            headers = {
                "Accept": ACCEPT,
                "Accept-Encoding": "identity",
                "User-Agent": AGENT,
                "X-Prometheus-Scrape-Timeout-Seconds": f"{self.source.timeout:g}",
            }
            if token:
                headers["Authorization"] = f"Bearer {token}"
            try:
                request = get_request(self._host_header, path, headers)
            except ValueError as error:
                raise ScrapeFailure("http_error", str(error)) from None
            self._requests = {(path, token): request}
        return await self._session.get(
            request, timeout=timeout or self.source.timeout, limit=self.source.max_bytes
        )

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

    async def _read(self, body: bytes, t: float) -> Reading:
        if self._reader.fresh or len(body) > INLINE_BYTES:
            loop = asyncio.get_running_loop()
            reading, problems = await loop.run_in_executor(self._pool, self._reader.read, body, t)
        else:
            reading, problems = self._reader.read(body, t)
        for problem in problems:
            self._problem(problem)
        if reading is None:
            text = body[:60].decode("utf-8", "replace")
            raise ScrapeFailure("no_metrics", f"the answer holds no metrics; it begins with {text!r}")
        return reading

    def _down(self, t: float) -> Reading:
        return Reading(self._reader.target, t, _EMPTY, _NO_FLOATS, _NO_COUNTS, _NO_FLOATS, up=False)

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
            response = await self._get("/version", timeout=min(3.0, self.source.timeout))
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
