"""Latency quantiles per workload class from roll-ups: the current one with its interval, and the series for a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.services.view import View
from core.buckets import Quantile, QuantileSeries, quantile, trailing_quantiles
from core.frames import FloatArray, IntArray
from sql.store import Store

WINDOWS_MINUTES = (1, 5, 15, 60)
MIN_N = 300
LOOK_BACK = 3600.0

MatrixKey = tuple[str, str, str, str, tuple[float, ...]]
"""(class, pool, unit, model, edges)."""
Matrix = Mapping[MatrixKey, tuple[IntArray, IntArray, FloatArray]]
"""Answer of ``Store.rollup_matrix``."""
Hists = Mapping[tuple[float, ...], IntArray]
"""Bucket edges → counts int64[T, len(edges) + 1] on a regular grid of steps."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A quantile over the shortest trailing window that holds enough observations; ``minutes`` is that window."""

    q: Quantile
    minutes: float


@dataclass(frozen=True, slots=True)
class Series:
    """A quantile over time: step ends ``t``; ``value`` NaN where there is none; ``low``/``high`` its interval; ``n``; window."""

    t: FloatArray
    value: FloatArray
    low: FloatArray
    high: FloatArray
    n: FloatArray
    minutes: FloatArray


def step_ends(start: float, step: float, size: int) -> FloatArray:
    """The ends of ``size`` steps from ``start`` on."""
    return np.asarray(start + step * np.arange(1, size + 1), dtype=np.float64)


def grid_size(start: float, end: float, step: float) -> int:
    """Steps in [start, end)."""
    return max(1, int(np.ceil((end - start) / step - 1e-9)))


def on_grid(
    matrix: Matrix, start: float, end: float, step: float, *, view: View | None = None
) -> dict[str, dict[tuple[float, ...], IntArray]]:
    """Roll-up rows per class and bucket layout on a regular grid; pools, models and units that pass the view are added up."""
    size = grid_size(start, end, step)
    out: dict[str, dict[tuple[float, ...], IntArray]] = {}
    for (class_, pool, _, model, edges), (ts, counts, _) in matrix.items():
        if view is not None and not view.has(class_=class_, pool=pool, model=model):
            continue
        at = ((ts - start) // step).astype(np.int64)
        keep = (at >= 0) & (at < size)
        target = out.setdefault(class_, {}).setdefault(edges, np.zeros((size, len(edges) + 1), np.int64))
        np.add.at(target, at[keep], np.maximum(counts[keep], 0))
    return out


def last_minute(view: View) -> float:
    """End of the last minute that may be used: history never shows a minute that was not over at ``as_of``."""
    return float(np.ceil(view.as_of / 60) * 60) if view.live else float(np.floor(view.as_of / 60) * 60)


def usable_windows(minutes: Sequence[float], step: float) -> list[float]:
    """The windows (minutes) that are no shorter than a step of ``step`` seconds; one step where all are."""
    return [float(w) for w in minutes if w * 60 >= step] or [step / 60]


def series_of(hists: Hists, q: float, grid_start: float, step: float, *, draw_from: float) -> Series:
    """The quantile at every step from ``draw_from`` on, over the shortest trailing window with enough observations.

    The grid begins up to an hour earlier, so that the first points have their windows. Beyond the last edge the curve runs
    along it, and below the first along that one: the interval says so.
    """
    size = len(next(iter(hists.values()), ()))
    ends = step_ends(grid_start, step, size)
    at = np.flatnonzero(ends > draw_from + 1e-6)
    windows = usable_windows(WINDOWS_MINUTES, step)
    found = trailing_quantiles(hists, q, windows=windows, min_n=MIN_N, step=step / 60, at=at)
    shown = found.state <= 2
    value = np.where(found.state == 1, found.low, np.where(found.state == 2, found.high, found.value))
    low = np.where(shown, found.low, np.nan)
    high = np.where(shown, np.where(np.isfinite(found.high), found.high, found.low), np.nan)
    return Series(ends[at], np.where(shown, value, np.nan), low, high, found.n.astype(float), found.window)


def trailing(hists: Hists, q: float, step: float) -> QuantileSeries:
    """The quantile at every step of a grid."""
    return trailing_quantiles(
        hists, q, windows=usable_windows(WINDOWS_MINUTES, step), min_n=MIN_N, step=step / 60
    )


def current(hists: Hists, q: float) -> Windowed:
    """The quantile at the end of a grid of minutes, over the shortest trailing window with enough observations."""
    size = len(next(iter(hists.values()), ()))
    found = trailing_quantiles(
        hists, q, windows=WINDOWS_MINUTES, min_n=MIN_N, at=[size - 1] if size else None
    )
    if not len(found):
        return Windowed(quantile([], q), float(WINDOWS_MINUTES[-1]))
    last, minutes = found[0]
    return Windowed(last, minutes)


def tail_of(hists: Hists, minutes: float) -> list[tuple[tuple[float, ...], IntArray]]:
    """The histograms of the last ``minutes`` of a grid of minutes, one per layout."""
    steps = max(1, round(minutes))
    return [(edges, counts[-steps:].sum(axis=0)) for edges, counts in hists.items()]


def load(
    store: Store, signal: str, view: View, start: float, end: float, step: float
) -> dict[str, dict[tuple[float, ...], IntArray]]:
    """Histograms per class and layout of ``signal`` on steps of ``step`` seconds; ``start`` is a multiple."""
    matrix = store.rollup_matrix(signal, start, end, step=int(step))
    return on_grid(matrix, start, end, step, view=view)
