"""Attempts of a gateway log judged: good, bad, excluded, or what cannot be told of them, per kind of objective.

Everywhere: turned away (429, 503) and failed (5xx) are bad, other 4xx are the client's own. Given up (499, 0): bad where the
client had waited longer than the threshold for what it was promised, else excluded; at unknown age, one of the two.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping

from core.bucket_kernel import TOLERANCE
from core.buckets import Share
from core.objective import END_TO_END, TPOT, TTFT, Objective, joint_key
from core.requests import Hist, RequestCell, RequestKey
from core.tally import Tally

GAVE_UP = frozenset({0, 499})
"""Statuses with which gateways log a client that went away (Envoy writes 0)."""
UNMET = frozenset({429, 503})
"""Turned away: demand that was not met."""


def concerns(objective: Objective, key: RequestKey) -> bool:
    """Whether attempts of this key are those the objective is about, whatever their point and minute."""
    o = objective
    return (
        key.class_ == o.class_
        and (not o.bands or key.band in o.bands)
        and (not o.tenant or key.tenant == o.tenant)
        and (not o.model or key.model == o.model)
        and (not o.pool or key.pool == o.pool)
    )


def cell_tally(objective: Objective, status: int, cell: RequestCell) -> Tally:
    """Count the attempts of one cell, all with the same status. ValueError for what gateway logs do not hold."""
    answered, left = _judges(objective)
    if status in GAVE_UP:
        return left(objective, cell)
    if status in UNMET:
        return Tally(bad=cell.n, unmet=cell.n)
    if status >= 500:
        return Tally(bad=cell.n, errors=cell.n)
    if not 200 <= status < 300:
        return Tally(excluded=cell.n)
    return answered(objective, cell)


_Judge = Callable[[Objective, RequestCell], Tally]


def _judges(o: Objective) -> tuple[_Judge, _Judge]:
    """How answers are judged, and how those that were given up are."""
    if o.sli == "availability":
        return _all_good, _left_before_first_token
    if o.sli == "goodput":
        return _joint, _left_joint
    if o.sli == "latency" and o.signal in _LATENCIES:
        return _LATENCIES[o.signal]
    raise ValueError(f"gateway requests do not measure {o.signal or o.sli}")


def _first_token(o: Objective, cell: RequestCell) -> Tally:
    first = within(cell.ttft, o.threshold)
    # Answered, but no time to first token was logged: it came before the end, so an answer that ended in time was in time.
    whole = within(cell.age, o.threshold)
    return Tally(
        good=first.low + whole.low,
        bad=first.n - first.high,
        either=first.high - first.low + (cell.n - first.n - whole.low),
    )


def _whole(o: Objective, cell: RequestCell) -> Tally:
    known = within(cell.duration, o.threshold)
    silent = cell.n - known.n
    return Tally(good=known.low, bad=known.n - known.high, either=known.high - known.low + silent)


def _per_token(o: Objective, cell: RequestCell) -> Tally:
    if cell.tpot is None:
        return Tally(either=cell.n)  # folded before this was counted
    known = within(cell.tpot, o.threshold)
    # An answer of one token has no gap between tokens.
    return Tally(
        good=known.low,
        bad=known.n - known.high,
        either=known.high - known.low,
        excluded=max(0, cell.n - known.n),
    )


def _left(o: Objective, cell: RequestCell) -> Tally:
    hists = [cell.duration] if o.signal == END_TO_END else [cell.ttft, cell.age]
    return _gave_up(cell, [within(h, o.threshold) for h in hists])


def _gave_up(cell: RequestCell, shares: list[Share]) -> Tally:
    low, high, n = sum(s.low for s in shares), sum(s.high for s in shares), sum(s.n for s in shares)
    return Tally(bad=n - high, excluded=low, bad_or_excluded=high - low + cell.n - n)


def _left_answering(o: Objective, cell: RequestCell) -> Tally:
    return Tally(excluded=cell.n)


_LATENCIES: Mapping[str, tuple[_Judge, _Judge]] = {
    TTFT: (_first_token, _left),
    END_TO_END: (_whole, _left),
    TPOT: (_per_token, _left_answering),
}


def _all_good(o: Objective, cell: RequestCell) -> Tally:
    return Tally(good=cell.n)


def _left_before_first_token(o: Objective, cell: RequestCell) -> Tally:
    """Who left in the middle of an answer had been served; who left before it, after longer than the threshold, had not."""
    served = int(cell.ttft[1].sum())
    if o.threshold <= 0:
        return Tally(excluded=served, bad_or_excluded=cell.n - served)
    waited = within(cell.age, o.threshold)
    return Tally(
        bad=waited.n - waited.high,
        excluded=served + waited.low,
        bad_or_excluded=waited.high - waited.low + cell.n - served - waited.n,
    )


def _joint(o: Objective, cell: RequestCell) -> Tally:
    """Exact where the log was folded with these thresholds; else what the separate buckets bound."""
    counted = cell.joint.get(joint_key(o.joint))
    if counted is not None:
        good, unknown = counted
        return Tally(good=good, either=unknown, bad=cell.n - good - unknown)
    parts = []
    for signal, limit in o.joint:
        judge = _LATENCIES[signal][0]
        parts.append(judge(_one(o, signal, limit), cell))
    not_good = [cell.n - t.good - t.excluded for t in parts]
    good = max(0, cell.n - sum(not_good))
    bad = max((t.bad for t in parts), default=0)
    return Tally(good=good, bad=min(bad, cell.n - good), either=max(0, cell.n - good - bad))


def _left_joint(o: Objective, cell: RequestCell) -> Tally:
    limits = dict(o.joint)
    if TTFT in limits:
        return _left(_one(o, TTFT, limits[TTFT]), cell)
    if END_TO_END in limits:
        return _left(_one(o, END_TO_END, limits[END_TO_END]), cell)
    return Tally(excluded=cell.n)


@functools.lru_cache(maxsize=256)
def _one(o: Objective, signal: str, limit: float) -> Objective:
    return Objective(o.name, o.class_, signal, limit, o.target, o.window)


def within(hist: Hist, threshold: float) -> Share:
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
