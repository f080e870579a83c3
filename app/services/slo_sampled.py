"""Objectives counted in samples: degraded generations and valid tool calls in the random sample of outputs, determinism in
canaries. A sample, so always an interval."""

from __future__ import annotations

import json
import math

from app.services.gateway import Where, applies, excluded_minutes
from app.services.rates import exact_interval
from core.burn import MinuteTallies
from core.slo import Attainment, Objective, Tally, attain
from sql.output_counts import BIN, BadOutput
from sql.store import Store

TOOL_RULES = frozenset({"tool_json", "tool_schema", "tool_name"})
DAY = 86400.0


def sampled(
    store: Store, o: Objective, start: float, end: float, where: Where
) -> tuple[Attainment, MinuteTallies, float]:
    """Attainment with its exact 95 % interval, tallies per five minutes, and covered minutes.

    The unit is a session's first bad turn: what follows in a session that is already broken is excluded, it would count one harm
    many times. Tenants and prompt lengths are not known of the counted sample; tool calls are judged among outputs that were to
    be structured.
    """
    if o.sli == "determinism":
        return _determinism(store, o, start, end, where)
    classes, pools = [o.class_], [p for p in (o.pool or where.pool,) if p] or None
    models = [m for m in (o.model or where.model,) if m] or None
    first, last = math.floor(start / BIN) * BIN, math.ceil(end / BIN) * BIN
    n: dict[int, int] = {}
    for row in store.output_counts(first, last, pools=pools, classes=classes, models=models):
        if o.sli == "degraded" or row.structured == 1:
            n[row.bin] = n.get(row.bin, 0) + row.n
    bad, repeated = _bad(store, o, first, last, pools, models)
    tallies: dict[int, Tally] = {}
    for at, count in n.items():
        hits, more = min(bad.get(at, 0), count), repeated.get(at, 0)
        tally = Tally(good=max(0, count - hits - more), bad=hits, excluded=min(more, count - hits))
        if any(e.start <= at < e.end and applies(e, o, o.pool) for e in where.exclusions):
            tally = Tally(excluded=count)
        tallies[at] = tally
    covered = min((end - start) / 60, len(tallies) * BIN / 60)
    return _attained(o, tallies, start, end, where, covered)


def _determinism(
    store: Store, o: Objective, start: float, end: float, where: Where
) -> tuple[Attainment, MinuteTallies, float]:
    """Answers of canaries that are the same as their reference. A run covers the day after it."""
    tallies: dict[int, Tally] = {}
    seen, until = 0.0, start
    for one in store.outcomes(start - DAY, end, kinds=["canary_same"]):
        first, last = max(one.ts, until), min(one.ts + DAY, end)
        seen, until = seen + max(0.0, last - first), max(until, last)
        if one.ts < start:
            continue
        at = int(one.ts // BIN) * BIN
        out = any(e.start <= one.ts < e.end and applies(e, o, o.pool) for e in where.exclusions)
        tally = Tally(excluded=1) if out else Tally(good=int(one.ok), bad=int(not one.ok))
        tallies[at] = tallies.get(at, Tally()) + tally
    return _attained(o, tallies, start, end, where, seen / 60)


def _attained(
    o: Objective, tallies: dict[int, Tally], start: float, end: float, where: Where, covered: float
) -> tuple[Attainment, MinuteTallies, float]:
    total = Tally()
    for tally in tallies.values():
        total += tally
    gone = excluded_minutes([e for e in where.exclusions if applies(e, o, o.pool)], start, end)
    counted = total.good + total.bad
    interval = None
    if counted:
        low, high = exact_interval(total.bad, counted)
        interval = (1 - high, 1 - low)
    made = attain(o, total, minutes=(end - start) / 60 - gone, covered=covered - gone, interval=interval)
    return made, MinuteTallies(tallies), max(0.0, covered - gone)


def _bad(
    store: Store, o: Objective, start: float, end: float, pools: list[str] | None, models: list[str] | None
) -> tuple[dict[int, int], dict[int, int]]:
    """Bad outputs of the random sample per bin: the first of its session, and those that follow one."""
    first: dict[int, int] = {}
    repeated: dict[int, int] = {}
    broken: set[str] = set()
    soft = o.sli == "tool_calls"
    found = store.bad_outputs(start, end, pools=pools, classes=[o.class_], models=models, soft=soft)
    for one in found:
        if not one.random or not _counts(one, o):
            continue
        at = int(one.admitted // BIN) * BIN
        again = bool(one.session) and one.session in broken
        into = repeated if again else first
        into[at] = into.get(at, 0) + 1
        if one.session:
            broken.add(one.session)
    return first, repeated


def _counts(one: BadOutput, o: Objective) -> bool:
    if o.sli == "degraded":
        return one.verdict == "hard"
    return one.structured is True and bool(TOOL_RULES & set(json.loads(one.rules)))
