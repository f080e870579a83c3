"""Objectives at the gateway: tallies per minute and percentiles over attempts, those given up included with their age.

The log is folded hour by hour (older than the longest burn window day by day). Whoever calls may keep the folds of finished
spans: they do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from app.services import latency
from app.services.latency import Series, Windowed
from core.buckets import Quantile, quantile
from core.frames import IntArray
from core.slo import GAVE_UP, Objective, Tally, cell_tally, total
from sql.store import Store

HOUR, DAY = 3600.0, 86400.0
FINE_SECONDS = 3 * DAY + HOUR
"""Minutes matter for the longest burn window; what is older is only summed."""
POINTS = ("gateway", "router", "client")

Hists = dict[tuple[float, ...], IntArray]
Key = tuple[str, str]
"""(name of an objective, measurement point)."""


@dataclass(frozen=True, slots=True)
class Where:
    """Filters of a fold; empty means all."""

    pool: str = ""
    model: str = ""


@dataclass(slots=True)
class Chunk:
    """What one span of the log says: tallies per objective, point and minute; minutes covered per point; and, if asked for, the
    fine buckets of times to first token (``answered``) and of the ages of those given up before one (``waited``)."""

    tallies: dict[Key, dict[int, Tally]] = field(default_factory=dict)
    covered: dict[str, set[int]] = field(default_factory=dict)
    answered: dict[Key, dict[int, Hists]] = field(default_factory=dict)
    waited: dict[Key, dict[int, Hists]] = field(default_factory=dict)


Detail = Literal["sum", "minutes", "buckets"]
"""How much of a span is wanted: one tally (kept under its first minute), tallies per minute, or those and the fine buckets."""
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
    for key, cell in store.request_cells(start, end, pools=pools):
        out.covered.setdefault(key.point, set()).add(key.minute)
        if where.model and key.model and key.model != where.model:
            continue
        for o in by_class.get(key.class_, ()):
            if o.point not in ("auto", key.point):
                continue
            mine = (o.name, key.point)
            minutes = out.tallies.setdefault(mine, {})
            minutes[key.minute] = minutes.get(key.minute, Tally()) + cell_tally(o, key.status, cell)
            if (
                detail == "buckets"
                and o.signal == "ttft_seconds"
                and (200 <= key.status < 300 or key.status in GAVE_UP)
            ):
                _add(out.answered.setdefault(mine, {}), key.minute, cell.ttft)
                if key.status in GAVE_UP:
                    _add(out.waited.setdefault(mine, {}), key.minute, cell.age)
    if detail == "sum":
        out.tallies = {k: {min(v): total(v.values())} for k, v in out.tallies.items()}
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
    """One objective at one point: ``tallies`` per minute of the fine part, ``older`` the sum before it; minutes covered."""

    point: str
    tallies: dict[int, Tally] = field(default_factory=dict)
    older: Tally = field(default_factory=Tally)
    covered: int = 0
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
        points = [self.p99_at(float(t)) for t in ends]
        rows = np.array([_drawn(p.q) for p in points], dtype=np.float64).reshape(-1, 3)
        n = np.array([p.q.n for p in points], dtype=np.float64)
        minutes = np.array([p.minutes for p in points], dtype=np.float64)
        return Series(ends, rows[:, 0], rows[:, 1], rows[:, 2], n, minutes)


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


def spans(start: float, end: float) -> Iterator[tuple[float, float, bool]]:
    """[start, end) in pieces (start, end, fine): hours to the next day, whole days before the fine part, then hours; both ends
    are cut."""
    fine = max(start, np.floor((end - FINE_SECONDS) / HOUR) * HOUR)
    at, first_day = start, np.ceil(start / DAY) * DAY
    while at < end - 1e-6:
        size = HOUR if at >= fine or at < first_day else DAY
        stop = min((np.floor(at / size) + 1) * size, end if at >= fine else fine)
        yield float(at), float(stop), bool(at >= fine)
        at = float(stop)


def read_gateway(
    read: Fold,
    objectives: Sequence[Objective],
    end: float,
    where: Where,
    *,
    since: float | None = None,
) -> dict[str, GatewayMinutes]:
    """For each objective its attempts in its window up to ``end``, with the buckets of the last hour (or, with ``since``, from
    then on, with all buckets), at the point it names; ``auto`` prefers the gateway to the router to the client.

    An objective whose class never appears in the log of its point is absent from the answer.
    """
    found: dict[Key, GatewayMinutes] = {}
    for window in sorted({o.window for o in objectives}):
        mine = [o for o in objectives if o.window == window]
        names = {o.name for o in mine}
        covered: dict[str, int] = {}
        for a, b, fine in spans(end - window if since is None else since, end):
            detail: Detail = "minutes" if fine else "sum"
            if fine and (since is not None or b > end - latency.LOOK_BACK):
                detail = "buckets"
            chunk = read(mine, where, a, b, detail)
            for point, minutes in chunk.covered.items():
                covered[point] = covered.get(point, 0) + len(minutes)
            for key, tallies in chunk.tallies.items():
                g = found.setdefault(key, GatewayMinutes(key[1]))
                if fine:
                    g.tallies.update(tallies)
                else:
                    for tally in tallies.values():
                        g.older += tally
                g.answered.update(chunk.answered.get(key, {}))
                g.waited.update(chunk.waited.get(key, {}))
        for key, g in found.items():
            if key[0] in names:
                g.covered = covered.get(key[1], 0)
    return {
        name: min((g for (n, _), g in found.items() if n == name), key=lambda g: _rank(g.point))
        for name in {n for n, _ in found}
    }


def _rank(point: str) -> int:
    return POINTS.index(point) if point in POINTS else len(POINTS)
