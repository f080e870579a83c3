"""Load over time, load episodes, and tests that move load in time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.quality.cells import Cells

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
SMOOTH_S = 180.0
ROTATIONS = 600
DAY = 86400.0


@dataclass(frozen=True)
class LoadSeries:
    """Load of each replica every ``step`` seconds, ``[units, steps]`` from ``start``: 1 is its pool's mean.

    A request is read at the step before its admission, so it does not count itself.
    """

    start: float
    values: F
    step: float = 5.0

    @property
    def end(self) -> float:
        """Unix time at which the last step ends."""
        return float(self.start + self.values.shape[1] * self.step)

    def at(self, unit: I, t: F) -> F:
        """Load on each request's replica when it was admitted; NaN where not known."""
        k = ((t - self.start) // self.step).astype(np.intp)
        ok = (unit >= 0) & (k >= 0) & (k < self.values.shape[1])
        return np.where(ok, self.values[np.where(ok, unit, 0), np.where(ok, k, 0)], np.nan)

    def total(self) -> F:
        """Mean over the replicas that are known, ``[steps]``; NaN where none is."""
        known = ~np.isnan(self.values)
        n = known.sum(axis=0)
        return np.where(n > 0, np.nansum(self.values, axis=0) / np.maximum(n, 1), np.nan)


@dataclass(frozen=True)
class Episodes:
    """Separate spans of high load: ``count``, and ``edges`` (Unix seconds) of blocks that hold one each."""

    count: int
    edges: F

    def block(self, t: F) -> I:
        """Block of each time."""
        return np.clip(np.searchsorted(self.edges, t, "right") - 1, 0, max(len(self.edges) - 2, 0)).astype(
            np.intp
        )


def episodes(total: F, start: float, step: float) -> Episodes:
    """Spans in which the smoothed load rose over its upper quarter after having been under its median.

    Smoothed over a sixtieth of the span, three minutes at least: what counts as separate is seen at the scale of the history,
    minutes of an afternoon, hours of a week. Blocks are cut where it falls under the median again. Fewer than four smoothing
    widths of data have no episode.
    """
    width = max(1, int(max(SMOOTH_S, len(total) * step / 60) // step))
    good = np.flatnonzero(~np.isnan(total))
    whole = np.array([start, start + len(total) * step])
    if len(good) < 4 * width or len(good) < 8:
        return Episodes(0, whole)
    smooth = np.convolve(total[good], np.ones(width) / width, mode="valid")
    at = good[width // 2 : width // 2 + len(smooth)]
    middle, high = np.quantile(smooth, (0.5, 0.75))
    if not high > middle:
        return Episodes(0, whole)
    count, armed, cuts = 0, True, []
    for i, x in zip(at, smooth, strict=True):
        if armed and x >= high:
            count, armed = count + 1, False
        elif not armed and x <= middle:
            armed = True
            cuts.append(start + float(i) * step)
    # The last cut begins a block without an episode of its own: it belongs to the block before.
    if cuts and len(cuts) >= count:
        cuts = cuts[: count - 1]
    return Episodes(count, np.array([whole[0], *cuts, whole[1]]))


def score_shape(x: F) -> F:
    """The score of the rotation test and the trend test: a fixed mean of the shapes, chosen before any data."""
    return np.asarray((x + (x > 0.5) + (x > 0.75)) / 3, np.float64)


def trend(cells: Cells, x: F) -> float:
    """Class-stratified Cochran–Armitage z of bad outputs against the rank ``x`` of load (strata as in the cells)."""
    f, size = score_shape(x), int(cells.stratum.max(initial=-1)) + 1
    n = np.bincount(cells.stratum, cells.n, size)
    k = np.bincount(cells.stratum, cells.k, size)
    p = k / np.maximum(n, 1e-12)
    mean = np.bincount(cells.stratum, cells.n * f, size) / np.maximum(n, 1e-12)
    square = np.bincount(cells.stratum, cells.n * f * f, size) / np.maximum(n, 1e-12)
    v = float((p * (1 - p) * n * np.maximum(square - mean**2, 0)).sum())
    u = float(((cells.k - cells.n * p[cells.stratum]) * f).sum())
    return u / v**0.5 if v > 0 else 0.0


def rotation_p(cells: Cells, series: LoadSeries, blocks: Episodes, seed: int = 7) -> float | None:
    """Permutation by load episodes: within each block the load is turned round by an offset of its own.

    The share of such histories whose trend is as steep as the real one. What merely happened in one surge is as steep
    whenever that one block happens to fit, so it stays likely; what follows load in every block does not. None where fewer
    than two blocks or hardly any load is known.
    """
    if len(blocks.edges) < 3:
        return None
    known = series.values[~np.isnan(series.values)]
    if len(known) < 40:
        return None
    order = np.sort(known)
    ranked = np.searchsorted(order, series.values, "right") / len(order)
    f = np.where(np.isnan(series.values), np.nan, score_shape(ranked))
    places = LoadSeries(series.start, f, series.step)
    size = int(cells.stratum.max(initial=-1)) + 1
    p = np.bincount(cells.stratum, cells.k, size) / np.maximum(
        np.bincount(cells.stratum, cells.n, size), 1e-12
    )
    rest = cells.k - cells.n * p[cells.stratum]
    block = blocks.block(cells.t)
    low, width = blocks.edges[block], np.diff(blocks.edges)[block]

    def steep(t: F) -> float:
        value = places.at(cells.unit, t)
        ok = ~np.isnan(value)
        # Strata keep their own mean, so that a missing piece of load does not tilt the sum.
        mean = np.bincount(cells.stratum[ok], cells.n[ok] * value[ok], size) / np.maximum(
            np.bincount(cells.stratum[ok], cells.n[ok], size), 1e-12
        )
        return float((rest[ok] * (value[ok] - mean[cells.stratum[ok]])).sum())

    real = steep(cells.t)
    rng = np.random.default_rng(seed)
    as_steep = 0
    for done in range(1, ROTATIONS + 1):
        offset = rng.random(len(blocks.edges) - 1)[block] * width
        as_steep += steep(low + (cells.t - low + offset) % width) >= real
        if as_steep > 30:
            return (1 + as_steep) / (1 + done)
    return (1 + as_steep) / (1 + ROTATIONS)


def tomorrow(cells: Cells, series: LoadSeries) -> F:
    """Placebo: the load of the same replica a day later (half the span later where there are not two days), going round."""
    span = series.end - series.start
    lag = DAY if span >= 2 * DAY else span / 2
    return series.at(cells.unit, series.start + (cells.t - series.start + lag) % max(span, 1e-9))


def neighbour(cells: Cells, series: LoadSeries, group: I) -> F:
    """Placebo: the load of another replica of the same pool at the same time; ``group`` is the pool of each unit."""
    other = np.arange(len(group))
    for g in np.unique(group):
        mine = np.flatnonzero(group == g)
        other[mine] = np.roll(mine, 1)
    value = series.at(np.where(cells.unit >= 0, other[np.maximum(cells.unit, 0)], -1), cells.t)
    alone = other[np.maximum(cells.unit, 0)] == cells.unit
    return np.where(alone, np.nan, value)
