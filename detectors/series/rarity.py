"""How rare a window of a series is, judged by the windows of its own past: many series at once.

Formula: the past is cut into blocks as long as the window. Three tests, the least p counts three times:
level: (mean - mean of block means) / (s sqrt(1 + 1/H)), Student's t with H - 1 degrees of freedom, where
s is the deviation of the H block means, or what the scatter of single cells would give them where that is
larger; highest and lowest cell: the extreme of the window under a Gumbel distribution fitted by moments
to the extremes of the blocks, where exp(-z) becomes (1 + z / H)^-H: of a scale known from H values only,
the far tail is heavier. A trend in the past widens s and so explains itself away: an even slope gives t =
1.7 at most. What is 0 in nine of ten cells of the past (preemptions, errors, a queue) is not bell-shaped:
there the number of cells that are not 0 is tested, by the conditional binomial, with the mean length of
their runs as dispersion. Over all series tested the false discovery rate is held (Benjamini and
Hochberg).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from core.frames import FloatArray
from detectors.stats import binomial_tail, dispersion

BLOCKS = 6
"""Fewer blocks of past say nothing."""
RARE = 0.1
"""Where no more than this share of the past's cells differs from 0, cells are counted."""
RUN = 2.0
"""Rare things come in twos at least (a retry, the turns of one session): the least run length and dispersion supposed of them."""
EULER = 0.5772156649
FLOOR = 1e-3
"""A deviation below this share of the level is not believed: counters are rounded, clocks quantised."""


@dataclass(frozen=True, slots=True)
class Rarity:
    """One value a series, NaN where it cannot be told. ``before``: median of the past's cells; ``now``: mean of the window."""

    p: FloatArray
    before: FloatArray
    now: FloatArray


def rarity(past: FloatArray, window: FloatArray) -> Rarity:
    """Judge ``window`` [series, cells] by ``past`` [series, cells, oldest first]; NaN are gaps."""
    cells = window.shape[1]
    blocks = past.shape[1] // cells if cells else 0
    count = len(window)
    nothing = np.full(count, np.nan)
    if blocks < BLOCKS or not count:
        return Rarity(nothing, nothing, nothing)
    cut = past[:, past.shape[1] - blocks * cells :].reshape(count, blocks, cells)
    now, before = _mean(window), np.nanmedian(_padded(past), axis=1)
    means = _mean(cut)
    known = (~np.isnan(cut)).mean(axis=2) >= 0.5
    means[~known] = np.nan
    h = known.sum(axis=1)
    usable = (h >= BLOCKS) & ((~np.isnan(window)).mean(axis=1) >= 0.5)
    p = np.minimum(1.0, 3.0 * np.minimum(_level(means, now, past, cells, h), _extremes(cut, known, window)))
    rare = _rare(past, window)
    p = np.where(np.isnan(rare), p, rare)
    return Rarity(np.where(usable, p, np.nan), before, now)


def discoveries(p: FloatArray) -> FloatArray:
    """The false discovery rate at which each would be reported (q values); NaN are not tested."""
    q = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known])]
    n = len(order)
    if n:
        raw = p[order] * n / np.arange(1, n + 1)
        q[order] = np.minimum(1.0, np.minimum.accumulate(raw[::-1])[::-1])
    return q


def share_rarity(past: tuple[FloatArray, FloatArray], window: tuple[FloatArray, FloatArray]) -> Rarity:
    """Judge shares by counts: each argument is (those that count, all), [series, cells]. For shares of rare or slow requests.

    Both must find it rare, upwards: the conditional binomial of the two totals (few requests cannot tell much), and the level
    test on the blocks' shares, which knows that a dispersion measured on a dozen blocks is itself uncertain.
    """
    (k0, n0), (k1, n1) = past, window
    cells = n1.shape[1]
    blocks = n0.shape[1] // cells if cells else 0
    count = len(n1)
    nothing = np.full(count, np.nan)
    if blocks < BLOCKS or not count:
        return Rarity(nothing, nothing, nothing)

    def cut(x: FloatArray) -> FloatArray:
        out: FloatArray = x[:, x.shape[1] - blocks * cells :].reshape(count, blocks, cells).sum(axis=2)
        return out

    k_blocks, n_blocks = cut(k0), cut(n0)
    phi = np.asarray([dispersion(k, n) for k, n in zip(k_blocks, n_blocks, strict=True)], np.float64)
    k, n, K, N = k1.sum(axis=1), n1.sum(axis=1), k0.sum(axis=1), n0.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        before, now, shares = K / N, k / n, k_blocks / n_blocks
        # Where the past has next to none, neither its scatter nor its dispersion can be measured: both are supposed.
        expected = np.maximum(before, RUN / N)
        chance = np.sqrt(np.maximum(phi, RUN) * expected * (1 - np.minimum(expected, 0.5)) / n)
    h = (~np.isnan(shares)).sum(axis=1)
    level = _student(now, _mean(shares), np.fmax(_deviation(shares), chance), h)
    p = np.fmax(binomial_tail(k, n, K, N, np.maximum(phi, RUN)), np.where(now > before, level, 1.0))
    usable = (n > 0) & ((n_blocks > 0).sum(axis=1) >= BLOCKS)
    return Rarity(np.where(usable, p, np.nan), before, now)


def _level(
    means: FloatArray, now: FloatArray, past: FloatArray, cells: int, h: NDArray[np.intp]
) -> FloatArray:
    centre = _mean(means)
    s = np.maximum(_deviation(means), _deviation(past) / np.sqrt(cells))
    return _student(now, centre, np.maximum(s, FLOOR * np.abs(centre)), h)


def _student(now: FloatArray, centre: FloatArray, s: FloatArray, h: NDArray[np.intp]) -> FloatArray:
    """Two-sided p of a new value after ``h`` of which mean and deviation are known."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.abs(now - centre) / (s * np.sqrt(1.0 + 1.0 / np.maximum(h, 1)))
    p: FloatArray = 2.0 * student.sf(z, np.maximum(h - 1, 1))
    return np.where((s == 0) & (now == centre), 1.0, p)


def _extremes(cut: FloatArray, known: FloatArray, window: FloatArray) -> FloatArray:
    out = np.ones(len(window))
    h = np.maximum(known.sum(axis=1), 1)
    for sign in (1.0, -1.0):
        tops = np.where(known, _top(sign * cut), np.nan)
        mine = _top(sign * window)
        beta = _deviation(tops) * np.sqrt(6.0) / np.pi
        centre = _mean(tops)
        beta = np.maximum(beta, FLOOR * np.abs(centre))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            z = (mine - (centre - EULER * beta)) / beta
            # The predictive tail of an exponential whose scale was estimated from h values.
            p = -np.expm1(-(np.maximum(1.0 + z / h, 1e-3) ** -h.astype(np.float64)))
        p = np.where(beta > 0, p, 1.0)
        out = np.fmin(out, p)
    return out


def _rare(past: FloatArray, window: FloatArray) -> FloatArray:
    """p of the number of cells that are not 0; NaN where the past is not mostly 0. One-sided: fewer of few is no news."""
    on, seen = (past != 0) & ~np.isnan(past), (~np.isnan(past)).sum(axis=1)
    mine, n = ((window != 0) & ~np.isnan(window)).sum(axis=1), (~np.isnan(window)).sum(axis=1)
    count = on.sum(axis=1)
    starts = on[:, :1].sum(axis=1) + (on[:, 1:] & ~on[:, :-1]).sum(axis=1)
    run = np.where(starts > 0, count / np.maximum(starts, 1), RUN)
    p = np.asarray(binomial_tail(mine, np.maximum(n, 1), count, np.maximum(seen, 1), np.maximum(run, 1.0)))
    mostly_zero = (count <= RARE * seen) & (seen > 0)
    return np.where(mostly_zero, np.where(mine > 0, p, 1.0), np.nan)


def _padded(x: FloatArray) -> FloatArray:
    """Rows without any value become 0 where only their absence of warnings matters; they are not usable anyway."""
    empty = np.isnan(x).all(axis=1, keepdims=True)
    return np.where(empty, 0.0, x)


def _mean(x: FloatArray) -> FloatArray:
    n = (~np.isnan(x)).sum(axis=-1)
    out: FloatArray = np.where(n > 0, np.nansum(x, axis=-1) / np.maximum(n, 1), np.nan)
    return out


def _deviation(x: FloatArray) -> FloatArray:
    n = (~np.isnan(x)).sum(axis=-1)
    square = np.nansum((x - _mean(x)[..., None]) ** 2, axis=-1)
    out: FloatArray = np.where(n > 1, np.sqrt(square / np.maximum(n - 1, 1)), np.nan)
    return out


def _top(x: FloatArray) -> FloatArray:
    out: FloatArray = np.where(np.isnan(x), -np.inf, x).max(axis=-1)
    return np.where(np.isinf(out), np.nan, out)
