"""Objectives at the gateway: tallies per minute and percentiles over attempts, those given up included with their age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.services import latency
from app.services.latency import Series, Windowed
from app.services.view import View
from core.buckets import Quantile, quantile
from core.frames import IntArray
from core.slo import GAVE_UP, Objective, Tally, cell_tally
from sql.store import Store

CHUNK = 6 * 3600.0
POINTS = ("gateway", "router", "client")


@dataclass(slots=True)
class GatewayMinutes:
    """One objective's attempts per minute: ``tallies``; ``covered`` minutes with any attempt of any class; and per minute the
    fine buckets of times to first token (``answered``) and of the ages of those given up before one (``waited``)."""

    point: str
    tallies: dict[int, Tally] = field(default_factory=dict)
    covered: set[int] = field(default_factory=set)
    answered: dict[int, dict[tuple[float, ...], IntArray]] = field(default_factory=dict)
    waited: dict[int, dict[tuple[float, ...], IntArray]] = field(default_factory=dict)

    def p99_at(self, end: float) -> Windowed:
        """p99 of the time to first token over the shortest trailing window that holds enough attempts."""
        found, minutes = quantile([], 0.99), float(latency.WINDOWS_MINUTES[-1])
        for window in latency.WINDOWS_MINUTES:
            found, minutes = self._quantile(end - window * 60, end), float(window)
            if found.n >= latency.MIN_N:
                break
        return Windowed(found, minutes)

    def current_p99(self, end: float) -> Windowed:
        """The p99 now."""
        return self.p99_at(end)

    def _quantile(self, start: float, end: float) -> Quantile:
        return quantile(
            _sum(self.answered, start, end), 0.99, latency.MIN_N, censored=_sum(self.waited, start, end)
        )

    def series(self, start: float, end: float, step: float) -> Series:
        """The p99 at every step of the range."""
        ends = np.arange(np.floor(start / step) * step + step, end + 1e-6, step)
        points = [self.p99_at(float(t)) for t in ends]
        rows = []
        for p in points:
            q = p.q
            if q.state == "ok" and q.value is not None:
                rows.append((q.value, q.low, q.high if np.isfinite(q.high) else q.value))
            elif q.state == "above":
                rows.append((q.low, q.low, q.low))
            elif q.state == "below":
                rows.append((q.high, 0.0, q.high))
            else:
                rows.append((np.nan, np.nan, np.nan))
        value, low, high = (
            (np.array(x, dtype=float) for x in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 3
        )
        return Series(
            ends,
            value,
            low,
            high,
            np.array([p.q.n for p in points], dtype=float),
            np.array([p.minutes for p in points], dtype=float),
        )


def _sum(
    by_minute: dict[int, dict[tuple[float, ...], IntArray]], start: float, end: float
) -> list[tuple[tuple[float, ...], IntArray]]:
    out: dict[tuple[float, ...], IntArray] = {}
    for minute in range(int(-(-start // 60) * 60), int(end), 60):
        for edges, counts in by_minute.get(minute, {}).items():
            known = out.get(edges)
            out[edges] = counts if known is None else known + counts
    return list(out.items())


def _add(
    into: dict[int, dict[tuple[float, ...], IntArray]], minute: int, hist: tuple[tuple[float, ...], IntArray]
) -> None:
    edges, counts = hist
    if not counts.any():
        return
    here = into.setdefault(minute, {})
    known = here.get(edges)
    here[edges] = counts if known is None else known + counts


def read_gateway(
    store: Store, objectives: Sequence[Objective], end: float, view: View, *, since: float | None = None
) -> dict[str, GatewayMinutes]:
    """For each objective its attempts per minute in its window (or since a time), at the point it names.

    An objective whose class never appears in the log of its point is absent from the answer.
    """
    if not objectives:
        return {}
    start = end - max(o.window for o in objectives) if since is None else since
    found: dict[str, GatewayMinutes] = {}
    covered: dict[str, set[int]] = {}
    at = start
    while at < end:
        for key, cell in store.request_cells(at, min(at + CHUNK, end)):
            covered.setdefault(key.point, set()).add(key.minute)
            for o in objectives:
                if key.class_ != o.class_ or o.point not in ("auto", key.point):
                    continue
                if since is None and key.minute < end - o.window:
                    continue
                if not view.has(pool=key.pool or None, model=key.model):
                    continue
                g = found.setdefault(o.name, GatewayMinutes(key.point))
                if _rank(key.point) < _rank(g.point):
                    g = found[o.name] = GatewayMinutes(key.point)
                if key.point != g.point:
                    continue
                g.tallies[key.minute] = g.tallies.get(key.minute, Tally()) + cell_tally(o, key.status, cell)
                if o.signal == "ttft_seconds" and (200 <= key.status < 300 or key.status in GAVE_UP):
                    _add(g.answered, key.minute, cell.ttft)
                    if key.status in GAVE_UP:
                        _add(g.waited, key.minute, cell.age)
        at += CHUNK
    for g in found.values():
        g.covered = covered.get(g.point, set())
    return found


def _rank(point: str) -> int:
    """``auto`` prefers the gateway to the router to the client."""
    return POINTS.index(point) if point in POINTS else len(POINTS)
