"""What happens to KV memory, caches, adapters and transfers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.engine import Engine
from fleet.mechanism_engine import on_each

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

Undo = Callable[[float], None] | None


def leak(sim: Simulation, active: Active, now: float) -> Undo:
    """``share`` of the memory is lost per hour; a restart cures."""
    share = float(active.spec.params.get("share", 0.6))
    members = sim.faults.targets(active)
    owed: dict[Engine, float] = {}

    def drip(t: float) -> None:
        if active.ended is not None:
            return
        for replica in members:
            for engine in replica.engines:
                owed[engine] = owed.get(engine, 0.0) + engine.cache.total * share * 10.0 / 3600.0
                lost = engine.cache.leak(int(owed[engine]), t)
                owed[engine] -= max(lost, int(owed[engine]))
        sim.at(t + 10.0, drip)

    drip(now)

    def undo(t: float) -> None:
        for replica in members:
            sim.log("restart", replica.spec.name, f"{replica.state.name} restarted")
            sim.restart(replica, t)

    return undo


def cache_off(sim: Simulation, active: Active, now: float) -> Undo:
    """The prefix cache stops to work: queries go on, hits do not."""

    def off(engine: Engine) -> None:
        engine.cache.enabled = False
        engine.cache.flush()

    def on(engine: Engine) -> None:
        engine.cache.enabled = engine.spec.prefix_cache

    return on_each(sim, active, now, off, on)


def routing(sim: Simulation, active: Active, now: float) -> Undo:
    """The pool's router follows another ``policy``."""
    router = sim.routers[active.spec.pool]
    before = router.policy
    router.policy = active.spec.params.get("policy", "round_robin")

    def undo(_: float) -> None:
        router.policy = before

    return undo


def skew(sim: Simulation, active: Active, now: float) -> Undo:
    """The router sees stale statistics and sends everything to its ``favourites`` (indices)."""
    router = sim.routers[active.spec.pool]
    router.favourites = tuple(active.spec.params.get("favourites", (0,)))
    active.replicas = [
        r.state.name for r in sim.pool_replicas(active.spec.pool) if r.index in router.favourites
    ]

    def undo(_: float) -> None:
        router.favourites = ()

    return undo


def rank_skew(sim: Simulation, active: Active, now: float) -> Undo:
    """Inside the targets, one ``rank`` gets all requests."""
    members = sim.faults.targets(active)
    for replica in members:
        replica.rank_pinned = int(active.spec.params.get("rank", 0))

    def undo(_: float) -> None:
        for replica in members:
            replica.rank_pinned = None

    return undo


def offload(sim: Simulation, active: Active, now: float) -> Undo:
    """The host tier costs more than it gives: loads are ``slowdown`` times slower, every step pays ``tax``
    seconds for copies, and with ``inert`` nothing is ever read back."""
    params = active.spec.params
    slowdown = float(params.get("slowdown", 25.0))
    tax = float(params.get("tax", 0.012))
    inert = bool(params.get("inert", False))
    tokens = int(params.get("host_tokens", 0))

    def begin(engine: Engine) -> None:
        engine.host_slowdown = slowdown
        engine.step_tax += tax
        engine.inert_host = inert
        if tokens:
            engine.cache.host_total = tokens // engine.block

    def stop(engine: Engine) -> None:
        engine.host_slowdown = 1.0
        engine.step_tax -= tax
        engine.inert_host = False

    return on_each(sim, active, now, begin, stop)


def transfer(sim: Simulation, active: Active, now: float) -> Undo:
    """KV transfers into the pool take ``slowdown`` times as long, ``failures`` of them fail."""
    pool = active.spec.pool
    params = active.spec.params
    sim.transfers.slowdown[pool] = float(params.get("slowdown", 12.0))
    sim.transfers.failures[pool] = float(params.get("failures", 0.0))

    def undo(_: float) -> None:
        sim.transfers.slowdown.pop(pool, None)
        sim.transfers.failures.pop(pool, None)

    return undo


MECHANISMS = {
    "leak": leak,
    "cache_off": cache_off,
    "routing": routing,
    "skew": skew,
    "rank_skew": rank_skew,
    "offload": offload,
    "transfer": transfer,
}
