"""Objectives at the gateway: tallies per minute and percentiles over attempts, those given up included with their age.

The log is folded minute by minute where a minute matters: the last hours, and the hours in which a burn window begins. All else
is read by the hour. Whoever calls may keep the folds of finished spans: they do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from app.services import latency
from app.services.latency import Series, Windowed
from core.buckets import Quantile, quantile, trailing_quantiles
from core.burn import RULES
from core.frames import FloatArray, IntArray
from core.requests import RequestKey
from core.slo import GAVE_UP, TTFT, Objective, Tally, cell_tally, concerns, sliced
from core.windows import start_of
from sql.objectives import Exclusion
from sql.store import Store

HOUR, DAY = 3600.0, 86400.0
FINE_SECONDS = 3 * DAY + HOUR
"""Engines: minutes for the longest burn window; what is older is read by the hour."""
RECENT = 2 * HOUR
"""Gateway: minutes at the end, for percentiles; burn windows add the hours in which they begin."""
QUIET = 600
"""A log without a line for ten minutes is a quiet one; without one for longer it is not known whether it was written."""
POINTS = ("gateway", "router", "client")

Hists = dict[tuple[float, ...], IntArray]
Key = tuple[str, str]
"""(name of an objective, measurement point)."""


@dataclass(frozen=True, slots=True)
class Where:
    """Filters of a fold, empty means all; and time that does not count."""

    pool: str = ""
    model: str = ""
    exclusions: tuple[Exclusion, ...] = ()

    def excluded(self, o: Objective, key: RequestKey) -> bool:
        """Whether attempts of this minute (or of this hour, as a whole) do not count for the objective."""
        return any(e.start <= key.minute < e.end and applies(e, o, key.pool) for e in self.exclusions)


def applies(e: Exclusion, o: Objective, pool: str) -> bool:
    """Whether an exclusion is about requests of this objective in this pool."""
    return e.class_ in ("", o.class_) and e.slo in ("", o.name) and e.pool in ("", pool)


@dataclass(slots=True)
class Chunk:
    """What one span of the log says: tallies per objective, point and minute; minutes covered per class and point; and, if asked,
    the fine buckets of times to first token (``answered``) and of the ages of those given up before one (``waited``)."""

    tallies: dict[Key, dict[int, Tally]] = field(default_factory=dict)
    covered: dict[Key, set[int]] = field(default_factory=dict)
    answered: dict[Key, dict[int, Hists]] = field(default_factory=dict)
    waited: dict[Key, dict[int, Hists]] = field(default_factory=dict)


Detail = Literal["hours", "minutes", "hour_buckets", "buckets"]
"""How much of a span is wanted: tallies per hour or per minute (under its start), without or with the fine buckets."""
Fold = Callable[[Sequence[Objective], Where, float, float, Detail], Chunk]
"""(objectives, filters, start, end, detail) → what the log says in [start, end)."""


def folder(store: Store) -> Fold:
    """A fold that reads the store each time."""

    def read(
        objectives: Sequence[Objective], where: Where, start: float, end: float, detail: Detail
    ) -> Chunk:
        return fold(store, objectives, where, start, end, detail)

    return read


def fold(
    store: Store, objectives: Sequence[Objective], where: Where, start: float, end: float, detail: Detail
) -> Chunk:
    """Read and count the log in [start, end)."""
    out = Chunk()
    by_class: dict[str, list[Objective]] = {}
    for o in objectives:
        by_class.setdefault(o.class_, []).append(o)
    pools = [where.pool] if where.pool else None
    hourly = detail in ("hours", "hour_buckets")
    classes = sorted(by_class)
    for key, cell in store.request_cells(start, end, pools=pools, classes=classes, hourly=hourly):
        if not hourly:
            out.covered.setdefault((key.class_, key.point), set()).add(key.minute)
        if where.model and key.model and key.model != where.model:
            continue
        for o in by_class.get(key.class_, ()):
            if o.point not in ("auto", key.point) or not concerns(o, key):
                continue
            mine = (o.name, key.point)
            minutes = out.tallies.setdefault(mine, {})
            if where.exclusions and where.excluded(o, key):
                minutes[key.minute] = minutes.get(key.minute, Tally()) + Tally(excluded=cell.n)
                continue
            minutes[key.minute] = minutes.get(key.minute, Tally()) + cell_tally(o, key.status, cell)
            if (
                detail in ("buckets", "hour_buckets")
                and o.signal == TTFT
                and (200 <= key.status < 300 or key.status in GAVE_UP)
            ):
                _add(out.answered.setdefault(mine, {}), key.minute, cell.ttft)
                if key.status in GAVE_UP:
                    _add(out.waited.setdefault(mine, {}), key.minute, cell.age)
    if hourly:
        for class_, point, minute in store.request_minutes(start, end, classes=classes):
            out.covered.setdefault((class_, point), set()).add(minute)
    return out


def _add(into: dict[int, Hists], minute: int, hist: tuple[tuple[float, ...], IntArray]) -> None:
    edges, counts = hist
    if not counts.any():
        return
    here = into.setdefault(minute, {})
    known = here.get(edges)
    here[edges] = counts if known is None else known + counts


@dataclass(slots=True)
class GatewayMinutes:
    """One objective at one point: ``tallies`` under the start of their minute (or hour, where no minute matters); minutes
    covered, and minutes that do not count."""

    point: str
    tallies: dict[int, Tally] = field(default_factory=dict)
    covered: int = 0
    excluded: float = 0.0
    answered: dict[int, Hists] = field(default_factory=dict)
    waited: dict[int, Hists] = field(default_factory=dict)

    def p99_at(self, end: float) -> Windowed:
        """p99 of the time to first token over the shortest trailing window that holds enough attempts."""
        found, minutes = quantile([], 0.99), float(latency.WINDOWS_MINUTES[-1])
        for window in latency.WINDOWS_MINUTES:
            found, minutes = self._quantile(end - window * 60, end), float(window)
            if found.n >= latency.MIN_N:
                break
        return Windowed(found, minutes)

    def _quantile(self, start: float, end: float) -> Quantile:
        return quantile(
            _sum(self.answered, start, end), 0.99, latency.MIN_N, censored=_sum(self.waited, start, end)
        )

    def series(self, start: float, end: float, step: float) -> Series:
        """The p99 at every step of the range."""
        ends = np.arange(np.floor(start / step) * step + step, end + 1e-6, step)
        if len(ends) and step < HOUR:
            return self._dense(ends)
        points = [self.p99_at(float(t)) for t in ends]
        rows = np.array([_drawn(p.q) for p in points], dtype=np.float64).reshape(-1, 3)
        n = np.array([p.q.n for p in points], dtype=np.float64)
        minutes = np.array([p.minutes for p in points], dtype=np.float64)
        return Series(ends, rows[:, 0], rows[:, 1], rows[:, 2], n, minutes)

    def _dense(self, ends: FloatArray) -> Series:
        """As :meth:`p99_at` at each of many ends (whole minutes), solved together."""
        first = int(ends[0] - latency.LOOK_BACK)
        size = round((ends[-1] - first) / 60)
        found = trailing_quantiles(
            _grid(self.answered, first, size),
            0.99,
            latency.WINDOWS_MINUTES,
            latency.MIN_N,
            at=np.round((ends - first) / 60).astype(np.int64) - 1,
            censored=_grid(self.waited, first, size),
        )
        rows = np.array([_drawn(q) for q, _ in found], dtype=np.float64).reshape(-1, 3)
        return Series(ends, rows[:, 0], rows[:, 1], rows[:, 2], found.n.astype(float), found.window)


def _grid(by_minute: Mapping[int, Hists], first: int, size: int) -> Hists:
    """Counts of the minutes from ``first`` on as int64[size, buckets] by layout, gaps as zeros."""
    out: Hists = {}
    for minute, hists in by_minute.items():
        i = (minute - first) // 60
        if 0 <= i < size:
            for edges, counts in hists.items():
                if edges not in out:
                    out[edges] = np.zeros((size, len(counts)), np.int64)
                out[edges][i] += counts
    return out


def _drawn(q: Quantile) -> tuple[float, float, float]:
    """Where a quantile is drawn, with its interval."""
    if q.state == "ok" and q.value is not None:
        return (q.value, q.low, q.high if np.isfinite(q.high) else q.value)
    if q.state == "above":
        return (q.low, q.low, q.low)
    if q.state == "below":
        return (q.high, 0.0, q.high)
    return (np.nan, np.nan, np.nan)


def _sum(
    by_minute: Mapping[int, Hists], start: float, end: float
) -> list[tuple[tuple[float, ...], IntArray]]:
    out: Hists = {}
    for minute in range(int(-(-start // 60) * 60), int(end), 60):
        for edges, counts in by_minute.get(minute, {}).items():
            known = out.get(edges)
            out[edges] = counts if known is None else known + counts
    return list(out.items())


def fine_hours(start: float, end: float, *, more: Sequence[float] = ()) -> set[float]:
    """Hours (their start) that are read by the minute: the last ones, and those in which the span, a burn window or one of
    ``more`` begins or ends."""
    edges = [start, end, *more]
    edges += [end - s for rule in RULES for s in (rule.long, rule.short)]
    last = np.arange(np.floor((end - RECENT) / HOUR) * HOUR, end, HOUR)
    return {float(np.floor(t / HOUR) * HOUR) for t in edges if t % HOUR} | {float(t) for t in last}


def spans(start: float, end: float, fine: set[float] | None = None) -> Iterator[tuple[float, float, bool]]:
    """[start, end) in pieces (start, end, fine): fine hours one by one, the others up to the next day; both ends are cut."""
    fine = fine_hours(start, end) if fine is None else fine
    at = start
    while at < end - 1e-6:
        hour = float(np.floor(at / HOUR) * HOUR)
        if hour in fine or at % HOUR:
            stop = min(hour + HOUR, end)
            yield at, float(stop), True
        else:
            day = float(np.floor(at / DAY) * DAY + DAY)
            stop = float(min([day, end, *(h for h in fine if h > at)]))
            yield at, stop, False
        at = float(stop)


def read_gateway(
    read: Fold,
    objectives: Sequence[Objective],
    end: float,
    where: Where,
    *,
    since: float | None = None,
    step: float = 60.0,
) -> dict[str, GatewayMinutes]:
    """For each objective its attempts in its window up to ``end``, with the buckets of the last hour (or, with ``since``, from
    then on, with all buckets), at the point it names; ``auto`` prefers the gateway to the router to the client.

    ``step``: of the curve that ``since`` is for; one of hours needs no minutes. An objective whose class never appears in the
    log of its point is absent from the answer.
    """
    found: dict[Key, GatewayMinutes] = {}
    groups: dict[tuple[float, bool], list[Objective]] = {}
    for o in objectives:
        begin = start_of(o, end) if since is None else since
        groups.setdefault((begin, o.slice_target > 0), []).append(o)
    for (begin, every_minute), mine in sorted(groups.items(), key=lambda g: g[0]):
        edges = [t for e in where.exclusions for t in (e.start, e.end) if begin < t < end]
        fine = fine_hours(begin, end, more=edges)
        if every_minute or (since is not None and step < HOUR):
            fine |= {float(h) for h in np.arange(np.floor(begin / HOUR) * HOUR, end, HOUR)}
        covered: dict[Key, set[int]] = {}
        names = {o.name: o for o in mine}
        for a, b, by_minute in spans(begin, end, fine):
            detail: Detail = "minutes" if by_minute else "hours"
            if by_minute and (since is not None or b > end - latency.LOOK_BACK):
                detail = "buckets"
            elif since is not None:
                detail = "hour_buckets"
            chunk = read(mine, where, a, b, detail)
            for point, minutes in chunk.covered.items():
                covered.setdefault(point, set()).update(minutes)
            for key, tallies in chunk.tallies.items():
                g = found.setdefault(key, GatewayMinutes(key[1]))
                g.tallies.update(tallies)
                g.answered.update(chunk.answered.get(key, {}))
                g.waited.update(chunk.waited.get(key, {}))
        for key, g in found.items():
            if key[0] in names:
                o = names[key[0]]
                minutes = quiet_filled(covered.get((o.class_, key[1]), set()), end)
                gone = [e for e in where.exclusions if not e.pool and applies(e, o, "")]
                counted = {m for m in minutes if not any(e.start <= m < e.end for e in gone)}
                g.covered = len([m for m in counted if begin <= m < end])
                g.excluded = excluded_minutes(gone, begin, end)
                if o.slice_target > 0:
                    g.tallies = sliced(o, g.tallies)
    return {
        name: min((g for (n, _), g in found.items() if n == name), key=lambda g: _rank(g.point))
        for name in {n for n, _ in found}
    }


def quiet_filled(minutes: set[int], end: float) -> set[int]:
    """Minutes with attempts, and those between two of them that are no more than :data:`QUIET` apart."""
    out = set(minutes)
    ordered = sorted(minutes)
    for a, b in zip(ordered, [*ordered[1:], int(end)] if ordered else (), strict=False):
        if 60 < b - a <= QUIET:
            out.update(range(a + 60, b, 60))
    return out


def excluded_minutes(exclusions: Sequence[Exclusion], start: float, end: float) -> float:
    """Minutes of [start, end) within any of the exclusions."""
    total, until = 0.0, start
    for e in sorted(exclusions, key=lambda e: e.start):
        a, b = max(e.start, until), min(e.end, end)
        if b > a:
            total += b - a
            until = b
    return total / 60


def _rank(point: str) -> int:
    return POINTS.index(point) if point in POINTS else len(POINTS)
