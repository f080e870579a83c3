"""NVIDIA Dynamo: a worker shows its engine's families beside its own, the front end what clients got."""

from __future__ import annotations

from hashlib import blake2b

from fleet.faces import edges
from fleet.faces.numbers import plain_number
from fleet.faces.page import Page
from fleet.faces.vllm import VllmFace
from fleet.model import Attempt, EngineState, Observations, PoolSpec, ReplicaState

NAMESPACE = "dynamo"


def worker_id(name: str, digits: int = 16) -> str:
    """A stable hexadecimal identity."""
    return blake2b(name.encode(), digest_size=digits // 2).hexdigest()


class DynamoWorkerFace:
    """A worker with vLLM inside: both registries in one body, numbers in Rust's spelling."""

    def __init__(self, spec: PoolSpec, replica: ReplicaState) -> None:
        self.page = Page(plain_number)
        component = "prefill" if spec.role == "prefill" else "backend"
        self.labels = {
            "dynamo_component": component,
            "dynamo_namespace": NAMESPACE,
            "worker_id": worker_id(replica.name),
        }
        self.endpoint = {**self.labels, "dynamo_endpoint": "generate"}
        self.engine = VllmFace(spec, replica, page=self.page)
        self._aborts: list[float] = []

    def observe(self, engine: EngineState, seen: Observations) -> None:
        """The engine's histograms, and the hop as the worker sees it."""
        self.engine.observe(engine, seen)
        took = [f.e2e for f in seen.finishes] + [a.age for a in seen.aborts]
        page = self.page
        page.histogram(
            "dynamo_component_request_duration_seconds",
            self.endpoint,
            edges.DYNAMO_WORKER,
            "Time of requests",
        ).observe(took)
        page.histogram(
            "dynamo_work_handler_network_transit_seconds", {}, edges.DYNAMO_HOP, "Time on the wire"
        ).observe([0.0006] * len(took))
        for name, n in (("cancellation_total", len(seen.aborts)), ("requests_total", len(took))):
            page.add(f"dynamo_component_{name}", self.endpoint, float(n), name.replace("_", " "))
        if seen.aborts:
            labels = {**self.endpoint, "error_type": "publish_response"}
            page.add("dynamo_component_errors_total", labels, float(len(seen.aborts)), "errors total")

    def refresh(self, replica: ReplicaState, now: float) -> None:
        """Counters and gauges of both."""
        self.engine.refresh(replica, now)
        page, g = self.page, replica.gauges
        inside = g["running"] + g["waiting"]
        page.gauge("dynamo_component_inflight_requests", self.endpoint, inside, "Requests in flight")
        page.gauge(
            "dynamo_component_gpu_cache_usage_percent", self.labels, g["kv_usage"], "KV cache usage, 0..1"
        )
        blocks = g["kv_capacity_tokens"] / self.engine.spec.block_tokens
        page.gauge("dynamo_component_total_blocks", self.labels, float(int(blocks)), "KV blocks")
        uptime = max(0.0, now - replica.process_start)
        page.gauge(
            "dynamo_component_uptime_seconds", {"worker_id": self.labels["worker_id"]}, uptime, "Uptime"
        )
        if errors := replica.counters["finished_error"]:
            labels = {**self.endpoint, "error_type": "processing"}
            page.counter("dynamo_component_errors_total", labels, errors, "errors total")


class DynamoFrontendFace:
    """The front end before all Dynamo pools of a cluster; families appear with the first request."""

    def __init__(self, start: float) -> None:
        self.page = Page(plain_number)
        self.start = start

    def observe_attempt(self, a: Attempt, model: str) -> None:
        """One request as it ended at the front end."""
        page, labels = self.page, {"model": model}
        if a.status == 200:
            status, error = "success", ""
        elif a.status == 499:
            status, error = "error", "cancelled"
        else:
            status, error = "error", "overload" if a.status in (429, 503) else "internal"
        kind = {**labels, "endpoint": "chat_completions", "request_type": "stream"}
        page.add("dynamo_frontend_requests_started_total", kind, 1.0, "Requests started")
        page.add(
            "dynamo_frontend_requests_total", {**kind, "status": status, "error_type": error}, 1.0, "Requests"
        )
        if error == "cancelled":
            page.add("dynamo_frontend_model_cancellation_total", kind, 1.0, "Requests cancelled")
        elif error:
            page.add(
                "dynamo_frontend_failures_total",
                {"class": "Upstream", "reason": f"request.{error}"},
                1.0,
                "Failures",
            )
        page.histogram(
            "dynamo_frontend_request_duration_seconds", labels, edges.DYNAMO_REQUEST, "Time of requests"
        ).observe([a.duration])
        page.histogram(
            "dynamo_frontend_input_sequence_tokens", labels, edges.DYNAMO_ISL, "Input tokens"
        ).observe([float(a.prompt_tokens)])
        page.histogram(
            "dynamo_frontend_stage_duration_seconds", {"stage": "route"}, edges.DYNAMO_STAGE, "Time of stages"
        ).observe([0.0008])
        if a.ttft is None:
            return
        page.histogram(
            "dynamo_frontend_time_to_first_token_seconds", labels, edges.DYNAMO_TTFT, "Time to first token"
        ).observe([a.ttft])
        page.add("dynamo_frontend_output_tokens_total", labels, float(a.output_tokens), "Output tokens")
        page.histogram(
            "dynamo_frontend_output_sequence_tokens", labels, edges.DYNAMO_OSL, "Output tokens"
        ).observe([float(a.output_tokens)])
        if a.output_tokens > 1:
            gap = max(0.0, a.duration - a.ttft) / (a.output_tokens - 1)
            page.histogram(
                "dynamo_frontend_inter_token_latency_seconds", labels, edges.DYNAMO_ITL, "Gap between tokens"
            ).observe([gap], [float(a.output_tokens - 1)])

    def observe_cached(self, model: str, tokens: list[float]) -> None:
        """Cached tokens of finished requests."""
        self.page.histogram(
            "dynamo_frontend_cached_tokens", {"model": model}, edges.DYNAMO_ISL, "Cached tokens"
        ).observe(tokens)

    def refresh(self, loads: dict[str, tuple[float, float]], specs: dict[str, PoolSpec], now: float) -> None:
        """``loads``: by model the requests in flight and those without a first token."""
        page = self.page
        for model, (inside, queued) in loads.items():
            labels = {"model": model}
            page.gauge("dynamo_frontend_active_requests", labels, inside, "Active requests")
            page.gauge("dynamo_frontend_inflight_requests", labels, inside, "Requests in flight")
            page.gauge("dynamo_frontend_queued_requests", labels, queued, "Requests without a first token")
            spec = specs[model]
            page.gauge("dynamo_frontend_model_ready", labels, 1.0, "Model ready")
            page.gauge(
                "dynamo_frontend_model_kv_cache_block_size", labels, float(spec.block_tokens), "Block size"
            )
            blocks = float(spec.kv_tokens // spec.block_tokens)
            page.gauge("dynamo_frontend_model_total_kv_blocks", labels, blocks, "KV blocks")
        page.gauge("dynamo_frontend_disconnected_clients", {}, 0.0, "Disconnected clients")
        page.gauge("dynamo_component_uptime_seconds", {}, max(0.0, now - self.start), "Uptime")
