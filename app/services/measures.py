"""What can be drawn for each replica: measures made of canonical signals, with the direction in which they get worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

How = Literal["gauge", "ratio", "rate", "mean", "p99"]


@dataclass(frozen=True, slots=True)
class Measure:
    """``how``: ``gauge`` mean value; ``rate`` events of ``top`` a second; ``ratio`` increments of ``top`` over those of
    ``bottom``; ``mean`` sum over count of a histogram; ``p99`` of a histogram (or its quantile ``q``).

    ``minus`` is taken off ``top``. ``top`` and ``bottom`` are alternatives, the first that the target has is used. ``worse`` is
    +1 where more is worse, −1 where less is worse, 0 where neither is. ``full_scale`` is the deviation from a replica's own
    normal at which the heat map is darkest: a difference for ratios, a factor for the others.
    """

    id: str
    title: str
    unit: str
    how: How
    top: tuple[str, ...]
    bottom: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()
    worse: int = 1
    log: bool = False
    full_scale: float = 10.0
    q: float = 0.99

    @property
    def as_difference(self) -> bool:
        """Deviation is a difference (shares and counts per request), not a factor."""
        return self.unit in ("ratio", "")


_TABLE = (
    Measure("ttft_p99", "TTFT p99", "s", "p99", ("ttft_seconds",), log=True, full_scale=20.0),
    Measure("ttft_p50", "TTFT p50", "s", "p99", ("ttft_seconds",), log=True, full_scale=10.0, q=0.5),
    Measure("itl_p99", "ITL p99", "s", "p99", ("inter_token_latency_seconds",), log=True, full_scale=10.0),
    Measure("e2e_p99", "End-to-end p99", "s", "p99", ("request_latency_seconds",), log=True, full_scale=10.0),
    Measure(
        "queue_mean", "Mean queue time", "s", "mean", ("queue_time_seconds",), log=True, full_scale=100.0
    ),
    Measure("kv_usage", "KV cache in use", "ratio", "gauge", ("kv_cache_usage_ratio",), full_scale=0.6),
    Measure(
        "hit_rate",
        "Prefix hit rate",
        "ratio",
        "ratio",
        ("prefix_cache_hit_tokens_total",),
        ("prefix_cache_queries_tokens_total",),
        worse=-1,
        full_scale=0.6,
    ),
    Measure(
        "computed_per_request",
        "Tokens computed per request",
        "tokens",
        "mean",
        ("request_prefill_computed_tokens",),
        log=True,
        full_scale=20.0,
    ),
    Measure(
        "recomputed_per_request",
        "Prompt tokens not found in the cache, per request",
        "tokens",
        "ratio",
        ("prefix_cache_queries_tokens_total",),
        ("ttft_seconds", "request_success_total"),
        minus=("prefix_cache_hit_tokens_total",),
        log=True,
        full_scale=20.0,
    ),
    Measure(
        "preemptions_per_request",
        "Preemptions per finished request",
        "",
        "ratio",
        ("preemptions_total", "retractions"),
        ("request_success_total", "request_latency_seconds", "ttft_seconds"),
        full_scale=1.0,
    ),
    Measure(
        "evictions",
        "Evicted blocks per second",
        "blocks/s",
        "rate",
        ("evictions",),
        log=True,
        full_scale=20.0,
    ),
    Measure("waiting", "Requests waiting", "requests", "gauge", ("requests_waiting",), full_scale=20.0),
    Measure(
        "running", "Requests running", "requests", "gauge", ("requests_running",), worse=0, full_scale=5.0
    ),
    Measure(
        "generation_rate",
        "Tokens generated per second",
        "tokens/s",
        "rate",
        ("generation_tokens_total",),
        worse=-1,
        full_scale=5.0,
    ),
    Measure("prompt_rate", "Prompt tokens per second", "tokens/s", "rate", ("prompt_tokens_total",), worse=0),
    Measure(
        "finished_rate",
        "Requests finished per second",
        "requests/s",
        "rate",
        ("request_success_total", "request_latency_seconds"),
        worse=-1,
        full_scale=5.0,
    ),
    Measure(
        "accept_rate",
        "Draft tokens accepted",
        "ratio",
        "ratio",
        ("spec_accepted_tokens_total",),
        ("spec_draft_tokens_total",),
        worse=-1,
        full_scale=0.5,
    ),
    Measure(
        "accept_length",
        "Accepted length",
        "tokens",
        "gauge",
        ("spec_accept_length",),
        worse=-1,
        full_scale=2.0,
    ),
    Measure("sm_clock", "GPU clock", "Hz", "gauge", ("gpu_sm_clock_hz",), worse=-1, full_scale=2.0),
    Measure(
        "gpu_temperature", "GPU temperature", "°C", "gauge", ("gpu_temperature_celsius",), full_scale=1.5
    ),
    Measure("gpu_utilisation", "GPU utilisation", "ratio", "gauge", ("gpu_utilization_ratio",), worse=0),
)

MEASURES: Mapping[str, Measure] = MappingProxyType({m.id: m for m in _TABLE})

HEAT_MAP: Mapping[str, str] = MappingProxyType(
    {"ttft_p99": "TTFT p99", "kv_usage": "KV in use", "hit_rate": "Hit rate", "waiting": "Waiting"}
)
"""The measures offered for the heat map of the Now page, with names short enough for a row of buttons on a phone."""

BY_KIND: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kv_eviction_storm": ("hit_rate", "recomputed_per_request", "preemptions_per_request", "ttft_p99"),
        "wedged": ("waiting", "running", "generation_rate", "ttft_p99"),
        "tail_latency_spike": ("ttft_p99", "waiting", "kv_usage", "finished_rate"),
        "degraded_generations": ("accept_rate", "kv_usage", "running"),
        "capacity_shortfall": ("waiting", "running", "kv_usage", "ttft_p99"),
        "prefix_cache_loss": ("hit_rate", "kv_usage", "recomputed_per_request", "ttft_p99"),
        "slow_replica": ("itl_p99", "running", "sm_clock", "generation_rate"),
        "spec_decode_collapse": ("accept_rate", "generation_rate", "running", "itl_p99"),
    }
)
DEFAULT_EVIDENCE = ("ttft_p99", "waiting", "kv_usage", "generation_rate")

_BY_SIGNAL = {
    "prefix_cache_hit_rate": "hit_rate",
    "prefix_cache_hits": "hit_rate",
    "prefix_cache_hit_tokens_total": "hit_rate",
    "prefix_cache_queries_tokens_total": "recomputed_per_request",
    "ttft_seconds": "ttft_p99",
    "inter_token_latency_seconds": "itl_p99",
    "request_latency_seconds": "e2e_p99",
    "queue_time_seconds": "queue_mean",
    "kv_cache_usage_ratio": "kv_usage",
    "request_prefill_computed_tokens": "computed_per_request",
    "preemptions_total": "preemptions_per_request",
    "retractions": "preemptions_per_request",
    "evictions": "evictions",
    "requests_waiting": "waiting",
    "requests_running": "running",
    "generation_tokens_total": "generation_rate",
    "prompt_tokens_total": "prompt_rate",
    "request_success_total": "finished_rate",
    "spec_accepted_tokens_total": "accept_rate",
    "spec_accept_rate": "accept_rate",
    "spec_accept_length": "accept_length",
    "gpu_sm_clock_hz": "sm_clock",
    "gpu_utilization_ratio": "gpu_utilisation",
}


def measure_for_signal(signal: str) -> Measure | None:
    """The measure that shows a canonical signal, or None."""
    found = _BY_SIGNAL.get(signal)
    return MEASURES[found] if found else None


def measures_for(kind: str, signals: tuple[str, ...] = ()) -> tuple[Measure, ...]:
    """The measures that argue a kind of incident, then those of its evidence; at most five, each once."""
    ids = list(BY_KIND.get(kind, DEFAULT_EVIDENCE))
    ids += [m.id for s in signals if (m := measure_for_signal(s)) is not None]
    return tuple(MEASURES[i] for i in dict.fromkeys(ids))[:5]
