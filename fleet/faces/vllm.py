"""vLLM's exposition (Python front end, one API server).

Clients that go away show nowhere but in HTTP 2xx, first tokens and token counters: ``finished_reason="abort"``
stays 0 and no histogram of finished requests sees them. Lowest edge of queue, prefill and decode time: 0.3 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleet.faces import edges
from fleet.faces.common import statuses, version_of
from fleet.faces.numbers import Spelling, python_number
from fleet.faces.page import Histogram, Page
from fleet.faces.vllm_levels import Levels
from fleet.model import EngineState, Finish, Observations, PoolSpec, ReplicaState

HANDLER = "/v1/chat/completions"
BLOCK_SAMPLE = 100  # --kv-cache-metrics-sample 0.01: one block in a hundred is followed
_HIGHR = "Latency with many buckets but no API specific labels."
_LOWR = "Latency with only few buckets by handler."
_Put = Callable[..., None]


class VllmFace:
    """One vLLM process; ranks are the label ``engine``."""

    def __init__(
        self,
        spec: PoolSpec,
        replica: ReplicaState,
        *,
        page: Page | None = None,
        number: Spelling = python_number,
        created: bool = True,
    ) -> None:
        """``page`` of another process that the engine is part of: then without a front end and process of its own."""
        start = replica.process_start
        self.page = page or Page(number, start + 14.0 if created else None)
        self.spec, self.version = spec, version_of(replica.version)
        self.model = replica.model
        self.lengths = edges.one_two_five(spec.max_model_len)
        self._levels = Levels(self.page, spec, self.version)
        self._sampled: dict[str, int] = {}
        self.alone = page is None
        if self.alone:
            self._process(replica)
        for engine in replica.engines:
            self._begin(engine.rank)

    def _labels(self, rank: int, **more: str) -> dict[str, str]:
        return {"engine": str(rank), "model_name": self.model, **more}

    def _process(self, replica: ReplicaState) -> None:
        info = {
            "implementation": "CPython",
            "major": "3",
            "minor": "12",
            "patchlevel": "11",
            "version": "3.12.11",
        }
        self.page.gauge("python_info", info, 1.0, "Python platform information")
        self.page.gauge("process_virtual_memory_bytes", {}, 4.1e10, "Virtual memory size in bytes.")
        self.page.gauge("process_resident_memory_bytes", {}, 5.2e9, "Resident memory size in bytes.")
        self.page.gauge(
            "process_start_time_seconds",
            {},
            round(replica.process_start, 2),
            "Start time of the process since unix epoch in seconds.",
        )
        self.page.counter(
            "process_cpu_seconds_total", {}, 0.0, "Total user and system CPU time spent in seconds."
        )
        self.page.gauge("process_open_fds", {}, 118.0, "Number of open file descriptors.")
        self.page.gauge("process_max_fds", {}, 1048576.0, "Maximum number of open file descriptors.")

    def _begin(self, rank: int) -> None:
        """vLLM exports every series of an engine from the start, at zero."""
        labels, page = self._labels(rank), self.page
        for reason in ("stop", "length", "abort", "error", "repetition"):
            if (
                reason in ("stop", "length", "abort")
                or (reason == "error" and self.version >= (0, 12))
                or (reason == "repetition" and self.version >= (0, 20))
            ):
                page.counter(
                    "vllm:request_success_total",
                    {**labels, "finished_reason": reason},
                    0.0,
                    "Count of successfully processed requests.",
                )
        for name in self._histograms():
            self._hist(name, rank)
        info = {
            "block_size": str(self.spec.block_tokens),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(self.spec.prefix_cache),
            "engine": str(rank),
            "gpu_memory_utilization": "0.92",
            "num_gpu_blocks": str(self.spec.kv_tokens // self.spec.block_tokens),
            "num_gpu_blocks_override": "None",
            "sliding_window": "None",
        }
        if self.version >= (0, 24):
            info["kv_cache_size_tokens"] = str(self.spec.kv_tokens)
        page.gauge("vllm:cache_config_info", info, 1.0, "Information of the LLMEngine CacheConfig")

    def _histograms(self) -> Mapping[str, tuple[float, ...]]:
        out = {
            "time_to_first_token_seconds": edges.VLLM_TTFT,
            "inter_token_latency_seconds": edges.VLLM_ITL,
            "request_time_per_output_token_seconds": edges.VLLM_ITL,
            "e2e_request_latency_seconds": edges.VLLM_REQUEST,
            "request_queue_time_seconds": edges.VLLM_REQUEST,
            "request_inference_time_seconds": edges.VLLM_REQUEST,
            "request_prefill_time_seconds": edges.VLLM_REQUEST,
            "request_decode_time_seconds": edges.VLLM_REQUEST,
            "request_prompt_tokens": self.lengths,
            "request_generation_tokens": self.lengths,
            "request_max_num_generation_tokens": self.lengths,
            "request_params_max_tokens": self.lengths,
            "request_params_n": edges.VLLM_N,
            "iteration_tokens_total": edges.VLLM_ITERATION,
        }
        if self.version < (0, 15):
            out["time_per_output_token_seconds"] = edges.VLLM_ITL
        if self.version >= (0, 13):
            out["request_prefill_kv_computed_tokens"] = self.lengths
            out["kv_block_lifetime_seconds"] = edges.VLLM_KV_BLOCK
            out["kv_block_idle_before_evict_seconds"] = edges.VLLM_KV_BLOCK
            out["kv_block_reuse_gap_seconds"] = edges.VLLM_KV_BLOCK
        if self.version >= (0, 24):
            out["request_num_preemptions"] = edges.VLLM_PREEMPTIONS
        if self.spec.role != "unified":
            out["nixl_xfer_time_seconds"] = edges.VLLM_NIXL_TIME
            out["nixl_post_time_seconds"] = edges.VLLM_NIXL_POST
            out["nixl_bytes_transferred"] = edges.VLLM_NIXL_BYTES
            out["nixl_num_descriptors"] = edges.VLLM_NIXL_DESCRIPTORS
        return out

    def _hist(self, name: str, rank: int) -> Histogram:
        return self.page.histogram(
            f"vllm:{name}",
            self._labels(rank),
            self._histograms()[name],
            f"Histogram of {name.replace('_', ' ')}.",
        )

    # ------------------------------------------------------------------------------------------ observations

    def observe(self, engine: EngineState, seen: Observations) -> None:
        """Histograms of one rank."""
        have = self._histograms()

        def put(name: str, values: list[float], weights: list[float] | None = None) -> None:
            if values and name in have:
                self._hist(name, engine.rank).observe(values, weights)

        put("time_to_first_token_seconds", [f.ttft for f in seen.first_tokens])
        gaps, counts = [g.gap for g in seen.gaps], [float(g.count) for g in seen.gaps]
        put("inter_token_latency_seconds", gaps, counts)
        put("time_per_output_token_seconds", gaps, counts)
        put("iteration_tokens_total", [s.tokens for s in seen.steps], [float(s.count) for s in seen.steps])
        self._finished(seen.finishes, put)
        self._blocks(seen, put)
        done = [t for t in seen.transfers if t.ok]
        put("nixl_xfer_time_seconds", [t.seconds for t in done])
        put("nixl_post_time_seconds", [min(0.02, 0.05 * t.seconds) for t in done])
        put("nixl_bytes_transferred", [t.bytes for t in done])
        put("nixl_num_descriptors", [max(1.0, t.bytes / (self.spec.block_tokens * 131072.0)) for t in done])

    def _finished(self, finishes: list[Finish], put: _Put) -> None:
        put("e2e_request_latency_seconds", [f.e2e for f in finishes])
        put("request_queue_time_seconds", [f.queue for f in finishes])
        put("request_prefill_time_seconds", [f.prefill for f in finishes])
        put("request_decode_time_seconds", [f.decode for f in finishes])
        put("request_inference_time_seconds", [f.prefill + f.decode for f in finishes])
        put(
            "request_time_per_output_token_seconds",
            [f.decode / max(1, f.output_tokens - 1) for f in finishes],
        )
        put("request_prompt_tokens", [float(f.prompt_tokens) for f in finishes])
        put("request_generation_tokens", [float(f.output_tokens) for f in finishes])
        put("request_max_num_generation_tokens", [float(f.output_tokens) for f in finishes])
        put("request_params_max_tokens", [float(f.max_tokens) for f in finishes])
        put("request_params_n", [1.0] * len(finishes))
        put(
            "request_prefill_kv_computed_tokens", [float(f.prompt_tokens - f.cached_tokens) for f in finishes]
        )
        put("request_num_preemptions", [float(f.preempted) for f in finishes])
        if finishes and self.alone:
            took = [f.e2e for f in finishes]
            self.page.histogram("http_request_duration_highr_seconds", {}, edges.HTTP_HIGHR, _HIGHR).observe(
                took
            )
            labels = {"handler": HANDLER, "method": "POST"}
            self.page.histogram("http_request_duration_seconds", labels, edges.HTTP_LOWR, _LOWR).observe(took)

    def _blocks(self, seen: Observations, put: _Put) -> None:
        """One block in a hundred, without luck: what is left over counts towards the next."""
        life: list[float] = []
        idle: list[float] = []
        gap: list[float] = []
        n: dict[str, list[float]] = {"evict": [], "reuse": []}
        for e in seen.blocks:
            whole, rest = divmod(self._sampled.get(e.event, 0) + e.blocks, BLOCK_SAMPLE)
            self._sampled[e.event] = rest
            if whole:
                n[e.event].append(float(whole))
                if e.event == "evict":
                    life.append(e.lifetime)
                    idle.append(e.idle)
                else:
                    gap.append(e.idle)
        put("kv_block_lifetime_seconds", life, n["evict"])
        put("kv_block_idle_before_evict_seconds", idle, n["evict"])
        put("kv_block_reuse_gap_seconds", gap, n["reuse"])

    # ------------------------------------------------------------------------------------------------ levels

    def refresh(self, replica: ReplicaState, now: float) -> None:
        """Counters and gauges of all ranks and of the HTTP front end."""
        for engine in replica.engines:
            self._levels.show(engine, self._labels(engine.rank), now)
        if not self.alone:
            return
        page = self.page
        for status, n in sorted(statuses(replica.http).items()):
            labels = {"handler": HANDLER, "method": "POST", "status": status}
            page.counter(
                "http_requests_total", labels, n, "Total number of requests by method, status and handler."
            )
        busy = sum(e.counters["busy_seconds"] for e in replica.engines)
        page.counter(
            "process_cpu_seconds_total", {}, round(0.6 * busy + 0.02 * (now - replica.process_start), 2)
        )
