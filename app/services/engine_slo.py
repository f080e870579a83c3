"""Objectives from what engines export: histograms, abort and error counters. Bounds, where a gateway log would be exact.

What an engine cannot tell widens the interval, and only as far as it can reach:

- *Given up.* The abort counter (or HTTP 2xx - successes) does not say when. Those who left after their first token stand in the
  histogram too: first tokens - finished requests counts them, up to the requests running at either end.
- *Restarts.* What a replica had in hand when its process died failed at the gateway; the engine forgot it.
- *Ends of the span.* A first token counts when it comes, an attempt when it ends. Those in between at an end may fall on either
  side; how many of them can be late is bounded by the late ones seen just before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from app.services import latency
from app.services.aborts import given_up
from app.services.engine_kinds import MEASURES
from app.services.gateway import FINE_SECONDS, applies
from app.services.view import View
from core.classes import SHARED
from core.frames import FloatArray, IntArray
from core.slo import END_TO_END, NO_EDGE, TPOT, TTFT, Edge, Objective, Tally, sliced
from sql.objectives import Exclusion
from sql.store import Store

BoolArray = NDArray[np.bool_]

HOUR = 3600.0
LONGEST = 600.0
"""Seconds before an end in which a request that crosses it may have had its first token; longer answers are rarer than the
counting error of a scrape."""
RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Engine:
    """Tallies of one objective: per minute where ``fine``, the ``older`` part as one sum, and covered minutes.

    ``total`` is both together, with those who may have left after a timely first token taken out of good; ``edge`` what may fall
    on either side of the ends. ``covered``: minutes with telemetry, a pool that delivers nothing counting with its traffic.
    """

    fine: dict[int, Tally]
    older: Tally
    covered: float
    total: Tally
    edge: Edge


@dataclass(slots=True)
class _Part:
    """A stretch of one resolution: tallies and covered share per step."""

    tallies: dict[int, Tally] = field(default_factory=dict)
    covered: dict[int, float] = field(default_factory=dict)


def engine_tallies(
    store: Store,
    objective: Objective,
    start: float,
    end: float,
    view: View,
    exclusions: Sequence[Exclusion] = (),
    *,
    coarse: bool = False,
) -> Engine:
    """Good and bad from the engine's histogram, its abort and error counters; by the minute near the end, else by the hour.

    ``coarse``: by the hour up to the last one, for a total beside another point's. Time in ``exclusions`` does not count; what
    engines cannot measure (a tenant, one prompt's length) gives nothing.
    """
    if not objective.from_engine or (objective.sli == "latency" and not objective.signal):
        return Engine({}, Tally(), 0.0, Tally(), NO_EDGE)
    view = narrowed(view, objective)
    split = max(math.floor(start / HOUR) * HOUR, math.floor((end - FINE_SECONDS) / HOUR) * HOUR)
    if objective.slice_target:
        split = start
    elif coarse:
        split = max(math.floor(start / HOUR) * HOUR, math.floor(end / HOUR) * HOUR)
    part = _part(store, objective, split, end, 60.0, view)
    fine = {m: t for m, t in part.tallies.items() if start <= m < end}
    covered = sum(share for m, share in part.covered.items() if start <= m < end)
    older = Tally()
    first = math.floor(start / HOUR) * HOUR
    if first < split:
        past = _part(store, objective, first, split, HOUR, view)
        for tally in past.tallies.values():
            older += tally
        covered += 60 * sum(past.covered.values())
    gone, gone_covered = _excluded(store, objective, start, end, view, exclusions)
    for minute, tally in gone.items():
        left_out = Tally(excluded=tally.attempts)
        if minute in fine:
            fine[minute] = left_out
        else:
            older = less(older, tally) + left_out
    if objective.slice_target:
        fine = sliced(objective, fine)
    total = older
    for tally in fine.values():
        total += tally
    ends = NO_EDGE
    if total.counted and not objective.slice_target and objective.sli != "throughput":
        total = _left_after_first_token(store, objective, total, start, end, view)
        total = _restarts(store, objective, total, start, end, view)
        if objective.sli == "latency":
            ends = edge(store, objective, start, end, view)
    return Engine(fine, older, max(0.0, covered - gone_covered), total, ends)


def narrowed(view: View, o: Objective) -> View:
    """The view, narrowed by what the objective itself is narrowed to."""
    if not (o.pool or o.model):
        return view
    return replace(view, pool=o.pool or view.pool, model=o.model or view.model)


def less(a: Tally, b: Tally) -> Tally:
    """``a`` without ``b``, which is part of it; no count goes below 0."""
    counts = [max(0, x - y) for x, y in zip(a.counts, b.counts, strict=True)]
    return Tally.of(counts, a.aborts_known)


def _excluded(
    store: Store, o: Objective, start: float, end: float, view: View, exclusions: Sequence[Exclusion]
) -> tuple[dict[int, Tally], float]:
    """Tallies of minutes that do not count, and the covered minutes among them. One pool's exclusion only counts where the
    objective is about that pool: an engine's class is not told apart by pool elsewhere."""
    out: dict[int, Tally] = {}
    covered = 0.0
    for e in exclusions:
        a, b = max(e.start, start), min(e.end, end)
        if b <= a or not applies(e, o, o.pool or view.pool):
            continue
        part = _part(store, o, math.floor(a / 60) * 60, math.ceil(b / 60) * 60, 60.0, view)
        for minute, tally in part.tallies.items():
            if a <= minute < b and minute not in out:
                out[minute] = tally
                covered += part.covered[minute]
    return out, covered


def _part(store: Store, o: Objective, start: float, end: float, step: float, view: View) -> _Part:
    """A tally for each step with telemetry of the class."""
    measured = MEASURES[o.sli](store, o, start, end, step, view)
    if measured is None:
        return _Part()
    mine, w = measured
    size = len(w.n)
    covered = _covered(store, mine, start, step, size)
    pools = {k[1] for k in mine}
    aborted = given_up(store, o.class_, start, end, step, size, view)
    failed = _errors(store, o.class_, pools, start, end, step, size, view)
    known = pools <= aborted.pools
    out = _Part()
    for i in np.flatnonzero(covered):
        low, high, n = int(w.low[i]), int(w.high[i]), int(w.n[i])
        at = int(start + i * step)
        out.covered[at] = float(covered[i])
        if o.sli == "throughput":
            out.tallies[at] = Tally(good=low, bad=n - high, either=high - low)
            continue
        out.tallies[at] = Tally(
            good=low,
            bad=n - high + int(failed.bad[i]),
            either=high - low,
            bad_or_excluded=int(aborted.count[i] + failed.maybe[i]),
            excluded=int(failed.excluded[i]),
            errors=int(failed.bad[i]),
            aborts_known=known,
        )
    return out


def _covered(store: Store, mine: latency.Matrix, start: float, step: float, size: int) -> FloatArray:
    """Share of the class's traffic whose pool delivered in each step; a fault of the telemetry delivers nothing.

    A pool is expected from its first row until its last target was seen: one that was taken away is not missed.
    """
    present: dict[str, BoolArray] = {}
    traffic: dict[str, int] = {}
    for (_, pool, _, _, _), (ts, counts, _) in mine.items():
        here = present.setdefault(pool, np.zeros(size, bool))
        at = ((ts - start) // step).astype(np.int64)
        here[at[(at >= 0) & (at < size)]] = True
        traffic[pool] = traffic.get(pool, 0) + int(counts.clip(min=0).sum())
    seen = dict.fromkeys(present, 0.0)
    for target in store.targets():
        if target.target.pool in seen:
            seen[target.target.pool] = max(seen[target.target.pool], target.last_seen)
    for one in store.incidents(start=start, end=start + size * step):
        if one.kind == "telemetry_fault":
            first = max(0, int((one.started_at - start) // step))
            last = size if one.ended_at is None else math.ceil((one.ended_at - start) / step)
            for pool in set(one.pools) & set(present):
                present[pool][first : max(first, last)] = False
    got = np.zeros(size)
    wanted = np.zeros(size)
    anything = np.zeros(size, bool)
    for pool, here in present.items():
        at = np.flatnonzero(here)
        if not len(at):
            continue
        share = max(traffic[pool], 1) / len(at)
        expected = np.zeros(size, bool)
        until = max(at[-1] + 1, math.ceil((seen[pool] - start) / step))
        expected[at[0] : min(size, until)] = True
        got += np.where(here, share, 0.0)
        wanted += np.where(expected, share, 0.0)
        anything |= here
    return np.where(anything, got / np.maximum(wanted, 1e-12), 0.0)


@dataclass(frozen=True, slots=True)
class _Failed:
    """Failed answers per step: ``bad`` for certain, ``excluded`` (the client's own), ``maybe`` (a counter that serves several
    classes, or does not tell 429 from other 4xx)."""

    bad: IntArray
    excluded: IntArray
    maybe: IntArray


def _errors(
    store: Store, class_: str, pools: set[str], start: float, end: float, step: float, size: int, view: View
) -> _Failed:
    """Failed answers of a class."""
    bad, excluded, maybe = (np.zeros(size, np.int64) for _ in range(3))
    for row in store.rollups(
        "errors_total",
        start,
        end,
        resolution=int(HOUR if step == HOUR else 60),
        classes=[class_, SHARED],
        pools=sorted(pools),
    ):
        if not row.n or not view.has(pool=row.pool, model=row.model):
            continue
        status = dict(row.labels).get("error", "")
        own = status[:1] == "4" and status not in ("429", "4xx")
        into = excluded if own else maybe if row.class_ == SHARED or status == "4xx" else bad
        into[int((row.ts - start) // step)] += max(0, row.n)
    return _Failed(bad, excluded, maybe)


# ---------------------------------------------------------------------------------------------------------- given up


def _left_after_first_token(
    store: Store, o: Objective, total: Tally, start: float, end: float, view: View
) -> Tally:
    """Take those who may have left after a timely first token out of good, and out of those given up before one."""
    gone = total.bad_or_excluded
    low, high = 0, gone
    if o.signal == TTFT:
        low, high = left_after_first_token(store, o.class_, start, end, view)
        if total.aborts_known:
            low, high = min(low, gone), min(high, gone)
    elif o.sli == "availability" or o.signal in (END_TO_END, TPOT):
        high = 0  # they hold finished answers only
    high = min(high, total.good)
    return total.replaced(
        good=total.good - high, good_or_excluded=high, bad_or_excluded=max(0, gone - min(low, gone))
    )


def left_after_first_token(
    store: Store, class_: str, start: float, end: float, view: View
) -> tuple[int, int]:
    """(least, most) requests of a class that had a first token and never finished, from the engine's two histograms.

    Where a pool lacks one of them nothing is known: (0, all first tokens).
    """
    first = _increase(store, TTFT, class_, start, end, view)
    finished = _increase(store, END_TO_END, class_, start, end, view)
    least = most = 0
    for pool, n in first.items():
        if pool not in finished:
            most += n
            continue
        more = n - finished[pool]
        least += max(0, more - running(store, class_, pool, end))
        most += max(0, more + running(store, class_, pool, start))
    return least, most


def _increase(store: Store, signal: str, class_: str, start: float, end: float, view: View) -> dict[str, int]:
    """Observations per pool in whole minutes of the span; whole hours are read as such."""
    out: dict[str, int] = {}
    a, b = math.ceil(start / HOUR) * HOUR, math.floor(end / HOUR) * HOUR
    parts = [(start, a, 60), (a, b, 3600), (b, end, 60)] if a < b else [(start, end, 60)]
    for first, last, step in parts:
        if first >= last:
            continue
        for (_, pool, _, model, _), (_, counts, _) in store.rollup_matrix(
            signal, first, last, step=step, classes=[class_]
        ).items():
            if view.has(pool=pool, model=model):
                out[pool] = out.get(pool, 0) + int(counts.clip(min=0).sum())
    return out


def running(store: Store, class_: str, pool: str, at: float) -> int:
    """Most requests in work around ``at`` in the pool; of all its classes where its gauge serves several."""
    return sum(in_hand(store, class_, pool, at, ("requests_running",)).values())


def in_hand(store: Store, class_: str, pool: str, at: float, signals: tuple[str, ...]) -> dict[str, int]:
    """Per replica the largest value of the gauges, added up, within five minutes before ``at``.

    Roll-ups per replica do not stay for ever; then the pool's sum over the scrapes of a minute stands in, never too small.
    """
    found: dict[str, float] = {}
    first = math.floor((at - 60) / 300) * 300
    for signal in signals:
        most: dict[str, float] = {}
        for row in store.rollups(
            signal, first, at + 1, classes=[class_, SHARED], pools=[pool], per_unit=True
        ):
            if row.max_ is not None:
                most[row.unit] = max(most.get(row.unit, 0.0), row.max_)
        if not most:
            rows = store.rollups(signal, at - 120, at + 1, classes=[class_, SHARED], pools=[pool])
            most = {"": max((row.total for row in rows), default=0.0)}
        for unit, value in most.items():
            found[unit] = found.get(unit, 0.0) + value
    return {unit: math.ceil(value) for unit, value in found.items()}


# ---------------------------------------------------------------------------------------------------------- restarts


def _restarts(store: Store, o: Objective, total: Tally, start: float, end: float, view: View) -> Tally:
    """What restarted replicas had in hand: counted as good by their histogram, or not at all, and failed."""
    lost = 0
    pools: dict[str, bool] = {}
    for event in store.events(start - 60, end, kinds=[RESTART]):
        if not event.pool or not view.has(pool=event.pool):
            continue
        if event.pool not in pools:
            around = math.floor(event.ts / HOUR) * HOUR
            pools[event.pool] = bool(
                store.rollup_matrix(
                    o.signal or TTFT,
                    around - HOUR,
                    around + HOUR,
                    3600,
                    classes=[o.class_],
                    pools=[event.pool],
                )
            )
        if pools[event.pool]:
            signals = ("requests_running", "requests_waiting")
            held = in_hand(store, o.class_, event.pool, event.ts, signals)
            lost += held.get(event.replica, held.get("", 0))
    taken = min(lost, total.good)
    return total.replaced(
        good=total.good - taken,
        good_or_excluded=total.good_or_excluded + taken,
        bad_or_excluded=total.bad_or_excluded + lost,
    )


# -------------------------------------------------------------------------------------------------- ends of the span


def edge(store: Store, o: Objective, start: float, end: float, view: View) -> Edge:
    """Requests that may fall on either side of an end, and how many of them may be late."""
    n = bad = 0
    for at, until in ((start, start + 60), (end, end)):
        pools, reach = _reach(store, o, at, view)
        near = _part(store, o, math.floor((at - reach) / 60) * 60, until, 60.0, view).tallies
        minute = [t for m, t in near.items() if until - 60 <= m < until]
        traffic = sum(t.counted + t.bad_or_excluded for t in minute)
        crossing = traffic + sum(running(store, o.class_, pool, at) for pool in pools)
        n += crossing
        bad += min(crossing, sum(t.bad + t.either for t in near.values()))
    return Edge(n, bad)


def _reach(store: Store, o: Objective, at: float, view: View) -> tuple[set[str], float]:
    """Pools of the class around ``at``, and how long nearly all (99.9 %) of its answers took: whole minutes up to ``LONGEST``."""
    begin = at - LONGEST
    served = store.rollup_matrix(o.signal, begin, at + 60, classes=[o.class_])
    pools = {pool for _, pool, _, model, _ in served if view.has(pool=pool, model=model)}
    whole = store.rollup_matrix(END_TO_END, begin, at + 60, classes=[o.class_])
    mine = {k: v for k, v in whole.items() if view.has(pool=k[1], model=k[3])}
    if pools - {k[1] for k in mine}:
        return pools, LONGEST
    longest = 60.0
    for (_, _, _, _, edges), (_, counts, _) in mine.items():
        running_sum = counts.clip(min=0).sum(axis=0).cumsum()
        if not len(running_sum) or not running_sum[-1]:
            continue
        at_edge = int(np.searchsorted(running_sum, 0.999 * running_sum[-1]))
        longest = max(longest, edges[at_edge] if at_edge < len(edges) else LONGEST)
    return pools, min(LONGEST, math.ceil(longest / 60) * 60.0)
