"""What an engine tells about itself: token gaps and steps as they happen, counters and gauges at a moment.

Looking never changes the course of the simulation: a jump in progress is read, not cut.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleet.model import Steps, TokenGaps

if TYPE_CHECKING:
    from fleet.engine_base import EngineBase
    from fleet.steps import Plan


def emit(engine: EngineBase, plan: Plan, steps: int) -> None:
    """Record the plan's steps up to number ``steps`` that are not recorded yet."""
    new = steps - plan.emitted
    if new <= 0:
        return
    t1 = plan.elapsed(steps)
    seconds = (t1 - (plan.elapsed(plan.emitted) if plan.emitted else 0.0)) / new
    at = plan.start + t1
    observations = engine.state.observations
    first = plan.emitted == 0
    plan.emitted = steps
    observations.steps.append(Steps(at, seconds, plan.tokens + plan.rate, new))
    if not plan.decodes:
        return
    for name, (count, rate) in engine.classes.items():
        n = int(count)
        tokens = rate / n if n else 0.0
        waited = round(n * plan.carried / plan.decodes) if first and plan.carried else 0
        if waited:
            observations.gaps.append(TokenGaps(at, name, seconds + plan.carry, waited, tokens * waited))
        rest = n * new - waited
        if rest:
            observations.gaps.append(TokenGaps(at, name, seconds, rest, tokens * rest))


def sync(engine: EngineBase, now: float) -> None:
    """Bring counters and gauges of ``engine.state`` to ``now``."""
    plan, state, cache = engine.plan, engine.state, engine.cache
    counters, gauges = state.counters, state.gauges
    extra = 0.0
    steps = 0
    if plan is not None:
        steps = plan.done_by(now) if plan.count > 1 else 0
        if steps:
            emit(engine, plan, steps)
            extra = plan.rate * steps
    counters["generation_tokens"] = math.floor(engine.generated + extra + 1e-6)
    for name, tokens in engine.generated_of.items():
        part = engine.classes[name][1] * steps if steps and name in engine.classes else 0.0
        state.generation_by_workload[name] = math.floor(tokens + part + 1e-6)
    if engine.drafts:
        verified = engine.verified + (plan.decodes * steps if plan is not None else 0)
        counters["drafts"] = verified
        counters["draft_tokens"] = verified * engine.drafts
        counters["accepted_tokens"] = max(0, math.floor(engine.decoded + extra - verified + 1e-6))
        if plan is not None and plan.decodes:
            gauges["accept_length_last"] = plan.rate / plan.decodes
    counters["host_stored_tokens"] = float(cache.host_stored * engine.block)
    gauges["running"] = float(engine.running)
    gauges["waiting"] = float(len(engine.waiting))
    gauges["kv_usage"] = cache.in_use / cache.total
    gauges["kv_cached"] = (cache.cached - cache.held) / cache.total
    gauges["kv_used_tokens"] = float(cache.in_use * engine.block)
    gauges["kv_capacity_tokens"] = float(cache.total * engine.block)
    gauges["pinned_blocks"] = float(
        cache.leaked + sum(s.blocks for s in engine.stuck) + sum(s.blocks for s in engine.outgoing)
    )
    gauges["host_used_tokens"] = float(cache.host_used * engine.block)
    gauges["adapters_loaded"] = float(len(engine.adapters))
    gauges["adapters_waiting"] = float(
        sum(1 for s in engine.waiting if s.request.adapter and s.request.adapter not in engine.adapters)
        if engine.adapters
        else 0
    )
    gauges["uptime"] = now - engine.started
    state.adapters = tuple(engine.adapters)
    running: dict[str, int] = dict.fromkeys(engine.generated_of, 0)
    waiting = dict(running)
    for group in (engine.prefilling, engine.decoding, engine.loading, engine.stuck):
        for seq in group:
            name = seq.request.workload
            running[name] = running.get(name, 0) + 1
    for seq in engine.waiting:
        name = seq.request.workload
        waiting[name] = waiting.get(name, 0) + 1
    state.running_by_workload, state.waiting_by_workload = running, waiting
