"""Small vectorised statistics: tails of counts, over-dispersion, robust centres and spreads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

F = NDArray[np.float64]


def poisson_tail(k: ArrayLike, mean: ArrayLike, phi: ArrayLike = 1.0) -> F:
    """P(X >= k) of a Poisson count with the given mean; ``phi`` > 1 shrinks both (quasi-Poisson). 1 where k <= 0.

    >>> round(float(poisson_tail(3, 1.0)), 4)
    0.0803
    """
    k_, m, f = (np.asarray(x, np.float64) for x in (k, mean, phi))
    f = np.maximum(f, 1.0)
    with np.errstate(invalid="ignore"):
        p = special.gammainc(np.maximum(k_ / f, 1e-12), np.maximum(m / f, 1e-12))
    return np.where(k_ <= 0, 1.0, p)


def binomial_tail(k: ArrayLike, n: ArrayLike, K: ArrayLike, N: ArrayLike, phi: ArrayLike = 1.0) -> F:
    """P that ``k`` or more of ``k + K`` exceedances fall into the window of ``n``, against a baseline of ``N`` requests.

    The conditional (exact) binomial: given the total, the window's share of it is ``n / (n + N)`` under no change. ``phi`` is
    the measured over-dispersion; it divides the counts. 1 where k is 0 or n is 0.

    >>> round(float(binomial_tail(5, 100, 5, 1000)), 4)
    0.0011
    """
    k_, n_, K_, N_, f = (np.asarray(x, np.float64) for x in (k, n, K, N, phi))
    f = np.maximum(f, 1.0)
    k_, K_ = k_ / f, K_ / f
    with np.errstate(invalid="ignore", divide="ignore"):
        share = n_ / (n_ + N_)
        # P(X >= k), X ~ B(k + K, share), continued to real counts by the incomplete beta function.
        p = special.betainc(np.maximum(k_, 1e-12), K_ + 1.0, np.clip(share, 0.0, 1.0))
    return np.where((k_ <= 0) | (n_ <= 0) | np.isnan(p), 1.0, p)


def dispersion(k: F, n: F) -> float:
    """Over-dispersion (at least 1) of blocks with ``k`` exceedances of ``n``: Pearson chi-square per degree of freedom."""
    ok = (n > 0) & ~np.isnan(k)
    k, n = k[ok], n[ok]
    if len(n) < 5 or k.sum() <= 0:
        return 1.0
    # A rate of a few in ten thousand makes single blocks explode: half a count is added to the centre.
    p = (k.sum() + 0.5) / (n.sum() + 1.0)
    chi = ((k - n * p) ** 2 / np.maximum(n * p * (1 - p), 1e-9)).sum()
    return float(max(1.0, chi / (len(n) - 1)))


def dispersion_of_counts(k: F) -> float:
    """Over-dispersion (at least 1) of counts of equal spans: variance over mean; 1 for fewer than five of them.

    >>> dispersion_of_counts(np.array([10.0, 10.0, 10.0, 10.0, 10.0]))
    1.0
    """
    mean = float(k.mean()) if len(k) else 0.0
    return max(1.0, float(k.var(ddof=1)) / mean) if len(k) >= 5 and mean > 0 else 1.0


def centre_spread(x: F, floor: float = 0.0) -> tuple[F, F]:
    """Median and robust standard deviation (1.4826 MAD, at least ``floor``) over the last axis; NaN where nothing is known."""
    c = nanmedian(x)
    return c, np.where(np.isnan(c), np.nan, np.maximum(1.4826 * nanmedian(np.abs(x - c[..., None])), floor))


def zeroed(x: ArrayLike, filler: float = 0.0) -> Any:
    """``x`` with ``filler`` where it is not known, of the same shape; a scalar stays one (a fifth of ``nan_to_num``'s time).

    >>> zeroed(np.array([1.0, np.nan])).tolist()
    [1.0, 0.0]
    """
    known = np.asarray(x)
    return np.where(np.isnan(known), filler, known)[()]


def nanmedian(x: F) -> F:
    """Median over the last axis without NaN values; NaN where every value is (numpy's own takes fifty times as long)."""
    if x.shape[-1] == 0:
        return np.full(x.shape[:-1], np.nan)
    y = np.sort(x, axis=-1)
    n = (~np.isnan(y)).sum(axis=-1)
    lo = np.take_along_axis(y, np.maximum((n - 1) // 2, 0)[..., None], axis=-1)[..., 0]
    hi = np.take_along_axis(y, np.minimum(n // 2, y.shape[-1] - 1)[..., None], axis=-1)[..., 0]
    return np.where(n > 0, (lo + hi) / 2, np.nan)


def exact_interval(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a share of ``k`` in ``n``; (0, 1) where n is 0.

    >>> [round(x, 4) for x in exact_interval(9, 10)]
    [0.555, 0.9975]
    """
    if n <= 0:
        return 0.0, 1.0
    a = (1.0 - level) / 2.0
    low = float(special.betaincinv(k, n - k + 1, a)) if k else 0.0
    high = float(special.betaincinv(k + 1, n - k, 1.0 - a)) if k < n else 1.0
    return low, high


def median(x: F) -> float:
    """Median of the known values; NaN where none is."""
    ok = x[~np.isnan(x)]
    return float(np.median(ok)) if len(ok) else float("nan")


def ratio_interval(k1: int, n1: float, k0: int, n0: float, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of the rate ratio (k1/n1)/(k0/n0) of two Poisson counts (Clopper–Pearson on the conditional share)."""
    if n1 <= 0 or n0 <= 0 or k1 + k0 == 0:
        return (0.0, float("inf"))
    a = (1 - level) / 2
    lo = special.betaincinv(k1, k0 + 1, a) if k1 else 0.0
    hi = special.betaincinv(k1 + 1, k0, 1 - a) if k0 else 1.0
    return tuple(float(s / (1 - s) * n0 / n1) if s < 1 else float("inf") for s in (lo, hi))  # type: ignore[return-value]
