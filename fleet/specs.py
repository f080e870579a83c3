"""What a simulated fleet is made of: pools, traffic, faults. Amounts are tokens unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleet.records import EventRecord

EngineName = Literal["vllm", "sglang", "tensorrt_llm", "dynamo"]
RouterName = Literal["pinned", "round_robin", "least_loaded", "prefix_affine"]
Role = Literal["unified", "prefill", "decode"]


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
