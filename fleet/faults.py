"""Faults: what happens when, to whom, and what it did. The mechanisms are in the ``fleet.mechanism_*`` modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from core.errors import ConfigError
from fleet.mechanisms import MECHANISMS
from fleet.model import FaultSpec

if TYPE_CHECKING:
    from fleet.replica import Replica
    from fleet.simulation import Simulation
    from fleet.traffic import Source


@dataclass(slots=True)
class Active:
    """A fault that has begun. ``replicas`` names those really hit; ``rng`` is the fault's own."""

    spec: FaultSpec
    started: float
    rng: Random
    replicas: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    ended: float | None = None
    undo: Callable[[float], None] | None = None

    def hit(self, name: str) -> None:
        """Remember a replica that it reached."""
        if name not in self.replicas:
            self.replicas.append(name)


class Faults:
    """The schedule of a simulation's faults."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.active: list[Active] = []
        self._count = 0

    def add(self, spec: FaultSpec) -> None:
        """Schedule a fault. ConfigError at once for a mechanism or a pool that does not exist."""
        mechanism = MECHANISMS.get(spec.kind)
        if mechanism is None:
            raise ConfigError(
                "fault.kind", "no such mechanism", f"one of {', '.join(sorted(MECHANISMS))}", spec.kind
            )
        if spec.pool and spec.pool not in self.sim.pool_specs:
            raise ConfigError(
                "fault.pool", "no such pool", f"one of {', '.join(self.sim.pool_specs)}", spec.pool
            )
        self._count += 1
        rng = Random(f"{self.sim.spec.seed}:fault:{self._count}:{spec.kind}")

        def begin(now: float) -> None:
            active = Active(spec, now, rng)
            active.classes = list(spec.classes) if spec.classes else self.workloads(spec.pool)
            self.active.append(active)
            for replica in self.targets(active):
                active.hit(replica.state.name)
            active.undo = mechanism(self.sim, active, now)
            if spec.duration is not None:
                self.sim.at(now + spec.duration, lambda t: self.end(active, t))

        self.sim.at(spec.start, begin)

    def end(self, active: Active, now: float) -> None:
        """Stop a fault that still goes on."""
        if active.ended is None:
            active.ended = now
            if active.undo is not None:
                active.undo(now)

    def targets(self, active: Active) -> list[Replica]:
        """The replicas meant: the indices given, or all of the pool ('' = the whole fleet)."""
        spec = active.spec
        members = self.sim.pool_replicas(spec.pool) if spec.pool else self.sim.all_replicas()
        return [r for r in members if spec.replicas is None or r.index in spec.replicas]

    def sources(self, active: Active) -> list[Source]:
        """The traffic of the fault's pool and classes."""
        spec = active.spec
        pools = {spec.pool} | {p.name for p in self.sim.spec.pools if p.decode_pool == spec.pool}
        return [
            s
            for s in self.sim.sources
            if (not spec.pool or s.spec.pool in pools)
            and (spec.classes is None or s.spec.workload in spec.classes)
        ]

    def workloads(self, pool: str) -> list[str]:
        """Classes that a pool serves ('' = all)."""
        names: list[str] = []
        for replica in self.sim.pool_replicas(pool) if pool else self.sim.all_replicas():
            names += [w for w in replica.state.workloads if w not in names]
        return names
