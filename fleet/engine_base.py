"""The state of one engine: its queues, batch, memory, and what it has counted."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Literal

from fleet.kvcache import KVCache
from fleet.model import BlockEvents, EngineState, PoolSpec
from fleet.sequence import Sequence
from fleet.steps import Plan

if TYPE_CHECKING:
    from fleet.hooks import EngineHooks
    from fleet.replica import Replica

GROWTH = 64  # tokens: memory is taken so far ahead, as engines do for drafts; less when it is short


class EngineBase:
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
        self.front: dict[Sequence, None] = {}  # still in the front end: not in the line yet
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
        self.front_share = 0.0  # of requests that the front end sits on, for front_seconds on average
        self.front_seconds = 0.0
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
            *self.waiting, *self.front, *self.loading, *self.prefilling, *self.decoding, *self.stuck, *self.outgoing
        ]  # fmt: skip
