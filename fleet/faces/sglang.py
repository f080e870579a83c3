"""SGLang's exposition: multi-process, so no ``_created`` and no ``process_*``; restarts show as falling counters only.

Token counters and request histograms jump when a request finishes; ``realtime_tokens_total`` moves while it runs.
``cache_hit_rate`` is written 0 by each decode report. Request series carry the custom label ``workload``,
``priority`` and ``is_streaming``; queue time and everything of the scheduler carries ranks and no workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fleet.faces import edges
from fleet.faces.common import version_of
from fleet.faces.page import Page
from fleet.model import EngineState, Finish, Observations, PoolSpec, ReplicaState

ENDPOINT = "/v1/chat/completions"
LOW = "10"  # batch work yields to people
NORMAL = "0"
_KV_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
_KV_MB = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)


def priority_of(workload: str) -> str:
    """The scheduling priority that the gateway sets."""
    return LOW if workload == "batch" else NORMAL


class SglangFace:
    """One SGLang server; ranks are ``dp_rank`` (and equal ``tp_rank``, as with DP attention)."""

    def __init__(self, spec: PoolSpec, replica: ReplicaState) -> None:
        self.page = Page()
        self.spec, self.model, self.version = spec, replica.model, version_of(replica.version)
        self.kind = {"unified": "unified", "prefill": "prefill", "decode": "decode"}[spec.role]
        self._seconds: dict[tuple[int, str], float] = {}
        self._evictions: dict[int, float] = {}

    def _server(self, **more: str) -> dict[str, str]:
        return {"engine_type": self.kind, "model_name": self.model, **more}

    def _rank(self, rank: int, **more: str) -> dict[str, str]:
        ranks = {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": str(rank)}
        if self.spec.ranks > 1:
            ranks["dp_rank"] = str(rank)
        return self._server(**ranks, **more)

    # ------------------------------------------------------------------------------------------ observations

    def observe(self, engine: EngineState, seen: Observations) -> None:
        """Request series by workload, scheduler series by rank."""
        self._first_tokens(seen)
        for workload in {f.workload for f in seen.finishes}:
            self._finished(workload, [f for f in seen.finishes if f.workload == workload])
        rank, page = engine.rank, self.page
        waits = [f.queue for f in seen.finishes]
        labels = self._rank(rank, priority="")
        page.histogram("sglang:queue_time_seconds", labels, edges.SGLANG_QUEUE, _QUEUE).observe(waits)
        stage = "sglang:per_stage_req_latency_seconds"
        for name, values in (
            ("request_process", [0.002] * len(seen.finishes)),
            ("prefill_forward", [f.prefill for f in seen.first_tokens]),
        ):
            labels = self._rank(rank, priority="", stage=name)
            page.histogram(stage, labels, edges.SGLANG_STAGE, _STAGE).observe(values)
        passes = [0.0008 + 2e-7 * e.blocks for e in seen.blocks if e.event == "evict"]
        labels = self._rank(rank)
        page.histogram("sglang:eviction_duration_seconds", labels, edges.SGLANG_EVICT, _EVICT).observe(passes)
        self._forward(engine, seen)
        done = [t for t in seen.transfers if t.ok]
        if self.spec.role != "unified":
            page.histogram(
                "sglang:kv_transfer_latency_ms", labels, _KV_MS, "KV transfer latency in ms."
            ).observe([1000 * t.seconds for t in done])
            page.histogram("sglang:kv_transfer_total_mb", labels, _KV_MB, "KV transfer size in MB.").observe(
                [t.bytes / 1e6 for t in done]
            )

    def _first_tokens(self, seen: Observations) -> None:
        page = self.page
        if self.spec.role != "prefill":
            for workload in {f.workload for f in seen.first_tokens}:
                labels = self._request(workload, is_streaming="true")
                values = [f.ttft for f in seen.first_tokens if f.workload == workload]
                page.histogram(
                    "sglang:time_to_first_token_seconds", labels, edges.SGLANG_TTFT, _TTFT
                ).observe(values)
        for workload in {g.workload for g in seen.gaps}:
            mine = [g for g in seen.gaps if g.workload == workload and g.tokens > 0]
            page.histogram(
                "sglang:inter_token_latency_seconds", self._request(workload), edges.SGLANG_ITL, _ITL
            ).observe(
                [g.gap * g.count / g.tokens for g in mine], [float(max(1, round(g.tokens))) for g in mine]
            )

    def _request(self, workload: str, **more: str) -> dict[str, str]:
        return self._server(priority=priority_of(workload), workload=workload, **more)

    def _finished(self, workload: str, finishes: list[Finish]) -> None:
        page = self.page
        plain, streamed = self._request(workload), self._request(workload, is_streaming="true")
        prompts = [float(f.prompt_tokens) for f in finishes]
        outputs = [float(f.output_tokens) for f in finishes]
        page.add("sglang:prompt_tokens_total", streamed, sum(prompts), "Number of prefill tokens processed.")
        page.add(
            "sglang:generation_tokens_total", streamed, sum(outputs), "Number of generation tokens processed."
        )
        page.add("sglang:num_requests_total", streamed, float(len(finishes)), "Number of requests processed.")
        cached: dict[str, float] = {}
        for f in finishes:
            source = "host" if f.cache_source == "host" else "device"
            cached[source] = cached.get(source, 0.0) + f.cached_tokens
        for source, n in sorted(cached.items()):
            if n:
                labels = {**plain, "cache_source": source}
                page.add("sglang:cached_tokens_total", labels, n, "Number of cached prompt tokens.")
        if self.spec.spec_tokens:
            calls = sum(int(f.output_tokens / f.accept_length) for f in finishes if f.accept_length)
            page.add(
                "sglang:spec_verify_calls_total", plain, float(calls), "Number of speculative verifications."
            )
        e2e = [f.e2e for f in finishes]
        page.histogram("sglang:e2e_request_latency_seconds", streamed, edges.SGLANG_E2E, _E2E).observe(e2e)
        for name, values in (
            ("prompt_tokens_histogram", prompts),
            (
                "uncached_prompt_tokens_histogram",
                [float(f.prompt_tokens - f.cached_tokens) for f in finishes],
            ),
            ("generation_tokens_histogram", outputs),
        ):
            page.histogram(f"sglang:{name}", plain, edges.SGLANG_TOKENS, f"Histogram of {name}.").observe(
                values
            )

    def _forward(self, engine: EngineState, seen: Observations) -> None:
        """A pass with many more tokens than sequences extended prompts, the others decoded."""
        few = max(8.0, 1.5 * (1 + self.spec.spec_tokens) * engine.gauges["running"])
        for s in seen.steps:
            key = (engine.rank, "forward_extend" if s.tokens > few else "forward_decode")
            self._seconds[key] = self._seconds.get(key, 0.0) + s.seconds * s.count
        for (rank, category), seconds in self._seconds.items():
            labels = self._rank(rank, priority="", category=category)
            self.page.counter(
                "sglang:forward_execution_seconds_total", labels, seconds, "GPU time of forward passes."
            )

    # ------------------------------------------------------------------------------------------------ levels

    def refresh(self, replica: ReplicaState, now: float) -> None:
        """Counters and gauges of all ranks and of the front end."""
        for engine in replica.engines:
            self._gauges(engine)
            self._counters(engine)
        page = self.page
        aborted = sum(e.counters["finished_abort"] for e in replica.engines)
        if aborted:
            labels = self._server(priority="", workload="")
            page.counter("sglang:num_aborted_requests_total", labels, aborted, "Number of requests aborted.")
        for status, n in sorted(replica.http.items()):
            labels = {"endpoint": ENDPOINT, "method": "POST", "status_code": str(status)}
            page.counter("sglang:http_responses_total", labels, n, "Total number of HTTP responses.")

    def _gauges(self, engine: EngineState) -> None:
        page, g = self.page, engine.gauges
        total = self._rank(engine.rank, priority="")
        for name, value, parts in (
            ("num_running_reqs", g["running"], engine.running_by_workload),
            ("num_queue_reqs", g["waiting"], engine.waiting_by_workload),
        ):
            page.gauge(f"sglang:{name}", total, value, f"The {name}.")
            for priority, n in _by_priority(parts, value).items():
                page.gauge(f"sglang:{name}", self._rank(engine.rank, priority=priority), n)
        capacity, kept = g["kv_capacity_tokens"], g["kv_cached"] * g["kv_capacity_tokens"]
        used = min(capacity, g["kv_usage"] * capacity)
        kept = max(0.0, min(kept, capacity - used))
        rates = (
            max(0.0, g["accept_length_last"] - 1.0) / self.spec.spec_tokens if self.spec.spec_tokens else 0.0
        )
        speculates = self.spec.spec_tokens > 0
        room: tuple[tuple[str, float], ...] = (("max_total_num_tokens", capacity),)
        if self.version >= (0, 5, 12):
            room = (
                ("kv_available_tokens", float(int(capacity - used - kept))),
                ("kv_evictable_tokens", float(int(kept))),
                ("kv_used_tokens", float(int(used))),
            )
        for name, value in (
            ("num_grammar_queue_reqs", 0.0),
            ("gen_throughput", g["gen_throughput"]),
            ("cache_hit_rate", 0.0 if g["running"] else g["hit_rate_last"]),
            ("token_usage", g["kv_usage"]),
            ("full_token_usage", g["kv_usage"]),
            ("num_used_tokens", float(int(used))),
            *room,
            ("spec_accept_length", g["accept_length_last"] if speculates else 0.0),
            ("spec_accept_rate", rates),
            ("num_prefill_bootstrap_queue_reqs", 0.0),
            ("num_prefill_inflight_queue_reqs", g["transferring"] if self.kind == "prefill" else 0.0),
            ("num_decode_prealloc_queue_reqs", g["preallocating"]),
            ("num_decode_transfer_queue_reqs", g["transferring"] if self.kind == "decode" else 0.0),
            ("pending_prealloc_token_usage", 0.0),
            ("fwd_occupancy", 1.0 if g["running"] else math.nan),
            ("utilization", 0.0),
            ("new_token_ratio", 0.4),
            ("is_cuda_graph", 1.0),
        ):
            page.gauge(f"sglang:{name}", total, value, f"The {name}.")
        for name in ("num_retracted_reqs", "num_paused_reqs"):  # gauges without a mode: one per process
            page.gauge(f"sglang:{name}", {**total, "pid": str(11107 + engine.rank)}, 0.0, f"The {name}.")
        if self.spec.host_cache_tokens:
            page.gauge("sglang:hicache_host_used_tokens", total, g["host_used_tokens"], "Tokens on the host.")
            page.gauge(
                "sglang:hicache_host_total_tokens", total, float(self.spec.host_cache_tokens), "Room there."
            )
        if self.spec.max_loras:
            slots = float(self.spec.max_loras)
            page.gauge("sglang:lora_pool_slots_used", total, g["adapters_loaded"], "LoRA slots used.")
            page.gauge("sglang:lora_pool_slots_total", total, slots, "LoRA slots.")
            page.gauge(
                "sglang:lora_pool_utilization",
                total,
                g["adapters_loaded"] / slots,
                "Share of LoRA slots used.",
            )

    def _counters(self, engine: EngineState) -> None:
        page, c = self.page, engine.counters
        total = self._rank(engine.rank, priority="")

        def count(name: str, value: float, labels: Mapping[str, str], help: str) -> None:
            page.counter(f"sglang:{name}", labels, float(int(value)), help)

        for mode, value in (
            ("prefill_compute", c["prefill_computed_tokens"]),
            ("prefill_cache", c["cached_tokens"]),
            ("decode", c["generation_tokens"]),
        ):
            count("realtime_tokens_total", value, {**total, "mode": mode}, "Tokens as they are processed.")
        host = c["cached_tokens_host"]
        for mode, value in (
            ("input", c["prefill_computed_tokens"] + c["cached_tokens"]),
            ("device_hit", c["cached_tokens"] - host),
            ("host_hit", host),
            ("storage_hit", 0.0),
        ):
            count(
                "prefill_effective_tokens_total", value, {**total, "mode": mode}, "Prefill tokens by origin."
            )
        count("num_retracted_requests_total", c["preemptions"], total, "Number of retracted requests.")
        count(
            "num_retracted_input_tokens_total", c["retracted_tokens"] * 0.9, total, "Input tokens retracted."
        )
        count(
            "num_retracted_output_tokens_total",
            c["retracted_tokens"] * 0.1,
            total,
            "Output tokens retracted.",
        )
        count("evicted_tokens_total", c["evicted_tokens"], self._rank(engine.rank), "Tokens evicted.")
        if self.spec.host_cache_tokens:
            labels = self._rank(engine.rank, pool="full")
            count(
                "load_back_tokens_total", c["host_loaded_tokens"], labels, "Tokens loaded back from the host."
            )
        if self.spec.role != "unified":
            labels = self._rank(engine.rank)
            count("num_transfer_failed_reqs_total", c["transfer_failures"], labels, "Transfers that failed.")
            count("num_bootstrap_failed_reqs_total", 0.0, labels, "Bootstraps that failed.")


def _by_priority(parts: Mapping[str, int], total: float) -> dict[str, float]:
    out = {NORMAL: 0.0}
    for workload, n in parts.items():
        key = priority_of(workload)
        out[key] = out.get(key, 0.0) + n
    if not parts:
        out[NORMAL] = total
    return out


_QUEUE = "Histogram of queueing time in seconds."
_STAGE = "The latency of each stage of requests."
_EVICT = "Time of eviction passes in seconds."
_TTFT = "Histogram of time to first token in seconds."
_ITL = "Histogram of inter-token latency in seconds."
_E2E = "Histogram of End-to-end request latency in seconds"
