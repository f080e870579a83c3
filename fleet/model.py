"""The vocabulary of the simulated fleet: what a fleet is made of, what it shows, what it records.

Times are Unix seconds, durations seconds, amounts tokens unless a name says otherwise. Specs are frozen and
say what is wanted; states are what the simulation keeps up to date and others read: faces (exposition),
outputs (texts) and the gateway log. Only the simulation writes states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.records import (
    Abort,
    Attempt,
    BlockEvents,
    EventRecord,
    Finish,
    FinishReason,
    FirstToken,
    Observations,
    Steps,
    TokenGaps,
    Transfer,
)
from fleet.specs import (
    EngineName,
    FaultSpec,
    FleetSpec,
    LogNormal,
    PoolSpec,
    Role,
    RouterName,
    Shape,
    Speeds,
    TrafficSpec,
)

__all__ = [
    "ENGINE_COUNTERS",
    "ENGINE_GAUGES",
    "Abort",
    "Attempt",
    "BlockEvents",
    "EngineName",
    "EngineState",
    "EventRecord",
    "FaultSpec",
    "Finish",
    "FinishReason",
    "FirstToken",
    "FleetSpec",
    "FleetView",
    "GatewayState",
    "GpuState",
    "LogNormal",
    "Observations",
    "PoolSpec",
    "ReplicaState",
    "Role",
    "RouterName",
    "Shape",
    "Speeds",
    "Steps",
    "TokenGaps",
    "TrafficSpec",
    "Transfer",
]

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
