"""What the doctor says about one body: found, missing with the flag, ambiguous, dropped, problems."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.dictionary import load_dictionary
from collectors.doctor import examine
from collectors.exposition import Limits
from core.classes import ClassRules
from core.signals import SIGNALS

VLLM = 'vllm:num_requests_running{model_name="m"} 3\n'


def dropped(found: dict[str, Any]) -> dict[str, int]:
    return {d["reason"]: d["count"] for d in found["dropped"]}


def codes(found: dict[str, Any]) -> list[str]:
    return [p["code"] for p in found["problems"]]


def test_the_report_has_the_agreed_keys() -> None:
    found = examine(VLLM, name="h:8000")
    assert {
        "target",
        "components",
        "engine",
        "version",
        "signals",
        "missing",
        "ambiguous",
        "dropped",
        "problems",
    } <= set(found)
    assert found["target"] == "h:8000"
    assert found["model"] == "m"
    assert found["signals"]["requests_running"]["family"] == "vllm:num_requests_running"
    assert found["signals"]["requests_running"]["value"] == 3.0


def test_gauges_show_a_value_and_everything_else_a_count() -> None:
    body = VLLM + "vllm:prompt_tokens_total 7\n" + 'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 5\n'
    body += 'vllm:time_to_first_token_seconds_bucket{le="1"} 4\nvllm:time_to_first_token_seconds_sum 2\n'
    signals = examine(body)["signals"]
    assert signals["prompt_tokens_total"]["count"] == 7
    assert signals["ttft_seconds"]["count"] == 5
    assert "value" not in signals["ttft_seconds"]


def test_several_columns_show_as_one_number_joined_as_the_signal_says() -> None:
    body = "".join(
        f'vllm:num_requests_running{{engine="{i}"}} 2\nvllm:kv_cache_usage_perc{{engine="{i}"}} 0.4\n'
        for i in (0, 1)
    )
    signals = examine(body)["signals"]
    assert signals["requests_running"]["value"] == 4.0
    assert signals["kv_cache_usage_ratio"]["value"] == pytest.approx(0.4)


def test_what_is_missing_is_named_with_what_turns_it_on() -> None:
    found = examine("sglang:num_running_reqs 1\n")
    missing = {m["id"]: m for m in found["missing"]}
    assert missing["request_prompt_tokens"]["flag"] == "--collect-tokens-histogram"
    assert missing["spec_accept_length"]["flag"] == "--speculative-algorithm"
    assert missing["ttft_seconds"]["flag"] == "--enable-metrics"
    assert "per-request" in missing["time_per_output_token_seconds"]["reason"]
    assert "requests_running" not in missing


def test_every_component_says_something_about_what_it_lacks() -> None:
    for component in load_dictionary().components.values():
        for id in component.absent:
            assert id not in component.signals, (component.component, id)


def test_ambiguity_is_two_families_of_equal_standing() -> None:
    body = (
        VLLM + "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\nvllm:num_preemptions_total 1\n"
    )
    body += "vllm:request_num_preemptions_sum 1\nvllm:request_num_preemptions_count 1\n"
    found = examine(body)
    assert [a["id"] for a in found["ambiguous"]] == ["kv_cache_usage_ratio"]
    assert found["ambiguous"][0]["also"] == ["vllm:gpu_cache_usage_perc"]
    assert dropped(found)["second_source"] == 3


def test_dropped_samples_are_counted_by_reason() -> None:
    body = (
        VLLM
        + "...\nvllm:prompt_tokens_created 1.7e9\npython_info 1\nvllm:request_params_n_sum 1\nstrange 1\n"
    )
    found = examine(body)
    assert dropped(found) == {"bad_line": 1, "created": 1, "known_unused": 2, "unmapped": 1}
    assert found["unused"] == ["strange"]


def test_an_unknown_body_is_said_to_be_unknown() -> None:
    found = examine("node_load1 0.5\n")
    assert (found["components"], found["engine"]) == (["unknown"], "unknown")
    assert codes(found) == ["unknown_component"]
    assert found["signals"] == {}
    assert found["missing"] == []


@pytest.mark.parametrize("body", [b"", b"<html></html>", b'{"a": 1}', b"\x00\xff" * 50, b'"x'])
def test_a_body_that_is_no_exposition_is_a_problem_and_no_crash(body: bytes) -> None:
    found = examine(body)
    assert found["components"] == ["unknown"]
    assert found["problems"]


def test_the_engine_of_a_worker_is_the_one_inside() -> None:
    found = examine("dynamo_component_uptime_seconds 1\nvllm:num_requests_running 1\n")
    assert found["components"] == ["dynamo_component", "vllm"]
    assert found["engine"] == "vllm"


def test_a_gauge_not_to_be_believed_is_shown_as_not_used() -> None:
    found = examine('sglang:cache_hit_rate{name="m"} 87.58777633289988\n')
    rate = found["signals"]["prefix_cache_hit_rate"]
    assert rate["value"] == pytest.approx(0.8758777633)
    assert rate["used"] is False
    assert "hits over queries" in rate["note"]


def test_a_family_without_the_series_that_would_mean_the_signal_has_no_number() -> None:
    found = examine('vllm:request_success_total{finished_reason="stop"} 5\n')
    assert found["signals"]["errors_total"]["count"] is None
    assert "finished_reason=error" in found["signals"]["errors_total"]["note"]


def test_hidden_aborts_are_derived_and_say_what_they_need() -> None:
    handler = 'http_requests_total{handler="/v1/completions"'
    answered = f'{handler},status="2xx"}} 200\n{handler},status="5xx"}} 9\n'
    finished = 'vllm:request_success_total{finished_reason="stop"} 188\n'
    aborted = examine(VLLM + answered + finished)["signals"]["aborted_total"]
    assert aborted["count"] == 12
    assert "2xx" in aborted["derived"]
    part = examine(VLLM + answered)["signals"]["aborted_total"]
    assert part["count"] is None
    assert part["needs"] == ["request_success_total"]


def test_limits_apply_to_the_doctor_too() -> None:
    found = examine(VLLM + "vllm:num_requests_waiting 1\n", limits=Limits(max_series=1))
    assert dropped(found) == {"too_many_series": 1}
    assert set(found["signals"]) == {"requests_running"}


def test_class_rules_are_used_as_given() -> None:
    rules = ClassRules.from_config([{"name": "chat", "match": ['workload="chat"']}])
    found = examine('sglang:num_requests_total{workload="chat"} 1\n', classes=rules)
    assert found["signals"]["request_success_total"]["count"] == 1


def test_derived_forms_are_named() -> None:
    found = examine("nv_inference_request_success 4\nnv_inference_request_duration_us 2000000\n")
    latency = found["signals"]["request_latency_seconds"]
    assert latency["count"] == 4
    assert latency["forms"] == ["request_latency_seconds_count", "request_latency_seconds_sum"]


_LINE = st.sampled_from(
    [
        "vllm:num_requests_running 3",
        'vllm:time_to_first_token_seconds_bucket{le="1"} 5',
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} NaN',
        "vllm:time_to_first_token_seconds_sum -Inf",
        "sglang:token_usage 4200",
        "DCGM_FI_DEV_XID_ERRORS 9223372036854775794",
        'nv_inference_request_failure{reason="OTHER"} -4',
        "tgi_batch_current_max_tokens 5",
        "tgi_batch_max_total_tokens 0",
        'dynamo_frontend_requests_total{status="success"} 1e400',
        "...",
        'a{b="',
        "process_start_time_seconds NaN",
        'vllm:lora_requests_info{running_lora_adapters="a"} NaN',
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_LINE, max_size=14), st.sampled_from(["\n", "\r\n"]))
def test_no_mixture_of_lines_makes_the_doctor_raise_or_show_what_is_no_number(
    lines: list[str], end: str
) -> None:
    found = examine(end.join(lines) + end)
    json.dumps(found, allow_nan=False)
    assert set(found["signals"]) <= set(SIGNALS)


def test_a_prometheus_server_itself_is_told_from_an_engine() -> None:
    found = examine('prometheus_build_info{version="3.1"} 1\nprometheus_engine_queries 0\n')
    (problem,) = found["problems"]
    assert problem["code"] == "unknown_component"
    assert "prometheus: {url: ...}" in problem["fix"]
