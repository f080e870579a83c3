"""The vocabulary of the simulated fleet: what a fleet is made of, what it shows, what it records.

Times are Unix seconds, durations seconds, amounts tokens unless a name says otherwise. Specs are frozen and
say what is wanted; states are what the simulation keeps up to date and others read: faces (exposition),
outputs (texts) and the gateway log. Only the simulation writes states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

EngineName = Literal["vllm", "sglang", "tensorrt_llm", "dynamo"]
RouterName = Literal["pinned", "round_robin", "least_loaded", "prefix_affine"]
Role = Literal["unified", "prefill", "decode"]
FinishReason = Literal["stop", "length", "abort", "error"]


# --------------------------------------------------------------------------------------------------- specs


@dataclass(frozen=True, slots=True)
class Speeds:
    """Seconds of one engine step = ``step`` + sequences * ``sequence`` + context tokens read * ``context`` +
    prompt tokens computed * (``prefill`` + tokens before them * ``attention``), divided by the speed now.
    """

    step: float = 0.012
    sequence: float = 0.00008
    context: float = 1.2e-8
    prefill: float = 5.0e-5
    attention: float = 1.5e-10
    draft: float = 0.002
    kv_bytes_per_token: float = 131072.0
    transfer_bytes_per_second: float = 2.0e10
    host_load_tokens_per_second: float = 150_000.0
    adapter_load: float = 0.35


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Equal replicas behind one router. ``kv_tokens``, ``max_running`` and ``token_budget`` count per rank.

    ``decode_pool`` names, for a prefill pool, where its requests go on. ``queue_limit``: more waiting requests
    on a rank than this are answered 429.
    """

    name: str
    engine: EngineName = "vllm"
    replicas: int = 3
    model: str = "glm-5-air"
    version: str = "0.11.0"
    gpus_per_replica: int = 1
    gpu_model: str = "NVIDIA H100 80GB HBM3"
    kv_tokens: int = 400_000
    block_tokens: int = 16
    max_running: int = 256
    token_budget: int = 8192
    max_model_len: int = 262_144
    speeds: Speeds = field(default_factory=Speeds)
    router: RouterName = "least_loaded"
    role: Role = "unified"
    decode_pool: str | None = None
    ranks: int = 1
    prefix_cache: bool = True
    spec_tokens: int = 3
    accept_rate: float = 0.6
    host_cache_tokens: int = 0
    max_loras: int = 0
    queue_limit: int = 100_000
    startup: float = 45.0
    warm_up: float = 60.0
    port: int = 8000
    cluster: str = "main"


@dataclass(frozen=True, slots=True)
class LogNormal:
    """``median`` * exp(``sigma`` * N(0, 1)), kept within [low, high]."""

    median: float
    sigma: float = 0.0
    low: float = 1.0
    high: float = 1e9


@dataclass(frozen=True, slots=True)
class Shape:
    """How demand moves: day curve (``day_amplitude`` around 1, highest at ``peak_hour`` UTC), ``weekend``
    factor, and bursts: ``burst_per_day`` times a day one tenant multiplies its demand by up to ``burst_size``
    for about ``burst_seconds``. With ``on`` and ``off`` (mean seconds) demand comes in stretches, each at a level of
    its own (log-normal, ``on_sigma``, mean 1), with ``off_share`` of the demand in between.
    """

    day_amplitude: float = 0.0
    peak_hour: float = 14.0
    weekend: float = 1.0
    burst_per_day: float = 0.0
    burst_size: float = 3.0
    burst_seconds: float = 600.0
    on: float = 0.0
    off: float = 0.0
    on_sigma: float = 0.7
    off_share: float = 0.02


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """One workload class on one pool.

    ``mode`` open: sessions arrive at ``rate`` per second whatever happens. ``mode`` closed: ``users`` busy
    users, each one session after the other with ``off`` seconds between them; what they ask depends on how
    fast they are answered. A session's turns share their prefix; after ``reset_share`` of turns, or at
    ``max_context``, the context is compacted to ``compact_to``.
    """

    workload: str
    pool: str
    mode: Literal["open", "closed"] = "open"
    rate: float = 1.0
    users: int = 0
    tenants: Mapping[str, float] = field(default_factory=lambda: {"acme": 1.0})
    shared_tokens: int = 200
    first: LogNormal = LogNormal(400, 0.9)
    new: LogNormal = LogNormal(120, 0.9)
    output: LogNormal = LogNormal(160, 0.8)
    think: LogNormal = LogNormal(20, 1.0)
    pause_share: float = 0.0
    pause: LogNormal = LogNormal(300, 1.0)
    off: LogNormal = LogNormal(30, 1.0)
    turns: float = 4.0
    max_context: int = 32_000
    reset_share: float = 0.0
    compact_to: LogNormal = LogNormal(20_000, 0.4)
    documents: int = 0
    document: LogNormal = LogNormal(1500, 0.5)
    zipf: float = 1.1
    max_tokens: int = 8192
    loras: int = 0
    timeout: float = 120.0
    retries: int = 2
    backoff: float = 2.0
    abort_share: float = 0.003  # users who stop an answer half-way
    shape: Shape = Shape()
    objective_ttft: float = 5.0


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """Something that happens. ``kind`` names the mechanism (fleet.faults), ``label`` the incident it is for
    the truth (None: an event that must stay silent). ``replicas``: indices in the pool, None = all.
    """

    kind: str
    start: float
    duration: float | None = None
    pool: str = ""
    replicas: tuple[int, ...] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    accept: tuple[str, ...] = ()
    load_correlated: bool | None = None
    classes: tuple[str, ...] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """A whole fleet. ``base_corrupt``: share of finished requests whose text is broken though all is well."""

    pools: tuple[PoolSpec, ...]
    traffic: tuple[TrafficSpec, ...]
    faults: tuple[FaultSpec, ...] = ()
    start: float = 1_789_999_200.0
    end: float | None = None
    seed: int = 0
    name: str = "fleet"
    base_corrupt: float = 2e-4
    lead: float = 600.0  # seconds simulated before ``start`` and not shown: caches are warm, sessions mid-way
    events: tuple[EventRecord, ...] = ()


# ------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A change that operators would log: deploy, restart, scale, flag."""

    kind: str
    pool: str
    ts: float
    text: str


@dataclass(slots=True)
class FirstToken:
    """Seconds: ``queue`` engine's waiting line, ``prefill`` scheduled to first token."""

    t: float
    workload: str
    ttft: float
    queue: float
    prefill: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class TokenGaps:
    """``count`` gaps of ``gap`` seconds between engine outputs, together ``tokens`` tokens."""

    t: float
    workload: str
    gap: float
    count: int
    tokens: float


@dataclass(slots=True)
class Steps:
    """``count`` engine steps, each of ``seconds`` and ``tokens`` scheduled tokens (decode + prefill)."""

    t: float
    seconds: float
    tokens: float
    count: int


@dataclass(slots=True)
class BlockEvents:
    """``blocks`` KV blocks evicted (``lifetime``, ``idle`` seconds) or reused (``idle`` = reuse gap)."""

    t: float
    event: Literal["evict", "reuse"]
    lifetime: float
    idle: float
    blocks: int


@dataclass(slots=True)
class Transfer:
    """A KV transfer into this engine (decode) or out of it (prefill)."""

    t: float
    seconds: float
    bytes: float
    ok: bool = True


@dataclass(slots=True)
class Finish:
    """A request that left the engine. ``running``, ``waiting``, ``kv_usage`` are its rank's load at
    admission without itself. ``corrupt`` names what is wrong with the text ('' = clean): loop, garble,
    foreign, flood, mojibake, empty, truncated, bad_tool_call, leak. ``cache_source``: none, device, host, transfer.
    """

    id: str
    t: float
    workload: str
    tenant: str
    session: str
    turn: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    ttft: float
    e2e: float
    queue: float
    prefill: float
    decode: float
    max_tokens: int
    accept_length: float | None
    preempted: int
    finish_reason: FinishReason
    running: int
    waiting: int
    kv_usage: float
    ordinal: int
    cache_source: str = "none"
    adapter: str = ""
    corrupt: str = ""
    rank: int = 0


@dataclass(slots=True)
class Abort:
    """A request whose client went away. ``phase``: queue, prefill or decode; ``age`` seconds since arrival."""

    id: str
    t: float
    workload: str
    phase: Literal["queue", "prefill", "decode", "transfer"]
    age: float
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Attempt:
    """One line of the gateway log; ``upstream`` is address:port ('' = never sent). ``ttft`` None = no token."""

    ts: float
    workload: str
    tenant: str
    pool: str
    upstream: str
    status: int
    ttft: float | None
    duration: float
    prompt_tokens: int
    output_tokens: int
    session: str
    turn: int
    retry: int
    id: str


@dataclass(slots=True)
class Observations:
    """Append-only since the last drain. ``drain`` hands the lists over and starts empty ones."""

    first_tokens: list[FirstToken] = field(default_factory=list)
    gaps: list[TokenGaps] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    aborts: list[Abort] = field(default_factory=list)
    blocks: list[BlockEvents] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    def drain(self) -> Observations:
        """What came since the last drain."""
        out = Observations(
            self.first_tokens, self.gaps, self.steps, self.finishes, self.aborts, self.blocks, self.transfers
        )
        self.first_tokens, self.gaps, self.steps, self.finishes = [], [], [], []
        self.aborts, self.blocks, self.transfers = [], [], []
        return out


# -------------------------------------------------------------------------------------------------- states

ENGINE_COUNTERS: tuple[str, ...] = (
    "prompt_tokens",  # of requests whose prefill ended, cached ones included
    "generation_tokens",
    "prefill_computed_tokens",  # recomputation after preemption included
    "cached_tokens",  # prefix hits at admission: device + host
    "cached_tokens_host",
    "cached_tokens_transfer",  # came by KV transfer (decode role)
    "query_tokens",  # prefix-cache look-ups (each admission, also after preemption)
    "preemptions",
    "retracted_tokens",
    "evicted_tokens",
    "evicted_blocks",
    "started",
    "finished_stop",
    "finished_length",
    "finished_abort",
    "finished_error",
    "errors",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "steps",
    "busy_seconds",
    "stall_seconds",
    "transfers",
    "transfer_bytes",
    "transfer_seconds",
    "transfer_failures",
    "host_stored_tokens",
    "host_loaded_tokens",
    "adapter_loads",
)
ENGINE_GAUGES: tuple[str, ...] = (
    "running",
    "waiting",
    "kv_usage",  # blocks held by requests / all, 0..1 (cached but free blocks do not count)
    "kv_cached",  # blocks with reusable content that no request holds / all
    "kv_used_tokens",
    "kv_capacity_tokens",
    "preallocating",  # decode role: requests that wait for KV space
    "transferring",  # decode role: requests whose KV is on the way
    "pinned_blocks",  # held by nothing that runs: leaked, or waiting for a transfer
    "host_used_tokens",
    "adapters_loaded",
    "adapters_waiting",
    "gen_throughput",  # tokens/s over the last seconds
    "prompt_throughput",
    "hit_rate_last",  # of the last admission batch, what SGLang calls cache_hit_rate
    "accept_length_last",
    "uptime",
)


@dataclass(slots=True)
class GpuState:
    """One GPU of a replica. Clocks in Hz, power in W, memory in bytes. ``present`` False: fell off the bus."""

    index: int
    uuid: str
    model: str
    sm_clock_hz: float = 1.98e9
    memory_clock_hz: float = 2.619e9
    temperature: float = 35.0
    power: float = 90.0
    energy_joules: float = 0.0
    utilisation: float = 0.0
    memory_used: float = 0.0
    memory_total: float = 8.59e10
    xid: int = 0
    ecc_sbe: int = 0
    ecc_dbe: int = 0
    throttle: frozenset[str] = frozenset()  # thermal, power, hw_slowdown
    throttle_seconds: float = 0.0
    nvlink_bytes: float = 0.0
    pcie_bytes: float = 0.0
    present: bool = True


@dataclass(slots=True)
class EngineState:
    """One scheduler with its KV cache: a replica has one per rank. Counters restart at 0 with the process.

    ``waiting_by_workload`` and ``running_by_workload`` split the gauges by class.
    """

    rank: int
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ENGINE_COUNTERS, 0.0))
    gauges: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ENGINE_GAUGES, 0.0))
    prompt_by_workload: dict[str, float] = field(default_factory=dict)
    generation_by_workload: dict[str, float] = field(default_factory=dict)
    running_by_workload: dict[str, int] = field(default_factory=dict)
    waiting_by_workload: dict[str, int] = field(default_factory=dict)
    adapters: tuple[str, ...] = ()
    observations: Observations = field(default_factory=Observations)


@dataclass(slots=True)
class ReplicaState:
    """A pod: one address, one process, one exposition; ``engines`` one per rank.

    ``up`` False: refuses connections (a scrape fails). ``ready`` False: answers /metrics, takes no traffic yet.
    ``http`` counts answers of the engine's own front end by status; a client that goes away is 200 there.
    ``telemetry`` tells the face what to do wrong: {} = nothing; keys: stale (bool: repeats the last body),
    gap (bool: scrape times out), drop (list of canonical names), nan (list), duplicate (bool), saturate (bool),
    negative (list), le_spelling (str). ``flags``: what differs from the pool's (config drift), shown in labels
    or info metrics where the engine has them.
    """

    pool: str
    name: str
    address: str
    engine: EngineName
    model: str
    version: str
    role: Role
    cluster: str
    hostname: str
    index: int
    process_start: float
    engines: list[EngineState]
    gpus: list[GpuState]
    up: bool = True
    ready: bool = True
    terminated: bool = False
    http: dict[int, float] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    release: str = "r1"
    telemetry: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)

    @property
    def counters(self) -> dict[str, float]:
        """The ranks' counters added up (a new dictionary)."""
        return {name: sum(e.counters[name] for e in self.engines) for name in ENGINE_COUNTERS}

    @property
    def gauges(self) -> dict[str, float]:
        """The ranks' gauges: amounts added up, ratios, lengths and ages averaged (a new dictionary)."""
        ratio = {"kv_usage", "kv_cached", "hit_rate_last", "accept_length_last", "uptime"}
        n = max(1, len(self.engines))
        return {
            name: sum(e.gauges[name] for e in self.engines) / (n if name in ratio else 1)
            for name in ENGINE_GAUGES
        }


@dataclass(slots=True)
class GatewayState:
    """The gateway's own cumulative facts, by (pool, workload, status) and what it knows of deployments."""

    responses: dict[tuple[str, str, int], float] = field(default_factory=dict)
    retries: dict[str, float] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    healthy: dict[str, bool] = field(default_factory=dict)
    overhead_seconds: float = 0.002


class FleetView(Protocol):
    """What fleet.simulation.Simulation offers to faces, outputs and the demo (``Simulation(spec)``)."""

    spec: FleetSpec
    now: float
    replicas: list[
        ReplicaState
    ]  # those that exist now; a terminated pod leaves, a new one may take its address
    gateway: GatewayState
    events: list[EventRecord]

    def run(self, until: float) -> None:
        """Advance to ``until`` (Unix seconds; may be called again and again) and bring counters, gauges and
        GPUs of every replica to that moment."""

    def inject(self, fault: FaultSpec) -> None:
        """A fault from now on: ``fault.start`` at or before now means at once."""

    def drain_attempts(self) -> list[Attempt]:
        """Gateway attempts that ended since the last call, in order of their end."""

    def truth(self) -> dict[str, Any]:
        """What was wrong so far, in the form of truth.json."""
