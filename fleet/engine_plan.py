"""Scheduling: who is admitted, what the next step holds, how far a jump may go."""

from __future__ import annotations

import heapq
import math

from fleet.engine_batch import Batch
from fleet.sequence import Sequence
from fleet.steps import Plan, decode_seconds, prompt_seconds

LONGEST_JUMP = 20_000


class Scheduler(Batch):
    """First come, first served, within the token budget, the batch size and the memory."""

    def next_plan(self, now: float) -> Plan | None:
        """Decide the next step or jump; None while there is nothing to do (or the engine is stopped)."""
        self.plan_id += 1
        if self.stopped:
            self.plan = None
            return None
        budget = self.spec.token_budget
        if not self.exclusive_prefill:
            budget -= len(self.decoding) * (1 + self.drafts)
        chunks: list[tuple[Sequence, int]] = []
        tokens, cost = 0, 0.0
        for seq in self.prefilling:
            if budget <= 0:
                break
            take = min(seq.left, budget)
            chunks.append((seq, take))
            cost += prompt_seconds(self.speeds, take, seq.computed)
            budget -= take
            tokens += take
        while self.waiting and budget > 0 and self.running < self.max_running:
            seq = self.waiting[0]
            admitted = self._admit(seq, now)
            if not admitted:
                if seq.state == "gone":
                    continue
                break
            if seq.state == "prefill":
                take = min(seq.left, budget)
                chunks.append((seq, take))
                cost += prompt_seconds(self.speeds, take, seq.computed)
                budget -= take
                tokens += take
        decodes = 0 if chunks and self.exclusive_prefill else len(self.decoding)
        if not chunks and not decodes:
            self.plan = None
            return None
        speed = self._speed(now)
        drafting = self.drafts > 0
        base = (
            decode_seconds(self.speeds, decodes, self.context if decodes else 0.0, drafting) + self.step_tax
        )
        rate = self.rate if decodes else 0.0
        if chunks:
            plan = Plan(now, (base + cost) / speed, 0.0, 1, decodes, rate)
            plan.chunks = chunks
            plan.tokens = tokens
        else:
            growth = self.speeds.context * rate / speed
            plan = Plan(now, base / speed, growth, self._jump(now, base / speed), decodes, rate)
        if now >= self.next_stall:
            self.stall += self.stall_seconds
            self.next_stall = now + self.stall_every
        if self.stall:
            plan.stall, self.stall = self.stall, 0.0
            plan.count = 1
        if decodes and self.carry:
            plan.carry, plan.carried = self.carry, min(self.carried, decodes)
            self.carry, self.carried = 0.0, 0
        self.plan = plan
        return plan

    def _speed(self, now: float) -> float:
        speed = self.speed
        if now < self.warm_until:
            left = (self.warm_until - now) / max(1.0, self.spec.warm_up)
            speed *= 1.0 - 0.6 * min(1.0, left)
        if self.drift:
            speed /= 1.0 + self.drift * (now - self.started) / 3600.0
        return speed

    def _jump(self, now: float, first: float) -> int:
        """Decode steps that change nothing but counters."""
        finishes = self._finishes
        while finishes and finishes[0][3] != finishes[0][2].epoch:
            heapq.heappop(finishes)
        steps = finishes[0][0] - self.step
        spare = self.cache.available - len(self.decoding)
        if spare < steps * self.rate / self.block:
            blocks = self._blocks
            while blocks and blocks[0][3] != blocks[0][2].epoch:
                heapq.heappop(blocks)
            if spare > 0:
                steps = min(steps, max(1, int(spare * self.block / self.rate)))
            elif blocks:
                steps = min(steps, max(1, blocks[0][0] - self.step))
        if now < self.warm_until:
            steps = min(steps, max(1, int(self.spec.warm_up / 20 / first)))
        if self.next_stall < math.inf:
            steps = min(steps, max(1, math.ceil((self.next_stall - now) / first)))
        return max(1, min(steps, LONGEST_JUMP))

    def interrupt(self, now: float) -> bool:
        """Cut a jump at the first step that ends at or after ``now``; True if the plan's end moved."""
        plan = self.plan
        if plan is None or plan.count == 1:
            return False
        steps = plan.done_by(now)
        if plan.start + plan.elapsed(steps) < now - 1e-9 or steps == 0:
            steps += 1
        steps = max(steps, plan.emitted)
        if steps >= plan.count:
            return False
        plan.count = steps
        self.plan_id += 1
        return True

    def _admit(self, seq: Sequence, now: float) -> bool:
        request = seq.request
        total = request.prompt + int(seq.generated)
        need_all = total // self.block + 1
        if need_all > self.cache.total - self.cache.leaked or total > self.spec.max_model_len:
            if need_all <= self.cache.total and total <= self.spec.max_model_len:
                return False  # a leak has eaten the room: it waits for ever
            self.waiting.popleft()
            self._leave(seq, "error", now)
            return False
        device, host = self.cache.match(request.chain)
        most = (total - 1) // self.block
        device = min(device, most)
        host = 0 if self.inert_host else min(host, most - device)
        if not self.cache.fits(request.chain, device, need_all - device):
            return False
        adapter = request.adapter
        if adapter and not self._adapter(adapter):
            return False
        self.waiting.popleft()
        seq.held = self.cache.pin(request.chain, device, now)
        if not self.cache.allocate(need_all - device, now):
            raise AssertionError("fits() and allocate() disagree")
        seq.own = need_all - device
        seq.blocks = need_all
        hit = (device + host) * self.block
        seq.computed = hit
        seq.left = total - hit
        counters = self.state.counters
        counters["query_tokens"] += total
        counters["cached_tokens"] += hit
        counters["cached_tokens_host"] += host * self.block
        self.state.gauges["hit_rate_last"] = hit / total
        if seq.scheduled_at is None:
            seq.scheduled_at = now
            seq.queue = now - seq.queued_at
            seq.cached, seq.host_cached = hit, host * self.block
            seq.source = "host" if host else "device" if device else "none"
            self.hooks.admitted(self, seq, now)
            seq.target = 1 if self.spec.role == "prefill" else min(request.output, request.max_tokens)
        if host:
            counters["host_loaded_tokens"] += host * self.block
            seq.state = "loading"
            self.loading[seq] = None
            seconds = host * self.block / self.speeds.host_load_tokens_per_second * self.host_slowdown
            self.hooks.later(seq, now + seconds)
        else:
            seq.state = "prefill"
            self.prefilling[seq] = None
        return True

    def _adapter(self, name: str) -> bool:
        """Make room for an adapter and load it; False while all slots are in use."""
        if name in self.adapters:
            self.adapters[name] += 1
            self.adapters.move_to_end(name)
            return True
        if len(self.adapters) >= max(1, self.spec.max_loras):
            idle = next((a for a, users in self.adapters.items() if users == 0), None)
            if idle is None:
                return False
            del self.adapters[idle]
        self.adapters[name] = 1
        self.stall += self.speeds.adapter_load
        self.state.counters["adapter_loads"] += 1
        return True
