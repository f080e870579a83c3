"""Honest numbers from histogram buckets: percentiles with intervals, shares within a threshold, comparison of tails.

Percentiles come from summed increments, never from averaged percentiles. The interval joins what buckets hide with what sampling
hides (a distribution-free order-statistic bound). Values in the first bucket are ``≤ edge``, beyond the last ``≥ edge``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betainc

from core.bucket_kernel import Layer, Solution, bounds_at, solve, sum_arrays
from core.frames import FloatArray, IntArray
from core.requests import Hist

__all__ = [
    "Hist",
    "Quantile",
    "QuantileSeries",
    "Share",
    "exceedance_p",
    "merge",
    "quantile",
    "share_within",
    "trailing_quantiles",
]

State = Literal["ok", "above", "below", "too_few", "no_traffic"]
MIN_N = 300
WINDOWS = (1, 5, 15, 60)
_STATES: tuple[State, ...] = ("ok", "above", "below", "too_few", "no_traffic")


@dataclass(frozen=True, slots=True)
class Quantile:
    """A percentile with its interval and count.

    ``value`` is None unless ``state`` is ``ok``. ``low`` and ``high`` bound the true quantile (95 %, buckets and sampling
    joined); ``above``: low is the last edge known to be passed, high infinite; ``below``: low 0, high the first edge. With too
    few observations for an upper bound (p99: under 368) ``high`` is infinite although the state is ``ok``.
    """

    q: float
    value: float | None
    low: float
    high: float
    n: int
    state: State

    def text(self, unit: str = "s") -> str:
        """As shown: ``2.1 s (1.0–2.5, n 4,312)``, ``≥ 160 s (n 400)``, ``≤ 1 ms (n 400)``, ``not enough data (n 12)``."""
        count = f"n {self.n:,}"
        if self.state == "no_traffic":
            return "no traffic"
        if self.state == "too_few":
            return f"not enough data ({count})"
        if self.state == "above":
            return f"≥ {_with_unit(self.low, unit)} ({count})"
        if self.state == "below":
            return f"≤ {_with_unit(self.high, unit)} ({count})"
        value = self.value if self.value is not None else math.nan
        scale, shown = _scale(value, unit)
        low = _bound(self.low * scale)
        interval = f"{low}–{_bound(self.high * scale)}" if math.isfinite(self.high) else f"≥ {low}"
        return f"{_number(value * scale)}{shown} ({interval}, {count})"


@dataclass(frozen=True, slots=True)
class Share:
    """Between ``low`` and ``high`` of ``n`` observations were within a threshold; equal where it lies on an edge."""

    low: int
    high: int
    n: int

    @property
    def exact(self) -> bool:
        """True where the count is known."""
        return self.low == self.high

    @property
    def bounds(self) -> tuple[float, float]:
        """The share as an interval; NaN without observations."""
        return (self.low / self.n, self.high / self.n) if self.n else (math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class QuantileSeries:
    """A percentile per step as arrays [T]: NaN in ``value`` where there is none; ``state`` is 0 ok, 1 above, 2 below, 3 too_few,
    4 no_traffic; ``window`` is the trailing window used, in minutes. Indexing and iterating give ``(Quantile, window)``."""

    q: float
    value: FloatArray
    low: FloatArray
    high: FloatArray
    n: IntArray
    state: IntArray
    window: FloatArray

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, i: int) -> tuple[Quantile, float]:
        state = _STATES[int(self.state[i])]
        value = float(self.value[i]) if state == "ok" else None
        found = Quantile(self.q, value, float(self.low[i]), float(self.high[i]), int(self.n[i]), state)
        return found, float(self.window[i])

    def __iter__(self) -> Iterator[tuple[Quantile, float]]:
        return (self[i] for i in range(len(self)))


def merge(hists: Sequence[Hist]) -> dict[tuple[float, ...], IntArray]:
    """Counts summed per bucket layout, layouts in order of appearance. Negative counts (no value) count as none."""
    out: dict[tuple[float, ...], IntArray] = {}
    for edges, counts in hists:
        if len(counts) != len(edges) + 1:
            raise ValueError(f"{len(edges)} edges need {len(edges) + 1} counts, got {len(counts)}")
        clean = np.maximum(np.asarray(counts, dtype=np.int64), 0)
        known = out.get(edges)
        out[edges] = clean if known is None else known + clean
    return out


def quantile(
    hists: Sequence[Hist], q: float, min_n: int = MIN_N, *, censored: Sequence[Hist] = (), alpha: float = 0.05
) -> Quantile:
    """The ``q`` quantile of all observations of ``hists``, whatever their layouts.

    ``censored`` observations are known only to be at least their bucket's lower edge (requests given up unanswered).
    """
    layers = [Layer.of(edges, counts[:, None]) for edges, counts in merge(hists).items()]
    layers += [Layer.of(edges, counts[:, None], censored=True) for edges, counts in merge(censored).items()]
    if not layers:
        return Quantile(q, None, 0.0, math.inf, 0, "no_traffic")
    return _series(solve(layers, q, alpha), q, min_n, np.zeros(1))[0][0]


def _series(found: Solution, q: float, min_n: int, window: FloatArray) -> QuantileSeries:
    """States of a solution: none before too few before outside the edges."""
    inner_low, inner_high = found.inner
    state = np.zeros(len(found.n), dtype=np.int64)
    value, low, high = found.value.copy(), *(a.copy() for a in found.outer)
    below = inner_low <= 0
    above = ~np.isfinite(inner_high)
    state[below], high[below] = 2, inner_high[below]
    state[above], low[above] = 1, inner_low[above]
    state[found.n < min_n] = 3
    empty = found.n == 0
    state[empty], low[empty], high[empty] = 4, 0.0, np.inf
    value[state != 0] = np.nan
    return QuantileSeries(q, value, low, high, found.n, state, window)


def share_within(hists: Sequence[Hist], threshold: float) -> Share:
    """How many observations were at most ``threshold``: bounds from the edges around it, summed over layouts."""
    low = high = n = 0
    for edges, counts in merge(hists).items():
        layer = Layer.of(edges, counts[:, None])
        least, most = bounds_at(layer, np.array([threshold]))
        low, high, n = low + int(least[0, 0]), high + int(most[0, 0]), n + int(layer.total[0])
    return Share(low, high, n)


def exceedance_p(k: int, n: int, K: int, N: int, phi: float = 1.0) -> float:
    """One-sided p-value that ``k`` of ``n`` exceed a bucket edge more often than ``K`` of ``N`` did before.

    Conditional exact binomial: P(X ≥ k) with X ~ Bin(k + K, n / (n + N)). ``phi`` ≥ 1 is the dispersion of the counts (1 =
    independent requests): both counts are divided by it. 1.0 where nothing can be said. ValueError on impossible counts.
    """
    if not (0 <= k <= n and 0 <= K <= N) or not phi >= 1:
        raise ValueError(f"impossible counts {k} of {n}, {K} of {N}, dispersion {phi}")
    if k == 0 or n == 0 or N == 0:
        return 1.0
    # P(X >= k) of a binomial is a regularised incomplete beta, which also takes the fractional counts that phi gives.
    return float(betainc(k / phi, K / phi + 1, n / (n + N)))


def trailing_quantiles(
    layouts: Mapping[tuple[float, ...], IntArray],
    q: float,
    windows: Sequence[float] = WINDOWS,
    min_n: int = MIN_N,
    *,
    step: float = 1.0,
    at: Sequence[int] | IntArray | None = None,
    censored: Mapping[tuple[float, ...], IntArray] | None = None,
) -> QuantileSeries:
    """A percentile at each step over the shortest trailing window that holds ``min_n`` observations (else the longest).

    ``layouts`` maps edges to counts per bucket [T, B + 1] on one grid of ``step`` minutes, gaps filled with zeros; a window at
    step ``i`` ends with and includes it, so the caller hands over an hour before what is drawn. ``at`` picks steps (all).
    ``censored``: on the same grid, observations known only to be at least their bucket's lower edge, as in :func:`quantile`.
    """
    parts = [(edges, counts, False) for edges, counts in layouts.items()]
    parts += [(edges, counts, True) for edges, counts in (censored or {}).items()]
    lengths = {len(counts) for _, counts, _ in parts}
    if len(lengths) > 1:
        raise ValueError(f"layouts with different numbers of steps: {sorted(lengths)}")
    steps = np.arange(lengths.pop() if lengths else 0) if at is None else np.asarray(at, dtype=np.int64)
    if not parts or not len(steps):
        empty = np.zeros(len(steps))
        nothing = np.zeros(len(steps), dtype=np.int64)
        return QuantileSeries(
            q, empty * np.nan, empty, empty + np.inf, nothing, nothing + 4, empty + float(windows[-1])
        )
    spans = [max(1, round(w / step)) for w in windows]
    # Sums over time once, with a row of zeros in front: any window is the difference of two rows.
    sums: list[tuple[tuple[float, ...], IntArray, bool]] = []
    for edges, counts, least in parts:
        running = np.zeros((counts.shape[1], len(counts) + 1), dtype=np.int64)
        np.cumsum(np.maximum(counts, 0).T, axis=1, out=running[:, 1:])
        sums.append((edges, running, least))
    total = sum_arrays([running.sum(axis=0) for _, running, _ in sums])
    ends = steps + 1
    starts = np.maximum(ends - spans[-1], 0)
    window = np.full(len(steps), float(windows[-1]))
    for span, minutes in zip(reversed(spans[:-1]), reversed(windows[:-1]), strict=True):
        begin = np.maximum(ends - span, 0)
        enough = total[ends] - total[begin] >= min_n
        starts = np.where(enough, begin, starts)
        window[enough] = minutes
    layers = [
        Layer.of(e, running[:, ends] - running[:, starts], censored=least) for e, running, least in sums
    ]
    return _series(solve(layers, q), q, min_n, window)


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Factor and written unit: seconds under one are shown as milliseconds."""
    if unit == "s" and 0 < abs(value) < 1:
        return 1000.0, " ms"
    return 1.0, f" {unit}" if unit else ""


def _with_unit(value: float, unit: str) -> str:
    scale, shown = _scale(value, unit)
    return f"{_bound(value * scale).removesuffix('.0')}{shown}"


def _bound(value: float) -> str:
    """A bucket edge: not rounded below three digits, since rounding would move the bound."""
    if not math.isfinite(value) or value >= 1000 or value == 0:
        return _number(value)
    plain = f"{value:.4g}"
    return plain if "." in plain or value >= 10 or value < 1 else f"{plain}.0"


def _number(value: float) -> str:
    """Two significant digits below ten (``1.0``, ``0.25``), whole numbers above, thousands separated."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "?"
    if value == 0 or abs(value) >= 9.95:
        return f"{value:,.0f}"
    if abs(value) < 1:
        return f"{value:.2g}"
    return f"{value:.1f}"
