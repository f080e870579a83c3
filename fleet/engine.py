"""One engine: a continuous batch over a paged KV cache, advanced from event to event.

A step with prompt chunks is simulated by itself. While a batch only decodes, many steps are one jump, up to the
next finish, the moment memory gets short, or an interruption. Sequences are not touched in a jump: they carry
the step number at which they finish or need another block.
"""

from __future__ import annotations

import heapq
from typing import Literal

from fleet.books import emit
from fleet.engine_plan import Scheduler
from fleet.model import Abort, FinishReason
from fleet.sequence import Request, Sequence
from fleet.steps import Plan

Phase = Literal["queue", "prefill", "decode", "transfer"]
PHASES: dict[str, Phase] = {
    "waiting": "queue",
    "front": "queue",
    "loading": "queue",
    "prefill": "prefill",
    "decode": "decode",
}


class Engine(Scheduler):
    """What the outside does to an engine: submit, wake, drop, crash. Changes happen between two steps."""

    def submit(self, request: Request, now: float) -> bool:
        """Queue a request; True if the engine may have to change its plan."""
        seq = Sequence(request, now)
        seq.running, seq.waiting, seq.kv_usage = self.running, len(self.waiting), self.kv_usage
        self.ordinal += 1
        seq.ordinal = self.ordinal
        request.stage, request.where = seq, self
        seq.target = 1 if self.spec.role == "prefill" else min(request.output, request.max_tokens)
        self.state.counters["started"] += 1
        if self.front_share and self.hooks.chance(self.front_share):
            seq.state = "front"
            self.front[seq] = None
            self.hooks.later(seq, now + self.hooks.wait(self.front_seconds))
            return False
        self.waiting.append(seq)
        return len(self.waiting) == 1 and self.running < self.max_running

    def resume(self, seq: Sequence, now: float) -> bool:
        """A loading sequence has what it waited for. True if the plan may have to be cut."""
        if seq in self.front:
            del self.front[seq]
            seq.state = "waiting"
            self.waiting.append(seq)
            return True
        if seq not in self.loading:
            return False
        if self.plan is not None:
            self._arrived.append(seq)
        else:
            self._resume(seq, now)
        return True

    def _resume(self, seq: Sequence, now: float) -> None:
        if self.loading.pop(seq, 0) is not None:
            return
        if seq.left > 0:
            seq.state = "prefill"
            self.prefilling[seq] = None
        else:
            self._start_decode(seq, now)

    def adopt(self, seq: Sequence) -> bool:
        """Decode role: take memory for a sequence whose KV will be sent; False if there is none."""
        if self.running >= self.max_running:
            return False
        need = (seq.request.prompt + 1 + self.block - 1) // self.block
        if not self.cache.allocate(need, self.hooks.clock()):
            return False
        seq.own = seq.blocks = need
        seq.computed = seq.request.prompt
        seq.state = "loading"
        self.loading[seq] = None
        return True

    def commit(self, now: float) -> None:
        """The plan is done: tokens, finishes, block growth, first tokens."""
        plan = self.plan
        if plan is None:
            return
        emit(self, plan, plan.count)
        self.plan = None
        counters = self.state.counters
        steps = plan.count
        counters["steps"] += steps
        counters["busy_seconds"] += now - plan.start
        counters["stall_seconds"] += plan.stall
        if plan.decodes:
            self._advance(plan, steps, now)
        elif self.decoding:
            self.carry += now - plan.start
            self.carried = len(self.decoding)
        for seq, take in plan.chunks:
            if seq.state != "prefill":
                continue
            seq.left -= take
            seq.computed += take
            counters["prefill_computed_tokens"] += take
            if seq.left <= 0:
                self._prefilled(seq, now)
        if plan.decodes:
            self._grow(now)
        if self._dropped:
            dropped, self._dropped = self._dropped, []
            for seq in dropped:
                self._drop(seq, now)
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            for seq in arrived:
                self._resume(seq, now)

    def _advance(self, plan: Plan, steps: int, now: float) -> None:
        self.step += steps
        tokens = plan.rate * steps
        self.generated += tokens
        self.context += tokens
        for name, (_, rate) in self.classes.items():
            self.generated_of[name] = self.generated_of.get(name, 0.0) + rate * steps
        self.verified += plan.decodes * steps
        self.decoded += tokens
        finishes = self._finishes
        while finishes and finishes[0][0] <= self.step:
            _, _, seq, epoch = heapq.heappop(finishes)
            if epoch == seq.epoch:
                request = seq.request
                reason: FinishReason = "length" if request.output > request.max_tokens else "stop"
                self._leave(seq, reason, now)

    def _prefilled(self, seq: Sequence, now: float) -> None:
        del self.prefilling[seq]
        request = seq.request
        total = request.prompt + int(seq.generated)
        seq.own, seq.held = self.cache.store(request.chain, total // self.block, seq.own, seq.held, now)
        if seq.first_at is None:
            self._first_token(seq, now)
            self.state.counters["prompt_tokens"] += request.prompt
            by = self.state.prompt_by_workload
            by[request.workload] = by.get(request.workload, 0.0) + request.prompt
        if self.spec.role == "prefill":
            seq.state = "outgoing"
            self.outgoing[seq] = None
            self.hooks.prefilled(self, seq, now)
        elif seq.target <= 1:
            self._leave(seq, "length" if request.output > request.max_tokens else "stop", now)
        else:
            self._start_decode(seq, now)

    def drop(self, seq: Sequence, now: float) -> bool:
        """The client went away: noticed between two steps. True if the plan may have to be cut."""
        if seq.state == "gone":
            return False
        if seq.state in ("waiting", "front") or self.plan is None:
            self._drop(seq, now)
            return False
        self._dropped.append(seq)
        return True

    def _drop(self, seq: Sequence, now: float) -> None:
        phase: Phase = PHASES.get(seq.state, "transfer")
        if seq.state in ("gone", "stuck"):
            return
        if seq.state == "waiting":
            self.waiting.remove(seq)
        elif seq.state == "front":
            del self.front[seq]
        elif self.zombie_share and self.hooks.chance(self.zombie_share):
            self._zombie(seq, now)
            return
        else:
            for group in (self.prefilling, self.loading, self.outgoing):
                group.pop(seq, None)
        if seq.state == "decode":
            self._stop_decode(seq)
        request = seq.request
        self._abort_times.append(now)
        self.state.observations.aborts.append(
            Abort(
                request.id,
                now,
                request.workload,
                phase,
                now - seq.queued_at,
                request.prompt,
                int(seq.generated),
            )
        )
        self._leave(seq, "abort", now)

    def release_outgoing(self, seq: Sequence, now: float) -> None:
        """Prefill role: the KV was transferred or is not wanted any more."""
        if seq in self.outgoing:
            del self.outgoing[seq]
            self._leave(seq, "stop", now)

    def crash(self, now: float) -> list[Sequence]:
        """The process dies: everything in it is lost. Returns what was."""
        lost = self.everything()
        for seq in lost:
            seq.state = "gone"
            seq.epoch += 1
        self.waiting.clear()
        for group in (self.front, self.loading, self.prefilling, self.decoding, self.stuck, self.outgoing):
            group.clear()
        self.plan = None
        self.plan_id += 1
        self.stopped = True
        return lost

    def _zombie(self, seq: Sequence, now: float) -> None:
        if seq.state == "decode":
            self._stop_decode(seq)
        for group in (self.prefilling, self.loading, self.outgoing):
            group.pop(seq, None)
        seq.epoch += 1
        seq.state = "stuck"
        seq.stuck_at = now
        self.stuck[seq] = None

    def free_stuck(self, now: float, older: float = 0.0) -> None:
        """Let go of zombies that have been ones for ``older`` seconds."""
        for seq in [s for s in self.stuck if now - s.stuck_at >= older]:
            del self.stuck[seq]
            self._leave(seq, "abort", now)
