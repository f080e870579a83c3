"""The kinds of incident: one table from which detectors, pages, API and documentation take names, order and
severity.

``precedence``: where two kinds explain the same scope and time, the lower number is the cause and absorbs
the other (telemetry > wedged, lost > restart, release, configuration > placement > recompute > capacity > latency). Load on
one replica and giant prompts stand before memory, because a full cache is then their effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.errors import ConfigError
from core.incidents import Severity


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """``absorbs``: may swallow other incidents of its scope (info and pure symptoms may not). ``quality``:
    about texts, never folded
    into latency. ``symptom``: opens only where no other kind explains it."""

    id: str
    title: str
    precedence: int
    severity: Severity
    meaning: str
    verdicts: tuple[str, ...] = ()
    absorbs: bool = True
    quality: bool = False
    symptom: bool = False


_TABLE = (
    IncidentKind(
        "telemetry_fault",
        "Telemetry fault",
        10,
        "info",
        "What is exported is stale, vanished, saturated, duplicated or impossible.",
        (*(f"E{i}" for i in range(1, 18)), "A10"),
        absorbs=False,
    ),
    IncidentKind(
        "gpu_fault",
        "GPU fault",
        18,
        "page",
        "A GPU reports Xid or uncorrectable memory errors, or is gone.",
        ("G2",),
    ),
    IncidentKind(
        "wedged",
        "Engine wedged",
        20,
        "page",
        "Work waits and nothing progresses while the process still answers.",
        ("D1", "D2", "D3", "D4"),
    ),
    IncidentKind(
        "capacity_lost",
        "Capacity lost",
        22,
        "page",
        "Replicas crash in a loop, stay pending or are missing, so that the rest cannot carry the load.",
    ),
    IncidentKind(
        "error_burst",
        "Engine errors",
        24,
        "page",
        "The engine answers requests with 5xx or 429, or runs out of memory.",
    ),
    IncidentKind(
        "gateway_fault",
        "Gateway fault",
        26,
        "page",
        "Router or gateway is slow or fails in front of engines that are idle.",
    ),
    IncidentKind(
        "stuck_requests",
        "Stuck requests",
        28,
        "ticket",
        "Requests that will never finish hold slots or KV blocks: zombies, pinned blocks, livelock, runaway.",
        ("A9", "B7", "B8", "C5", "D5"),
    ),
    IncidentKind(
        "config_drift",
        "Configuration drift",
        30,
        "ticket",
        "One replica runs with other flags, version, model or KV size than its peers.",
    ),
    IncidentKind(
        "throughput_regression",
        "Throughput regression",
        34,
        "ticket",
        "Tokens per busy second fell at equal batch and context, usually with a release.",
    ),
    IncidentKind(
        "replica_skew",
        "Load skew",
        38,
        "page",
        "Load is unevenly placed: some replicas queue while others idle.",
        ("A3", "A4"),
    ),
    IncidentKind(
        "prefix_cache_loss",
        "Prefix cache lost",
        40,
        "page",
        "Prefix-cache hits are gone without memory pressure: routing, prompt, engine or release.",
        ("B4",),
    ),
    IncidentKind(
        "kv_leak",
        "KV leak",
        42,
        "ticket",
        "KV blocks are never given back; the idle floor rises until nothing can be admitted.",
        ("B6",),
    ),
    IncidentKind(
        "head_of_line",
        "Head-of-line blocking",
        43,
        "page",
        "Long prefills, grammar compiling or preprocessing block short requests.",
        ("A2",),
    ),
    IncidentKind(
        "kv_eviction_storm",
        "KV eviction storm",
        44,
        "page",
        "The KV cache is too small for the sessions in flight: evicted blocks are computed again.",
        ("B1", "B2", "B3"),
    ),
    IncidentKind(
        "offload_thrash",
        "Offload thrash",
        46,
        "ticket",
        "A KV tier in host memory or storage costs more than it gives back.",
        ("B5",),
    ),
    IncidentKind(
        "lora_thrash",
        "Adapter thrash",
        47,
        "ticket",
        "Adapters are loaded and dropped in turn because too many are in use at once.",
    ),
    IncidentKind(
        "spec_decode_collapse",
        "Speculative decoding collapsed",
        48,
        "ticket",
        "Draft tokens are rejected: decoding is slower, texts are clean.",
        ("C6",),
    ),
    IncidentKind(
        "slow_replica",
        "Slow replica",
        50,
        "page",
        "One replica or rank is slower than its peers at the same work (clocks, drift with uptime).",
        ("A6", "G1"),
    ),
    IncidentKind(
        "host_stall",
        "Host stalls",
        54,
        "ticket",
        "CPU, garbage collection or the front end stops the engine for single steps.",
        ("A5",),
    ),
    IncidentKind(
        "kv_transfer_slow",
        "KV transfer slow",
        58,
        "page",
        "Moving KV blocks from prefill to decode takes too long or fails.",
        ("F2", "F3"),
    ),
    IncidentKind(
        "retry_storm",
        "Retry storm",
        60,
        "page",
        "Clients repeat rejected or timed-out requests faster than work gets done.",
        ("A8",),
    ),
    IncidentKind(
        "prefill_decode_imbalance",
        "Prefill and decode out of balance",
        62,
        "ticket",
        "One of the two pools is saturated while the other idles.",
        ("F1",),
    ),
    IncidentKind(
        "capacity_shortfall",
        "Capacity shortfall",
        64,
        "page",
        "Demand is above capacity; the owner is a traffic limit, the number of replicas or the scaler.",
        ("A1", "F4"),
    ),
    IncidentKind(
        "degraded_generations",
        "Degraded generations",
        70,
        "page",
        "Answers are garbled, looping, empty or malformed more often than this deployment's own normal.",
        ("C1", "C2", "C3", "C4", "C5", "C7", "C8", "C9", "C10", "C11", "C12"),
        quality=True,
    ),
    IncidentKind(
        "tail_latency_spike",
        "Tail latency spike",
        80,
        "page",
        "Latency broke its normal or objective and no cause is established.",
        symptom=True,
        absorbs=False,
    ),
    IncidentKind(
        "slo_burn",
        "Error budget burning",
        85,
        "page",
        "An objective burns its budget too fast and no other kind explains it.",
        symptom=True,
        absorbs=False,
    ),
    IncidentKind(
        "warm_up",
        "Warming up",
        90,
        "info",
        "A process started a short while ago and its caches are cold.",
        ("A7",),
        absorbs=False,
    ),
    IncidentKind(
        "traffic_shift",
        "Traffic shift",
        92,
        "info",
        "A tenant or class sends other or more traffic than usual.",
        absorbs=False,
    ),
)

KINDS: Mapping[str, IncidentKind] = MappingProxyType({k.id: k for k in _TABLE})
"""Every kind by id, in order of precedence."""


def kind(name: str, path: str = "kind") -> IncidentKind:
    """The kind of that id; ConfigError with the nearest ids where there is none."""
    found = KINDS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, KINDS, n=3, cutoff=0.4)
        raise ConfigError(path, "no such kind of incident", f"use {', '.join(near or KINDS)}", name)
    return found
