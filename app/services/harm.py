"""Who is hurt: late requests of a class against its objective, minute by minute."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.services.latency import Series, Windowed
from app.services.rates import exact_interval
from app.services.wording import seconds
from core.frames import FloatArray, IntArray

TREND_MINUTES = 5
SPAN = 5
"""An objective counts as missed from when five minutes together are over it beyond chance, and most of the next five are."""


@dataclass(frozen=True, slots=True)
class Within:
    """Per step: requests within the threshold (between ``low`` and ``high``) of ``n``."""

    low: IntArray
    high: IntArray
    n: IntArray

    def share(self, steps: int | None = None) -> tuple[float, float, int]:
        """(low, high, n) share within over the last ``steps`` (all where None); NaN without requests."""
        tail = slice(None) if steps is None else slice(-steps, None)
        n = int(self.n[tail].sum())
        if n == 0:
            return (float("nan"), float("nan"), 0)
        return (float(self.low[tail].sum() / n), float(self.high[tail].sum() / n), n)


def within(hists: Mapping[tuple[float, ...], IntArray], threshold: float) -> Within:
    """Requests within ``threshold`` per step; an interval where the threshold lies between two edges of a layout."""
    low = high = n = None
    for edges, counts in hists.items():
        running = np.concatenate([np.zeros((len(counts), 1), np.int64), counts.cumsum(axis=1)], axis=1)
        a = running[:, bisect_right(edges, threshold * (1 + 1e-9))]
        at = bisect_left(edges, threshold * (1 - 1e-9))
        on_edge = at < len(edges) and abs(edges[at] - threshold) <= 1e-9 * threshold
        b = a if on_edge else running[:, min(at + 1, len(edges) + 1)]
        total = running[:, -1]
        low = a if low is None else low + a
        high = b if high is None else high + b
        n = total if n is None else n + total
    if low is None or high is None or n is None:
        empty = np.zeros(0, np.int64)
        return Within(empty, empty, empty)
    return Within(low, high, n)


@dataclass(frozen=True, slots=True)
class ClassHarm:
    """One class during an incident.

    ``now`` is the class's p99 wherever it is served, ``here`` that of the incident's pools alone.
    ``late`` requests over the threshold since the incident began (at least; ``late_high`` at most) of ``n``; ``trend`` =
    (share late before, significant change, share late now) over the last five minutes against the ten before.
    """

    class_: str
    signal: str
    now: Windowed | None
    here: Windowed | None
    threshold: float | None
    objective: float | None
    late: int | None
    late_high: int | None
    n: int
    missed: bool
    missed_since: float | None
    trend: tuple[float, float, float] | None
    series: Series | None = None
    peak: float | None = None
    """Highest p99 between onset and end; None without one."""
    source: str = "engine"

    @property
    def label(self) -> str:
        """``TTFT`` for ``ttft_seconds``, ..."""
        return short(self.signal)

    def now_text(self) -> str:
        """The p99 now, without interval."""
        return "not enough data" if self.now is None else quantile_word(self.now)

    def clause(self) -> str:
        """``coding-agent TTFT p99 is 156 s, objective 5 s``."""
        head = f"{self.class_} {self.label} p99 is {self.now_text()}"
        return f"{head}, objective {seconds(self.threshold)}" if self.threshold is not None else head

    def peak_clause(self) -> str:
        """``coding-agent TTFT p99 reached 156 s, objective 5 s``: for an incident that is over."""
        head = f"{self.class_} {self.label} p99 reached {seconds(self.peak)}"
        return f"{head}, objective {seconds(self.threshold)}" if self.threshold is not None else head


def short(signal: str) -> str:
    """The usual short name of a latency."""
    return {
        "ttft_seconds": "TTFT",
        "inter_token_latency_seconds": "ITL",
        "time_per_output_token_seconds": "TPOT",
        "request_latency_seconds": "end to end",
        "queue_time_seconds": "queue time",
    }.get(signal, signal.removesuffix("_seconds").replace("_", " "))


def quantile_word(w: Windowed) -> str:
    """One number, or the bound where only a bound is known, or the reason why there is none."""
    q = w.q
    if q.state == "above":
        return f"≥ {seconds(q.low)}"
    if q.state == "below":
        return f"≤ {seconds(q.high)}"
    if q.state == "no_traffic":
        return "no traffic"
    if q.value is None:
        return "not enough data"
    return seconds(q.value)


def trend(w: Within) -> tuple[float, float, float] | None:
    """(share late before, change, share late now): change is 0 unless it is more than three standard errors."""
    if len(w.n) < 3 * TREND_MINUTES:
        return None
    now_n = int(w.n[-TREND_MINUTES:].sum())
    before_n = int(w.n[-3 * TREND_MINUTES : -TREND_MINUTES].sum())
    if now_n < 20 or before_n < 20:
        return None
    now = 1 - w.high[-TREND_MINUTES:].sum() / now_n
    before = 1 - w.high[-3 * TREND_MINUTES : -TREND_MINUTES].sum() / before_n
    pooled = (now * now_n + before * before_n) / (now_n + before_n)
    error = float(np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / now_n + 1 / before_n)))
    change = float(now - before)
    return (float(before), change if abs(change) > 3 * error else 0.0, float(now))


def missed_since(w: Within, t: FloatArray, objective: float, earliest: float) -> float | None:
    """Start of the first late minute of a persistent miss at or after ``earliest``, or None. ``t``: ends of the minutes."""
    late = w.n - w.high
    over = np.zeros(len(w.n), bool)
    for at in np.flatnonzero(t >= earliest):
        i = int(at)
        a = max(0, i - SPAN + 1)
        k, n = int(late[a : i + 1].sum()), int(w.n[a : i + 1].sum())
        over[i] = n > 0 and k > (1 - objective) * n and exact_interval(k, n)[0] > 1 - objective
    for at in np.flatnonzero(over):
        i = int(at)
        following = over[i : i + SPAN]
        if following.sum() * 2 > len(following):
            minutes = range(max(0, i - SPAN + 1), i + 1)
            first = next(m for m in minutes if late[m] > (1 - objective) * w.n[m])
            return float(t[first] - 60.0)
    return None
