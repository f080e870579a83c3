"""What happens to pods, releases, the gateway and the telemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleet.gateway import Trouble
from fleet.replica import Replica

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

Undo = Callable[[float], None] | None
SPEEDS = {"step", "sequence", "context", "prefill", "attention", "draft"}


def restart(sim: Simulation, active: Active, now: float) -> Undo:
    """The targets die and come back with an empty cache."""
    for replica in sim.faults.targets(active):
        sim.log("restart", replica.spec.name, f"{replica.state.name} restarted")
        sim.restart(replica, now, active.spec.params.get("down"))
    return None


def crash_loop(sim: Simulation, active: Active, now: float) -> Undo:
    """The targets die, come back, and die again after ``alive`` seconds."""
    alive = float(active.spec.params.get("alive", 50.0))

    def crash(replica: Replica, t: float) -> None:
        if active.ended is not None or replica.state.terminated:
            return
        sim.restart(replica, t)
        wait = replica.spec.startup + alive * (0.6 + 0.8 * active.rng.random())
        sim.at(t + wait, lambda later: crash(replica, later))

    for replica in sim.faults.targets(active):
        crash(replica, now)
    return lambda t: None


def missing(sim: Simulation, active: Active, now: float) -> Undo:
    """The targets are evicted and stay pending: no process, no metrics, until the end."""
    members = sim.faults.targets(active)
    for replica in members:
        replica.held_down = True
        sim.kill(replica, now)

    def undo(t: float) -> None:
        for replica in members:
            replica.held_down = False
            sim.restart(replica, t)

    return undo


def rolling(sim: Simulation, active: Active, now: float) -> Undo:
    """One replica after the other is drained and restarted, ``gap`` seconds apart. With ``version`` it is a
    release; ``speeds`` (factors), ``settings`` (of the PoolSpec) and ``release`` change what comes back.
    Afterwards the pool stays as released, unless the fault ends: then it is rolled back."""
    params = active.spec.params
    pool = active.spec.pool
    gap = float(params.get("gap", 90.0))
    changes: dict[str, Any] = dict(params.get("settings", {}))
    version = params.get("version")
    if version:
        changes["version"] = version
    before = sim.pool_specs[pool]
    factors = params.get("speeds")
    if factors:
        old = before.speeds
        changes["speeds"] = replace(old, **{k: getattr(old, k) * float(v) for k, v in factors.items()})
    after = replace(before, **changes)
    release = str(params.get("release", "r2" if version else "r1"))
    text = str(params.get("text", f"release {version}" if version else "rolling restart"))
    sim.log("deploy", pool, text)

    def roll(spec: Any, name: str, start: float) -> None:
        sim.pool_specs[pool] = spec

        def one(replica: Replica, t: float) -> None:
            if replica.state.terminated:
                return

            def stop(later: float) -> None:
                replica.spec = spec
                replica.state.release = name
                sim.restart(replica, later)

            sim.drain(replica, t, float(params.get("longest", 60.0)), stop)

        for i, replica in enumerate(sim.faults.targets(active)):
            sim.at(start + i * gap, lambda t, r=replica: one(r, t))  # type: ignore[misc]

    roll(after, release, now)

    def undo(t: float) -> None:
        if changes:
            sim.log("deploy", pool, "rolled back")
            roll(before, "r1", t)

    return undo


def scale(sim: Simulation, active: Active, now: float) -> Undo:
    """``add`` pods, or with a negative number drain and remove so many."""
    add = int(active.spec.params["add"])
    pool = active.spec.pool
    sim.log("scale", pool, f"{'up' if add > 0 else 'down'} by {abs(add)}")
    if add > 0:
        for _ in range(add):
            sim.add_replica(pool)
    else:
        for replica in sim.pool_replicas(pool)[add:]:
            sim.drain(replica, now, 180.0, lambda t, r=replica: sim.remove_replica(r, t))  # type: ignore[misc]
    return None


def gateway(sim: Simulation, active: Active, now: float) -> Undo:
    """The gateway holds ``share`` of requests for ``delay`` seconds on average and fails ``errors`` of them with
    ``status``, while the engines idle."""
    params = active.spec.params
    pools = [active.spec.pool] if active.spec.pool else [p.name for p in sim.spec.pools]
    for pool in pools:
        sim.gateway_flow.trouble[pool] = Trouble(
            float(params.get("delay", 0.0)),
            float(params.get("share", 1.0)),
            float(params.get("errors", 0.0)),
            int(params.get("status", 503)),
        )
        sim.gateway.healthy[pool] = not params.get("errors")

    def undo(_: float) -> None:
        for pool in pools:
            sim.gateway_flow.trouble.pop(pool, None)
            sim.gateway.healthy[pool] = True

    return undo


def telemetry(sim: Simulation, active: Active, now: float) -> Undo:
    """The exposition is wrong in the way that the parameters say (ReplicaState.telemetry), the service is not."""
    members = sim.faults.targets(active)
    for replica in members:
        replica.state.telemetry.update(active.spec.params)

    def undo(_: float) -> None:
        for replica in members:
            for key in active.spec.params:
                replica.state.telemetry.pop(key, None)

    return undo


MECHANISMS = {
    "restart": restart,
    "crash_loop": crash_loop,
    "missing": missing,
    "rolling": rolling,
    "scale": scale,
    "gateway": gateway,
    "telemetry": telemetry,
}
