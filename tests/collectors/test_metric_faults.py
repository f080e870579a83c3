"""Metric faults as they were reported in public: what is read, what is left out, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.doctor import examine
from core.buckets import quantile

SGLANG = 'engine_type="unified",model_name="m",tp_rank="0"'
VLLM = 'vllm:num_requests_running{model_name="m"} 3\n'


def sglang(**families: object) -> str:
    """One SGLang server's lines."""
    lines = {"num_running_reqs": 2, **families}
    return "".join(f"sglang:{k}{{{SGLANG}}} {v}\n" for k, v in lines.items())


@pytest.mark.parametrize(
    ("edges", "counts", "said"),
    [
        ((1.0, 10.0, 30.0, 60.0), (10, 400, 300, 200, 90), "≥ 60 s"),
        ((1.0, 5.0, 10.0), (100, 300, 400, 200), "≥ 10 s"),
        ((0.3, 0.5, 0.8), (5000, 0, 0, 0), "≤ 300 ms"),
    ],
)
def test_ho48_a_percentile_glued_to_the_first_or_last_edge_is_a_bound_and_no_number(
    edges: tuple[float, ...], counts: tuple[int, ...], said: str
) -> None:
    """Dashboards showed 60 s, 10,000 ms and 297 ms (= 0.99 × 0.3 s) for weeks."""
    found = quantile([(edges, np.asarray(counts))], 0.99)
    assert found.value is None
    assert found.text("s").startswith(said)


def test_ho49_one_line_that_is_no_number_costs_only_itself() -> None:
    """An idle server's ``fwd_occupancy NaN`` lost a client the whole scrape."""
    found = examine(sglang(fwd_occupancy="NaN", token_usage=0.3, generation_tokens_total=500))
    assert {"requests_running", "kv_cache_usage_ratio", "generation_tokens_total"} <= set(found["signals"])


def test_ho49_a_counter_that_is_minus_nan_is_a_gap() -> None:
    body = "llamacpp:requests_processing 1\nllamacpp:prompt_tokens_total -nan\nllamacpp:tokens_predicted_total 9\n"
    signals = examine(body)["signals"]
    assert signals["prompt_tokens_total"]["count"] is None
    assert signals["generation_tokens_total"]["count"] == 9


def test_ho50_the_hit_rate_comes_from_counters_where_the_gauge_is_zero() -> None:
    """The gauge is zeroed at every decode report and by health probes."""
    signals = examine(sglang(cache_hit_rate=0, prompt_tokens_total=48021, cached_tokens_total=31744))[
        "signals"
    ]
    assert signals["prefix_cache_hit_rate"]["used"] is False
    hits = (
        signals["prefix_cache_hit_tokens_total"]["count"]
        / signals["prefix_cache_queries_tokens_total"]["count"]
    )
    assert hits == pytest.approx(0.66, abs=0.01)


def test_ho51_names_before_and_after_an_upgrade_are_one_signal_and_an_absent_one_is_no_zero() -> None:
    hist = '{k}_bucket{{le="0.1",model_name="m"}} 3\n{k}_bucket{{le="+Inf",model_name="m"}} 3\n{k}_sum{{model_name="m"}} 0.1\n'
    old = examine(
        VLLM
        + 'vllm:gpu_cache_usage_perc{model_name="m"} 0.4\n'
        + hist.format(k="vllm:time_per_output_token_seconds")
    )
    new = examine(
        VLLM
        + 'vllm:kv_cache_usage_perc{model_name="m"} 0.4\n'
        + hist.format(k="vllm:inter_token_latency_seconds")
    )
    for found in (old, new):
        assert found["signals"]["kv_cache_usage_ratio"]["value"] == 0.4
        assert found["signals"]["inter_token_latency_seconds"]["count"] == 3
    gone = examine(VLLM)
    assert not {"kv_cache_usage_ratio", "inter_token_latency_seconds"} & set(gone["signals"])
    assert {"kv_cache_usage_ratio", "inter_token_latency_seconds"} <= {m["id"] for m in gone["missing"]}


def test_ho52_more_cached_than_prompt_tokens_is_an_impossible_count() -> None:
    """122,884 cached of 59,946: the share would be 205 %."""
    found = examine(
        sglang(prompt_tokens_total=59946, cached_tokens_total=122884, generation_tokens_total=7437)
    )
    assert any(
        "122" in p["message"] or "hits" in p["code"] or "hits" in p["message"] for p in found["problems"]
    ), found["problems"]


def test_ho53_created_and_clocks_are_no_measurements() -> None:
    """``_created`` typed as a gauge reads 1.75e9 s, and the adapters' gauge holds a clock, one series a combination."""
    body = (
        VLLM
        + '# TYPE vllm:prompt_tokens_created gauge\nvllm:prompt_tokens_created{model_name="m"} 1.7538e9\n'
        + 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1.7538e9\n'
        + 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters=""} 1.7539e9\n'
    )
    found = examine(body)
    assert found["signals"]["lora_info"]["value"] == 2, "the newest line names two adapters"
    assert {"reason": "created", "count": 1} in found["dropped"]
    numbers = [s.get("value") or s.get("count") or 0 for s in found["signals"].values()]
    assert max(numbers) < 1e6


def test_ho54_two_engines_add_up_and_their_ratios_do_not() -> None:
    """Two pods at 40 % were shown as 80 %, and two engine series were read as one."""
    body = "".join(
        f'vllm:num_requests_running{{engine="{i}",model_name="m"}} {n}\n'
        f'vllm:kv_cache_usage_perc{{engine="{i}",model_name="m"}} 0.4\n'
        for i, n in ((0, 3), (1, 5))
    )
    signals = examine(body)["signals"]
    assert signals["requests_running"]["value"] == 8
    assert signals["kv_cache_usage_ratio"]["value"] == 0.4
