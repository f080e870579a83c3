"""Membership of the batch: who decodes, who needs memory, who has to go."""

from __future__ import annotations

import heapq
import math

from fleet.engine_base import EngineBase
from fleet.model import FinishReason, FirstToken
from fleet.sequence import Sequence
from fleet.steps import accept_length


class Batch(EngineBase):
    """Sequences enter and leave decoding, grow, are preempted, and leave the engine."""

    def _first_token(self, seq: Sequence, now: float) -> None:
        request = seq.request
        seq.first_at = now
        seq.generated = 1.0
        self.generated += 1.0
        self.generated_of[request.workload] = self.generated_of.get(request.workload, 0.0) + 1.0
        scheduled = seq.scheduled_at if seq.scheduled_at is not None else now
        self.state.observations.first_tokens.append(
            FirstToken(
                now,
                request.workload,
                now - seq.queued_at,
                seq.queue,
                now - scheduled,
                request.prompt,
                seq.cached,
            )
        )
        if self.spec.role != "prefill":
            self.hooks.first_token(self, seq, now)

    def _start_decode(self, seq: Sequence, now: float) -> None:
        request = seq.request
        if seq.first_at is None:  # its KV came by transfer
            seq.scheduled_at = now if seq.scheduled_at is None else seq.scheduled_at
            self._first_token(seq, now)
            if seq.target <= 1:
                seq.state = "decode"
                self._leave(seq, "stop", now)
                return
        seq.state = "decode"
        todo = max(1.0, seq.target - seq.generated)
        length = accept_length(request.accept * self.acceptance, self.drafts)
        steps = max(1, math.ceil(todo / (self.drafts + 1) - 1e-9), round(todo / length))
        seq.rate = todo / steps
        seq.first_step = self.step
        seq.finish_step = self.step + steps
        self._count += 1
        heapq.heappush(self._finishes, (seq.finish_step, self._count, seq, seq.epoch))
        self._next_block(seq)
        self.decoding[seq] = None
        self.context += request.prompt + seq.generated
        self.rate += seq.rate
        entry = self.classes.setdefault(request.workload, [0, 0.0])
        entry[0] += 1
        entry[1] += seq.rate

    def _next_block(self, seq: Sequence) -> None:
        room = seq.blocks * self.block - seq.request.prompt - seq.generated
        at = seq.first_step + max(1, math.floor(room / seq.rate) + 1)
        if at < seq.finish_step:
            seq.next_block_step = at
            self._count += 1
            heapq.heappush(self._blocks, (at, self._count, seq, seq.epoch))

    def _grow(self, now: float) -> None:
        blocks = self._blocks
        while blocks and blocks[0][0] <= self.step:
            _, _, seq, epoch = heapq.heappop(blocks)
            if epoch != seq.epoch:
                continue
            want = min(self.growth, seq.finish_blocks(self.block) - seq.blocks)
            if want > 1 and self.cache.allocate(want, now):
                seq.own += want
                seq.blocks += want
                self._next_block(seq)
                continue
            while not self.cache.allocate(1, now):
                victim = next(reversed(self.prefilling), None) or next(reversed(self.decoding))
                self._preempt(victim, now)
                if victim is seq:
                    break
            if epoch == seq.epoch:
                seq.own += 1
                seq.blocks += 1
                self._next_block(seq)

    def _preempt(self, seq: Sequence, now: float) -> None:
        """Recompute later: memory goes back, the sequence to the front of the line."""
        if seq.state == "decode":
            self._stop_decode(seq)
        else:
            del self.prefilling[seq]
            seq.epoch += 1
        counters = self.state.counters
        counters["preemptions"] += 1
        counters["retracted_tokens"] += seq.generated
        seq.preempted += 1
        self._free(seq, seq.computed // self.block, now)
        seq.state = "waiting"
        self._unuse_adapter(seq)
        self.waiting.appendleft(seq)

    def _stop_decode(self, seq: Sequence) -> None:
        """Leave the batch, with a whole number of tokens."""
        del self.decoding[seq]
        exact = seq.generated + seq.rate * (self.step - seq.first_step)
        self.context -= seq.request.prompt + exact
        seq.generated = float(min(seq.target, math.ceil(exact - 1e-6)))
        seq.verified += self.step - seq.first_step
        extra = seq.generated - exact
        self.decoded += extra
        self.generated += extra
        self.generated_of[seq.request.workload] = self.generated_of.get(seq.request.workload, 0.0) + extra
        self.rate -= seq.rate
        entry = self.classes[seq.request.workload]
        entry[0] -= 1
        entry[1] -= seq.rate
        if not self.decoding:  # no drift from floating point
            self.context = self.rate = 0.0
            self.classes.clear()
        elif entry[0] == 0:
            del self.classes[seq.request.workload]
        seq.epoch += 1

    def _free(self, seq: Sequence, keep: int, now: float) -> None:
        """Give memory back; the first ``keep`` blocks stay reusable."""
        if keep:
            seq.own, seq.held = self.cache.store(seq.request.chain, keep, seq.own, seq.held, now)
        self.cache.unpin(seq.held, now)
        self.cache.release(seq.own)
        seq.own, seq.held, seq.blocks = 0, (), 0

    def _unuse_adapter(self, seq: Sequence) -> None:
        name = seq.request.adapter
        if name and name in self.adapters:
            self.adapters[name] = max(0, self.adapters[name] - 1)

    def _leave(self, seq: Sequence, reason: FinishReason, now: float) -> None:
        was = seq.state
        if was == "decode" and seq in self.decoding:
            self._stop_decode(seq)
        else:
            seq.epoch += 1
        total = seq.request.prompt + int(seq.generated)
        if was in ("decode", "prefill", "outgoing"):
            done = total // self.block if reason in ("stop", "length") else 0
            chain = seq.request.chain
            if done and chain and self.cache.enabled:
                # The answer extends the last segment: the next turn finds it.
                key, length = chain[-1]
                extra = max(0, done - sum(n for _, n in chain))
                seq.own, seq.held = self.cache.store(
                    (*chain[:-1], (key, length + extra)), done, seq.own, seq.held, now
                )
        if was not in ("waiting", "front"):
            self._unuse_adapter(seq)
        self._free(seq, 0, now)
        seq.state = "gone"
        self.state.counters[f"finished_{reason}"] += 1
        self.hooks.left(self, seq, reason, now)
