"""A replica: one pod with its process, engines (one per rank) and GPUs, from start to termination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from fleet.engine import Engine
from fleet.gpu import new_gpus, tick
from fleet.model import PoolSpec, ReplicaState
from fleet.sequence import Request, Sequence

if TYPE_CHECKING:
    from fleet.hooks import EngineHooks


class Replica:
    """``state`` is what others see; the rest is the machine behind it."""

    def __init__(self, spec: PoolSpec, index: int, hooks: EngineHooks, now: float, seed: int) -> None:
        self.spec = spec
        self.index = index
        self.hooks = hooks
        self.rng = Random(f"{seed}:replica:{spec.name}:{index}:{now}")
        self.engines: list[Engine] = []
        name = f"{spec.name}-{index}"
        self.state = ReplicaState(
            spec.name,
            name,
            f"{name}:{spec.port}",
            spec.engine,
            spec.model,
            spec.version,
            spec.role,
            spec.cluster,
            f"node-{name}",
            index,
            now,
            [],
            new_gpus(spec, name, self.rng),
        )
        self.draining = False
        self.rank_pinned: int | None = None  # a fault: everything goes to one rank
        self.error_share = 0.0
        self.error_status = 500
        self.clock = 1.0  # of the GPUs, share of nominal
        self.heat = 0.0
        self.held_down = False  # a fault: it does not come back
        self.conditions: list[Callable[[Replica], None]] = []  # what stays true of the next process

    # ------------------------------------------------------------------------------------------- life and death

    def boot(self, now: float, warm: bool = False) -> None:
        """A new process: empty cache, counters at zero, slow at first unless ``warm``."""
        spec = self.spec
        self.engines = [Engine(spec, rank, self.hooks, now) for rank in range(spec.ranks)]
        for engine in self.engines:
            engine.warm_until = now if warm else now + spec.warm_up
            engine.stall = 0.0 if warm else 1.2  # the first step compiles
            engine.owner = self
        state = self.state
        state.engines = [engine.state for engine in self.engines]
        state.process_start = now
        state.version = spec.version
        state.model = spec.model
        state.http = {}
        state.up = state.ready = True
        self.draining = False

    def kill(self, now: float) -> list[Request]:
        """The process is gone. Returns the requests that it had."""
        lost: list[Sequence] = []
        for engine in self.engines:
            lost += engine.crash(now)
        self.state.up = self.state.ready = False
        return [seq.request for seq in lost if not seq.request.done]

    def change(self, **changes: object) -> None:
        """Other settings from the next process on."""
        self.spec = replace(self.spec, **changes)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------ choices

    @property
    def takes(self) -> bool:
        return self.state.ready and not self.draining

    @property
    def load(self) -> int:
        return sum(engine.load for engine in self.engines)

    def rank_for(self, request: Request) -> Engine:
        """The rank that a request goes to: the session's, else the least loaded."""
        engines = self.engines
        if len(engines) == 1:
            return engines[0]
        if self.rank_pinned is not None:
            return engines[self.rank_pinned]
        session = request.session
        sticky = self.spec.router in ("pinned", "prefix_affine")
        if sticky and session.rank is not None and session.replica == self.index:
            chosen = engines[session.rank % len(engines)]
            if chosen.load <= 4 + 2 * min(e.load for e in engines):
                return chosen
        best = min(engines, key=lambda e: (len(e.waiting) * 4 + e.running, e.cache.in_use))
        session.rank = best.state.rank
        return best

    def gpu_tick(self, seconds: float) -> None:
        """Advance the GPUs; busy time comes from the engines' steps since the last tick."""
        if not self.state.up:
            for gpu in self.state.gpus:
                tick(gpu, seconds, 0.0, 0.02, self.clock, 0.0, self.rng)
            return
        busy = 0.0
        now = self.hooks.clock()
        for engine in self.engines:
            done = engine.state.counters["busy_seconds"]
            if engine.plan is not None:
                done += max(0.0, now - engine.plan.start)
            busy += max(0.0, done - engine.busy_before) / seconds
            engine.busy_before = done
        share = busy / len(self.engines)
        for gpu in self.state.gpus:
            if gpu.present:
                tick(gpu, seconds, share, 0.92, self.clock, self.heat, self.rng)
