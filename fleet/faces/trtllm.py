"""TensorRT-LLM's exposition (``trtllm_`` prefix). Histograms skip observations of zero; preemptions are not exported."""

from __future__ import annotations

from fleet.faces import edges
from fleet.faces.common import Split
from fleet.faces.page import Page
from fleet.model import EngineState, Observations, PoolSpec, ReplicaState

_HISTOGRAMS = {
    "time_to_first_token_seconds": edges.VLLM_TTFT,
    "time_per_output_token_seconds": edges.VLLM_ITL,
    "e2e_request_latency_seconds": edges.VLLM_REQUEST,
    "request_queue_time_seconds": edges.VLLM_REQUEST,
    "request_inference_time_seconds": edges.VLLM_REQUEST,
    "request_prefill_time_seconds": edges.TRTLLM_PREFILL,
    "request_decode_time_seconds": edges.VLLM_REQUEST,
}


class TrtllmFace:
    """One server; its ranks work in lock-step and export one page."""

    def __init__(self, spec: PoolSpec, replica: ReplicaState) -> None:
        self.page = Page(created=replica.process_start + 20.0)
        self.spec = spec
        self.labels = {"engine_type": "pytorch", "model_name": replica.model}
        self._split = Split(max(1, spec.spec_tokens))

    def observe(self, engine: EngineState, seen: Observations) -> None:
        """Histograms."""
        done = seen.finishes
        for name, values in (
            ("time_to_first_token_seconds", [f.ttft for f in seen.first_tokens]),
            ("time_per_output_token_seconds", [f.decode / max(1, f.output_tokens - 1) for f in done]),
            ("e2e_request_latency_seconds", [f.e2e for f in done]),
            ("request_queue_time_seconds", [f.queue for f in done]),
            ("request_inference_time_seconds", [f.prefill + f.decode for f in done]),
            ("request_prefill_time_seconds", [f.prefill for f in done]),
            ("request_decode_time_seconds", [f.decode for f in done]),
        ):
            if kept := [v for v in values if v > 0.0]:
                help = f"Histogram of {name.replace('_', ' ')}."
                self.page.histogram(f"trtllm_{name}", self.labels, _HISTOGRAMS[name], help).observe(kept)

    def refresh(self, replica: ReplicaState, now: float) -> None:
        """Counters and gauges."""
        page, labels, c, g = self.page, self.labels, replica.counters, replica.gauges
        for reason in ("stop", "length"):
            if n := c[f"finished_{reason}"]:
                each = {**labels, "finished_reason": reason}
                page.counter(
                    "trtllm_request_success_total", each, n, "Count of successfully processed requests."
                )
        for status, n in sorted(replica.http.items()):
            if status >= 400:
                each = {**labels, "http_code": str(status)}
                page.counter("trtllm_request_error_total", each, n, "Count of failed requests.")
        blocks = max(1.0, g["kv_capacity_tokens"] / self.spec.block_tokens)
        reused, looked = c["cached_tokens"], max(c["cached_tokens"], c["query_tokens"])
        for name, value in (
            ("num_requests_running", g["running"]),
            ("num_requests_waiting", g["waiting"]),
            ("num_paused_requests", 0.0),
            ("kv_cache_utilization", g["kv_usage"]),
            ("kv_cache_hit_rate", reused / looked if looked else 0.0),
            ("kv_cache_max_blocks", float(int(blocks))),
            ("gpu_memory_usage_bytes", sum(gpu.memory_used for gpu in replica.gpus)),
        ):
            page.gauge(f"trtllm_{name}", labels, value, f"The {name.replace('_', ' ')}.")
        size = self.spec.block_tokens
        for name, value in (
            ("kv_cache_reused_blocks_total", reused / size),
            ("kv_cache_missed_blocks_total", (looked - reused) / size),
            ("prompt_tokens_total", c["prompt_tokens"]),
            ("prompt_cached_tokens_total", min(c["cached_tokens"], c["prompt_tokens"])),
            ("generation_tokens_total", c["generation_tokens"]),
            ("num_requests_completed_total", c["finished_stop"] + c["finished_length"]),
        ):
            page.counter(f"trtllm_{name}", labels, float(int(value)), f"The {name.replace('_', ' ')}.")
        if self.spec.spec_tokens:
            page.counter("trtllm_spec_decode_num_draft_tokens_total", labels, float(int(c["draft_tokens"])))
            page.counter(
                "trtllm_spec_decode_num_accepted_tokens_total", labels, float(int(c["accepted_tokens"]))
            )
            page.gauge("trtllm_spec_decode_acceptance_length", labels, g["accept_length_last"])
            ratio = min(0.98, max(0.05, c["accepted_tokens"] / max(1.0, c["draft_tokens"])))
            for position, n in enumerate(self._split.to(int(c["accepted_tokens"]), ratio)):
                each = {**labels, "token_position": str(position)}
                page.counter("trtllm_spec_decode_accepted_tokens_total", each, float(n))
