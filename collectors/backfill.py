"""Back-fill: history of a Prometheus-compatible server into the store; can be broken off, resumed and repeated.

One thread reads a window ahead while the other maps and stores; the cursor moves after each stored window. Storing the same
window twice changes nothing, so a crash between the two costs one window of time and no count.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

from collectors.dictionary import Dictionary
from collectors.prometheus_client_guard import PrometheusClient
from collectors.prometheus_reader import Reader, ahead
from collectors.prometheus_select import effective_selector
from collectors.prometheus_series import Window, folded
from collectors.prometheus_targets import TargetBook
from core.classes import ClassRules
from core.config_models import PrometheusSource, SourceConfig
from core.errors import ConfigError, SourceError
from core.frames import Reading
from core.records import Problem
from core.roles import Roles

Progress = Callable[[float, float, str], None]
STREAM = "backfill"


class Sink(Protocol):
    """What back-fill needs of ``sql.store.Store``."""

    def append(self, readings: Sequence[Reading], *, stream: str = "live", events: bool = True) -> Any: ...
    def add_problems(self, problems: Sequence[Problem]) -> Any: ...
    def get_cursor(self, name: str) -> str | None: ...
    def set_cursor(self, name: str, value: str) -> Any: ...


@dataclass
class BackfillResult:
    """What a back-fill did. ``done`` is how far it came (Unix seconds): ``complete`` when that is ``end``.

    ``error`` says why it did not; ``inserted`` frames are new, ``skipped`` readings were there already or began a target.
    ``newest`` is the time of the newest sample, None without any.
    """

    source: str
    start: float
    end: float
    done: float
    resumed_from: float | None = None
    windows: int = 0
    requests: int = 0
    samples: int = 0
    targets: int = 0
    readings: int = 0
    down: int = 0
    inserted: int = 0
    skipped: int = 0
    restarts: int = 0
    seconds: float = 0.0
    newest: float | None = None
    problems: list[Problem] = field(default_factory=list)
    error: SourceError | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole range was read."""
        return self.error is None and self.done >= self.end


def backfill(
    store: Sink,
    source_cfg: PrometheusSource | SourceConfig,
    dictionary: Dictionary,
    classes: ClassRules,
    roles: Roles,
    start: float,
    end: float,
    progress: Progress | None = None,
    *,
    stop: threading.Event | None = None,
    fresh: bool = False,
) -> BackfillResult:
    """Read ``[start, end)`` (Unix seconds) of a server into ``store``.

    A range that was broken off goes on where it stopped, unless ``fresh``; a finished one is read again and inserts what is new.
    ``progress(done, total, message)`` is called after each window, in seconds of history. A server that fails ends the run with
    ``error`` and a problem in the store; what came before stays. ConfigError for an empty range; errors of the store are raised.
    """
    if not start < end:
        raise ConfigError(
            "--end", "must be later than --start", "give a range such as --start 2026-09-01 --end 2026-09-02"
        )
    began = time.monotonic()
    stop = stop or threading.Event()
    with PrometheusClient(source_cfg) as client:
        cursor = _cursor_name(client, start, end)
        at = start if fresh else max(start, _resume_at(store, cursor, end) or start)
        result = BackfillResult(client.name, start, end, done=at, resumed_from=at if at > start else None)
        reader = Reader(client, client.cfg.selector, client.cfg.every, stop)
        book = TargetBook(client.name, dictionary, classes, roles, client.cfg.every)
        try:
            reader.selector = effective_selector(client, dictionary, at, end)
            for window in ahead(reader.windows(at, end), stop):
                _keep(store, book, window, result)
                store.set_cursor(cursor, json.dumps({"done": result.done, "end": end}))
                if progress:
                    progress(result.done - start, end - start, _message(result))
        except SourceError as error:
            if error.kind != "stopped":
                result.error = error
                result.problems.append(failure(error, result.done))
        result.requests = reader.requests
    result.problems.extend(_absences(book, result))
    store.add_problems(result.problems)
    result.seconds = time.monotonic() - began
    return result


def _keep(store: Sink, book: TargetBook, window: Window, result: BackfillResult) -> None:
    readings, problems = book.readings(window)
    if readings:
        appended = store.append(readings, stream=STREAM)
        result.inserted += appended.inserted
        result.skipped += appended.skipped
        result.restarts += len(appended.restarts)
        newest = max(r.t for r in readings)
        result.newest = newest if result.newest is None else max(result.newest, newest)
    result.problems = folded([*result.problems, *problems])
    result.windows += 1
    result.samples += window.samples
    result.readings += len(readings)
    result.down += sum(not r.up for r in readings)
    result.targets = len(book)
    result.done = window.end


def _cursor_name(client: PrometheusClient, start: float, end: float) -> str:
    what = json.dumps([client.cfg.url, client.cfg.selector, client.cfg.org_id, start, end])
    return f"backfill:{client.name}:{blake2b(what.encode(), digest_size=8).hexdigest()}"


def _resume_at(store: Sink, cursor: str, end: float) -> float | None:
    """Where an earlier run of this range stopped; None when there was none, it finished, or its note cannot be read."""
    try:
        done = float(json.loads(store.get_cursor(cursor) or "{}")["done"])
    except (KeyError, TypeError, ValueError):
        return None
    return done if done < end else None


def _message(result: BackfillResult) -> str:
    return f"{result.samples:,} samples, {result.targets} targets"


def failure(error: SourceError, at: float) -> Problem:
    """The problem that a failing server is on Data health."""
    return Problem(at, error.source, error.kind, "server", f"The server {error.problem}.", error.fix)


def _absences(book: TargetBook, result: BackfillResult) -> list[Problem]:
    """What a range without (usable) data means."""
    out = [
        Problem(
            result.done,
            result.source,
            "unmapped_target",
            target.address,
            "None of its series is known to the dictionary; it is listed but gives no signal.",
            "Leave it out with the selector, or see docs for adding an engine.",
        )
        for target in book.unmapped
    ]
    if result.samples == 0 and result.error is None:
        out.append(
            Problem(
                result.end,
                result.source,
                "empty",
                "query",
                "The server answers, but has no sample for the selector in this range.",
                "Check selector, start and end (UTC), and the server's retention.",
            )
        )
    return out
