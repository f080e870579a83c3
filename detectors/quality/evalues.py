"""Evidence that may be looked at as often as one likes: e-processes for screens, e-values for several strata at once.

An e-value is a number whose mean is at most 1 while nothing is wrong; 100 or more happens with probability at most 1 in 100,
however often one looks. Averages of e-values are e-values, whatever their dependence, and the e-BH procedure names strata
with a bounded share of wrong names.

Source: Vovk and Wang 2021 (averaging), Wang and Ramdas 2022 (e-BH); measured in detection.md 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

F = NDArray[np.float64]
ALARM = 100.0
NAME_LEVEL = 0.05
ODDS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Multiples of a stratum's share that the mixture bets on, each with equal stake."""


def rate_process(k: ArrayLike, n: ArrayLike, p0: float, *, mean: float = 4.0) -> F:
    """log e-value of "the rate is over ``p0``" after ``k`` bad of ``n`` outputs; valid at every moment of a growing sample.

    An exponential mixture over the multiples of ``p0`` from 1 on, with mean ``mean``: rates *under* ``p0`` are no part of it, so
    that a deployment much better than its bound is no evidence of anything. ``p0`` must be the deployment's normal rate or an
    upper bound of it.

    >>> bool(rate_process(700, 1_000_000, 3e-3) < 0), bool(rate_process(6000, 1_000_000, 3e-3) > 100)
    (True, True)
    """
    k_, expected = np.asarray(k, np.float64), np.asarray(n, np.float64) * p0
    m = mean - 1.0
    # 1/m exp(1/m + expected) times the upper incomplete gamma function of k + 1 at b, over b to the power of k + 1
    b = expected + 1.0 / m
    out: F = -np.log(m) + b - (k_ + 1.0) * np.log(b) + _log_upper_gamma(k_ + 1.0, b)
    return out


def _log_upper_gamma(a: F, x: F) -> F:
    """log of the upper incomplete gamma function; far in its tail by the first terms of its expansion, where it underflows."""
    share = special.gammaincc(a, x)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log(share) + special.gammaln(a)
        far = (a - 1.0) * np.log(x) - x - np.log1p(-(a - 1.0) / x)
    return np.where(share > 1e-200, near, far)


def share_value(k: F, K: F, q: F, dispersion: float = 1.0) -> float:
    """e-value of "this stratum has more than its share": ``k`` of ``K`` bad outputs are in it where ``q`` were expected.

    Arrays run over classes, so that a class with a rate of its own cannot speak for the stratum. Given the totals, ``k`` is
    binomial under no difference; the mixture runs over :data:`ODDS`. ``dispersion`` (at least 1) tempers the evidence.
    """
    ok = (K > 0) & (q > 0) & (q < 1)
    k, K, q = k[ok], K[ok], q[ok]
    if not len(K):
        return 1.0
    logs = []
    for odds in ODDS:
        moved = odds * q / (1 - q + odds * q)
        logs.append(float((k * np.log(moved / q) + (K - k) * np.log((1 - moved) / (1 - q))).sum()))
    scaled = np.asarray(logs) / max(dispersion, 1.0)
    return float(np.exp(np.minimum(scaled, 300.0)).mean())


def average(values: Sequence[float]) -> float:
    """One e-value for "at least one of these": their mean."""
    return float(np.mean(values)) if len(values) else 1.0


def named(values: Sequence[float], level: float = NAME_LEVEL) -> list[int]:
    """Indices that e-BH names: the k largest with e >= m / (k level), the largest such k; strongest first.

    >>> named([1000.0, 3.0, 90.0, 0.1])
    [0, 2]
    """
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    m, last = len(values), 0
    for rank, i in enumerate(order, 1):
        if values[i] >= m / (rank * level):
            last = rank
    return order[:last]
