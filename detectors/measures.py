"""What detectors measure about a replica over a span: one set of formulas for the present and for learning the normal.

Every function takes arrays whose last axis is time (cells) and returns arrays without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Need
from detectors.window import Window, nanmean, nansum

F = NDArray[np.float64]

_FAILURES = ("transfer", "notification", "bootstrap", "prefill_retry")
NEEDS = (
    Need("running", "requests_running"),
    Need("waiting", "requests_waiting"),
    Need("kv", "kv_cache_usage_ratio", "max"),
    Need("kv_capacity", "kv_cache_capacity"),
    Need("hits", "prefix_cache_hit_tokens_total"),
    Need("queries", "prefix_cache_queries_tokens_total"),
    Need("preempted", "preemptions_total"),
    Need("retracted", "retractions"),
    Need("evicted", "evictions"),
    Need("finished", "request_success_total"),
    Need("generated", "generation_tokens_total"),
    Need("prompt", "prompt_tokens_total"),
    Need("live_prefill", "realtime_tokens_total", where=("mode", ("prefill_compute", "prefill_cache"))),
    Need("live_decode", "realtime_tokens_total", where=("mode", ("decode",))),
    Need("aborted", "aborted_total"),
    Need("sm_clock", "gpu_sm_clock_hz", "min"),
    Need("power", "gpu_power_watts", "max"),
    Need("spec_accepted", "spec_accepted_tokens_total"),
    Need("spec_drafts", "spec_drafts_total"),
    Need("spec_drafted", "spec_draft_tokens_total"),
    Need("spec_length", "spec_accept_length", "max"),
    Need("adapters", "lora_info", "max"),
    Need("sessions_running", "sessions_running"),
    Need("transfer_failed", "kv_transfer_failures_total", where=("failure", _FAILURES)),
    Need("tier_loaded", "host_kv_offload", where=("op", ("load",))),
    Need("tier_stored", "host_kv_offload", where=("op", ("store",))),
    Need("tier_queries", "external_prefix_cache", where=("op", ("query",))),
    Need("tier_hits", "external_prefix_cache", where=("op", ("hit",))),
    Need("store_read", "external_prefix_cache", where=("op", ("prefetch", "retrieve"))),
    Need("store_written", "external_prefix_cache", where=("op", ("backup", "store"))),
)
"""Arrays that several detectors share; each detector lists the ones it uses."""

BY_NAME: Mapping[str, Need] = {n.name: n for n in NEEDS}
TTFT, QUEUE, ITL = "ttft_seconds", "queue_time_seconds", "inter_token_latency_seconds"
TPOT, TRANSFER, MOVED = "time_per_output_token_seconds", "kv_transfer_time_seconds", "kv_transfer_bytes"


def needs(*names: str) -> tuple[Need, ...]:
    """Some of :data:`NEEDS` by name."""
    return tuple(BY_NAME[n] for n in names)


Get = Callable[[str], F]
Formula = Callable[[Get], F]


def _ratio(a: F, b: F) -> F:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(b > 0, a / b, np.nan)


def _mean_of(signal: str) -> Formula:
    return lambda get: _ratio(nansum(get(f"{signal}:sum")), nansum(get(f"{signal}:n")))


def _arrivals(get: Get) -> F:
    """First tokens per second: the rate at which requests get through the queue and prefill."""
    return _ratio(nansum(get(f"{TTFT}:n")), nansum(get("span")))


def _prefill_seconds(get: Get) -> F:
    """Mean time to first token that is not queueing: what the prefill itself costs."""
    ttft, queue = _mean_of(TTFT)(get), _mean_of(QUEUE)(get)
    return np.where(np.isnan(queue), ttft, np.maximum(ttft - queue, 0.0))


def _wait_ahead(get: Get) -> F:
    """Seconds that the last of the waiting requests has before it at the present rate of first tokens (Little's law).

    Queue time is only recorded when a request is through; those that wait now are not in it.
    """
    return _ratio(nanmean(get("waiting")), np.maximum(_arrivals(get), 1e-3))


def _preempted(get: Get) -> F:
    a, b = nansum(get("preempted")), nansum(get("retracted"))
    return np.fmax(a, b)


def _finished(get: Get) -> F:
    return nansum(get("finished"))


def _work(get: Get) -> F:
    """Prompt tokens computed (not found in the cache) per request."""
    return _ratio(nansum(get("queries") - get("hits")), nansum(get(f"{TTFT}:n")))


def _token_seconds(get: Get) -> F:
    """Seconds that a running request needs for one token: running requests over decode tokens a second."""
    live, late = nansum(get("live_decode")), nansum(get("generated"))
    # SGLang counts generated tokens only when a request finishes, and processed ones as it goes.
    tokens = np.where(np.isnan(live), late, live)
    return _ratio(nanmean(get("running")) * nansum(get("span")), tokens)


def _acceptance(get: Get) -> F:
    """Accepted over drafted tokens; where no counters are, the engine's mean accepted length without the bonus token."""
    counted = _ratio(nansum(get("spec_accepted")), nansum(get("spec_drafted")))
    length = get("spec_length")
    # 0 stands for "did not speculate just now".
    told = nanmean(np.where(length >= 1.0, length, np.nan)) - 1.0
    return np.where(np.isnan(counted), told, counted)


def _per_gb(get: Get) -> F:
    """Seconds per transferred gigabyte; per transfer where no sizes are exported."""
    seconds = nansum(get(f"{TRANSFER}:sum"))
    moved = nansum(get(f"{MOVED}:sum")) / 1e9
    return np.where(np.isnan(moved), _ratio(seconds, nansum(get(f"{TRANSFER}:n"))), _ratio(seconds, moved))


FORMULAS: Mapping[str, Formula] = {
    "hit": lambda get: _ratio(nansum(get("hits")), nansum(get("queries"))),
    "miss": lambda get: 1.0 - _ratio(nansum(get("hits")), nansum(get("queries"))),
    "work": _work,
    "found": lambda get: _ratio(nansum(get("hits")), nansum(get("span"))),
    "compute": lambda get: _ratio(nansum(get("queries") - get("hits")), nansum(get("span"))),
    "ttft": _mean_of(TTFT),
    "queue": _mean_of(QUEUE),
    "itl": _mean_of(ITL),
    "prefill_seconds": _prefill_seconds,
    "prefill_time": _mean_of("prefill_time_seconds"),
    "transfer": _mean_of("kv_transfer_time_seconds"),
    "accepted": lambda get: _ratio(nansum(get("spec_accepted")), nansum(get("spec_drafts"))),
    "wait_ahead": _wait_ahead,
    "n": lambda get: nansum(get(f"{TTFT}:n")),
    "arrivals": _arrivals,
    "done": lambda get: _ratio(_finished(get), nansum(get("span"))),
    "running": lambda get: nanmean(get("running")),
    "waiting": lambda get: nanmean(get("waiting")),
    "kv": lambda get: nanmean(get("kv")),
    "per_running": lambda get: _ratio(
        _ratio(_finished(get), nansum(get("span"))), np.maximum(nanmean(get("running")), 0.2)
    ),
    "preempted": _preempted,
    "finished": _finished,
    "preempted_per_finished": lambda get: _ratio(_preempted(get), _finished(get)),
    "evicted": lambda get: _ratio(nansum(get("evicted")), nansum(get("span"))),
    "generated": lambda get: _ratio(nansum(get("generated")), nansum(get("span"))),
    "token_seconds": _token_seconds,
    "sm_clock": lambda get: nanmean(get("sm_clock")),
    "power": lambda get: nanmean(get("power")),
    "span": lambda get: nansum(get("span")),
    "prompt_length": lambda get: _ratio(nansum(get("queries")), nansum(get(f"{TTFT}:n"))),
    "output_length": lambda get: _ratio(nansum(get("generated")), nansum(get(f"{TTFT}:n"))),
    "acceptance": _acceptance,
    "drafts": lambda get: nansum(get("spec_drafts")),
    "tpot": _mean_of(TPOT),
    "adapters": lambda get: nanmean(get("adapters")),
    "transfer_seconds": _mean_of(TRANSFER),
    "transfers": lambda get: nansum(get(f"{TRANSFER}:n")),
    "transfer_per_gb": _per_gb,
    "transfer_bytes": _mean_of(MOVED),
}


def now(window: Window, cells: int, *names: str) -> dict[str, F]:
    """Measures over the last ``cells`` cells, ``[units]`` each; NaN where the signals are not exported."""
    out = {}
    for n in names:
        key = ("now", n, cells)
        if key not in window.memo:
            window.memo[key] = FORMULAS[n](lambda name: window.value(name, cells))
        out[n] = window.memo[key]
    return out


def blocks(window: Window, cells: int, gap: int, *names: str) -> dict[str, F]:
    """Measures over consecutive blocks of the usable history before the last ``gap`` cells: ``[units, blocks]`` each.

    Blocks are aligned to absolute time, so that adding history in front never moves the others. A block of which less than half
    of the cells is usable is NaN.
    """
    stop = window.stop - gap
    base = window.cube.first
    lo = -(-(base + window.start) // cells) * cells - base
    hi = (base + stop) // cells * cells - base
    count = max((hi - lo) // cells, 0)
    cut = slice(lo - window.start, lo - window.start + count * cells)
    shape = (len(window.units), count, cells)
    usable = window.usable[:, cut].reshape(shape)

    def get(name: str) -> F:
        key = ("block", name, cells, gap)
        if key not in window.memo:
            window.memo[key] = np.where(usable, window.value(name)[:, cut].reshape(shape), np.nan)
        return window.memo[key]  # type: ignore[no-any-return]

    dead = usable.mean(axis=2) < 0.5 if count else np.zeros(shape[:2], bool)
    out = {}
    for n in names:
        key = ("blocks", n, cells, gap)
        if key not in window.memo:
            window.memo[key] = np.where(dead, np.nan, FORMULAS[n](get))
        out[n] = window.memo[key]
    return out
