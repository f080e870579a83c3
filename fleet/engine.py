"""One engine: a continuous batch over a paged KV cache, advanced from event to event.

A step with prompt chunks is simulated by itself. While a batch only decodes, many steps are one jump, up to the
next finish, the moment memory gets short, or an interruption. Sequences are not touched in a jump: they carry
the step number at which they finish or need another block.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Literal

from fleet.books import emit
from fleet.kvcache import KVCache
from fleet.model import Abort, BlockEvents, EngineState, FinishReason, FirstToken, PoolSpec
from fleet.sequence import Request, Sequence
from fleet.steps import Plan, accept_length, decode_seconds, prompt_seconds

if TYPE_CHECKING:
    from fleet.hooks import EngineHooks
    from fleet.replica import Replica

Phase = Literal["queue", "prefill", "decode", "transfer"]
PHASES: dict[str, Phase] = {"waiting": "queue", "loading": "queue", "prefill": "prefill", "decode": "decode"}
LONGEST_JUMP = 20_000
GROWTH = 64  # tokens: memory is taken so far ahead, as engines do for drafts; less when it is short


class Engine:
    """The scheduler and memory of one rank. Methods take the time now; nothing here looks at a clock."""

    def __init__(self, spec: PoolSpec, rank: int, hooks: EngineHooks, now: float) -> None:
        self.spec = spec
        self.hooks = hooks
        self.state = EngineState(rank)
        self.started = now
        self.block = spec.block_tokens
        self.growth = max(1, GROWTH // spec.block_tokens)
        self.drafts = spec.spec_tokens
        self.speeds = spec.speeds
        self.max_running = spec.max_running
        self.cache = KVCache(
            spec.kv_tokens // spec.block_tokens, spec.host_cache_tokens // spec.block_tokens, self._on_blocks
        )
        self.cache.enabled = spec.prefix_cache
        self.exclusive_prefill = spec.engine == "sglang"
        self.waiting: deque[Sequence] = deque()
        self.loading: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.decoding: dict[Sequence, None] = {}
        self.stuck: dict[Sequence, None] = {}  # zombies: hold slot and memory, never advance
        self.outgoing: dict[Sequence, None] = {}  # prefill role: KV kept until it is transferred
        self.plan: Plan | None = None
        self.plan_id = 0
        self.step = 0
        self.context = 0.0
        self.rate = 0.0
        self.classes: dict[str, list[float]] = {}  # decoding: [sequences, tokens a step]
        self.generated = 0.0
        self.generated_of: dict[str, float] = {}
        self.verified = 0.0  # sequences times decode steps
        self.decoded = 0.0  # tokens that those gave
        self.carried = 0
        self.carry = 0.0  # seconds that decodes waited for steps they took no part in
        self.stall = 0.0  # seconds to add to the next step
        self.next_stall = math.inf
        self.stall_every = math.inf
        self.stall_seconds = 0.0
        self.speed = 1.0
        self.drift = 0.0  # share of speed lost per hour of uptime
        self.warm_until = now
        self.stopped = False
        self.zombie_share = 0.0
        self.ordinal = 0
        self.adapters: OrderedDict[str, int] = OrderedDict()
        self.inert_host = False
        self.host_slowdown = 1.0
        self.acceptance = 1.0  # factor on the acceptance of drafts
        self.step_tax = 0.0  # seconds more per step (offload copies, for one)
        self._finishes: list[tuple[int, int, Sequence, int]] = []
        self._blocks: list[tuple[int, int, Sequence, int]] = []
        self._count = 0
        self.owner: Replica | None = None
        self.busy_before = 0.0
        self._measured = (0.0, 0.0)
        self.busy_at = 24.0  # requests that count as full load where texts go wrong by load
        self._abort_times: deque[float] = deque(maxlen=64)
        self._dropped: list[Sequence] = []
        self._arrived: list[Sequence] = []

    # ------------------------------------------------------------------------------------------ what others see

    @property
    def running(self) -> int:
        return len(self.prefilling) + len(self.decoding) + len(self.loading) + len(self.stuck)

    @property
    def load(self) -> int:
        return self.running + len(self.waiting)

    @property
    def kv_usage(self) -> float:
        return self.cache.in_use / self.cache.total

    def _on_blocks(self, event: Literal["evict", "reuse"], lifetime: float, idle: float, blocks: int) -> None:
        if event == "evict":
            self.state.counters["evicted_blocks"] += blocks
            self.state.counters["evicted_tokens"] += blocks * self.block
        now, records = self.hooks.clock(), self.state.observations.blocks
        if records:
            last = records[-1]
            if last.event == event and now - last.t < 1.0 and abs(last.idle - idle) < 0.5:
                last.blocks += blocks  # the same extent goes block by block
                return
        records.append(BlockEvents(now, event, lifetime, idle, blocks))

    # ------------------------------------------------------------------------------------------------- arrivals

    def submit(self, request: Request, now: float) -> bool:
        """Queue a request; True if the engine may have to change its plan."""
        seq = Sequence(request, now)
        seq.running, seq.waiting, seq.kv_usage = self.running, len(self.waiting), self.kv_usage
        self.ordinal += 1
        seq.ordinal = self.ordinal
        request.stage, request.where = seq, self
        seq.target = 1 if self.spec.role == "prefill" else min(request.output, request.max_tokens)
        self.state.counters["started"] += 1
        self.waiting.append(seq)
        return len(self.waiting) == 1 and self.running < self.max_running

    def resume(self, seq: Sequence, now: float) -> bool:
        """A loading sequence has what it waited for. True if the plan may have to be cut."""
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

    # ------------------------------------------------------------------------------------------------- planning

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

    # ------------------------------------------------------------------------------------------------ admission

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
            self.hooks.later(self, seq, now + seconds)
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

    # ------------------------------------------------------------------------------------------------ the steps

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

    # --------------------------------------------------------------------------------------------- leaving

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
        if was != "waiting":
            self._unuse_adapter(seq)
        self._free(seq, 0, now)
        seq.state = "gone"
        self.state.counters[f"finished_{reason}"] += 1
        self.hooks.left(self, seq, reason, now)

    def drop(self, seq: Sequence, now: float) -> bool:
        """The client went away: noticed between two steps. True if the plan may have to be cut."""
        if seq.state == "gone":
            return False
        if seq.state == "waiting" or self.plan is None:
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
        for group in (self.loading, self.prefilling, self.decoding, self.stuck, self.outgoing):
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

    def recent_aborts(self, now: float) -> int:
        """Clients that went away in the last minute."""
        times = self._abort_times
        while times and times[0] < now - 60.0:
            times.popleft()
        return len(times)

    def measure(self, now: float, seconds: float) -> None:
        """Throughput gauges over the last ``seconds``."""
        plan = self.plan
        tokens = self.generated + (
            plan.rate * plan.done_by(now) if plan is not None and plan.count > 1 else 0.0
        )
        prompt = self.state.counters["prefill_computed_tokens"]
        gauges = self.state.gauges
        gauges["gen_throughput"] = max(0.0, tokens - self._measured[0]) / seconds
        gauges["prompt_throughput"] = max(0.0, prompt - self._measured[1]) / seconds
        self._measured = (tokens, prompt)

    def everything(self) -> list[Sequence]:
        """All sequences that are somewhere in this engine."""
        return [
            *self.waiting, *self.loading, *self.prefilling, *self.decoding, *self.stuck, *self.outgoing
        ]  # fmt: skip
