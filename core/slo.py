"""Objectives counted by occurrences: how many requests were good, bad, excluded or not known to be either.

Good is answered and in time. From separate engine histograms only bounds exist; from gateway requests, whose buckets have the
thresholds among their edges, the counts are exact. What is not known widens the interval instead of being guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.buckets import MIN_N, Quantile, quantile, share_within
from core.objective import END_TO_END, ITL, QUEUE, SAMPLED, TPOT, TTFT, Objective
from core.requests import Hist, RequestCell, RequestKey
from core.tally import NO_EDGE, Edge, Tally, total
from core.verdicts import GAVE_UP, UNMET, cell_tally, concerns

__all__ = [
    "END_TO_END",
    "GAVE_UP",
    "ITL",
    "NO_EDGE",
    "QUEUE",
    "SAMPLED",
    "TPOT",
    "TTFT",
    "UNMET",
    "Attainment",
    "Edge",
    "Objective",
    "State",
    "Tally",
    "attain",
    "cell_tally",
    "concerns",
    "enough",
    "first_token_quantile",
    "from_histograms",
    "good_bad",
    "per_minute",
    "sliced",
    "total",
]

State = Literal["met", "missed", "undetermined", "too_few", "no_traffic"]


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

    @property
    def reportable(self) -> bool:
        """False where too little of the span was seen for the number to stand in a report."""
        return self.coverage >= self.objective.min_coverage - 1e-9

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
    mine = [(key, cell) for key, cell in cells.items() if concerns(objective, key)]
    present = {key.point for key, _ in mine}
    # One attempt may stand in the logs of several points; only one of them is counted.
    order = ("gateway", "router", "client") if objective.point == "auto" else (objective.point,)
    point = next((p for p in order if p in present), None)
    out: dict[int, Tally] = {}
    for key, cell in mine:
        if key.point == point:
            out[key.minute] = out.get(key.minute, Tally()) + cell_tally(objective, key.status, cell)
    return out


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


def attain(
    objective: Objective,
    tally: Tally,
    *,
    minutes: float = 0,
    covered: float | None = None,
    edge: Edge = NO_EDGE,
    interval: tuple[float, float] | None = None,
) -> Attainment:
    """Judge a tally. ``minutes``: length of the span; ``covered``: how many of them have telemetry (all, if None).

    ``edge``: requests that may belong to the span or to its neighbours. ``interval``: of a sample, instead of the tally's own.
    """
    low, high = tally.within(edge) if interval is None else interval
    coverage = min(1.0, covered / minutes) if covered is not None and minutes > 0 else 1.0
    left = (1 - (1 - low) / objective.budget, 1 - (1 - high) / objective.budget)
    return Attainment(objective, tally, low, high, left, coverage, _state(objective, tally, low, high), edge)


def sliced(objective: Objective, minutes: Mapping[int, Tally]) -> dict[int, Tally]:
    """Time slices: one count a minute, good where the objective's share of its requests was good; none without requests.

    A minute whose interval holds the share is undecided; one of excluded requests alone is excluded.
    """
    out: dict[int, Tally] = {}
    for minute, tally in minutes.items():
        low, high = tally.attainment
        known = tally.aborts_known
        if math.isnan(low):
            out[minute] = Tally(excluded=1, aborts_known=known)
        elif low >= objective.slice_target:
            out[minute] = Tally(good=1, aborts_known=known)
        elif high < objective.slice_target:
            out[minute] = Tally(bad=1, aborts_known=known)
        else:
            out[minute] = Tally(either=1, aborts_known=known)
    return out


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
