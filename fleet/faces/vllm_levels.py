"""vLLM's counters and gauges of one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleet.faces.common import Split
from fleet.faces.page import Page
from fleet.model import EngineState, PoolSpec

_Count = Callable[..., None]


class Levels:
    """Brings a page to an engine's state; families by version and by what the pool has switched on."""

    def __init__(self, page: Page, spec: PoolSpec, version: tuple[int, ...]) -> None:
        self.page, self.spec, self.version = page, spec, version
        self._positions: dict[int, Split] = {}

    def show(self, engine: EngineState, labels: Mapping[str, str], now: float) -> None:
        """All of one rank."""
        page = self.page
        g, c = engine.gauges, engine.counters

        def count(name: str, value: float, help: str, **more: str) -> None:
            page.counter(f"vllm:{name}", {**labels, **more}, float(int(value)), help)

        page.gauge(
            "vllm:num_requests_running",
            labels,
            g["running"],
            "Number of requests in model execution batches.",
        )
        page.gauge(
            "vllm:num_requests_waiting", labels, g["waiting"], "Number of requests waiting to be processed."
        )
        if self.version >= (0, 20):
            deferred = g["adapters_waiting"] + g["preallocating"] + g["transferring"]
            reasons = {"capacity": max(0.0, g["waiting"] - deferred), "deferred": min(deferred, g["waiting"])}
            for reason, value in reasons.items():
                page.gauge(
                    "vllm:num_requests_waiting_by_reason",
                    {**labels, "reason": reason},
                    value,
                    "Number of waiting requests by reason.",
                )
        if self.version >= (0, 11, 1):
            for state, value in (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)):
                page.gauge(
                    "vllm:engine_sleep_state", {**labels, "sleep_state": state}, value, "Engine sleep state."
                )
        page.gauge(
            "vllm:kv_cache_usage_perc", labels, g["kv_usage"], "KV-cache usage. 1 means 100 percent usage."
        )
        count(
            "prefix_cache_queries_total",
            c["query_tokens"],
            "Prefix cache queries, in terms of number of tokens.",
        )
        hits = min(c["cached_tokens"], c["query_tokens"])
        count("prefix_cache_hits_total", hits, "Prefix cache hits, in terms of number of cached tokens.")
        count("num_preemptions_total", c["preemptions"], "Cumulative number of preemption from the engine.")
        count("prompt_tokens_total", c["prompt_tokens"], "Number of prefill tokens processed.")
        count("generation_tokens_total", c["generation_tokens"], "Number of generation tokens processed.")
        for reason in ("stop", "length"):
            page.counter(
                "vllm:request_success_total",
                {**labels, "finished_reason": reason},
                c[f"finished_{reason}"],
            )
        if self.version >= (0, 12):
            page.counter(
                "vllm:request_success_total", {**labels, "finished_reason": "error"}, c["finished_error"]
            )
        self._sources(engine, count)
        if self.spec.spec_tokens:
            self._drafts(engine, count)
        if self.spec.role != "unified":
            count(
                "nixl_num_failed_transfers_total",
                c["transfer_failures"],
                "Number of failed NIXL KV Cache transfers.",
            )
            count("nixl_num_failed_notifications_total", 0.0, "Number of failed NIXL KV Cache notifications.")
            count("nixl_num_kv_expired_reqs_total", 0.0, "Number of requests that had their KV expire.")
        if self.spec.max_loras:
            self._adapters(engine, now)

    def _sources(self, engine: EngineState, count: _Count) -> None:
        c = engine.counters
        if self.version >= (0, 13):
            count(
                "external_prefix_cache_queries_total",
                c["cached_tokens_host"] * 2,
                "External prefix cache queries.",
            )
            count("external_prefix_cache_hits_total", c["cached_tokens_host"], "External prefix cache hits.")
            count(
                "mm_cache_queries_total",
                0.0,
                "Multi-modal cache queries, in terms of number of queried items.",
            )
            count("mm_cache_hits_total", 0.0, "Multi-modal cache hits, in terms of number of cached items.")
        if self.version >= (0, 16):
            moved = c["cached_tokens_transfer"]
            cached = min(c["cached_tokens"], max(0.0, c["prompt_tokens"] - moved))
            help = "Number of prompt tokens by source."
            computed = max(0.0, c["prompt_tokens"] - cached - moved)
            count("prompt_tokens_by_source_total", computed, help, source="local_compute")
            count("prompt_tokens_by_source_total", cached, help, source="local_cache_hit")
            count("prompt_tokens_by_source_total", moved, help, source="external_kv_transfer")
            count(
                "prompt_tokens_cached_total",
                cached + moved,
                "Number of cached prompt tokens (local + external).",
            )
        if self.version >= (0, 32):
            host = min(c["cached_tokens_host"], c["cached_tokens"])
            split = {"device": c["cached_tokens"] - host, "host": host, "p2p": c["cached_tokens_transfer"]}
            for source in ("device", "host", "p2p", "disk", "external_unspecified"):
                count(
                    "prompt_tokens_cached_by_source_total",
                    split.get(source, 0.0),
                    "Number of cached prompt tokens by tier.",
                    source=source,
                )
        if self.spec.host_cache_tokens and self.version >= (0, 20):
            size = self.spec.speeds.kv_bytes_per_token
            count("kv_offload_load_bytes_total", c["host_loaded_tokens"] * size, "Bytes loaded from the CPU.")
            count("kv_offload_store_bytes_total", c["host_stored_tokens"] * size, "Bytes stored on the CPU.")

    def _drafts(self, engine: EngineState, count: _Count) -> None:
        c = engine.counters
        count("spec_decode_num_drafts_total", c["drafts"], "Number of spec decoding drafts.")
        count("spec_decode_num_draft_tokens_total", c["draft_tokens"], "Number of draft tokens.")
        count("spec_decode_num_accepted_tokens_total", c["accepted_tokens"], "Number of accepted tokens.")
        split = self._positions.setdefault(engine.rank, Split(self.spec.spec_tokens))
        ratio = min(0.98, max(0.05, c["accepted_tokens"] / max(1.0, c["draft_tokens"])))
        for position, n in enumerate(split.to(int(c["accepted_tokens"]), ratio)):
            count(
                "spec_decode_num_accepted_tokens_per_pos_total",
                n,
                "Accepted tokens per draft position.",
                position=str(position),
            )

    def _adapters(self, engine: EngineState, now: float) -> None:
        """The value is the clock; old label sets stay for ever."""
        labels = {
            "max_lora": str(self.spec.max_loras),
            "running_lora_adapters": ",".join(engine.adapters),
            "waiting_lora_adapters": "",
        }
        self.page.gauge("vllm:lora_requests_info", labels, round(now, 3), "Running stats on lora requests.")
