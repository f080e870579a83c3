"""What series of a target mean: the rules by which raw families become columns, and the numbers that come out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.dictionary import load_dictionary
from collectors.exposition import parse
from collectors.mapping import plan
from collectors.plan import Plan
from core.classes import ClassRules
from core.frames import Target

RULES = ClassRules.from_config(
    [
        {"name": "coding-agent", "match": ['workload="coding-agent"', 'pool="coder-a"']},
        {"name": "chat", "match": ['workload="chat"', 'pool="chat-a"']},
    ]
)


class Read:
    """One body read, planned and applied."""

    def __init__(self, body: str, *, rules: ClassRules | None = None, target: Target | None = None) -> None:
        found = parse(body)
        self.values = found.values
        self.plan = plan(found.series, load_dictionary(), rules or ClassRules(), target or Target("host:1"))
        self.gauges, self.counts, self.sums = self.plan.apply(found.values)

    def columns(self, signal: str) -> dict[str, Any]:
        """Value of each column of a signal by its labels but class: a number, or (edges, counts, sum)."""
        out: dict[str, Any] = {}
        for c, (g, n, s) in zip(self.plan.layout.columns, self.plan.layout.slots, strict=True):
            if c.signal != signal:
                continue
            key = ",".join(f"{k}={v}" for k, v in c.labels if k != "class")
            if c.kind == "gauge":
                out[key] = float(self.gauges[g][0])
            elif c.kind == "counter":
                out[key] = int(self.counts[n][0])
            elif c.kind == "sum":
                out[key] = float(self.sums[s][0])
            else:
                out[key] = (c.edges, self.counts[n].tolist(), float(self.sums[s][0]))
        return out

    def one(self, signal: str) -> Any:
        """The value of the only column of a signal."""
        ((_, value),) = self.columns(signal).items()
        return value

    def classes(self, signal: str) -> set[str]:
        return {c.label("class") for c in self.plan.layout.columns if c.signal == signal}

    def problems(self) -> list[str]:
        return [p.code for p in self.plan.problems(self.values)]


def histogram(name: str, counts: dict[str, int], total: float, labels: str = "") -> str:
    """Cumulative lines of a histogram from its cumulative counts by edge text."""
    inner = f",{labels}" if labels else ""
    outer = f"{{{labels}}}" if labels else ""
    lines = [f'{name}_bucket{{le="{le}"{inner}}} {n}' for le, n in counts.items()]
    return "\n".join(
        [*lines, f"{name}_sum{outer} {total}", f"{name}_count{outer} {max(counts.values())}", ""]
    )


VLLM = "vllm:num_requests_running 3\n"
SGLANG = "sglang:num_running_reqs 3\n"


# ---------------------------------------------------------------- one family per signal


def test_old_and_new_names_side_by_side_count_once() -> None:
    found = Read(
        VLLM + "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.4\n"
        "vllm:prefix_cache_queries_total 100\nvllm:gpu_prefix_cache_queries_total 100\n"
        "vllm:prefix_cache_hits_total 60\nvllm:gpu_prefix_cache_hits_total 60\n"
    )
    assert found.one("kv_cache_usage_ratio") == 0.5
    assert found.one("prefix_cache_queries_tokens_total") == 100
    assert found.plan.signals["kv_cache_usage_ratio"].also == ("vllm:gpu_cache_usage_perc",)


def test_an_older_name_is_taken_where_it_is_the_only_one() -> None:
    found = Read(
        "vllm:gpu_cache_usage_perc 0.25\n"
        + histogram("vllm:time_per_output_token_seconds", {"0.1": 1, "+Inf": 2}, 1)
    )
    assert found.one("kv_cache_usage_ratio") == 0.25
    assert found.one("inter_token_latency_seconds") == ((0.1,), [1, 1], 1.0)


def test_the_underscore_spelling_is_the_same_metric() -> None:
    assert Read("sglang_token_usage 0.5\n").one("kv_cache_usage_ratio") == 0.5


def test_deprecated_duplicates_of_a_router_are_not_added() -> None:
    found = Read(
        'llm_d_epp_request_total{fairness_id="a",model_name="m"} 2\nllm_d_epp_request_total{fairness_id="b",model_name="m"} 1\n'
        'inference_objective_request_total{model_name="m"} 3\n'
    )
    assert found.one("request_success_total") == 3


def test_a_router_that_repeats_engine_names_is_not_an_engine() -> None:
    found = Read('vllm:healthy_pods_total{server="s1"} 1\nvllm:num_requests_running{server="s1"} 4\n')
    assert found.plan.components == ("production_stack_router",)
    assert found.columns("requests_running") == {"worker=s1": 4.0}


def test_the_engine_is_believed_before_the_worker_around_it() -> None:
    found = Read(
        'dynamo_component_inflight_requests{dynamo_endpoint="generate"} 9\ndynamo_component_uptime_seconds 5\n'
        "dynamo_component_cancellation_total 2\nvllm:num_requests_running 7\n"
    )
    assert found.plan.components == ("dynamo_component", "vllm")
    assert found.one("requests_running") == 7.0
    assert found.one("aborted_total") == 2


def test_hits_and_queries_come_from_the_same_source() -> None:
    both = (
        SGLANG
        + 'sglang:realtime_tokens_total{mode="prefill_cache"} 30\nsglang:realtime_tokens_total{mode="prefill_compute"} 70\n'
        'sglang:realtime_tokens_total{mode="decode"} 11\nsglang:prompt_tokens_total 500\nsglang:cached_tokens_total 400\n'
    )
    found = Read(both)
    assert (found.one("prefix_cache_hit_tokens_total"), found.one("prefix_cache_queries_tokens_total")) == (
        30,
        100,
    )
    assert found.one("generation_tokens_total") == 11
    older = Read(SGLANG + "sglang:prompt_tokens_total 500\nsglang:cached_tokens_total 400\n")
    assert (older.one("prefix_cache_hit_tokens_total"), older.one("prefix_cache_queries_tokens_total")) == (
        400,
        500,
    )


def test_sources_that_belong_together_are_added() -> None:
    body = "lmdeploy:num_requests_running 1\nlmdeploy:num_requests_waiting 2\nlmdeploy:num_api_requests_waiting 3\n"
    assert Read(body).one("requests_waiting") == 5.0


def test_reasons_keep_apart() -> None:
    found = Read(
        SGLANG
        + "sglang:num_grammar_queue_reqs 1\nsglang:num_prefill_infight_queue_reqs 2\nsglang:num_decode_transfer_queue_reqs 3\n"
    )
    assert found.columns("requests_waiting_by_reason") == {
        "reason=grammar": 1.0,
        "reason=prefill_inflight": 2.0,
        "reason=decode_transfer": 3.0,
    }


# ---------------------------------------------------------------- types, units, values


def test_counters_are_found_without_total_whatever_type_says() -> None:
    found = Read("# TYPE nv_inference_request_success gauge\nnv_inference_request_success 5\n")
    assert found.one("request_success_total") == 5
    assert (
        Read("# TYPE lmdeploy:num_requests_failed gauge\nlmdeploy:num_requests_failed 4\n").one(
            "errors_total"
        )
        == 4
    )


def test_cumulative_microseconds_become_seconds_with_a_count_and_no_histogram() -> None:
    found = Read("nv_inference_request_success 4\nnv_inference_request_duration_us 2000000\n")
    assert found.one("request_latency_seconds_sum") == 2.0
    assert found.one("request_latency_seconds_count") == 4
    assert found.columns("request_latency_seconds") == {}
    assert found.plan.signals["request_latency_seconds"].families == ("nv_inference_request_duration_us",)


def test_the_counter_beside_a_total_is_found_under_either_name() -> None:
    found = Read("nv_inference_request_success_total 4\nnv_inference_queue_duration_us_total 1000000\n")
    assert (found.one("queue_time_seconds_sum"), found.one("queue_time_seconds_count")) == (1.0, 4)


def test_a_summary_gives_total_and_count_and_its_quantiles_are_not_kept() -> None:
    found = Read(
        'smg_router_requests_total 1\nsmg_router_ttft_seconds{quantile="0.99"} 9\n'
        "smg_router_ttft_seconds_sum 6\nsmg_router_ttft_seconds_count 3\n"
    )
    assert (found.one("ttft_seconds_sum"), found.one("ttft_seconds_count")) == (6.0, 3)
    assert 9.0 not in found.gauges


def test_a_count_without_buckets_is_a_count() -> None:
    found = Read("vllm:time_to_first_token_seconds_count 8060\n")
    assert found.one("ttft_seconds_count") == 8060
    assert found.columns("ttft_seconds") == {}
    assert "ttft_seconds" in found.plan.signals


def test_totals_of_a_histogram_serve_as_counters() -> None:
    found = Read(
        "dynamo_frontend_inflight_requests 1\n"
        + histogram("dynamo_frontend_input_sequence_tokens", {"100": 1, "+Inf": 2}, 350)
    )
    assert found.one("prompt_tokens_total") == 350
    assert found.one("request_prompt_tokens") == ((100.0,), [1, 1], 350.0)


def test_edges_and_sums_are_scaled_to_the_canonical_unit() -> None:
    found = Read(
        SGLANG + histogram("sglang:kv_transfer_latency_ms", {"1": 1, "2.5": 2, "700": 3, "+Inf": 4}, 1500)
    )
    assert found.one("kv_transfer_time_seconds") == ((0.001, 0.0025, 0.7), [1, 1, 1, 1], 1.5)


def test_gpu_values_are_in_canonical_units_per_gpu() -> None:
    found = Read(
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 87\nDCGM_FI_DEV_GPU_UTIL{gpu="1"} 3\nDCGM_FI_DEV_SM_CLOCK{gpu="0"} 1980\n'
        'DCGM_FI_DEV_FB_USED{gpu="0"} 2\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 5000\n'
    )
    assert found.columns("gpu_utilization_ratio") == {"gpu=0": 0.87, "gpu=1": 0.03}
    assert found.columns("gpu_sm_clock_hz") == {"gpu=0": 1.98e9}
    assert found.columns("gpu_memory_used_bytes") == {"gpu=0": 2.0 * 2**20}
    assert found.columns("gpu_energy_joules") == {"gpu=0": 5.0}


@pytest.mark.parametrize(
    "blank", ["9223372036854775794", "9223372036854775792", "2147483632", "140737488355328", "NaN", "+Inf"]
)
def test_blanks_of_the_exporter_are_gaps(blank: str) -> None:
    found = Read(f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="0"}} {blank}\nDCGM_FI_DEV_SM_CLOCK{{gpu="0"}} 1\n')
    assert math.isnan(found.columns("gpu_temperature_celsius")["gpu=0,part=memory"])


def test_minus_one_means_no_value_where_the_dictionary_says_so() -> None:
    assert math.isnan(Read(VLLM + "vllm:gpu_prefix_cache_hit_rate -1\n").one("prefix_cache_hit_rate"))
    assert Read(
        'smg_router_requests_total 1\nsmg_worker_health{worker="a"} -1\nsmg_worker_health{worker="b"} 1\n'
    ).columns("router_pool_health") == {"worker=a": pytest.approx(math.nan, nan_ok=True), "worker=b": 1.0}


def test_a_gauge_not_to_be_believed_is_known_and_never_stored() -> None:
    found = Read(SGLANG + "sglang:cache_hit_rate 0.0\n")
    assert found.plan.signals["prefix_cache_hit_rate"].unusable
    assert found.columns("prefix_cache_hit_rate") == {}


def test_a_percentage_where_a_ratio_is_meant_is_divided_and_remembered() -> None:
    found = Read("sglang:token_usage 42.0\n")
    assert found.one("kv_cache_usage_ratio") == pytest.approx(0.42)
    assert found.problems() == ["percent_not_ratio"]
    later, _, _ = found.plan.apply(np.array([0.9]))
    assert later[0] == pytest.approx(0.009)


def test_negative_and_infinite_counts_are_gaps() -> None:
    found = Read(VLLM + "vllm:prompt_tokens_total -5\nvllm:generation_tokens_total +Inf\n")
    assert found.one("prompt_tokens_total") == -1
    assert found.one("generation_tokens_total") == -1
    assert "negative_counter" in found.problems()


def test_capacity_in_tokens_comes_from_the_labels_of_the_configuration() -> None:
    small = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="27000"} 1\n'
    assert Read(VLLM + small).one("kv_cache_capacity") == 432_000.0
    told = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="27000",kv_cache_size_tokens="400000"} 1\n'
    assert Read(VLLM + told).one("kv_cache_capacity") == 400_000.0
    assert Read(VLLM + 'vllm:cache_config_info{block_size="None"} 1\n').columns("kv_cache_capacity") == {}
    assert Read(SGLANG + "sglang:max_total_num_tokens 9000\n").one("kv_cache_capacity") == 9000.0
    parts = "sglang:kv_available_tokens 1\nsglang:kv_evictable_tokens 2\nsglang:kv_used_tokens 4\n"
    assert Read(SGLANG + parts).one("kv_cache_capacity") == 7.0
    blocks = 'dynamo_frontend_inflight_requests 1\ndynamo_frontend_model_total_kv_blocks{model="m"} 10\n'
    assert (
        Read(blocks + 'dynamo_frontend_model_kv_cache_block_size{model="m"} 64\n').one("kv_cache_capacity")
        == 640.0
    )


def test_tgi_usage_is_what_is_reserved_over_what_may_be() -> None:
    body = "tgi_queue_size 0\ntgi_batch_current_max_tokens 500\ntgi_batch_max_total_tokens 2000\n"
    assert Read(body).one("kv_cache_usage_ratio") == 0.25
    empty = Read("tgi_queue_size 0\ntgi_batch_current_max_tokens 500\ntgi_batch_max_total_tokens 0\n")
    assert math.isnan(empty.one("kv_cache_usage_ratio"))
    alone = Read("tgi_queue_size 0\ntgi_batch_current_max_tokens 500\n")
    assert alone.one("kv_cache_reserved_tokens") == 500.0


def test_the_newest_adapter_line_counts_and_its_clock_does_not() -> None:
    found = Read(
        VLLM + 'vllm:lora_requests_info{running_lora_adapters="",waiting_lora_adapters=""} 1.7e9\n'
        'vllm:lora_requests_info{running_lora_adapters="a,b"} 1.71e9\n'
        'vllm:lora_requests_info{running_lora_adapters="a"} 1.705e9\n'
    )
    assert found.one("lora_info") == 2.0


def test_no_errors_so_far_is_zero_where_answers_are_counted_by_status() -> None:
    answered = 'http_requests_total{handler="/v1/completions",status="2xx"} 9\n'
    assert Read(VLLM + answered).one("errors_total") == 0
    failed = answered + 'http_requests_total{handler="/v1/completions",status="5xx"} 2\n'
    assert Read(VLLM + failed).columns("errors_total") == {"error=5xx": 2}
    assert Read(VLLM).columns("errors_total") == {}


def test_only_generation_handlers_count_as_answers() -> None:
    found = Read(
        VLLM + 'http_requests_total{handler="/metrics",status="2xx"} 900\n'
        'http_requests_total{handler="/health",status="5xx"} 3\n'
        'http_requests_total{handler="/v1/chat/completions",status="2xx"} 7\n'
        'http_requests_total{handler="/v1/completions",status="2xx"} 2\n'
    )
    assert found.columns("http_responses_total") == {"status=2xx": 9}


# ---------------------------------------------------------------- histograms


def test_bucket_counts_are_not_cumulative_and_overflow_is_last() -> None:
    found = Read(VLLM + histogram("vllm:time_to_first_token_seconds", {"0.1": 2, "1": 5, "+Inf": 9}, 12.5))
    assert found.one("ttft_seconds") == ((0.1, 1.0), [2, 3, 4], 12.5)


def test_edges_that_are_written_differently_are_one_edge() -> None:
    body = VLLM + histogram("vllm:time_to_first_token_seconds", {"1": 2, "1.0": 2, "+Inf": 3}, 4)
    assert Read(body).one("ttft_seconds") == ((1.0,), [2, 1], 4.0)


def test_buckets_out_of_order_are_sorted() -> None:
    body = VLLM + histogram("vllm:time_to_first_token_seconds", {"5": 5, "+Inf": 6, "1": 2}, 4)
    assert Read(body).one("ttft_seconds") == ((1.0, 5.0), [2, 3, 1], 4.0)


def test_without_an_infinite_bucket_the_count_is_the_total() -> None:
    body = (
        VLLM + 'vllm:time_to_first_token_seconds_bucket{le="1"} 2\nvllm:time_to_first_token_seconds_count 5\n'
    )
    edges, counts, total = Read(body).one("ttft_seconds")
    assert (edges, counts) == ((1.0,), [2, 3])
    assert math.isnan(total)
    alone = Read('vllm:time_to_first_token_seconds_bucket{le="1"} 2\n')
    assert alone.one("ttft_seconds")[1] == [2, 0]
    assert "no_overflow_bucket" in alone.problems()


def test_the_infinite_bucket_wins_over_a_different_count() -> None:
    body = (
        VLLM
        + 'vllm:time_to_first_token_seconds_bucket{le="1"} 5\nvllm:time_to_first_token_seconds_bucket{le="+Inf"} 6\n'
    )
    found = Read(body + "vllm:time_to_first_token_seconds_count 7\nvllm:time_to_first_token_seconds_sum 9\n")
    assert found.one("ttft_seconds") == ((1.0,), [5, 1], 9.0)
    assert found.problems() == ["count_differs"]


def test_buckets_that_fall_are_clipped_and_the_total_stands() -> None:
    found = Read(VLLM + histogram("vllm:time_to_first_token_seconds", {"1": 5, "2": 4, "3": 5, "+Inf": 6}, 9))
    assert found.one("ttft_seconds") == ((1.0, 2.0, 3.0), [5, 0, 0, 1], 9.0)
    assert found.problems() == ["non_monotone_buckets"]


def test_observations_that_add_up_to_nothing_are_not_used() -> None:
    found = Read(
        VLLM + histogram("vllm:time_to_first_token_seconds", {"0.001": 208, "0.01": 208, "+Inf": 208}, 0)
    )
    _edges, counts, total = found.one("ttft_seconds")
    assert counts == [-1, -1, -1]
    assert math.isnan(total)
    assert found.problems() == ["impossible_histogram"]
    idle = Read(VLLM + histogram("vllm:time_to_first_token_seconds", {"0.001": 0, "+Inf": 0}, 0))
    assert idle.one("ttft_seconds") == ((0.001,), [0, 0], 0.0)
    assert idle.problems() == []


def test_a_sum_that_is_no_number_is_a_gap_and_the_counts_stay() -> None:
    body = (
        VLLM
        + 'vllm:time_to_first_token_seconds_bucket{le="1"} 5\nvllm:time_to_first_token_seconds_bucket{le="+Inf"} 7\n'
    )
    found = Read(
        body + "vllm:time_to_first_token_seconds_sum NaN\nvllm:time_to_first_token_seconds_count 7\n"
    )
    _edges, counts, total = found.one("ttft_seconds")
    assert counts == [5, 2]
    assert math.isnan(total)
    assert found.problems() == ["sum_missing"]


def test_an_edge_that_is_no_number_costs_only_itself() -> None:
    found = Read(
        VLLM + histogram("vllm:time_to_first_token_seconds", {"1": 1, "much": 2, "NaN": 2, "+Inf": 3}, 9)
    )
    assert found.one("ttft_seconds") == ((1.0,), [1, 2], 9.0)
    assert found.plan.dropped["bad_bucket_edge"] == 2


def test_buckets_without_their_suffix_are_read() -> None:
    name = "nv_inference_first_response_histogram_ms"
    body = f'nv_inference_count 1\n{name}{{le=" 100"}} 8\n{name}{{le="+Inf"}} 37\n{name}_count 37\n{name}_sum 10771\n'
    assert Read(body).one("ttft_seconds") == ((0.1,), [8, 29], pytest.approx(10.771))


def test_le_on_a_gauge_makes_no_histogram() -> None:
    body = SGLANG + 'sglang:routing_key_running_req_count{gt="0",le="1"} 4\nsglang:num_queue_reqs{le="5"} 2\n'
    found = Read(body)
    assert found.one("requests_waiting") == 2.0
    assert {c.kind for c in found.plan.layout.columns} == {"gauge"}


def test_label_sets_with_other_edges_stay_apart() -> None:
    found = Read(
        VLLM
        + histogram("vllm:time_to_first_token_seconds", {"1": 1, "+Inf": 2}, 3, 'engine="0"')
        + histogram("vllm:time_to_first_token_seconds", {"2": 1, "+Inf": 2}, 3, 'engine="1"')
    )
    edges = [c.edges for c in found.plan.layout.columns if c.signal == "ttft_seconds"]
    assert edges == [(1.0,), (2.0,)]


def test_the_thousand_buckets_of_batch_sizes_are_not_kept() -> None:
    found = Read("tgi_queue_size 0\n" + histogram("tgi_batch_next_size", {"1": 1, "2": 3, "+Inf": 3}, 5))
    assert (found.one("iteration_tokens_sum"), found.one("iteration_tokens_count")) == (5.0, 3)


# ---------------------------------------------------------------- copies, ranks, totals


def test_copies_of_a_gauge_per_process_are_one_gauge() -> None:
    body = VLLM + "".join(f'vllm:kv_cache_usage_perc{{pid="{i}"}} {0.8 if i == 3 else 0}\n' for i in range(8))
    assert Read(body).one("kv_cache_usage_ratio") == 0.8


def test_a_total_beside_its_parts_counts_once() -> None:
    parts = 'sglang:num_running_reqs{priority="0"} 2\nsglang:num_running_reqs{priority="10"} 3\n'
    found = Read('sglang:num_running_reqs{priority=""} 5\n' + parts)
    assert found.one("requests_running") == 5.0
    assert found.plan.dropped["part_beside_total"] == 2
    assert Read(parts).one("requests_running") == 5.0


def test_an_empty_label_is_an_absent_one() -> None:
    found = Read(SGLANG + 'sglang:num_aborted_requests_total{workload="",priority=""} 2\n')
    assert found.one("aborted_total") == 2


def test_ranks_that_repeat_the_work_count_once() -> None:
    body = "".join(f'sglang:evicted_tokens_total{{tp_rank="{i}",dp_rank="0"}} 100\n' for i in (3, 10, 0, 1))
    found = Read(SGLANG + body)
    assert found.one("evictions") == 100
    assert found.plan.dropped["repeated_rank"] == 3
    fresh = "".join(f'sglang:num_running_reqs{{tp_rank="{i}"}} 7\n' for i in range(4))
    assert Read(fresh).one("requests_running") == 7.0


def test_ranks_that_split_the_work_add_up_and_keep_their_gauges() -> None:
    body = "".join(
        f'sglang:num_running_reqs{{dp_rank="{i}",tp_rank="{i}"}} {i + 1}\n'
        f'sglang:evicted_tokens_total{{dp_rank="{i}",tp_rank="{i}"}} 10\n'
        for i in range(3)
    )
    found = Read(body)
    assert found.columns("requests_running") == {"rank=0": 1.0, "rank=1": 2.0, "rank=2": 3.0}
    assert found.one("evictions") == 30
    alone = Read('vllm:num_requests_running{engine="0"} 1\n')
    assert alone.columns("requests_running") == {"": 1.0}


def test_streaming_and_not_are_added() -> None:
    body = (
        SGLANG
        + 'sglang:prompt_tokens_total{is_streaming="true"} 5\nsglang:prompt_tokens_total{is_streaming="false"} 7\n'
    )
    assert Read(body).one("prompt_tokens_total") == 12


def test_models_are_a_label_only_where_there_are_several() -> None:
    one = Read('vllm:num_requests_running{model_name="m"} 1\n')
    assert one.columns("requests_running") == {"": 1.0}
    assert one.plan.target.model == "m"
    two = Read(
        'dynamo_frontend_inflight_requests{model="a"} 1\ndynamo_frontend_inflight_requests{model="b"} 2\n'
    )
    assert two.columns("requests_running") == {"model=a": 1.0, "model=b": 2.0}
    assert two.plan.target.model == ""


def test_what_stands_for_no_model_is_kept_apart_and_is_not_the_target_s_model() -> None:
    found = Read(
        'dynamo_frontend_inflight_requests{model="m"} 1\ndynamo_frontend_inflight_requests{model="unknown_model"} 2\n'
    )
    assert found.columns("requests_running") == {"model=m": 1.0, "model=unknown_model": 2.0}
    assert found.plan.target.model == "m"


def test_role_and_components_go_to_the_target() -> None:
    found = Read('sglang:num_running_reqs{engine_type="prefill",model_name="m"} 1\n')
    assert (found.plan.target.role, found.plan.target.components) == ("prefill", ("sglang",))


def test_internal_endpoints_of_a_worker_do_not_count() -> None:
    found = Read(
        'dynamo_component_requests_total{dynamo_endpoint="generate"} 4\n'
        'dynamo_component_requests_total{dynamo_endpoint="worker_kv_query_source_3"} 90\n'
    )
    assert found.one("request_success_total") == 4


def test_cancellations_are_no_errors() -> None:
    found = Read(
        'dynamo_frontend_requests_total{status="success",error_type=""} 10\n'
        'dynamo_frontend_requests_total{status="error",error_type="cancelled"} 3\n'
        'dynamo_frontend_requests_total{status="error",error_type="internal"} 1\n'
    )
    assert found.one("request_success_total") == 10
    assert found.one("aborted_total") == 3
    assert found.columns("errors_total") == {"error=internal": 1}


# ---------------------------------------------------------------- classes and target labels


def test_labels_of_the_target_itself_make_no_columns() -> None:
    target = Target(
        "coder-a-4:8000",
        pool="coder-a",
        labels={"instance": "coder-a-4:8000", "job": "vllm", "pool": "coder-a"},
    )
    labels = 'instance="coder-a-4:8000",job="vllm",pool="coder-a",engine="0",model_name="glm-5"'
    found = Read(f"vllm:num_requests_running{{{labels}}} 3\n", rules=RULES, target=target)
    (column,) = found.plan.layout.columns
    assert column.labels == (("class", "coding-agent"),)


def test_series_without_a_class_on_a_target_of_several_are_shared() -> None:
    target = Target("mixed-s-2:8000", pool="mixed-s", labels={"pool": "mixed-s"})
    body = (
        'sglang:num_running_reqs{pool="mixed-s"} 3\n'
        'sglang:prompt_tokens_total{pool="mixed-s",workload="chat"} 5\n'
        'sglang:prompt_tokens_total{pool="mixed-s",workload="coding-agent"} 6\n'
        'sglang:prompt_tokens_total{pool="mixed-s",workload="secret"} 7\n'
    )
    found = Read(body, rules=RULES, target=target)
    assert found.classes("requests_running") == {"shared"}
    assert found.classes("prompt_tokens_total") == {"chat", "coding-agent", "shared"}


def test_a_class_of_the_pool_covers_all_its_series() -> None:
    target = Target("c:1", pool="chat-a", labels={"pool": "chat-a"})
    found = Read(
        VLLM + 'http_requests_total{handler="/v1/completions",status="2xx"} 1\n', rules=RULES, target=target
    )
    assert {c.label("class") for c in found.plan.layout.columns} == {"chat"}


def test_without_any_rule_that_fits_a_series_is_unclassified() -> None:
    assert Read(VLLM).classes("requests_running") == {"unclassified"}
    by_model = ClassRules.from_config([{"name": "big", "match": ['model_name="m"']}])
    found = Read(
        'vllm:num_requests_running{model_name="m"} 1\nhttp_requests_total{handler="/v1/completions",status="2xx"} 1\n',
        rules=by_model,
    )
    assert {c.label("class") for c in found.plan.layout.columns} == {"big"}


def test_a_kv_pool_is_no_fleet_pool() -> None:
    found = Read(SGLANG + 'sglang:load_back_tokens_total{pool="full"} 5\n')
    assert found.classes("host_kv_offload") == {"unclassified"}


# ---------------------------------------------------------------- starts, problems, time


def test_the_start_of_the_process_is_its_gauge_or_the_oldest_created() -> None:
    body = (
        VLLM
        + "process_start_time_seconds 1.7e9\nvllm:prompt_tokens_created 1.6e9\nvllm:prompt_tokens_total 1\n"
    )
    found = Read(body)
    assert found.plan.start(found.values) == 1.7e9
    created = Read(VLLM + "vllm:prompt_tokens_created 1.65e9\nhttp_requests_created 1.66e9\n")
    assert created.plan.start(created.values) == 1.65e9
    assert Read(VLLM).plan.start(np.array([1.0])) is None
    assert created.columns("prompt_tokens_total") == {}
    assert created.plan.start(np.array([1.0, np.nan, 1.66e9])) is None


def test_a_start_that_is_missing_once_does_not_become_another_start() -> None:
    found = Read(VLLM + "process_start_time_seconds 1.7e9\nvllm:prompt_tokens_created 1.6e9\n")
    assert found.plan.start(np.array([1.0, np.nan, 1.6e9])) is None


def test_more_hits_than_queries_is_a_problem() -> None:
    found = Read(VLLM + "vllm:prefix_cache_queries_total 59946\nvllm:prefix_cache_hits_total 122884\n")
    assert found.problems() == ["hits_exceed_queries"]


def test_a_sane_target_has_no_problem() -> None:
    found = Read(VLLM + histogram("vllm:time_to_first_token_seconds", {"0.1": 2, "1": 5, "+Inf": 9}, 12.5))
    assert found.problems() == []


def test_absent_series_are_gaps_and_never_zero() -> None:
    found = Read(
        VLLM
        + "vllm:prompt_tokens_total 5\n"
        + histogram("vllm:time_to_first_token_seconds", {"1": 2, "+Inf": 3}, 4)
    )
    gauges, counts, sums = found.plan.apply(np.full(len(found.values), np.nan))
    assert np.isnan(gauges).all()
    assert (counts == -1).all()
    assert np.isnan(sums).all()


def test_one_missing_bucket_makes_the_whole_histogram_absent() -> None:
    found = Read(histogram("vllm:time_to_first_token_seconds", {"1": 2, "2": 3, "+Inf": 3}, 4))
    values = found.values.copy()
    values[1] = np.nan
    assert found.plan.apply(values)[1].tolist() == [-1, -1, -1]


def test_one_of_two_label_sets_missing_leaves_the_other() -> None:
    body = histogram("vllm:time_to_first_token_seconds", {"1": 2, "+Inf": 3}, 4, 'engine="0"')
    found = Read(
        body + histogram("vllm:time_to_first_token_seconds", {"1": 10, "+Inf": 30}, 40, 'engine="1"')
    )
    assert found.one("ttft_seconds") == ((1.0,), [12, 21], 44.0)
    values = found.values.copy()
    values[4:] = np.nan
    _, counts, sums = found.plan.apply(values)
    assert (counts.tolist(), sums.tolist()) == ([2, 1], [4.0])


def test_values_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        Read(VLLM).plan.apply(np.zeros(7))


def test_a_target_of_nothing_known_has_an_empty_layout() -> None:
    found = Read("node_cpu_seconds_total 5\nup 1\n")
    assert found.plan.components == ()
    assert found.plan.layout.columns == ()
    assert (len(found.gauges), len(found.counts), len(found.sums)) == (0, 0, 0)


def test_equal_targets_share_a_layout_whatever_the_order_of_their_lines() -> None:
    lines = ["vllm:num_requests_running 1", "vllm:prompt_tokens_total 2", "vllm:num_requests_waiting 3"]
    a, b = Read("\n".join(lines) + "\n"), Read("\n".join(reversed(lines)) + "\n")
    assert a.plan.layout.id == b.plan.layout.id
    assert a.one("prompt_tokens_total") == b.one("prompt_tokens_total") == 2


# ---------------------------------------------------------------- many instants


def _busy() -> tuple[Plan, int]:
    body = (
        'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 1\n'
        'vllm:kv_cache_usage_perc{engine="0",pid="1"} 0.5\nvllm:kv_cache_usage_perc{engine="0",pid="2"} 0.1\n'
        'vllm:request_success_total{finished_reason="stop"} 1\nvllm:request_success_total{finished_reason="length"} 1\n'
        'vllm:lora_requests_info{running_lora_adapters="a,b"} 1\nvllm:lora_requests_info{running_lora_adapters="a"} 2\n'
        + histogram("vllm:time_to_first_token_seconds", {"0.1": 1, "1": 2, "+Inf": 3}, 4, 'engine="0"')
        + histogram("vllm:time_to_first_token_seconds", {"0.1": 1, "1": 2, "+Inf": 3}, 4, 'engine="1"')
    )
    found = Read(body)
    return found.plan, len(found.values)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_many_instants_at_once_give_what_one_at_a_time_gives(data: st.DataObject) -> None:
    many_plan, size = _busy()
    t = data.draw(st.integers(1, 4))
    cell = st.one_of(
        st.integers(0, 50).map(float), st.just(math.nan), st.sampled_from([-1.0, math.inf, 9.3e18])
    )
    values = np.array(
        data.draw(st.lists(st.lists(cell, min_size=t, max_size=t), min_size=size, max_size=size))
    )
    values[2:4] = np.clip(
        values[2:4], -1, 1
    )  # ratios, so that no percentage is remembered from one instant to the next
    gauges, counts, sums = many_plan.apply_many(values)
    assert (counts >= -1).all()
    for i in range(t):
        g, n, s = _busy()[0].apply(values[:, i])
        assert np.array_equal(g, gauges[:, i], equal_nan=True)
        assert np.array_equal(n, counts[:, i])
        assert np.array_equal(s, sums[:, i], equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=3, max_size=3), st.lists(st.integers(0, 9), min_size=3, max_size=3)
)
def test_summed_buckets_are_the_buckets_of_the_sum(a: list[int], b: list[int]) -> None:
    def cumulative(x: list[int]) -> dict[str, int]:
        return dict(zip(("0.1", "1", "+Inf"), np.cumsum(x).tolist(), strict=True))

    name = "vllm:time_to_first_token_seconds"
    found = Read(
        histogram(name, cumulative(a), 1.5, 'engine="0"') + histogram(name, cumulative(b), 2.5, 'engine="1"')
    )
    assert found.one("ttft_seconds") == ((0.1, 1.0), [x + y for x, y in zip(a, b, strict=True)], 4.0)


def test_a_change_of_buckets_on_the_way_makes_one_column_per_layout() -> None:
    name = "vllm:time_to_first_token_seconds"
    series: list[tuple[str, dict[str, str]]] = [
        (f"{name}_bucket", {"le": le}) for le in ("1", "2", "5", "+Inf")
    ] + [
        (f"{name}_sum", {}),
        (f"{name}_count", {}),
    ]
    gap = math.nan
    values = np.array(
        [
            [1, 2, gap, 0, 1],  # 1
            [2, 3, gap, gap, gap],  # 2, until the restart
            [gap, gap, gap, 1, 3],  # 5, from the restart on
            [3, 5, gap, 2, 4],
            [4, 6, gap, 1, 3],
            [3, 5, gap, 2, 4],
        ],
        dtype=float,
    )
    found = plan(series, load_dictionary(), ClassRules(), Target("h"), present=~np.isnan(values))
    assert [c.edges for c in found.layout.columns] == [(1.0, 2.0), (1.0, 5.0)]
    _, counts, _ = found.apply_many(values)
    assert counts[:3].tolist() == [[1, 2, -1, -1, -1], [1, 1, -1, -1, -1], [1, 2, -1, -1, -1]]
    assert counts[3:].tolist() == [[-1, -1, -1, 0, 1], [-1, -1, -1, 1, 2], [-1, -1, -1, 1, 1]]


def test_series_without_a_sample_in_the_time_looked_at_claim_no_signal() -> None:
    series = [
        ("vllm:num_requests_running", {}),
        ("vllm:kv_cache_usage_perc", {}),
        ("vllm:gpu_cache_usage_perc", {}),
    ]
    values = np.array([[1.0, 2.0], [math.nan, math.nan], [0.5, 0.6]])
    found = plan(series, load_dictionary(), ClassRules(), Target("h"), present=~np.isnan(values))
    assert found.signals["kv_cache_usage_ratio"].families == ("vllm:gpu_cache_usage_perc",)
    assert found.apply_many(values)[0].tolist() == [[0.5, 0.6], [1.0, 2.0]]


# ---------------------------------------------------------------- strangers


def test_hostile_label_values_cannot_make_columns_without_end() -> None:
    body = VLLM + "".join(f'vllm:request_success_total{{finished_reason="r{i}"}} 1\n' for i in range(1000))
    found = Read(body)
    columns = found.columns("request_success_total")
    assert len(columns) == 257
    assert columns["finish_reason=other"] == 744
    assert sum(columns.values()) == 1000


def test_classes_from_labels_are_bounded() -> None:
    body = SGLANG + "".join(f'sglang:num_requests_total{{workload="w{i}"}} 1\n' for i in range(200))
    found = Read(body)
    assert len(found.classes("request_success_total")) == 51
    assert "other" in found.classes("request_success_total")


def test_a_histogram_of_thousands_of_edges_keeps_only_its_total() -> None:
    lines = "".join(f'vllm:time_to_first_token_seconds_bucket{{le="{i}"}} {i}\n' for i in range(2000))
    found = Read(
        VLLM
        + lines
        + 'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 2000\nvllm:time_to_first_token_seconds_sum 7\n'
    )
    assert found.columns("ttft_seconds") == {}
    assert (found.one("ttft_seconds_sum"), found.one("ttft_seconds_count")) == (7.0, 2000)
    assert found.plan.dropped["too_many_buckets"] == 2000


def test_a_target_of_fifty_thousand_mapped_series_stays_bounded() -> None:
    series = [
        (
            "dynamo_frontend_worker_active_prefill_tokens",
            {"worker_id": str(i % 250), "dp_rank": str(i // 250), "model": f"m{i % 3}"},
        )
        for i in range(50_000)
    ]
    found = plan(series, load_dictionary(), ClassRules(), Target("h"))
    assert len(found.layout.columns) == 5000
    assert found.dropped["too_many_columns"] > 0
    assert len(found.apply(np.ones(50_000))[0]) == 5000


_COMPONENTS = ("vllm", "sglang", "triton", "dcgm_exporter", "tgi")
_NAMES = sorted({n + x for c in _COMPONENTS for n in load_dictionary().lookup(c) for x in ("", "_x")})
_KEYS = (
    "le",
    "model_name",
    "engine",
    "dp_rank",
    "tp_rank",
    "priority",
    "pid",
    "mode",
    "status",
    "handler",
    "pool",
)
_SERIES = st.tuples(
    st.sampled_from(_NAMES),
    st.dictionaries(
        st.sampled_from(
            [
                "le",
                "model_name",
                "engine",
                "dp_rank",
                "tp_rank",
                "priority",
                "pid",
                "mode",
                "status",
                "handler",
                "pool",
            ]
        ),
        st.sampled_from(["", "0", "1", "+Inf", "0.5", "x", "NaN", "1.0"]),
        max_size=5,
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_SERIES, max_size=30), st.data())
def test_no_series_whatever_break_a_plan(
    series: list[tuple[str, dict[str, str]]], data: st.DataObject
) -> None:
    found = plan(series, load_dictionary(), ClassRules(), Target("h", labels={"pool": "0"}))
    cells = st.sampled_from([0.0, 1.0, -1.0, 2.5, 7.0, math.nan, math.inf, -math.inf, 9.3e18, 1e300])
    values = np.array(data.draw(st.lists(cells, min_size=len(series), max_size=len(series))), dtype=float)
    gauges, counts, sums = found.apply(values)
    assert (len(gauges), len(counts), len(sums)) == found.layout.size
    assert (counts >= -1).all()
    assert not np.isinf(gauges).any()
    found.problems(values)
    found.start(values)
