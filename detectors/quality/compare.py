"""Two rates beside each other: an interval of the difference, and whether anything can be told."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from scipy import stats

Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Difference:
    """``value`` = first share minus second with its 95 % interval (Newcombe); ``p`` two-sided (Fisher)."""

    value: float
    low: float
    high: float
    p: float

    @property
    def separable(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> [round(x, 3) for x in wilson(9, 10)]
    [0.596, 0.982]
    """
    p = k / n
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return middle - half, middle + half


def difference(k1: int, n1: int, k0: int, n0: int) -> Difference:
    """``k1`` of ``n1`` against ``k0`` of ``n0``; ``ValueError`` where one has no trial."""
    if n1 <= 0 or n0 <= 0:
        raise ValueError("both sides need at least one trial")
    p1, p0 = k1 / n1, k0 / n0
    (l1, u1), (l0, u0) = wilson(k1, n1), wilson(k0, n0)
    low = p1 - p0 - sqrt((p1 - l1) ** 2 + (u0 - p0) ** 2)
    high = p1 - p0 + sqrt((u1 - p1) ** 2 + (p0 - l0) ** 2)
    return Difference(p1 - p0, low, high, float(stats.fisher_exact([[k1, n1 - k1], [k0, n0 - k0]])[1]))
