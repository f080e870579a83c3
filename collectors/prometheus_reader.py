"""Reads a stretch of time from a server in windows bounded by the number of samples, and ahead of whoever uses them.

How long a window may be is learnt: from the samples per second seen so far, and from the server's refusals (``422`` too many
samples, time-outs), which halve it. What fails for the moment is tried again after a growing wait; what fails for good is raised.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from collectors.prometheus_client_guard import PrometheusClient, RawAnswer, any_of
from collectors.prometheus_series import Window, decode
from core.errors import SourceError
from core.records import Problem

WANTED_SAMPLES = 120_000
MOST_SAMPLES = 3_000_000
LEAST_SCRAPES = 8
"""Windows hold this many scrapes even of large fleets, since labels are sent once a window."""
TRY_LONGER = 20
"""Windows taken without refusal after which a longer one is tried."""
WAITS = (0.5, 2.0, 5.0)
"""Seconds between tries."""
TOO_BIG = frozenset({"http_422", "http_413", "too_large", "timeout", "error_timeout", "error_execution"})
PASSING = frozenset(
    {
        "refused",
        "dns",
        "truncated",
        "timeout",
        "bad_json",
        "error_timeout",
        "error_unavailable",
        "http_408",
        "http_429",
        "http_500",
        "http_502",
        "http_503",
        "http_504",
    }
)
UP_TRIES = 3
JOBS_AT_ONCE = 50


@dataclass
class Reader:
    """Windows of one source; ``requests`` counts queries. ``stop`` ends waiting early.

    With ``hurry`` a time-out is raised at once, and the window is shorter when asked again.
    """

    client: PrometheusClient
    selector: str
    every: float
    stop: threading.Event = field(default_factory=threading.Event)
    waits: tuple[float, ...] = field(default_factory=lambda: WAITS)
    hurry: bool = False
    requests: int = 0
    _rate: float | None = None
    _longest: float = float("inf")
    _taken: int = 0
    _without_up: dict[str, int] = field(default_factory=dict)

    def windows(self, start: float, end: float) -> Iterator[Window]:
        """Windows that together cover ``[start, end)``, in order, each decoded.

        A window that the server refuses however short comes back empty with the problem ``window_refused``. SourceError when
        the server fails for good or for longer than all waits.
        """
        at = start
        while at < end and not self.stop.is_set():
            upto = min(end, at + self._span())
            window = self._window(at, upto)
            seconds = window.end - window.start
            if window.samples and seconds >= self.every:
                self._rate = window.samples / seconds
            self._taken += 1
            if self._taken % TRY_LONGER == 0:
                self._longest *= 1.5  # a server that was short of memory once may not be now
            yield window
            at = window.end

    def _span(self) -> float:
        shortest = LEAST_SCRAPES * self.every
        if self._rate is None:
            return min(shortest, self._longest)
        wanted = max(WANTED_SAMPLES / self._rate, min(shortest, MOST_SAMPLES / self._rate))
        # Whole intervals, so that windows hold the same number of scrapes.
        wanted = max(1.0, round(wanted / self.every)) * self.every
        return max(self.every, min(wanted, self._longest))

    def _window(self, start: float, end: float) -> Window:
        """The window from ``start`` to ``end``, or a shorter one where the server refuses that much."""
        while True:
            try:
                answer = self._patiently(start, end)
                break
            except SourceError as error:
                if error.kind not in TOO_BIG:
                    raise
                if end - start > self.every:
                    slow = error.kind in ("timeout", "error_timeout")
                    self._longest, self._taken = max(self.every, (end - start) / (4 if slow else 2)), 0
                    if slow and self.hurry:
                        raise
                    end = start + self._longest
                    continue
                if error.kind in PASSING:
                    raise
                problem = Problem(
                    start,
                    self.client.name,
                    "window_refused",
                    "query",
                    f"Samples of {end - start:g} s could not be read and are missing: {error.problem}",
                    error.fix or "Narrow the selector.",
                )
                return Window(start, end, {}, [problem], 0)
        return decode(
            [answer],
            start,
            end,
            source=self.client.name,
            drop_labels=self.client.cfg.drop_labels,
            ups=self._ups(answer, start, end),
        )

    def _patiently(self, start: float, end: float) -> RawAnswer:
        """One query, tried again while the failure may pass; partial answers are tried again once."""
        again = 0
        while True:
            self.requests += 1
            try:
                answer = self.client.samples(self.selector, start, end)
                if not answer.warnings or again:
                    return answer
            except SourceError as error:
                splits = error.kind in TOO_BIG and end - start > self.every
                # A time-out has cost its time already: it gets one try less.
                tries = len(self.waits) - (error.kind == "timeout")
                if error.kind not in PASSING or splits or again >= tries:
                    raise
            if self.stop.wait(self.waits[again] if again < len(self.waits) else 0.0):
                raise SourceError(self.client.name, "stopped", "was not asked again: stopping")
            again += 1

    def _ups(self, answer: RawAnswer, start: float, end: float) -> list[RawAnswer]:
        """``up`` of the jobs for which the selector left it out: it alone tells down from silent."""
        jobs: set[str] = set()
        have: set[str] = set()
        for s in answer.series:
            job = s.labels.get("job", "")
            jobs.add(job)
            if s.labels.get("__name__") == "up":
                have.add(job)
        ask = sorted(j for j in jobs - have if j and self._without_up.get(j, 0) < UP_TRIES)
        out: list[RawAnswer] = []
        for i in range(0, len(ask), JOBS_AT_ONCE):
            some = ask[i : i + JOBS_AT_ONCE]
            self.requests += 1
            got = self.client.samples("up{" + any_of("job", some) + "}", start, end)
            found = {s.labels.get("job", "") for s in got.series}
            for job in some:
                self._without_up[job] = 0 if job in found else self._without_up.get(job, 0) + 1
            out.append(got)
        return out


def ahead(windows: Iterator[Window], stop: threading.Event, depth: int = 1) -> Iterator[Window]:
    """The same windows, read in a thread of their own while the caller works on the one before.

    An error of the reading thread is raised here, after the windows before it. Leaving the loop early sets ``stop``.
    """
    pipe: queue.Queue[Window | BaseException | None] = queue.Queue(maxsize=depth)

    def put(item: Window | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                pipe.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for window in windows:
                if not put(window):
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=read, name="prometheus-reader", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = pipe.get(timeout=0.2)
            except queue.Empty:
                if not thread.is_alive() and pipe.empty():
                    return  # told to stop
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
