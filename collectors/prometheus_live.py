"""Live reading of a Prometheus-compatible server: every few seconds the raw samples since the last look.

The way from an answer to readings is the same as in back-fill.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from collectors.backfill import failure
from collectors.dictionary import Dictionary
from collectors.prometheus_client_guard import PrometheusClient
from collectors.prometheus_reader import Reader
from collectors.prometheus_select import effective_selector
from collectors.prometheus_series import folded
from collectors.prometheus_targets import TargetBook
from core.classes import ClassRules
from core.config_models import PrometheusSource, SourceConfig
from core.errors import SourceError
from core.frames import Reading
from core.records import Problem
from core.roles import Roles

FIRST_LOOK = 120.0
"""Seconds of history that the very first look takes."""
CATCH_UP = 24 * 3600.0
"""After a longer absence the rest is for back-fill."""
SILENT_AFTER = 5
"""Intervals without any new sample after which the source is called silent."""
SKEW = 5.0
LOOK_FOR_JOBS = 600.0
"""Seconds between looks for new jobs, where no selector is configured."""


class Sink(Protocol):
    """What :meth:`PrometheusLive.step` needs of ``sql.store.Store``."""

    def append(self, readings: Sequence[Reading], *, stream: str = "live", events: bool = True) -> Any: ...
    def add_problems(self, problems: Sequence[Problem]) -> Any: ...
    def get_cursor(self, name: str) -> str | None: ...
    def set_cursor(self, name: str, value: str) -> Any: ...


@dataclass
class PollResult:
    """One look: new readings by target, ascending; problems; ``cursor`` up to where the server was read (Unix seconds).

    ``newest`` is the time of the newest sample ever seen and ``lag`` how far it lies behind ``now``: what a detector has to
    wait. ``behind``: there is more to read at once. ``error`` when the server failed; nothing is lost, the next look goes on.
    """

    readings: list[Reading] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    samples: int = 0
    cursor: float | None = None
    newest: float | None = None
    lag: float | None = None
    behind: bool = False
    error: SourceError | None = None


class PrometheusLive:
    """One source, for one thread. ``cursor``: up to where an earlier run read it, None for none. Close it at the end."""

    def __init__(
        self,
        source_cfg: PrometheusSource | SourceConfig,
        dictionary: Dictionary,
        classes: ClassRules,
        roles: Roles,
        *,
        cursor: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._client = PrometheusClient(source_cfg)
        cfg = self._client.cfg
        self.name, self.every, self.lag = self._client.name, cfg.every, cfg.lag
        # One more try for a connection that the server closed meanwhile; beyond that the next look is the next try.
        self._reader = Reader(
            self._client, cfg.selector, cfg.every, stop or threading.Event(), waits=(0.2,), hurry=True
        )
        self._book = TargetBook(self.name, dictionary, classes, roles, cfg.every)
        self.cursor = cursor
        self.newest: float | None = None
        self._began: float | None = None
        self._dictionary = dictionary
        self._selected: float | None = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def cursor_name(self) -> str:
        """Under which name the cursor belongs into the store."""
        return f"live:{self.name}"

    def poll(self, now: float) -> PollResult:
        """Read what is new up to ``now - lag``. Never raises for what the server does.

        The last interval is read again, since samples of one scrape may become visible one after the other; readings already
        given are not given twice. After an absence a look goes on for about one interval and is ``behind`` until it is done.
        """
        result = PollResult(cursor=self.cursor)
        self._began = now if self._began is None else self._began
        end = now - self.lag
        start = end - max(FIRST_LOOK, 8 * self.every) if self.cursor is None else self.cursor - self.every
        if start < end - CATCH_UP:
            result.problems.append(self._gap(end, start))
            start = end - CATCH_UP
        until = time.monotonic() + self.every
        try:
            if self._selected is None or now - self._selected > LOOK_FOR_JOBS:
                self._reader.selector = effective_selector(self._client, self._dictionary, end - 3600, end)
                self._selected = now
            for window in self._reader.windows(start, end):
                readings, problems = self._book.readings(window)
                result.readings += readings
                result.problems += problems
                result.samples += window.samples
                self.cursor = max(self.cursor or window.end, window.end)
                if time.monotonic() > until and window.end < end:
                    result.behind = True
                    break
        except SourceError as error:
            result.error = error
            result.problems.append(failure(error, now))
        if result.readings:
            newest = max(r.t for r in result.readings)
            self.newest = newest if self.newest is None else max(self.newest, newest)
        result.problems += self._state(now, result)
        result.problems = folded(result.problems)
        result.cursor, result.newest = self.cursor, self.newest
        result.lag = None if self.newest is None else now - self.newest
        return result

    def step(self, store: Sink, now: float) -> PollResult:
        """:meth:`poll`, with readings, problems and cursor written to the store."""
        result = self.poll(now)
        if result.readings:
            store.append(result.readings)
        if result.problems:
            store.add_problems(result.problems)
        if result.cursor is not None:
            store.set_cursor(self.cursor_name, encode_cursor(result.cursor))
        return result

    def _state(self, now: float, result: PollResult) -> list[Problem]:
        out: list[Problem] = []
        quiet = now - self.lag - (self.newest if self.newest is not None else self._began or now)
        if result.error is None and not result.behind and quiet > SILENT_AFTER * self.every:
            text = "never had" if self.newest is None else f"has had for {quiet:.0f} s"
            out.append(
                self._problem(
                    now,
                    "silent",
                    f"The server answers but {text} no new sample for the selector.",
                    "Check the selector and whether the server still scrapes.",
                )
            )
        skew = self._client.skew
        if skew is not None and abs(skew) > SKEW:
            out.append(
                self._problem(
                    now,
                    "clock_skew",
                    f"The server's clock differs from ours by {skew:+.0f} s, so lag and ages are wrong by as much.",
                    "Synchronise the clocks (NTP).",
                )
            )
        return out

    def _gap(self, end: float, start: float) -> Problem:
        return self._problem(
            end,
            "not_caught_up",
            f"Nothing was read for {(end - start) / 3600:.0f} h; only the last {CATCH_UP / 3600:.0f} h are caught up.",
            "Read the rest with gustfront backfill.",
        )

    def _problem(self, at: float, code: str, message: str, fix: str) -> Problem:
        return Problem(at, self.name, code, "server", message, fix)


def encode_cursor(cursor: float) -> str:
    """A cursor as the store keeps it."""
    return json.dumps({"done": cursor})


def decode_cursor(text: str | None) -> float | None:
    """The inverse; None for none and for what cannot be read."""
    try:
        return float(json.loads(text or "{}")["done"])
    except (KeyError, TypeError, ValueError):
        return None
