"""Curves of one objective over a range: p99 and the share within the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.services import latency
from app.services.engine_slo import narrowed
from app.services.gateway import Fold, GatewayMinutes, Where, folder, read_gateway
from app.services.harm import within
from app.services.latency import Series
from app.services.slos import choose_point
from app.services.view import View
from core.config import Config
from core.frames import FloatArray, IntArray
from core.slo import SAMPLED, Objective, Tally
from sql.store import Store

MIN_SHARE_N = 20


@dataclass(frozen=True, slots=True)
class ShareSeries:
    """Share within the threshold over time: bounds per step, NaN where too few requests ended."""

    t: FloatArray
    low: FloatArray
    high: FloatArray
    n: FloatArray
    minutes: float


@dataclass(frozen=True, slots=True)
class SloDetail:
    """Curves of one objective over a range."""

    p99: Series | None
    share: ShareSeries | None
    point: str


def detail(store: Store, view: View, config: Config, name: str, read: Fold | None = None) -> SloDetail:
    """Curves of one objective over the view's range; empty where it is not configured (any more)."""
    slo = next((s for s in config.slos if s.name == name), None)
    if slo is None:
        return SloDetail(None, None, "engine")
    o = Objective.from_config(slo)
    end, step = latency.last_minute(view), view.step
    grid_start = float(np.floor((view.start - latency.LOOK_BACK) / step) * step)
    if o.sli in SAMPLED or o.sli == "throughput":
        return SloDetail(None, None, "sample" if o.sli in SAMPLED else "engine")
    view = narrowed(view, o)
    found: dict[str, GatewayMinutes] = {}
    if o.from_requests:
        where = Where(view.pool, view.model, tuple(store.exclusions(grid_start, end)))
        found = read_gateway(read or folder(store), [o], end, where, since=grid_start, step=step)
    gateway = found.get(name)
    point = choose_point(slo.point, gateway)
    if point != "engine" and gateway is not None:
        return SloDetail(
            gateway.series(view.start, end, step) if o.signal == "ttft_seconds" else None,
            share_of_tallies(gateway.tallies, view.start, end, step),
            point,
        )
    if o.sli != "latency" or not o.from_engine:
        return SloDetail(None, None, point)
    matrix = store.rollup_matrix(o.signal, grid_start, end, step=int(step), classes=[o.class_])
    hists = latency.on_grid(matrix, grid_start, end, step, view=view).get(o.class_, {})
    if not hists:
        return SloDetail(None, None, point)
    w = within(hists, o.threshold)
    ends = latency.step_ends(grid_start, step, len(w.n))
    return SloDetail(
        latency.series_of(hists, 0.99, grid_start, step, draw_from=view.start),
        share_series(ends, w.low, w.n - w.high, w.n, view.start, step),
        point,
    )


def share_of_tallies(tallies: Mapping[int, Tally], start: float, end: float, step: float) -> ShareSeries:
    """Share good over time from tallies per minute."""
    begin = float(np.floor((start - latency.LOOK_BACK) / step) * step)
    size = latency.grid_size(begin, end, step)
    good, bad, n = (np.zeros(size, np.int64) for _ in range(3))
    for minute, t in tallies.items():
        i = int((minute - begin) // step)
        if 0 <= i < size:
            good[i] += t.good
            bad[i] += t.bad
            n[i] += t.counted
    return share_series(latency.step_ends(begin, step, size), good, bad, n, start, step)


def share_series(
    ends: FloatArray, good: IntArray, bad: IntArray, n: IntArray, start: float, step: float
) -> ShareSeries:
    """Trailing shares over five minutes, or over one step where that is longer."""
    span = max(1, round(300 / step))
    g, b, total = (_trailing(x, span) for x in (good, bad, n))
    keep = ends > start + 1e-6
    with np.errstate(divide="ignore", invalid="ignore"):
        enough = total >= MIN_SHARE_N
        low = np.where(enough, g / total, np.nan)
        high = np.where(enough, 1 - b / total, np.nan)
    return ShareSeries(ends[keep], low[keep], high[keep], total[keep].astype(float), span * step / 60)


def _trailing(x: IntArray, span: int) -> IntArray:
    running = np.concatenate([[0], np.cumsum(x)])
    at = np.arange(1, len(x) + 1)
    out: IntArray = running[at] - running[np.maximum(at - span, 0)]
    return out
