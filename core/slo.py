"""Objectives counted by occurrences: how many requests were good, bad, excluded or not known to be either.

Good is answered and in time. From separate engine histograms only bounds exist; from gateway requests, whose buckets have the
thresholds among their edges, the counts are exact. What is not known widens the interval instead of being guessed.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.bucket_kernel import TOLERANCE
from core.buckets import MIN_N, Quantile, Share, quantile, share_within
from core.requests import Hist, RequestCell, RequestKey

State = Literal["met", "missed", "undetermined", "too_few", "no_traffic"]
GAVE_UP = frozenset({0, 499})
"""Statuses with which gateways log a client that went away (Envoy writes 0)."""
UNMET = frozenset({429, 503})
"""Turned away: demand that was not met."""
TTFT = "ttft_seconds"
END_TO_END = "request_latency_seconds"


@dataclass(frozen=True, slots=True)
class Objective:
    """``target`` (0.99) of the requests of ``class_`` have ``signal`` at most ``threshold`` over ``window`` seconds."""

    name: str
    class_: str
    signal: str
    threshold: float
    target: float
    window: float
    point: str = "auto"

    @classmethod
    def from_config(cls, slo: Any) -> Objective:
        """Of a ``core.config.SloConfig``."""
        return cls(
            slo.name,
            slo.class_,
            slo.signal,
            slo.threshold,
            slo.objective_percent / 100,
            slo.window,
            slo.point,
        )

    @property
    def from_requests(self) -> bool:
        """True where gateway requests can measure it."""
        return self.signal in (TTFT, END_TO_END) and self.point != "engine"

    @property
    def budget(self) -> float:
        """Share of requests that may be bad."""
        return 1.0 - self.target


@dataclass(frozen=True, slots=True)
class Edge:
    """Requests that may belong to the span or to its neighbours, ``bad`` of them at most late."""

    n: int = 0
    bad: int = 0


NO_EDGE = Edge()


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of requests.

    ``good``, ``bad``: known. ``either``: counted, but good or bad is not known (threshold between two edges, no latency logged).
    ``bad_or_excluded``: given up by the client at an unknown age. ``excluded``: given up in time, or the client's own error.
    ``good_or_excluded``: had a timely first token and may have left after it, or may have been lost with its replica.
    ``unmet`` (turned away) and ``errors`` are parts of ``bad``. ``aborts_known``: false where nothing says how many gave up.
    """

    good: int = 0
    bad: int = 0
    either: int = 0
    bad_or_excluded: int = 0
    excluded: int = 0
    unmet: int = 0
    errors: int = 0
    aborts_known: bool = True
    good_or_excluded: int = 0

    @classmethod
    def of(cls, counts: Sequence[int], aborts_known: bool = True) -> Tally:
        """From the eight counts of :attr:`counts`."""
        good, bad, either, bad_or_excluded, excluded, unmet, errors, good_or_excluded = counts
        return cls(
            good, bad, either, bad_or_excluded, excluded, unmet, errors, aborts_known, good_or_excluded
        )

    def replaced(self, **counts: int) -> Tally:
        """The same with some counts changed."""
        return replace(self, **counts)  # type: ignore[arg-type]

    @property
    def counts(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The eight counts: good, bad, either, bad_or_excluded, excluded, unmet, errors, good_or_excluded."""
        return (
            self.good,
            self.bad,
            self.either,
            self.bad_or_excluded,
            self.excluded,
            self.unmet,
            self.errors,
            self.good_or_excluded,
        )

    def __add__(self, other: Tally) -> Tally:
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        return Tally.of(counts, self.aborts_known and other.aborts_known)

    @property
    def counted(self) -> int:
        """Requests certainly in the denominator."""
        return self.good + self.bad + self.either

    @property
    def attempts(self) -> int:
        """All requests seen."""
        return self.counted + self.bad_or_excluded + self.good_or_excluded + self.excluded

    @property
    def exact(self) -> bool:
        """True where attainment is one number, not an interval."""
        return not (self.either or self.bad_or_excluded or self.good_or_excluded)

    @property
    def attainment(self) -> tuple[float, float]:
        """Lowest and highest possible share of good requests; NaN without traffic."""
        return self.within(NO_EDGE)

    def within(self, edge: Edge) -> tuple[float, float]:
        """Lowest and highest possible share of good requests where ``edge`` may fall on either side of the span's ends."""
        worst = self.counted + self.bad_or_excluded
        best = self.counted + self.good_or_excluded
        if not worst and not best:
            return (math.nan, math.nan)
        # At worst all unknown ones are bad and the good ones at the ends belong elsewhere; at best the opposite.
        good = max(0, self.good - edge.n)
        bad = self.bad + self.either + self.bad_or_excluded + edge.bad
        low = good / (good + bad) if good + bad else 1.0
        good = self.good + self.either + self.good_or_excluded + edge.n
        bad = max(0, self.bad - edge.bad)
        high = good / (good + bad) if good + bad else 1.0
        return (low, high)

    @property
    def bad_share(self) -> tuple[float, float]:
        """Lowest and highest possible share of bad requests; NaN without traffic."""
        low, high = self.attainment
        return (1.0 - high, 1.0 - low)


@dataclass(frozen=True, slots=True)
class Attainment:
    """An objective over a span: interval, what is left of the budget, coverage and state.

    ``budget_left``: 1 untouched, 0 used up, negative overspent; low and high. ``coverage``: share of the span's minutes with
    telemetry, the rest is unknown and stands beside the number. ``state``: ``too_few`` where a single bad request would miss the
    objective; ``undetermined`` where the interval holds it.
    """

    objective: Objective
    tally: Tally
    low: float
    high: float
    budget_left: tuple[float, float]
    coverage: float
    state: State
    edge: Edge = NO_EDGE

    def text(self) -> str:
        """As shown: ``99.12 %``, ``98.9–99.4 %``, ``no traffic``, ``not enough data (n 12)``."""
        if self.state == "no_traffic":
            return "no traffic"
        if self.state == "too_few":
            return f"not enough data (n {self.tally.counted:,})"
        # Two decimals, rounded outwards; one number is rounded down, so that no miss becomes 100 %.
        low = math.floor(self.low * 10_000 + 1e-9) / 100
        high = low if self.low == self.high else math.ceil(self.high * 10_000 - 1e-9) / 100
        return f"{low:.2f} %" if low == high else f"{low:.2f}–{high:.2f} %"


def good_bad(objective: Objective, cells: Mapping[RequestKey, RequestCell]) -> Tally:
    """Count gateway requests of the objective's class and measurement point, whatever their minute.

    2xx with the latency in time is good; late, 5xx or turned away (429, 503) is bad; other 4xx are the client's. Given up
    (499, 0): bad if it waited longer than the threshold for a first token, else excluded; at unknown age, one of the two.
    """
    return total(per_minute(objective, cells).values())


def per_minute(objective: Objective, cells: Mapping[RequestKey, RequestCell]) -> dict[int, Tally]:
    """The same per minute (Unix seconds of its start)."""
    mine = [(key, cell) for key, cell in cells.items() if key.class_ == objective.class_]
    present = {key.point for key, _ in mine}
    # One attempt may stand in the logs of several points; only one of them is counted.
    order = ("gateway", "router", "client") if objective.point == "auto" else (objective.point,)
    point = next((p for p in order if p in present), None)
    out: dict[int, Tally] = {}
    for key, cell in mine:
        if key.point == point:
            out[key.minute] = out.get(key.minute, Tally()) + cell_tally(objective, key.status, cell)
    return out


def cell_tally(objective: Objective, status: int, cell: RequestCell) -> Tally:
    """Count the attempts of one cell, all with the same status. ValueError for a signal that gateway logs do not hold."""
    if objective.signal not in (TTFT, END_TO_END):
        raise ValueError(f"gateway requests do not measure {objective.signal}")
    if status in GAVE_UP:
        return _gave_up(objective, cell)
    if status in UNMET:
        return Tally(bad=cell.n, unmet=cell.n)
    if status >= 500:
        return Tally(bad=cell.n, errors=cell.n)
    if not 200 <= status < 300:
        return Tally(excluded=cell.n)
    if objective.signal == END_TO_END:
        known = _within(cell.duration, objective.threshold)
        silent = cell.n - known.n
        return Tally(good=known.low, bad=known.n - known.high, either=known.high - known.low + silent)
    first = _within(cell.ttft, objective.threshold)
    # Answered, but no time to first token was logged: it came before the end, so an answer that ended in time was in time.
    whole = _within(cell.age, objective.threshold)
    return Tally(
        good=first.low + whole.low,
        bad=first.n - first.high,
        either=first.high - first.low + (cell.n - first.n - whole.low),
    )


def _gave_up(objective: Objective, cell: RequestCell) -> Tally:
    hists = [cell.duration] if objective.signal == END_TO_END else [cell.ttft, cell.age]
    shares = [_within(hist, objective.threshold) for hist in hists]
    low, high, n = sum(s.low for s in shares), sum(s.high for s in shares), sum(s.n for s in shares)
    return Tally(bad=n - high, excluded=low, bad_or_excluded=high - low + cell.n - n)


def _within(hist: Hist, threshold: float) -> Share:
    """:func:`core.buckets.share_within` for one histogram of the many cells of a month."""
    edges, counts = hist
    below, above = _positions(edges, threshold)
    low = int(counts[:below].sum())
    high = low + int(counts[below:above].sum())
    return Share(low, high, high + int(counts[above:].sum()))


@functools.lru_cache(maxsize=256)
def _positions(edges: tuple[float, ...], threshold: float) -> tuple[int, int]:
    """Buckets certainly within the threshold, and buckets possibly within it."""
    slack = TOLERANCE * abs(threshold)
    return bisect_right(edges, threshold + slack), min(bisect_left(edges, threshold - slack), len(edges)) + 1


def from_histograms(
    objective: Objective,
    hists: Sequence[Hist],
    *,
    aborted: int | None = None,
    errors: int = 0,
    unmet: int = 0,
    late_in_flight: int = 0,
) -> Tally:
    """Bounds from an engine's latency histograms.

    ``aborted``: given up at unknown age and not in the histogram (the engine's abort counter, or HTTP 2xx − successes); None
    where nothing exports it, which the tally then says. ``late_in_flight``: waiting now for longer than the threshold:
    latencies are recorded when they land, these are late already.
    """
    share = share_within(hists, objective.threshold)
    return Tally(
        good=share.low,
        bad=share.n - share.high + errors + unmet + late_in_flight,
        either=share.high - share.low,
        bad_or_excluded=aborted or 0,
        unmet=unmet,
        errors=errors,
        aborts_known=aborted is not None,
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """Their sum."""
    out = Tally()
    for tally in tallies:
        out += tally
    return out


def attain(
    objective: Objective,
    tally: Tally,
    *,
    minutes: float = 0,
    covered: float | None = None,
    edge: Edge = NO_EDGE,
) -> Attainment:
    """Judge a tally. ``minutes``: length of the span; ``covered``: how many of them have telemetry (all, if None).

    ``edge``: requests that may belong to the span or to its neighbours.
    """
    low, high = tally.within(edge)
    coverage = min(1.0, covered / minutes) if covered is not None and minutes > 0 else 1.0
    left = (1 - (1 - low) / objective.budget, 1 - (1 - high) / objective.budget)
    return Attainment(objective, tally, low, high, left, coverage, _state(objective, tally, low, high), edge)


def enough(objective: Objective) -> int:
    """Requests below which a single bad one misses the objective: 100 for 99 %, 1,000 for 99.9 %."""
    return math.ceil(1 / objective.budget - 1e-6)


def _state(objective: Objective, tally: Tally, low: float, high: float) -> State:
    if math.isnan(low):
        return "no_traffic"
    if tally.counted + tally.good_or_excluded < enough(objective):
        return "too_few"
    if not tally.aborts_known and low >= objective.target:
        return "undetermined"  # unseen aborts could only lower it
    if low >= objective.target:
        return "met"
    return "missed" if high < objective.target else "undetermined"


def first_token_quantile(
    cells: Mapping[RequestKey, RequestCell], q: float = 0.99, min_n: int = MIN_N, *, class_: str | None = None
) -> Quantile:
    """Time to first token over all attempts that waited for one: those given up before it count as at least their age.

    Errors and rejections have no time to first token and stand beside the percentile, not in it.
    """
    answered: list[Hist] = []
    waiting: list[Hist] = []
    for key, cell in cells.items():
        if class_ is not None and key.class_ != class_:
            continue
        if key.status in GAVE_UP:
            answered.append(cell.ttft)
            waiting.append(cell.age)
        elif 200 <= key.status < 300:
            answered.append(cell.ttft)
    return quantile(answered, q, min_n, censored=waiting)
