"""Every fault and every calm event as a scenario: name -> a fleet with what happens to it.

``build(name, seed)`` gives three hours with the fault after about half of them. A scenario has one fault, or a
pair of things that look alike, the second an hour after the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from fleet import fleets
from fleet.model import FaultSpec, FleetSpec

START = 1_790_064_000.0
HOURS = 3.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """``faults(t)`` with ``t`` the moment at which it begins."""

    name: str
    fleet: Callable[[int], FleetSpec]
    faults: Callable[[float], tuple[FaultSpec, ...]]
    kind: str | None
    about: str


SCENARIOS: dict[str, Scenario] = {}


def _add(
    name: str,
    fleet: Callable[[int], FleetSpec],
    mechanism: str,
    pool: str,
    about: str,
    *,
    kind: str | None = None,
    minutes: float | None = 40.0,
    replicas: tuple[int, ...] | None = None,
    accept: tuple[str, ...] = (),
    load: bool | None = None,
    classes: tuple[str, ...] | None = None,
    also: Callable[[float], tuple[FaultSpec, ...]] | None = None,
    **params: Any,
) -> None:
    def faults(t: float) -> tuple[FaultSpec, ...]:
        seconds = None if minutes is None else minutes * 60.0
        main = FaultSpec(mechanism, t, seconds, pool, replicas, params, kind, accept, load, classes, about)
        return (main, *(also(t) if also is not None else ()))

    SCENARIOS[name] = Scenario(name, fleet, faults, kind, about)


def _silent(
    mechanism: str, pool: str, seconds: float | None, **params: Any
) -> Callable[[float], tuple[FaultSpec, ...]]:
    return lambda t: (FaultSpec(mechanism, t, seconds, pool, None, params),)


STD, ROOMY, PD = fleets.standard, fleets.roomy_chat, fleets.disaggregated

# Memory and recomputation
_add(
    "storm_load",
    STD,
    "knobs",
    "coder-a",
    "more agents than the KV cache can hold",
    kind="kv_eviction_storm",
    rate=2.3,
    ramp=300.0,
)
_add(
    "storm_context",
    STD,
    "knobs",
    "coder-a",
    "agents' contexts grow beyond the KV cache",
    kind="kv_eviction_storm",
    context=2.2,
    new=2.0,
    ramp=600.0,
)
_add(
    "storm_preempt",
    STD,
    "knobs",
    "chat-a",
    "long answers: preemptions",
    kind="kv_eviction_storm",
    output=3.0,
    rate=1.35,
    accept=("capacity_shortfall",),
)
_add(
    "prefix_routing",
    STD,
    "routing",
    "coder-a",
    "the router forgets affinity",
    kind="prefix_cache_loss",
    policy="round_robin",
    minutes=None,
)
_add(
    "prefix_salt",
    STD,
    "knobs",
    "coder-a",
    "a time stamp in front of the prompt",
    kind="prefix_cache_loss",
    salt=True,
)
_add("prefix_engine", STD, "cache_off", "mixed-s", "the prefix cache stops to hit", kind="prefix_cache_loss")
_add(
    "kv_leak",
    ROOMY,
    "leak",
    "chat-a",
    "blocks are never given back",
    kind="kv_leak",
    replicas=(1,),
    share=1.2,
    minutes=70.0,
)
_add(
    "offload_thrash",
    fleets.tiered,
    "offload",
    "coder-a",
    "loading from the host tier takes longer than it saves",
    kind="offload_thrash",
    slowdown=60.0,
)
_add(
    "lora_thrash",
    fleets.adapters,
    "knobs",
    "chat-a",
    "requests spread over more adapters than fit",
    kind="lora_thrash",
    lora_uniform=True,
)
_add(
    "kv_transfer_slow",
    PD,
    "transfer",
    "docs-d",
    "KV transfers take many times as long",
    kind="kv_transfer_slow",
    slowdown=9.0,
)
_add(
    "pd_imbalance",
    PD,
    "knobs",
    "docs-d",
    "long answers fill the decode side while prefill idles",
    kind="prefill_decode_imbalance",
    output=5.0,
)

# Capacity and demand
_add("overload", ROOMY, "knobs", "chat-a", "demand above capacity", kind="capacity_shortfall", rate=2.6)
_add(
    "tenant_burst",
    ROOMY,
    "tenant_rate",
    "chat-a",
    "one tenant asks for more than there is",
    kind="capacity_shortfall",
    accept=("traffic_shift",),
    tenant="globex",
    factor=7.5,
)
_add(
    "prefill_shortage",
    PD,
    "knobs",
    "docs-p",
    "more prompts than prefill can compute",
    kind="capacity_shortfall",
    accept=("prefill_decode_imbalance",),
    rate=2.2,
)
_add(
    "head_of_line",
    STD,
    "newcomer",
    "chat-a",
    "prompts of 100,000 tokens among short chats",
    kind="head_of_line",
    rate=0.22,
    prompt=90_000,
    tenant="hugo",
)
_add(
    "retry_storm",
    ROOMY,
    "stampede",
    "chat-a",
    "a hiccup, and clients that retry at once",
    kind="retry_storm",
    accept=("capacity_shortfall",),
    stop=45.0,
    retries=8,
    patience=0.06,
)
_add(
    "capacity_lost",
    STD,
    "missing",
    "coder-a",
    "two pods evicted and pending",
    kind="capacity_lost",
    replicas=(1, 4),
    minutes=35.0,
)
_add(
    "crash_loop",
    STD,
    "crash_loop",
    "chat-a",
    "a pod that dies again and again",
    kind="capacity_lost",
    replicas=(1,),
    accept=("error_burst",),
)
_add(
    "skew",
    STD,
    "skew",
    "chat-a",
    "the router sends everything to one replica",
    kind="replica_skew",
    favourites=(1,),
)
_add(
    "rank_skew",
    fleets.data_parallel,
    "rank_skew",
    "moe-a",
    "one rank gets all requests",
    kind="replica_skew",
    replicas=(0,),
    rank=1,
)

# Single machines and processes
_add(
    "slow_replica",
    STD,
    "slow",
    "coder-a",
    "thermal throttling",
    kind="slow_replica",
    replicas=(3,),
    factor=0.4,
)
_add(
    "slow_drift",
    STD,
    "drift",
    "chat-a",
    "slower with uptime, cured by a restart",
    kind="slow_replica",
    replicas=(2,),
    per_hour=4.0,
    minutes=None,
)
_add(
    "host_stall",
    STD,
    "stall",
    "chat-a",
    "the host stalls single steps",
    kind="host_stall",
    replicas=(0,),
    seconds=1.6,
    every=9.0,
)
_add(
    "wedged",
    STD,
    "wedge",
    "mixed-s",
    "dead engine behind a live API",
    kind="wedged",
    replicas=(1,),
    minutes=18.0,
)
_add(
    "gpu_fault",
    STD,
    "gpu",
    "coder-a",
    "Xid 48 and double-bit errors",
    kind="gpu_fault",
    replicas=(2,),
    xid=48,
    factor=0.55,
    accept=("slow_replica",),
)
_add(
    "gpu_gone",
    STD,
    "gpu",
    "mixed-s",
    "a GPU fell off the bus",
    kind="gpu_fault",
    replicas=(0,),
    xid=79,
    gone=True,
    accept=("capacity_lost",),
)
_add(
    "config_drift",
    STD,
    "config",
    "chat-a",
    "one replica came back with other flags",
    kind="config_drift",
    replicas=(2,),
    settings={"max_running": 6, "version": "0.10.2"},
    accept=("replica_skew",),
)
_add(
    "zombies",
    ROOMY,
    "zombies",
    "chat-a",
    "aborted requests keep slot and memory",
    kind="stuck_requests",
    replicas=(0,),
    also=_silent("knobs", "chat-a", 2400.0, aborts=0.06),
)
_add(
    "pinned_kv",
    PD,
    "zombies",
    "docs-d",
    "aborted transfers pin memory for eight minutes",
    kind="stuck_requests",
    hold=480.0,
    also=_silent("knobs", "docs-d", 2400.0, aborts=0.25),
)
_add(
    "error_burst",
    STD,
    "errors",
    "mixed-s",
    "the engine answers 500",
    kind="error_burst",
    replicas=(2,),
    share=0.4,
    minutes=25.0,
)
_add(
    "error_pool",
    STD,
    "errors",
    "chat-a",
    "all engines answer 503",
    kind="error_burst",
    share=0.15,
    status=503,
    minutes=25.0,
)

# In front of the engines
_add(
    "gateway_slow",
    STD,
    "gateway",
    "chat-a",
    "the gateway holds requests before idle engines",
    kind="gateway_fault",
    delay=2.5,
    share=0.6,
    minutes=25.0,
)
_add(
    "gateway_errors",
    STD,
    "gateway",
    "coder-a",
    "the gateway fails requests before idle engines",
    kind="gateway_fault",
    errors=0.25,
    status=502,
    minutes=25.0,
)
_add(
    "tail_spike",
    STD,
    "gateway",
    "chat-a",
    "a few requests wait, nobody knows why",
    kind="tail_latency_spike",
    delay=9.0,
    share=0.09,
    accept=("gateway_fault",),
    minutes=25.0,
)
_add(
    "slo_burn",
    STD,
    "gateway",
    "chat-a",
    "a small share is late for hours",
    kind="slo_burn",
    delay=6.0,
    share=0.035,
    accept=("gateway_fault", "tail_latency_spike"),
    minutes=None,
)

# Speed of all
_add(
    "spec_collapse",
    STD,
    "acceptance",
    "chat-a",
    "drafts are rejected, texts are clean",
    kind="spec_decode_collapse",
    factor=0.15,
)
_add(
    "regression",
    STD,
    "rolling",
    "chat-a",
    "a release that is slower",
    kind="throughput_regression",
    version="0.11.1",
    speeds={"step": 2.0, "sequence": 2.0, "prefill": 1.6},
    gap=60.0,
    minutes=None,
)

# Texts
_add(
    "garble_load",
    STD,
    "corrupt",
    "mixed-s",
    "texts break under load",
    kind="degraded_generations",
    load=True,
    by="load",
    share=0.012,
    busy=14,
    low=0.25,
    high=0.9,
    minutes=None,
    also=_silent("wave", "mixed-s", None, factor=2.4, period=1500.0),
)
_add(
    "garble_replica",
    STD,
    "corrupt",
    "chat-a",
    "one replica garbles",
    kind="degraded_generations",
    load=False,
    replicas=(2,),
    share=0.02,
    minutes=None,
)
_add(
    "garble_release",
    STD,
    "rolling",
    "chat-a",
    "a release that garbles",
    kind="degraded_generations",
    load=False,
    version="0.11.2",
    release="r2",
    gap=40.0,
    minutes=None,
    also=lambda t: (
        FaultSpec("corrupt", t, None, "chat-a", None, {"by": "release", "release": "r2", "share": 0.01}),
    ),
)
_add(
    "garble_host",
    fleets.tiered,
    "corrupt",
    "coder-a",
    "KV restored from the host is incomplete",
    kind="degraded_generations",
    load=False,
    by="host",
    share=0.25,
    kinds=("bad_tool_call", "loop", "garble"),
    minutes=None,
)
_add(
    "garble_uptime",
    STD,
    "corrupt",
    "chat-a",
    "corruption that accumulates until a restart",
    kind="degraded_generations",
    load=False,
    replicas=(0,),
    by="ordinal",
    share=0.05,
    full=30_000.0,
    minutes=None,
)
_add(
    "garble_aborts",
    PD,
    "corrupt",
    "docs-d",
    "aborts free memory that a transfer still writes to",
    kind="degraded_generations",
    load=True,
    by="aborts",
    share=0.03,
    minutes=None,
    also=_silent("wave", "docs-d", None, factor=1.8, period=1500.0),
)
_add(
    "garble_surge",
    STD,
    "corrupt",
    "chat-a",
    "a replica's fault that merely meets one surge",
    kind="degraded_generations",
    load=False,
    replicas=(1,),
    share=0.02,
    minutes=50.0,
    also=_silent("knobs", "chat-a", 3000.0, rate=1.3),
)
_add(
    "loops_are_load",
    STD,
    "corrupt",
    "mixed-s",
    "loops run to the limit and are themselves the load",
    kind="degraded_generations",
    load=False,
    share=0.012,
    kinds=("loop",),
    minutes=None,
)
_add(
    "poisoned_sessions",
    STD,
    "corrupt",
    "coder-a",
    "sessions that went bad stay bad",
    kind="degraded_generations",
    load=False,
    share=0.0015,
    poison=1.0,
    minutes=None,
)
_add(
    "flood_replica",
    STD,
    "corrupt",
    "mixed-s",
    "NaN: one character, on one host",
    kind="degraded_generations",
    load=False,
    replicas=(0,),
    share=0.015,
    kinds=("flood",),
    minutes=None,
)
_add(
    "tool_calls",
    STD,
    "corrupt",
    "coder-a",
    "malformed tool calls",
    kind="degraded_generations",
    load=False,
    share=0.01,
    kinds=("bad_tool_call",),
    minutes=None,
)

# Telemetry
_add(
    "telemetry_stale",
    STD,
    "telemetry",
    "chat-a",
    "the exposition repeats itself",
    kind="telemetry_fault",
    stale=True,
)
_add(
    "telemetry_vanished",
    STD,
    "telemetry",
    "mixed-s",
    "families are gone",
    kind="telemetry_fault",
    drop=["ttft", "e2e", "kv_usage"],
)
_add(
    "telemetry_nan",
    STD,
    "telemetry",
    "coder-a",
    "NaN where numbers were",
    kind="telemetry_fault",
    nan=["kv_usage", "generation_tokens"],
)

# What must stay silent
_add("calm", STD, "knobs", "chat-a", "nothing at all", rate=1.0)
_add("calm_surge", ROOMY, "knobs", "chat-a", "a surge within capacity", rate=1.35)
_add("calm_deploy", STD, "rolling", "coder-a", "rolling restart", gap=120.0, minutes=None)
_add("calm_release", STD, "rolling", "chat-a", "a good release", gap=120.0, version="0.11.1", minutes=None)
_add("calm_scale_up", ROOMY, "scale", "chat-a", "two more replicas", add=2, minutes=None)
_add(
    "calm_scale_down",
    STD,
    "scale",
    "mixed-s",
    "one replica less, at a quiet time",
    add=-1,
    minutes=None,
    also=_silent("knobs", "mixed-s", None, rate=0.6),
)
_add(
    "calm_mix",
    STD,
    "mix",
    "mixed-s",
    "classes change their shares",
    rates={"batch": 3.0, "chat": 0.6},
    minutes=60.0,
)
_add("calm_quiet", STD, "knobs", "", "a quiet night", rate=0.12, minutes=60.0)
_add("calm_scrape_gap", STD, "telemetry", "", "three minutes without scrapes", gap=True, minutes=3.0)
_add("calm_compaction", STD, "knobs", "coder-a", "agents compact their contexts", reset=0.05)
_add(
    "calm_customer",
    ROOMY,
    "tenant_rate",
    "chat-a",
    "a customer leaves",
    tenant="acme",
    factor=0.0,
    minutes=None,
)
_add("calm_restart", STD, "restart", "mixed-s", "one process restarts", replicas=(1,), minutes=None)
_add(
    "calm_aborts",
    ROOMY,
    "knobs",
    "chat-a",
    "more users stop answers when it is busy",
    aborts_under_load=0.06,
    rate=1.2,
)
_add(
    "calm_tenant",
    ROOMY,
    "tenant_rate",
    "chat-a",
    "a tenant's burst within capacity",
    tenant="umbrella",
    factor=2.8,
)

PAIRS: dict[str, tuple[str, str]] = {
    "pair_storm_routing": ("storm_load", "prefix_routing"),
    "pair_storm_compaction": ("calm_compaction", "storm_context"),
    "pair_salt_restart": ("calm_deploy", "prefix_salt"),
    "pair_slow_stall": ("slow_replica", "host_stall"),
    "pair_overload_surge": ("calm_surge", "overload"),
    "pair_skew_drift": ("skew", "config_drift"),
    "pair_lost_scale": ("calm_scale_down", "gpu_gone"),
    "pair_garble_replica_load": ("garble_replica", "garble_load"),
    "pair_spec_garble": ("spec_collapse", "garble_surge"),
    "pair_transfer_decode": ("kv_transfer_slow", "pd_imbalance"),
    "pair_wedged_gap": ("calm_scrape_gap", "wedged"),
    "pair_gateway_overload": ("gateway_slow", "overload"),
}  # fmt: skip


def names() -> list[str]:
    """All scenarios, pairs last."""
    return [*SCENARIOS, *PAIRS]


def build(
    name: str, seed: int = 11, *, start: float = START, hours: float = HOURS, fault_at: float | None = None
) -> FleetSpec:
    """The fleet and faults of a scenario. ``fault_at``: seconds after ``start`` (about half of ``hours`` by
    default, moved a little by ``seed``). KeyError for an unknown name."""
    rng = Random(f"{seed}:{name}")
    seconds = hours * 3600.0
    offset = fault_at if fault_at is not None else seconds * (0.42 + 0.1 * rng.random())
    at = start + round(offset / 15.0) * 15.0
    if name in PAIRS:
        first, second = (SCENARIOS[n] for n in PAIRS[name])
        fleet = fleets.merged(first.fleet(seed), second.fleet(seed))
        early = start + round(seconds * 0.2 / 15.0) * 15.0
        limit = seconds * 0.25
        opening = tuple(
            replace(f, duration=min(limit, f.duration if f.duration is not None else limit))
            if f.kind not in ("scale", "rolling", "restart")
            else f
            for f in first.faults(early)
        )
        faults = opening + second.faults(early + seconds / 3.0)
    else:
        scenario = SCENARIOS[name]
        fleet = scenario.fleet(seed)
        faults = scenario.faults(at)
    return replace(fleet, faults=faults, start=start, end=start + seconds, seed=seed, name=name)
