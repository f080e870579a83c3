"""The simulated fleet: one clock, one queue of events, pools of replicas, traffic, faults and the truth."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from fleet.books import sync
from fleet.corruption import Corruption
from fleet.engine import Engine
from fleet.engine_base import EngineBase
from fleet.faults import Faults
from fleet.gateway import GatewayFlow
from fleet.impact import Impact
from fleet.model import (
    Attempt,
    EventRecord,
    FaultSpec,
    FinishReason,
    FleetSpec,
    GatewayState,
    PoolSpec,
    ReplicaState,
)
from fleet.replica import Replica
from fleet.router import Router
from fleet.sequence import Sequence
from fleet.traffic import Source
from fleet.transfer import Transfers
from fleet.truth import truth

TICK = 5.0
MEMORY = 8 * 3600.0  # how long impact is remembered


class Simulation:
    """Deterministic for a spec: how the calls of ``run`` are split changes nothing."""

    def __init__(self, spec: FleetSpec) -> None:
        self.spec = spec
        self.now = spec.start - spec.lead
        self.gateway = GatewayState()
        self.events: list[EventRecord] = list(spec.events)
        self.impact = Impact()
        self._heap: list[tuple[float, int, Any, int | None]] = []
        self._count = 0
        self._rng = Random(f"{spec.seed}:fleet")
        self.pool_specs: dict[str, PoolSpec] = {p.name: p for p in spec.pools}
        self.routers = {p.name: Router(p.router) for p in spec.pools}
        self.gateway_flow = GatewayFlow(self, spec.seed)
        self.corruption = Corruption(spec.base_corrupt, spec.seed)
        self.transfers = Transfers(self, spec.seed)
        self._pools: dict[str, list[Replica]] = {p.name: [] for p in spec.pools}
        for pool in spec.pools:
            for _ in range(pool.replicas):
                self.add_replica(pool.name, warm=True)
        self.sources = [
            Source(
                self, t, tenant, weight / sum(t.tenants.values()), f"{spec.seed}:{i}:{t.workload}:{tenant}"
            )
            for i, t in enumerate(spec.traffic)
            for tenant, weight in t.tenants.items()
        ]
        for source in self.sources:
            self.at(self.now, source.begin)
        self._learn_workloads()
        self.at(self.now + TICK, self._tick)
        self.faults = Faults(self)
        self.at(spec.start, self._curtain)
        for fault in spec.faults:
            self.inject(fault)

    # ------------------------------------------------------------------------------------------------ the clock

    def at(self, t: float, action: Callable[[float], None]) -> None:
        """Call ``action(t)`` when the clock gets there."""
        self._count += 1
        heapq.heappush(self._heap, (max(t, self.now), self._count, action, None))

    def run(self, until: float) -> None:
        """Advance to ``until`` and bring all states to that moment; the past is left alone."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            t, _, action, plan_id = heapq.heappop(heap)
            self.now = t
            if plan_id is None:
                action(t)
            elif action.plan_id == plan_id:
                action.commit(t)
                self._plan(action, t)
        self.now = max(self.now, until)
        for replica in self.all_replicas():
            for engine in replica.engines:
                sync(engine, self.now)
                if engine.spec.role == "decode":
                    engine.state.gauges["preallocating"] = float(self.transfers.waiting(engine))
                    engine.state.gauges["transferring"] = float(self.transfers.moving(engine))

    def kick(self, engine: Engine, now: float) -> None:
        """Something changed for an engine: let it plan, or cut its jump short."""
        if engine.plan is None:
            self._plan(engine, now)
        elif engine.interrupt(now):
            self._push(engine)

    def _plan(self, engine: Engine, now: float) -> None:
        if engine.next_plan(now) is not None:
            self._push(engine)

    def _push(self, engine: Engine) -> None:
        plan = engine.plan
        if plan is not None:
            self._count += 1
            heapq.heappush(self._heap, (max(plan.end, self.now), self._count, engine, engine.plan_id))

    def _curtain(self, now: float) -> None:
        """What happened before the start is not shown; processes have been up for hours or days."""
        self.gateway_flow.attempts = []
        for replica in self.all_replicas():
            replica.state.process_start = now - 3600.0 * (2.0 + 60.0 * self._rng.random())
            for engine in replica.engines:
                engine.state.observations.drain()

    def _tick(self, now: float) -> None:
        for replica in self.all_replicas():
            replica.gpu_tick(TICK)
            for engine in replica.engines:
                engine.measure(now, TICK)
        if int(now) % 900 < TICK:
            self.impact.forget(now - MEMORY)
        self.at(now + TICK, self._tick)

    # ------------------------------------------------------------------------------------------------- the fleet

    @property
    def replicas(self) -> list[ReplicaState]:
        """Pods that exist now."""
        return [r.state for r in self.all_replicas()]

    def all_replicas(self) -> list[Replica]:
        return [r for pool in self._pools.values() for r in pool]

    def pool_replicas(self, pool: str) -> list[Replica]:
        return self._pools[pool]

    def add_replica(self, pool: str, *, warm: bool = False) -> Replica:
        """A new pod with the lowest free index: names and addresses are used again."""
        members = self._pools[pool]
        taken = {r.index for r in members}
        index = next(i for i in range(len(members) + 1) if i not in taken)
        replica = Replica(self.pool_specs[pool], index, self, self.now, self.spec.seed)
        members.append(replica)
        members.sort(key=lambda r: r.index)
        if warm:
            replica.boot(self.now, warm=True)
        else:
            replica.state.up = replica.state.ready = False
            self.at(self.now + replica.spec.startup, lambda t: self._boot(replica, t))
        self._learn_workloads()
        return replica

    def remove_replica(self, replica: Replica, now: float) -> None:
        """The pod is gone for good."""
        self.kill(replica, now)
        replica.state.terminated = True
        self._pools[replica.spec.name].remove(replica)

    def restart(self, replica: Replica, now: float, down: float | None = None) -> None:
        """Kill the process; a new one answers after ``down`` (the pool's start-up time)."""
        self.kill(replica, now)
        wait = replica.spec.startup if down is None else down
        self.at(now + wait, lambda t: self._boot(replica, t))

    def kill(self, replica: Replica, now: float) -> None:
        """The process dies with all it has."""
        for engine in replica.engines:
            for request in self.transfers.crashed(engine, now):
                self.gateway_flow.lost(request, now)
        for request in replica.kill(now):
            self.gateway_flow.lost(request, now)

    def _boot(self, replica: Replica, now: float) -> None:
        if replica.state.terminated or replica.state.up or replica.held_down:
            return
        replica.boot(now)
        for condition in replica.conditions:
            condition(replica)

    def drain(self, replica: Replica, now: float, longest: float, then: Callable[[float], None]) -> None:
        """Take no new requests; ``then`` when empty or after ``longest`` seconds."""
        replica.draining = True

        def look(t: float) -> None:
            if replica.load == 0 or t >= now + longest:
                then(t)
            else:
                self.at(t + 1.0, look)

        self.at(now + 1.0, look)

    def _learn_workloads(self) -> None:
        for name, members in self._pools.items():
            served = {t.workload for t in self.spec.traffic if t.pool == name}
            for spec in self.spec.pools:
                if spec.decode_pool == name:
                    served |= {t.workload for t in self.spec.traffic if t.pool == spec.name}
            for replica in members:
                replica.state.workloads = tuple(sorted(served))

    def add_source(self, source: Source) -> None:
        """Traffic that comes later."""
        self.sources.append(source)
        self.at(self.now, source.begin)

    # ------------------------------------------------------------------------------------------- engines' hooks

    def clock(self) -> float:
        """Seconds now."""
        return self.now

    def chance(self, share: float) -> bool:
        """True with probability ``share``."""
        return self._rng.random() < share

    def wait(self, mean: float) -> float:
        """An exponential time with that mean."""
        return self._rng.expovariate(1.0 / mean)

    def admitted(self, engine: EngineBase, seq: Sequence, now: float) -> None:
        """The moment at which a text's fate is decided."""
        self.corruption.admitted(engine, seq, now)

    def later(self, seq: Sequence, at: float) -> None:
        """Resume a sequence that loads something."""

        def ready(now: float) -> None:
            engine = seq.request.where
            if engine is not None and engine.resume(seq, now):
                self.kick(engine, now)

        self.at(at, ready)

    def prefilled(self, engine: Engine, seq: Sequence, now: float) -> None:
        """Hand a prompt over to a decode engine."""
        self.transfers.begin(engine, seq, now)

    def first_token(self, engine: EngineBase, seq: Sequence, now: float) -> None:
        """Tell the client."""
        self.gateway_flow.first_token(engine, seq, now)

    def left(self, engine: EngineBase, seq: Sequence, reason: FinishReason, now: float) -> None:
        """A place is free."""
        self.gateway_flow.left(engine, seq, reason, now)
        if engine.spec.role == "decode" and isinstance(engine, Engine):
            self.at(now, lambda t: self.transfers.pump(engine, t))

    # --------------------------------------------------------------------------------------------- the interface

    def inject(self, fault: FaultSpec) -> None:
        """A fault, from ``fault.start`` on or at once."""
        self.faults.add(fault)

    def end_faults(self, kind: str | None = None) -> int:
        """End the faults that go on (of a mechanism or label, or all); returns how many there were."""
        going = [
            a for a in self.faults.active if a.ended is None and kind in (None, a.spec.kind, a.spec.label)
        ]
        for active in going:
            self.faults.end(active, self.now)
        return len(going)

    def log(self, kind: str, pool: str, text: str) -> None:
        """An event that operators would see."""
        self.events.append(EventRecord(kind, pool, self.now, text))

    def drain_attempts(self) -> list[Attempt]:
        """Gateway attempts that ended since the last call."""
        out, self.gateway_flow.attempts = self.gateway_flow.attempts, []
        return out

    def truth(self) -> dict[str, Any]:
        """What was wrong so far, in the form of truth.json."""
        return truth(self)
