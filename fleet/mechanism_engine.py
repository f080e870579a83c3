"""What goes wrong inside replicas: slow, stalled, wedged, dead, failing, different from their peers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.engine import Engine
from fleet.replica import Replica

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

Undo = Callable[[float], None] | None


def on_each(
    sim: Simulation,
    active: Active,
    now: float,
    set_: Callable[[Engine], None],
    unset: Callable[[Engine], None],
) -> Undo:
    """Do something to every engine of the targets, and to those of their later processes."""

    def condition(replica: Replica) -> None:
        for engine in replica.engines:
            set_(engine)

    members = sim.faults.targets(active)
    for replica in members:
        condition(replica)
        replica.conditions.append(condition)
        for engine in replica.engines:
            sim.kick(engine, now)

    def undo(t: float) -> None:
        for replica in members:
            replica.conditions.remove(condition)
            for engine in replica.engines:
                unset(engine)
                sim.kick(engine, t)

    return undo


def slow(sim: Simulation, active: Active, now: float) -> Undo:
    """``factor`` of the speed; with ``thermal`` the clocks show it, GPUs are hot and say why."""
    factor = float(active.spec.params.get("factor", 0.5))
    thermal = bool(active.spec.params.get("thermal", True))

    def faster(engine: Engine) -> None:
        engine.speed /= factor

    def slower(engine: Engine) -> None:
        engine.speed *= factor

    undo = on_each(sim, active, now, slower, faster)
    members = sim.faults.targets(active)
    if thermal:
        for replica in members:
            replica.clock *= factor
            replica.heat += 34.0
            for gpu in replica.state.gpus:
                gpu.throttle = frozenset({"thermal"})

    def end(t: float) -> None:
        if undo is not None:
            undo(t)
        if thermal:
            for replica in members:
                replica.clock /= factor
                replica.heat -= 34.0
                for gpu in replica.state.gpus:
                    gpu.throttle = frozenset()

    return end


def drift(sim: Simulation, active: Active, now: float) -> Undo:
    """Slower with every hour of uptime (``per_hour`` of the step time), cured by a restart: not hardware."""
    per_hour = float(active.spec.params.get("per_hour", 1.0))
    engines = [e for r in sim.faults.targets(active) for e in r.engines]
    for engine in engines:
        engine.started = now  # the drift counts from here
        engine.drift = per_hour

    def undo(_: float) -> None:
        for engine in engines:
            engine.drift = 0.0

    return undo


def stall(sim: Simulation, active: Active, now: float) -> Undo:
    """The host stalls one step for ``seconds``, ``every`` so many seconds."""
    seconds = float(active.spec.params.get("seconds", 1.2))
    every = float(active.spec.params.get("every", 8.0))

    def begin(engine: Engine) -> None:
        engine.stall_seconds, engine.stall_every = seconds, every
        engine.next_stall = sim.now

    def stop(engine: Engine) -> None:
        engine.next_stall = engine.stall_every = math.inf

    return on_each(sim, active, now, begin, stop)


def wedge(sim: Simulation, active: Active, now: float) -> Undo:
    """Nothing advances, /metrics and /health answer; ended by a restart."""
    members = sim.faults.targets(active)
    for replica in members:
        for engine in replica.engines:
            engine.stopped = True
            sim.kick(engine, now)

    def undo(t: float) -> None:
        for replica in members:
            if replica.state.up:
                sim.log("restart", replica.spec.name, f"{replica.state.name} restarted")
                sim.restart(replica, t)

    return undo


def zombies(sim: Simulation, active: Active, now: float) -> Undo:
    """Clients that leave are not noticed: slot and memory stay taken (``share`` of them; with ``hold`` seconds
    they are freed after that time, as a connector's time-out does)."""
    share = float(active.spec.params.get("share", 1.0))
    hold = active.spec.params.get("hold")

    def begin(engine: Engine) -> None:
        engine.zombie_share = share

    def stop(engine: Engine) -> None:
        engine.zombie_share = 0.0
        engine.free_stuck(sim.now)

    undo = on_each(sim, active, now, begin, stop)
    if hold is not None:

        def sweep(t: float) -> None:
            if active.ended is None:
                for replica in sim.faults.targets(active):
                    for engine in replica.engines:
                        engine.free_stuck(t, older=float(hold))
                        sim.kick(engine, t)
                sim.at(t + 5.0, sweep)

        sim.at(now + 5.0, sweep)
    return undo


def front_end(sim: Simulation, active: Active, now: float) -> Undo:
    """The engines' front ends sit on ``share`` of the requests for ``delay`` seconds on average, and no metric
    says why."""
    share, delay = float(active.spec.params.get("share", 0.05)), float(active.spec.params.get("delay", 6.0))

    def begin(engine: Engine) -> None:
        engine.front_share, engine.front_seconds = share, delay

    def stop(engine: Engine) -> None:
        engine.front_share = 0.0

    return on_each(sim, active, now, begin, stop)


def errors(sim: Simulation, active: Active, now: float) -> Undo:
    """``share`` of requests are answered ``status`` by the engine."""
    members = sim.faults.targets(active)
    for replica in members:
        replica.error_share = float(active.spec.params.get("share", 0.3))
        replica.error_status = int(active.spec.params.get("status", 500))

    def undo(_: float) -> None:
        for replica in members:
            replica.error_share = 0.0

    return undo


def gpu(sim: Simulation, active: Active, now: float) -> Undo:
    """A GPU reports ``xid`` and double-bit errors; ``gone``: it falls off the bus and its replica with it,
    until the end; else the engine goes on at ``factor`` speed."""
    params = active.spec.params
    xid = int(params.get("xid", 48))
    gone = bool(params.get("gone", False))
    members = sim.faults.targets(active)
    for replica in members:
        card = replica.state.gpus[0]
        card.xid = xid
        card.ecc_dbe += int(params.get("ecc", 2))
        card.ecc_sbe += 40
        if gone:
            card.present = False
            replica.held_down = True
            sim.kill(replica, now)
    slower = None
    if not gone:
        factor = float(params.get("factor", 0.6))

        def less(engine: Engine) -> None:
            engine.speed *= factor

        def more(engine: Engine) -> None:
            engine.speed /= factor

        slower = on_each(sim, active, now, less, more)

    def undo(t: float) -> None:
        if slower is not None:
            slower(t)
        for replica in members:
            replica.state.gpus[0].present = True
            replica.state.gpus[0].xid = 0
            if gone:
                replica.held_down = False
                sim.restart(replica, t)

    return undo


def acceptance(sim: Simulation, active: Active, now: float) -> Undo:
    """Drafts are rejected: acceptance is multiplied by ``factor``; texts stay clean."""
    factor = float(active.spec.params.get("factor", 0.25))

    def less(engine: Engine) -> None:
        engine.acceptance *= factor

    def more(engine: Engine) -> None:
        engine.acceptance /= factor

    return on_each(sim, active, now, less, more)


def config(sim: Simulation, active: Active, now: float) -> Undo:
    """The targets come back from a restart with other settings (``settings`` of the PoolSpec)."""
    members = sim.faults.targets(active)
    settings = dict(active.spec.params.get("settings", {"max_running": 8}))
    shown = dict(active.spec.params.get("flags", settings))
    before = {r: r.spec for r in members}
    for replica in members:
        replica.change(**settings)
        replica.state.flags = shown
        sim.restart(replica, now, float(active.spec.params.get("down", 20.0)))

    def undo(t: float) -> None:
        for replica, spec in before.items():
            replica.spec = spec
            replica.state.flags = {}
            sim.restart(replica, t)

    return undo


MECHANISMS = {
    "slow": slow,
    "drift": drift,
    "stall": stall,
    "wedge": wedge,
    "zombies": zombies,
    "front_end": front_end,
    "errors": errors,
    "gpu": gpu,
    "acceptance": acceptance,
    "config": config,
}
