"""What users do: more, less, longer, elsewhere, impatient."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fleet.model import LogNormal, TrafficSpec
from fleet.traffic import Source

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

Undo = Callable[[float], None] | None

FACTORS = {"rate", "context", "new", "output", "length", "think", "patience"}
SETTINGS = {
    "reset",
    "salt",
    "retries",
    "documents_off",
    "lora_uniform",
    "aborts",
    "aborts_under_load",
    "deadline",
}


def knobs(sim: Simulation, active: Active, now: float) -> Undo:
    """Turn knobs of the pool's traffic: factors multiply, settings replace. ``tenant`` limits to one tenant;
    ``ramp`` seconds lead there in steps."""
    params = dict(active.spec.params)
    tenant = params.pop("tenant", None)
    ramp = float(params.pop("ramp", 0.0))
    sources = [s for s in sim.faults.sources(active) if tenant in (None, s.tenant)]
    before: list[tuple[Source, str, Any]] = []
    for source in sources:
        for name, value in params.items():
            old = getattr(source.knobs, name)
            before.append((source, name, old))
            if name in SETTINGS:
                setattr(source.knobs, name, value)
            elif not ramp:
                setattr(source.knobs, name, old * value)
    if ramp:
        steps = 20

        def climb(step: int, t: float) -> None:
            if active.ended is not None:
                return
            for source, name, old in before:
                if name in FACTORS:
                    setattr(source.knobs, name, old * (1.0 + (params[name] - 1.0) * step / steps))
            if step < steps:
                sim.at(t + ramp / steps, lambda later: climb(step + 1, later))

        climb(1, now)

    def undo(_: float) -> None:
        for source, name, old in before:
            if name in FACTORS:
                setattr(source.knobs, name, getattr(source.knobs, name) / params[name] if not ramp else old)
            else:
                setattr(source.knobs, name, old)

    return undo


def tenant_rate(sim: Simulation, active: Active, now: float) -> Undo:
    """One ``tenant`` multiplies its demand by ``factor`` (0: it leaves)."""
    tenant = str(active.spec.params["tenant"])
    factor = float(active.spec.params["factor"])
    sources = sim.faults.sources(active)
    for source in sources:
        source.knobs.tenant_rate[tenant] = factor

    def undo(_: float) -> None:
        for source in sources:
            source.knobs.tenant_rate.pop(tenant, None)

    return undo


def mix(sim: Simulation, active: Active, now: float) -> Undo:
    """Classes change their shares: ``rates`` maps class to factor."""
    rates = active.spec.params["rates"]
    touched = [
        (s, float(rates[s.spec.workload])) for s in sim.faults.sources(active) if s.spec.workload in rates
    ]
    for source, factor in touched:
        source.knobs.rate *= factor

    def undo(_: float) -> None:
        for source, factor in touched:
            source.knobs.rate /= factor

    return undo


def newcomer(sim: Simulation, active: Active, now: float) -> Undo:
    """Traffic that was not there: one tenant with long prompts, for one. ``rate`` per second, ``prompt`` median
    tokens, ``output`` median tokens, ``workload`` (that of the pool's first traffic)."""
    params = active.spec.params
    pool = active.spec.pool
    base = next(t for t in sim.spec.traffic if t.pool == pool)
    spec = TrafficSpec(
        workload=str(params.get("workload", base.workload)),
        pool=pool,
        rate=float(params.get("rate", 0.2)),
        tenants={str(params.get("tenant", "newcomer")): 1.0},
        shared_tokens=0,
        first=LogNormal(float(params.get("prompt", 100_000)), 0.25, 1000, 240_000),
        output=LogNormal(float(params.get("output", 150)), 0.5, 1, 4000),
        turns=1,
        max_context=250_000,
        max_tokens=base.max_tokens,
        timeout=base.timeout,
        retries=0,
        objective_ttft=base.objective_ttft,
    )
    tenant = next(iter(spec.tenants))
    source = Source(sim, spec, tenant, 1.0, f"{sim.spec.seed}:newcomer:{now}")
    sim.add_source(source)

    def undo(_: float) -> None:
        source.knobs.rate = 0.0

    return undo


def wave(sim: Simulation, active: Active, now: float) -> Undo:
    """Demand goes up and down: ``factor`` at the top, ``period`` seconds."""
    params = active.spec.params
    factor, period = float(params.get("factor", 1.6)), float(params.get("period", 1800.0))
    sources = sim.faults.sources(active)
    high = False

    def turn(t: float) -> None:
        nonlocal high
        if active.ended is not None:
            return
        for source in sources:
            source.knobs.rate *= 1 / factor if high else factor
        high = not high
        sim.at(t + period / 2, turn)

    turn(now)

    def undo(_: float) -> None:
        if high:
            for source in sources:
                source.knobs.rate /= factor

    return undo


def stampede(sim: Simulation, active: Active, now: float) -> Undo:
    """Impatient clients meet a hiccup: the engines stop for ``stop`` seconds. Clients wait ``deadline`` seconds for
    the whole answer, drop it half done, and ask again at once, ``retries`` times; ``rate`` is the demand by then."""
    params = active.spec.params
    stop = float(params.get("stop", 45.0))
    retries = int(params.get("retries", 8))
    deadline = float(params.get("deadline", 10.0))
    rate = float(params.get("rate", 1.0))
    sources = sim.faults.sources(active)
    for source in sources:
        source.knobs.retries += retries
        source.knobs.deadline = deadline
        source.knobs.rate *= rate
    engines = [e for r in sim.faults.targets(active) for e in r.engines]
    for engine in engines:
        engine.stopped = True

    def on(t: float) -> None:
        for engine in engines:
            if engine.owner is not None and engine in engine.owner.engines and engine.owner.state.up:
                engine.stopped = False
                sim.kick(engine, t)

    sim.at(now + stop, on)

    def undo(_: float) -> None:
        for source in sources:
            source.knobs.retries -= retries
            source.knobs.deadline = 0.0
            source.knobs.rate /= rate

    return undo


MECHANISMS = {
    "knobs": knobs,
    "tenant_rate": tenant_rate,
    "mix": mix,
    "newcomer": newcomer,
    "wave": wave,
    "stampede": stampede,
}
