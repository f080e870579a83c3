"""Rates of rare events with exact intervals, weighted where the sample is, and what nothing seen still allows.

A rate comes from the random part of a sample alone: an output that was kept *because* it looked bad says nothing about how
often bad ones occur. Random rows may have weights (one kept in 20 stands for 20).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from detectors.stats import exact_interval

F = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class RateInterval:
    """``value`` = share of degraded outputs with its interval; ``n`` outputs looked at, ``k`` of them bad (rows, not weights).

    ``value`` is NaN without outputs.
    """

    value: float
    low: float
    high: float
    k: int
    n: int

    def per_10k(self) -> tuple[float, float, float]:
        """Value, low and high per ten thousand."""
        return self.value * 1e4, self.low * 1e4, self.high * 1e4


def exact(k: int, n: int, level: float = LEVEL) -> RateInterval:
    """Clopper–Pearson: an interval that holds its level whatever the true rate.

    >>> r = exact(0, 3000)
    >>> round(r.high, 5)
    0.00123
    """
    if n <= 0:
        return RateInterval(float("nan"), 0.0, 1.0, 0, 0)
    low, high = exact_interval(k, n, level)
    return RateInterval(k / n, low, high, k, n)


def weighted(bad: F, weight: F, level: float = LEVEL) -> RateInterval:
    """Rate of rows ``bad`` (0 or 1) with weights; equal weights give :func:`exact`.

    Else the gamma interval of Fay and Feuer for a weighted sum of Poisson counts, which is conservative: the upper end allows
    one more event of the largest weight.
    """
    n = len(weight)
    return from_sums(
        int(bad.sum()),
        n,
        float((bad * weight).sum()),
        float((bad * weight**2).sum()),
        float(weight.sum()),
        float(weight.max()) if n else 1.0,
        level=level,
    )


def from_sums(
    k: int, n: int, bad_w: float, bad_w2: float, total_w: float, most_w: float, *, level: float = LEVEL
) -> RateInterval:
    """The same from sums: rows, bad rows, weight and squared weight of the bad, weight of all, largest weight."""
    if n <= 0 or total_w <= 0:
        return RateInterval(float("nan"), 0.0, 1.0, 0, 0)
    if abs(total_w - most_w * n) <= 1e-9 * total_w:
        return exact(k, n, level)
    a = (1 - level) / 2
    y, v, w = bad_w / total_w, bad_w2 / total_w**2, most_w / total_w
    low = float(special.gammaincinv(y * y / v, a) * v / y) if v > 0 else 0.0
    high = float(special.gammaincinv((y + w) ** 2 / (v + w * w), 1 - a) * (v + w * w) / (y + w))
    return RateInterval(y, low, min(high, 1.0), k, n)


def zero_bound(n: int, level: float = LEVEL) -> float:
    """The largest rate that ``n`` outputs without a bad one still allow (one-sided): 3,000 bound it at 0.1 %.

    >>> round(zero_bound(3000), 4)
    0.001
    """
    return 1.0 if n <= 0 else float(1 - (1 - level) ** (1 / n))


def with_errors(rate: float, false_positive: float, recall: float) -> float:
    """The rate of truly bad outputs behind an observed one (Rogan–Gladen), never below 0 or over 1.

    ``ValueError`` where the rules are no better than chance.
    """
    if not recall > false_positive:
        raise ValueError(f"recall {recall} is not above the false-positive rate {false_positive}")
    return min(1.0, max(0.0, (rate - false_positive) / (recall - false_positive)))
