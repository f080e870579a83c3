"""The canonical signals: what Gustfront calls a measured thing, whatever engine it came from.

Every part of Gustfront (detectors, objectives, pages, the command line) names signals by these ids; engine dictionaries map raw
metric families to them. A signal has one kind and one unit. Finer distinctions are *column labels* (``reason``, ``stage``, ...),
listed in ``labels``.

Derived forms. Some engines export less than the canonical form. What they give is stored under a suffix, never dressed up:

=============  =========  ==================================================================================================
``<id>_sum``   sum        cumulative total of a histogram signal where no buckets exist (Triton, llama.cpp, summaries)
``<id>_count`` counter    number of observations that belong to ``<id>_sum``: mean = increase(sum) / increase(count), no quantiles
``<id>_mean``  gauge      a ready-made average over an interval that the engine chose
=============  =========  ==================================================================================================

Other derived forms (``host_kv_offload_ratio`` of ``host_kv_offload``) are listed in the table with ``of``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from core.errors import ConfigError
from core.frames import Kind

Across = Literal["sum", "max", "mean"]


@dataclass(frozen=True, slots=True)
class Signal:
    """One canonical signal.

    ``rollup``: rolled up per minute and hour by class and pool; ``per_replica``: also per replica. ``across`` says how a gauge of
    several ranks or replicas makes one number (``sum`` of requests, ``max`` of ratios); counters and histograms always add.
    ``labels`` are the column labels it may carry beside class, model and rank. ``of`` names the signal of which this is a derived
    form, empty for a canonical one.
    """

    id: str
    kind: Kind
    unit: str
    meaning: str
    rollup: bool = False
    per_replica: bool = False
    across: Across = "sum"
    labels: tuple[str, ...] = ()
    of: str = ""

    @property
    def base(self) -> str:
        """The canonical id: itself, or the signal it is a derived form of."""
        return self.of or self.id


def _hist(id: str, unit: str, meaning: str, *labels: str, keep: bool = True, replica: bool = False) -> Signal:
    return Signal(id, "histogram", unit, meaning, keep, replica, labels=labels)


def _count(
    id: str, unit: str, meaning: str, *labels: str, keep: bool = True, replica: bool = False, of: str = ""
) -> Signal:
    return Signal(id, "counter", unit, meaning, keep, replica, labels=labels, of=of)


def _gauge(
    id: str,
    unit: str,
    meaning: str,
    *labels: str,
    keep: bool = False,
    replica: bool = False,
    across: Across = "sum",
    of: str = "",
) -> Signal:
    return Signal(id, "gauge", unit, meaning, keep, replica, across, labels, of)


def _total(id: str, unit: str, meaning: str, *labels: str, keep: bool = False, of: str = "") -> Signal:
    return Signal(id, "sum", unit, meaning, keep, labels=labels, of=of)


_LATENCY = (
    _hist(
        "request_latency_seconds",
        "seconds",
        "End-to-end time of a request at the component, observed when it finishes.",
        replica=True,
    ),
    _hist(
        "ttft_seconds",
        "seconds",
        "Arrival at the component's front end to the first output token.",
        replica=True,
    ),
    _hist(
        "inter_token_latency_seconds",
        "seconds",
        "Gap between output tokens (per token, engine step or chunk: see the engine's note).",
        replica=True,
    ),
    _hist(
        "time_per_output_token_seconds",
        "seconds",
        "Mean decode time per token of one request, one observation a request.",
        replica=True,
    ),
    _hist("queue_time_seconds", "seconds", "Admitted to first scheduled.", replica=True),
    _hist("prefill_time_seconds", "seconds", "First scheduled to first token."),
    _hist("decode_time_seconds", "seconds", "First token to last token of a request.", "category"),
    _hist("inference_time_seconds", "seconds", "First scheduled to finished: prefill and decode."),
    _hist("stage_latency_seconds", "seconds", "Time of one named stage of a request.", "stage", keep=False),
)

_LOAD = (
    _gauge(
        "requests_running", "requests", "Requests being worked on now.", "worker", keep=True, replica=True
    ),
    _gauge(
        "requests_waiting",
        "requests",
        "Requests admitted but not scheduled.",
        "worker",
        keep=True,
        replica=True,
    ),
    _gauge(
        "requests_waiting_by_reason",
        "requests",
        "Waiting requests split by what they wait for.",
        "reason",
        keep=True,
    ),
    _gauge("requests_swapped_or_paused", "requests", "Requests swapped out or paused."),
    _gauge(
        "engine_sleep_state", "bool", "1 for the sleep state the engine is in.", "sleep_state", across="max"
    ),
    _gauge(
        "worker_load_seen_by_router",
        "blocks, tokens, seconds or requests",
        "What the router believes about a worker; the label measure says what and in which unit.",
        "measure",
        "worker",
        "rank",
    ),
    _gauge("http_requests_in_flight", "requests", "HTTP requests open at the front end.", "stage"),
    _gauge(
        "sessions_running",
        "sessions",
        "Distinct routing keys with a running request.",
        of="http_requests_in_flight",
    ),
)

_KV = (
    _gauge(
        "kv_cache_usage_ratio",
        "0..1",
        "Share of KV cache in use; engines differ on whether reusable blocks count.",
        keep=True,
        replica=True,
        across="max",
    ),
    _gauge(
        "kv_cache_reserved_tokens",
        "tokens",
        "Tokens the running batch may use at most.",
        of="kv_cache_usage_ratio",
    ),
    _gauge(
        "kv_cache_capacity",
        "tokens",
        "Tokens the KV cache can hold; blocks where the label unit says so.",
        "unit",
    ),
    _gauge("kv_cache_tokens", "tokens", "KV tokens by state: available, evictable or used.", "state"),
    _count(
        "preemptions_total", "events", "Requests thrown out of the batch for lack of memory.", replica=True
    ),
    _count("retractions", "requests", "Running requests sent back to the queue (SGLang's preemption)."),
    _count("retracted_tokens_total", "tokens", "Work lost by retraction.", "direction"),
    _gauge(
        "retractions_now", "requests", "Retractions in the last report, reset after each.", of="retractions"
    ),
    _count(
        "evictions",
        "tokens",
        "KV evicted; the label unit says what is counted where it is not tokens.",
        "unit",
        "reason",
    ),
    _hist("eviction_duration_seconds", "seconds", "Time of one eviction.", keep=False),
    _hist(
        "kv_block_lifetime_seconds", "seconds", "Age of a KV block when it is evicted (sampled).", keep=False
    ),
    _hist(
        "kv_block_idle_before_evict_seconds",
        "seconds",
        "Time since last use of a KV block when it is evicted (sampled).",
        keep=False,
    ),
    _hist(
        "kv_block_reuse_gap_seconds", "seconds", "Time between two uses of a KV block (sampled).", keep=False
    ),
    _count(
        "prefix_cache_queries_tokens_total",
        "tokens",
        "Prompt tokens looked up in the prefix cache.",
        replica=True,
    ),
    _count(
        "prefix_cache_hit_tokens_total",
        "tokens",
        "Prompt tokens found in the prefix cache, from the same source as the queries.",
        replica=True,
    ),
    _gauge(
        "prefix_cache_hit_rate",
        "0..1",
        "Ready-made hit rate: a fallback, prefer hits over queries.",
        "kind",
        across="mean",
    ),
    Signal(
        "prefix_cache_hit_rate_observed",
        "histogram",
        "0..1",
        "Hit rate of single requests as the router saw it.",
        of="prefix_cache_hit_rate",
    ),
    _count(
        "external_prefix_cache",
        "tokens",
        "KV fetched from or given to a store outside the engine.",
        "op",
        keep=False,
    ),
    _count(
        "host_kv_offload",
        "bytes",
        "KV moved between device and host; the label unit says what is counted where it is not bytes.",
        "op",
        "unit",
        "reason",
        keep=False,
    ),
    _gauge(
        "host_kv_offload_ratio",
        "0..1",
        "Share of the host KV cache in use, or its hit rate (label kind).",
        "kind",
        across="max",
        of="host_kv_offload",
    ),
    _gauge(
        "host_kv_offload_used",
        "bytes",
        "Host KV cache in use; tokens where the label unit says so.",
        "unit",
        "state",
        of="host_kv_offload",
    ),
    Signal(
        "host_kv_offload_seconds",
        "histogram",
        "seconds",
        "Time of one transfer between device and host.",
        labels=("op",),
        of="host_kv_offload",
    ),
    Signal(
        "host_kv_offload_speed",
        "histogram",
        "tokens/s",
        "Speed of one retrieval from the host.",
        labels=("op",),
        of="host_kv_offload",
    ),
    _count("mm_cache", "items", "Multi-modal cache lookups (op=query) and hits (op=hit).", "op", keep=False),
)

_TOKENS = (
    _count(
        "prompt_tokens_total",
        "tokens",
        "Prompt tokens of requests; when they are counted differs by engine.",
        replica=True,
    ),
    _count("prompt_tokens_by_source", "tokens", "Prompt tokens by where their KV came from.", "source"),
    _count("prompt_tokens_cached_by_source", "tokens", "Cached prompt tokens by tier.", "source", keep=False),
    _count("generation_tokens_total", "tokens", "Output tokens.", replica=True),
    _count(
        "realtime_tokens_total",
        "tokens",
        "Tokens as they are processed: mode prefill_compute, prefill_cache or decode.",
        "mode",
    ),
    _gauge(
        "throughput_tokens_per_second", "tokens/s", "Ready-made output rate: a fallback, prefer the counters."
    ),
    _hist("request_prompt_tokens", "tokens", "Prompt length of a request."),
    Signal(
        "request_prompt_tokens_cached",
        "histogram",
        "tokens",
        "The cached part of a prompt.",
        of="request_prompt_tokens",
    ),
    _hist("request_generation_tokens", "tokens", "Output length of a request."),
    _hist(
        "request_prefill_computed_tokens",
        "tokens",
        "Prompt tokens really computed for a request; with kind=cached the complement.",
        "kind",
    ),
    _hist(
        "request_cached_tokens", "tokens", "Prompt tokens of a request that came from the cache.", keep=False
    ),
    _hist("request_max_tokens_param", "tokens", "The max_tokens that clients ask for.", keep=False),
    _hist("iteration_tokens", "tokens per engine step", "Tokens worked on in one engine step.", keep=False),
)

_OUTCOMES = (
    _count(
        "request_success_total",
        "requests",
        "Finished requests; finish_reason where exported (error is in here too).",
        "finish_reason",
        "status",
        replica=True,
    ),
    _count("aborted_total", "requests", "Requests that the client gave up.", "finish_reason"),
    _gauge(
        "disconnected_clients",
        "clients",
        "Clients that went away, as a gauge.",
        of="aborted_total",
    ),
    _gauge(
        "deployments_unhealthy",
        "state",
        "0 healthy, 1 partial outage, 2 outage.",
        across="max",
        of="errors_total",
    ),
    _count("admission_rejections_total", "requests", "Requests refused at the door.", "reason"),
    _count("errors_total", "requests", "Requests that failed.", "error"),
    _count("corrupted_requests_total", "requests", "Requests with NaN logits.", keep=False),
    _count(
        "http_responses_total",
        "responses",
        "HTTP answers of generation endpoints by status class; 2xx minus successes are hidden aborts.",
        "status",
    ),
    _count("migrations_total", "requests", "Requests moved to another worker.", "kind", keep=False),
    _total("spend_total", "USD", "Money spent.", "team"),
    _count(
        "tool_call_invocations_total",
        "parser calls",
        "Tool-call parser runs by outcome: a share, not a count of calls.",
        "outcome",
        keep=False,
    ),
)

_SPEC = (
    _count("spec_draft_tokens_total", "tokens", "Tokens proposed by the draft model.", replica=True),
    _count("spec_accepted_tokens_total", "tokens", "Proposed tokens that were accepted.", replica=True),
    _count(
        "spec_accepted_tokens_by_position",
        "tokens",
        "Accepted tokens by position in the draft.",
        "position",
        keep=False,
    ),
    _count("spec_drafts_total", "drafts", "Draft rounds (verify calls)."),
    _gauge(
        "spec_accept_length",
        "tokens per verify",
        "Mean accepted length with the bonus token, as the engine averages it.",
        keep=True,
        replica=True,
        across="mean",
    ),
    Signal(
        "spec_skipped_tokens",
        "histogram",
        "tokens per step",
        "Speculated tokens accepted in one step.",
        of="spec_accept_rate",
    ),
    _gauge("spec_accept_rate", "0..1", "Accepted over proposed, as the engine averages it.", across="mean"),
)

_TRANSFER = (
    _hist(
        "kv_transfer_time_seconds", "seconds", "Time of one KV transfer between workers.", "op", "transport"
    ),
    _hist("kv_transfer_bytes", "bytes", "Size of one KV transfer.", keep=False),
    Signal(
        "kv_transfer_speed",
        "histogram",
        "bytes/s",
        "Speed of one KV transfer.",
        of="kv_transfer_bytes",
    ),
    _count("kv_transfer_failures_total", "events", "Failed KV transfers by what failed.", "failure"),
    _gauge(
        "kv_transfer_healthy",
        "bool",
        "1 while the KV store is healthy.",
        across="mean",
        of="kv_transfer_failures_total",
    ),
    _gauge("kv_transfer_queue", "requests", "Requests waiting in a transfer queue.", "queue"),
    _gauge(
        "kv_transfer_pending_ratio",
        "0..1",
        "Share of KV memory promised to requests in transfer.",
        across="max",
        of="kv_transfer_queue",
    ),
    _gauge("lora_info", "adapters", "LoRA adapters in use now."),
    _gauge("lora_pool_ratio", "0..1", "Share of LoRA slots in use.", across="max", of="lora_info"),
    _count(
        "lora_requests_total",
        "requests",
        "Requests by adapter as the router counts them.",
        "adapter",
        keep=False,
        of="lora_info",
    ),
    _gauge(
        "process_start_time_seconds",
        "unix seconds",
        "Start of the process; travels as the start of a reading, not as a column.",
        across="max",
    ),
    _gauge(
        "process_uptime_seconds",
        "seconds",
        "Seconds since the process started.",
        across="max",
        of="process_start_time_seconds",
    ),
)

_GPU = (
    _gauge(
        "gpu_utilization_ratio",
        "0..1",
        "Share of time the GPU was busy; which unit says the label part where exported.",
        "gpu",
        "mig",
        "part",
        keep=True,
        across="mean",
    ),
    _gauge("gpu_memory_used_bytes", "bytes", "GPU memory in use.", "gpu", "mig"),
    _gauge(
        "gpu_temperature_celsius",
        "celsius",
        "Temperature of the GPU, or of its memory (part=memory).",
        "gpu",
        "mig",
        "part",
        across="max",
    ),
    _gauge("gpu_power_watts", "watts", "Power drawn now.", "gpu", "mig", keep=True),
    _total("gpu_energy_joules", "joules", "Energy used since boot.", "gpu", "mig", of="gpu_power_watts"),
    _gauge(
        "gpu_sm_clock_hz",
        "hertz",
        "Clock of the compute units: a dip at high load means throttling.",
        "gpu",
        "mig",
        keep=True,
        replica=True,
        across="mean",
    ),
    _gauge(
        "gpu_throttle",
        "events or bitmask",
        "Clock-limiting events in a sliding window by reason, or the bitmask of reasons (reason=mask).",
        "gpu",
        "mig",
        "reason",
        across="max",
    ),
    _total(
        "gpu_throttle_seconds",
        "seconds",
        "Time spent throttled by reason.",
        "gpu",
        "mig",
        "reason",
        of="gpu_throttle",
    ),
    _count(
        "gpu_throttle_total",
        "as exported",
        "Accumulated throttling by reason, in the exporter's own unit.",
        "gpu",
        "mig",
        "reason",
        keep=False,
        of="gpu_throttle",
    ),
    _gauge(
        "gpu_xid",
        "code",
        "Last error code, sticky: a change is the event; counts where the label xid is set.",
        "gpu",
        "mig",
        "xid",
        "slot",
        across="max",
    ),
    _gauge(
        "gpu_healthy",
        "bool",
        "1 while the device reports itself healthy.",
        "gpu",
        "mig",
        across="mean",
        of="gpu_xid",
    ),
    _count("gpu_ecc", "errors", "Memory errors and remapped rows by kind.", "gpu", "mig", "error"),
    _gauge(
        "gpu_row_remap_failure",
        "bool",
        "1: row remapping failed, replace the GPU.",
        "gpu",
        "mig",
        across="max",
        of="gpu_ecc",
    ),
    _gauge("gpu_interconnect_bytes", "bytes/s", "Traffic on a link of the GPU.", "gpu", "mig", "link"),
    _count(
        "gpu_interconnect_total",
        "as exported",
        "Cumulative traffic on a link; the unit differs by driver, use relative change.",
        "gpu",
        "mig",
        "link",
        keep=False,
        of="gpu_interconnect_bytes",
    ),
)

_ROUTER = (
    _gauge(
        "router_pool_health",
        "endpoints",
        "Endpoints the router would send to.",
        "worker",
        "measure",
        keep=True,
    ),
    _gauge("router_flow_control", "requests", "Requests held in the router's own queue.", "priority"),
    _gauge(
        "router_saturation_ratio",
        "0..1",
        "How full the router thinks the pool is.",
        across="max",
        of="router_flow_control",
    ),
)

_TABLE = (*_LATENCY, *_LOAD, *_KV, *_TOKENS, *_OUTCOMES, *_SPEC, *_TRANSFER, *_GPU, *_ROUTER)


def _with_means(table: tuple[Signal, ...]) -> Iterator[Signal]:
    """Every signal, and the sum, count and mean forms of every histogram."""
    for s in table:
        yield s
        if s.kind == "histogram":
            yield Signal(
                f"{s.id}_sum",
                "sum",
                s.unit,
                f"Total only, no buckets. {s.meaning}",
                s.rollup,
                labels=s.labels,
                of=s.base,
            )
            yield Signal(
                f"{s.id}_count",
                "counter",
                "observations",
                f"Observations only, no buckets. {s.meaning}",
                s.rollup,
                labels=s.labels,
                of=s.base,
            )
            yield Signal(
                f"{s.id}_mean",
                "gauge",
                s.unit,
                f"Average as the engine keeps it. {s.meaning}",
                across="mean",
                labels=s.labels,
                of=s.base,
            )


SIGNALS: Mapping[str, Signal] = MappingProxyType({s.id: s for s in _with_means(_TABLE)})

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "ttft": "ttft_seconds",
        "itl": "inter_token_latency_seconds",
        "tpot": "time_per_output_token_seconds",
        "e2e": "request_latency_seconds",
        "latency": "request_latency_seconds",
        "queue": "queue_time_seconds",
        "prefill": "prefill_time_seconds",
        "decode": "decode_time_seconds",
        "running": "requests_running",
        "waiting": "requests_waiting",
        "kv_usage": "kv_cache_usage_ratio",
        "kv": "kv_cache_usage_ratio",
        "preemptions": "preemptions_total",
        "prompt_tokens": "prompt_tokens_total",
        "output_tokens": "generation_tokens_total",
        "generation_tokens": "generation_tokens_total",
        "errors": "errors_total",
        "aborts": "aborted_total",
        "successes": "request_success_total",
    }
)


def resolve(name: str) -> Signal:
    """The signal of an id or alias. ConfigError with the nearest names where there is none."""
    key = ALIASES.get(name, name)
    found = SIGNALS.get(key)
    if found is None:
        known = [*SIGNALS, *ALIASES]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"one of {', '.join(near)}" if near else "an id from docs/signals.md"
        raise ConfigError("signal", "no such signal", hint, name)
    return found
