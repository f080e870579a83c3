"""Prefill and decode apart: KV is sent from the one engine to the other once there is room for it."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from fleet.engine import Engine
from fleet.model import Transfer
from fleet.sequence import Request, Sequence

if TYPE_CHECKING:
    from fleet.simulation import Simulation

HANDSHAKE = 0.004


class Pending:
    """A prompt whose KV lies on ``source`` and is wanted on ``target``."""

    __slots__ = ("dead", "here", "source", "target", "there")

    def __init__(self, source: Engine, there: Sequence, target: Engine, here: Sequence) -> None:
        self.source = source
        self.there = there
        self.target = target
        self.here = here
        self.dead = False


class Transfers:
    """All KV hand-overs of a fleet. ``slowdown`` and ``failures`` are per decode pool."""

    def __init__(self, sim: Simulation, seed: int) -> None:
        self.sim = sim
        self.slowdown: dict[str, float] = {}
        self.failures: dict[str, float] = {}
        self._queues: dict[Engine, deque[Pending]] = {}
        self._lines: dict[Engine, deque[Pending]] = {}
        self._busy: set[Engine] = set()
        self._by_request: dict[Request, Pending] = {}
        self._rng = Random(f"{seed}:transfers")

    def begin(self, source: Engine, there: Sequence, now: float) -> None:
        """A prompt has been computed; find it a decode engine."""
        request = there.request
        sim = self.sim
        pool = source.spec.decode_pool or ""
        replica = sim.routers[pool].pick(sim.pool_replicas(pool), request)
        if replica is None:
            sim.at(now + 1.0, lambda t: self._again(source, there, t))
            return
        target = replica.rank_for(request)
        here = Sequence(request, now)
        here.running, here.waiting, here.kv_usage = target.running, len(target.waiting), target.kv_usage
        target.ordinal += 1
        here.ordinal = target.ordinal
        here.source = "transfer"
        here.target = min(request.output, request.max_tokens)
        target.state.counters["started"] += 1
        pending = Pending(source, there, target, here)
        self._by_request[request] = pending
        self._queues.setdefault(target, deque()).append(pending)
        request.upstream = replica.state.address
        self.pump(target, now)

    def _again(self, source: Engine, there: Sequence, now: float) -> None:
        if there in source.outgoing and not there.request.done:
            self.begin(source, there, now)

    def pump(self, target: Engine, now: float) -> None:
        """Start transfers for which ``target`` has room."""
        queue = self._queues.get(target)
        while queue:
            pending = queue[0]
            if pending.dead:
                queue.popleft()
                continue
            if target.stopped or not target.adopt(pending.here):
                break
            queue.popleft()
            self._send(pending, now)

    def _send(self, pending: Pending, now: float) -> None:
        target, request = pending.target, pending.here.request
        request.stage, request.where = pending.here, target
        self._lines.setdefault(target, deque()).append(pending)
        if target not in self._busy:
            self._next(target, now)

    def _next(self, target: Engine, now: float) -> None:
        """One transfer at a time goes over an engine's link; those that nobody wants any more are left out."""
        line = self._lines.get(target)
        while line:
            pending = line.popleft()
            if pending.dead:
                continue
            pool = target.spec.name
            size = pending.here.request.prompt * target.speeds.kv_bytes_per_token
            seconds = HANDSHAKE + size / target.speeds.transfer_bytes_per_second * self.slowdown.get(
                pool, 1.0
            )
            fails = self._rng.random() < self.failures.get(pool, 0.0)
            self._busy.add(target)
            self.sim.at(now + seconds, lambda t: self._arrived(pending, seconds, size, fails, t))  # noqa: B023
            return

    def _arrived(self, pending: Pending, seconds: float, size: float, fails: bool, now: float) -> None:
        self._busy.discard(pending.target)
        self._next(pending.target, now)
        if pending.dead:
            return
        source, target, here, there = pending.source, pending.target, pending.here, pending.there
        request = here.request
        self._by_request.pop(request, None)
        counters = target.state.counters
        counters["transfer_failures" if fails else "transfers"] += 1
        if not fails:
            counters["transfer_bytes"] += size
            counters["transfer_seconds"] += seconds
            source.state.counters["transfer_bytes"] += size
            source.state.counters["transfers"] += 1
            source.state.counters["transfer_seconds"] += seconds
            counters["cached_tokens_transfer"] += request.prompt
        target.state.observations.transfers.append(Transfer(now, now - here.queued_at, size, not fails))
        source.state.observations.transfers.append(Transfer(now, seconds, size, not fails))
        source.release_outgoing(there, now)
        self.sim.kick(source, now)
        here.scheduled_at = now
        here.queue = now - here.queued_at
        if fails:  # silently computed again where it is needed
            here.left, here.computed = request.prompt, 0
        else:
            here.cached = request.prompt
        self.sim.admitted(target, here, now)
        here.target = min(request.output, request.max_tokens)
        if target.resume(here, now):
            self.sim.kick(target, now)

    def forget(self, request: Request) -> None:
        """The client went away or a process died: free both sides."""
        pending = self._by_request.pop(request, None)
        if pending is None or pending.dead:
            return
        now = self.sim.now
        pending.dead = True
        if pending.here.state == "waiting":  # it had no memory here yet
            pending.here.state = "gone"
            pending.target.state.counters["finished_abort"] += 1
        pending.source.release_outgoing(pending.there, now)
        self.sim.kick(pending.source, now)

    def crashed(self, engine: Engine, now: float) -> list[Request]:
        """Requests whose hand-over involves an engine that died."""
        self._queues.pop(engine, None)
        self._lines.pop(engine, None)
        return [r for r, p in self._by_request.items() if engine in (p.source, p.target)]

    def waiting(self, engine: Engine) -> int:
        """Prompts that wait for room on ``engine``."""
        return sum(not p.dead for p in self._queues.get(engine, ()))

    def moving(self, engine: Engine) -> int:
        """Prompts whose KV is on its way to ``engine``."""
        return sum(1 for p in self._by_request.values() if p.target is engine and p.here.state == "loading")
