"""The gateway: sends requests to replicas, notices clients that give up, logs every attempt."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from fleet.engine_base import EngineBase
from fleet.model import Attempt, Finish, FinishReason
from fleet.sequence import Request, Sequence

if TYPE_CHECKING:
    from fleet.simulation import Simulation

UNKNOWN_REPLICA = ""


@dataclass(slots=True)
class Trouble:
    """What is wrong at the gateway for one pool: ``share`` of requests wait ``delay`` seconds (exponential)
    before they are sent, ``errors`` of them are answered ``status`` without being sent."""

    delay: float = 0.0
    share: float = 1.0
    errors: float = 0.0
    status: int = 503


class GatewayFlow:
    """The course of each attempt, from the client and back."""

    def __init__(self, sim: Simulation, seed: int) -> None:
        self.sim = sim
        self.attempts: list[Attempt] = []
        self.trouble: dict[str, Trouble] = {}
        self.started = self.completed = 0
        self._rng = Random(f"{seed}:gateway")

    # --------------------------------------------------------------------------------------------- the way there

    def submit(self, request: Request, now: float) -> None:
        """A client sends a request."""
        request.arrival = now
        self.started += 1
        state = self.sim.gateway
        state.in_flight[request.pool] = state.in_flight.get(request.pool, 0) + 1
        trouble = self.trouble.get(request.pool)
        source = request.session.source
        self.sim.at(now + request.timeout, lambda t: self._impatient(request, t))
        if source.knobs.deadline:
            self.sim.at(now + source.knobs.deadline, lambda t: self._give_up(request, t))
        aborts = source.spec.abort_share + source.knobs.aborts
        if aborts and self._rng.random() < aborts:
            age = self._rng.expovariate(1.0 / 6.0)
            self.sim.at(now + age, lambda t: self._give_up(request, t))
        if trouble is not None:
            if trouble.errors and self._rng.random() < trouble.errors:
                self.sim.at(now + 0.02, lambda t: self._fail(request, trouble.status, t))
                return
            if trouble.delay and self._rng.random() < trouble.share:
                wait = self._rng.expovariate(1.0 / trouble.delay)
                self.sim.at(now + wait, lambda t: self._send(request, t))
                return
        self._send(request, now)

    def _send(self, request: Request, now: float) -> None:
        if request.done:
            return
        sim = self.sim
        replica = sim.routers[request.pool].pick(sim.pool_replicas(request.pool), request)
        if replica is None:
            sim.at(now + 0.01, lambda t: self._fail(request, 503, t))
            return
        request.upstream = replica.state.address
        if replica.error_share and self._rng.random() < replica.error_share:
            status = replica.error_status
            replica.engines[0].state.counters["errors"] += 1
            replica.engines[0].state.counters["started"] += 1
            replica.engines[0].state.counters["finished_error"] += 1
            wait = 0.05 + self._rng.expovariate(2.0)
            replica.state.http[status] = replica.state.http.get(status, 0.0) + 1
            sim.at(now + wait, lambda t: self._fail(request, status, t))
            return
        engine = replica.rank_for(request)
        if len(engine.waiting) >= replica.spec.queue_limit:
            replica.state.http[429] = replica.state.http.get(429, 0.0) + 1
            sim.at(now + 0.005, lambda t: self._fail(request, 429, t))
            return
        knobs = request.session.source.knobs
        if knobs.aborts_under_load:
            crowd = min(1.0, engine.load / 24.0)
            if self._rng.random() < knobs.aborts_under_load * crowd:
                age = self._rng.expovariate(1.0 / 5.0)
                sim.at(now + age, lambda t: self._give_up(request, t))
        if engine.submit(request, now) or engine.plan is None:
            sim.kick(engine, now)

    # ------------------------------------------------------------------------------------------ clients that go

    def _impatient(self, request: Request, now: float) -> None:
        if not request.done and request.first_at is None:
            self._give_up(request, now)

    def _give_up(self, request: Request, now: float) -> None:
        if request.done:
            return
        stage, engine = request.stage, request.where
        output = 0
        if stage is not None and engine is not None:
            if request.first_at is not None:
                output = int(stage.generated + stage.rate * max(0, engine.step - stage.first_step))
                output = min(output, stage.target)
            owner = engine.owner
            if owner is not None and owner.state.up:
                # vLLM's own front end counts a client that left as 200, and so do the others.
                owner.state.http[200] = owner.state.http.get(200, 0.0) + 1
        self._close(request, 499, output, now)
        if stage is not None and engine is not None:
            self.sim.transfers.forget(request)
            if engine.drop(stage, now):
                self.sim.kick(engine, now)

    # ------------------------------------------------------------------------------------------------ the way back

    def first_token(self, engine: EngineBase, seq: Sequence, now: float) -> None:
        """The client sees something."""
        request = seq.request
        if request.first_at is None and not request.done:
            request.first_at = now
            objective = request.session.source.spec.objective_ttft
            self.sim.impact.record(
                now, request.pool, request.workload, _name(engine), now - request.arrival > objective
            )

    def left(self, engine: EngineBase, seq: Sequence, reason: FinishReason, now: float) -> None:
        """A sequence ended in an engine."""
        request = seq.request
        if reason in ("stop", "length", "error"):
            engine.state.observations.finishes.append(finish_record(engine, seq, reason, now))
        if engine.spec.role == "prefill" and reason != "error":
            return
        if request.done:
            return
        owner = engine.owner
        if reason in ("stop", "length"):
            if owner is not None:
                owner.state.http[200] = owner.state.http.get(200, 0.0) + 1
            self._close(request, 200, int(seq.generated), now)
        elif reason == "error":
            if owner is not None:
                owner.state.http[400] = owner.state.http.get(400, 0.0) + 1
            self._close(request, 400, 0, now)

    def lost(self, request: Request, now: float) -> None:
        """Its replica died."""
        if not request.done:
            self.sim.transfers.forget(request)
            self._close(request, 502, 0, now)

    def _fail(self, request: Request, status: int, now: float) -> None:
        if not request.done:
            self._close(request, status, 0, now)

    def _close(self, request: Request, status: int, output: int, now: float) -> None:
        request.done = True
        self.completed += 1
        sim = self.sim
        state = sim.gateway
        state.in_flight[request.pool] -= 1
        key = (request.pool, request.workload, status)
        state.responses[key] = state.responses.get(key, 0.0) + 1
        ttft = None if request.first_at is None else request.first_at - request.arrival
        self.attempts.append(
            Attempt(
                now,
                request.workload,
                request.tenant,
                request.pool,
                request.upstream,
                status,
                ttft,
                now - request.arrival,
                request.prompt,
                output,
                request.session.id,
                request.turn,
                request.attempt,
                request.id,
            )
        )
        source = request.session.source
        if status == 200:
            source.answered(request, output, now)
            return
        if request.first_at is None and not (status == 499 and now - request.arrival < 0.5):
            late = status != 499 or now - request.arrival > source.spec.objective_ttft
            name = request.upstream.partition(":")[0] or UNKNOWN_REPLICA
            sim.impact.record(now, request.pool, request.workload, name, late)
        if status == 400:
            source.refused(request, now)
        else:
            source.failed(request, status, now)


def _name(engine: EngineBase) -> str:
    return engine.owner.state.name if engine.owner is not None else UNKNOWN_REPLICA


def finish_record(engine: EngineBase, seq: Sequence, reason: FinishReason, now: float) -> Finish:
    """What the engine knows of a request when it ends."""
    request = seq.request
    first = seq.first_at if seq.first_at is not None else now
    scheduled = seq.scheduled_at if seq.scheduled_at is not None else now
    accept = None
    if engine.drafts and seq.verified:
        accept = (seq.generated - 1.0) / seq.verified
    return Finish(
        id=request.id,
        t=now,
        workload=request.workload,
        tenant=request.tenant,
        session=request.session.id,
        turn=request.turn,
        prompt_tokens=request.prompt,
        output_tokens=int(seq.generated),
        cached_tokens=seq.cached,
        ttft=first - seq.queued_at,
        e2e=now - seq.queued_at,
        queue=seq.queue,
        prefill=first - scheduled,
        decode=now - first,
        max_tokens=request.max_tokens,
        accept_length=accept,
        preempted=seq.preempted,
        finish_reason=reason,
        running=seq.running,
        waiting=seq.waiting,
        kv_usage=seq.kv_usage,
        ordinal=seq.ordinal,
        cache_source=seq.source,
        adapter=request.adapter,
        corrupt=request.corrupt,
        rank=engine.state.rank,
    )
