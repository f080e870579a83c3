"""The simulated engines show what the real ones show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.doctor import examine
from collectors.exposition import parse
from fleet.faces.common import Split
from fleet.faces.dcgm import DcgmFace
from fleet.faces.dynamo import DynamoFrontendFace, DynamoWorkerFace
from fleet.faces.gateway import GatewayFace
from fleet.faces.numbers import go_number, plain_number, python_number
from fleet.faces.page import Page
from fleet.faces.sglang import SglangFace
from fleet.faces.telemetry import body_of, families_of
from fleet.faces.trtllm import TrtllmFace
from fleet.faces.vllm import VllmFace
from fleet.model import Attempt, BlockEvents, GatewayState
from tests.conftest import shared_folder
from tests.fleet.replicas import pool, replica, serve

FACES = {"vllm": VllmFace, "sglang": SglangFace, "tensorrt_llm": TrtllmFace, "dynamo": DynamoWorkerFace}


def shown(engine: Any, requests: int = 3, aborted: int = 0, **changes: Any) -> tuple[Any, Any]:
    spec = pool(engine, **changes)
    state = replica(spec)
    face = FACES[engine](spec, state)
    serve(state, requests, aborted)
    for e in state.engines:
        face.observe(e, e.observations.drain())
    face.refresh(state, 1015.0)
    return face, state


def value(text: str, name: str, **labels: str) -> float:
    found = parse(text)
    for (n, have), v in zip(found.series, found.values, strict=True):
        if n == name and labels.items() <= dict(have).items():
            return float(v)
    return math.nan


def capture(name: str) -> dict[str, Any]:
    folder = shared_folder()
    if folder is None or not (folder / "captures" / name).is_file():
        pytest.skip(f"the capture {name} is not here")
    return examine((folder / "captures" / name).read_bytes(), name=name)


# ------------------------------------------------------------------------------------------------- real captures


@pytest.mark.parametrize(
    ("engine", "changes", "names", "options"),
    [
        (
            "vllm",
            {},
            ("live-vllm-0.32.0-after.prom",),
            {"admission_rejections_total"},
        ),
        (
            "sglang",
            {"host_cache_tokens": 1000, "max_loras": 4},
            ("sglang-0.5.18-gen-t1.prom",),
            {"http_requests_in_flight"},
        ),
        ("vllm", {"version": "0.11.0"}, ("vllm-0.11-2025-10-02-gen-t1.prom",), set()),
        ("dynamo", {}, ("live-dynamo-mocker-worker1-1.6.1-after.prom",), {"admission_rejections_total"}),
    ],
)
def test_the_doctor_finds_on_a_simulated_engine_what_it_finds_on_the_real_one(
    engine: str, changes: dict[str, Any], names: tuple[str, ...], options: set[str]
) -> None:
    """``options``: what the captured server had switched on and the simulated one has not."""
    ours = examine(shown(engine, aborted=1, **changes)[0].page.text())
    for name in names:
        real = capture(name)
        assert set(ours["components"]) == set(real["components"])
        assert set(real["signals"]) - set(ours["signals"]) <= options
        for id in set(real["signals"]) & set(ours["signals"]):
            # metrics executed without an HTTP front end, and imitations, lack what is read first for these
            lacking = id in ("errors_total", "aborted_total", "request_success_total") and (
                "gen" in name or "mocker" in name
            )
            if real["signals"][id].get("families") and not lacking:
                assert ours["signals"][id]["family"] == real["signals"][id]["family"], id


def test_bucket_edges_are_those_of_the_real_server() -> None:
    folder = shared_folder()
    if folder is None:
        pytest.skip("the captures are not here")
    for engine, file in (("vllm", "live-vllm-0.32.0-after.prom"), ("sglang", "sglang-0.5.18-gen-t1.prom")):
        real = edges(parse((folder / "captures" / file).read_bytes()).series)
        ours = edges(parse(shown(engine, max_model_len=1024, host_cache_tokens=9)[0].page.text()).series)
        common = real.keys() & ours.keys()
        assert len(common) >= 8
        assert {n: ours[n] for n in common} == {n: real[n] for n in common}


def edges(series: Any) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name, labels in series:
        le = dict(labels).get("le")
        if le is not None and name.endswith("_bucket") and le not in out.setdefault(name, []):
            out[name].append(le)
    return out


@pytest.mark.parametrize("engine", list(FACES))
def test_no_family_of_a_face_is_unknown_and_no_value_impossible(engine: str) -> None:
    found = examine(shown(engine, aborted=1)[0].page.text())
    # the buckets of a histogram whose sum and count would do are not read on the real one either
    assert set(found["unused"]) <= {"vllm:request_num_preemptions_bucket"}
    assert found["problems"] == []
    assert found["components"] != ["unknown"]


# ------------------------------------------------------------------------------------------------------ oddities


def test_vllm_hides_clients_that_leave() -> None:
    text = shown("vllm", requests=8, aborted=3)[0].page.text()
    assert value(text, "vllm:request_success_total", finished_reason="abort") == 0
    assert value(text, "http_requests_total", status="2xx") == 11
    assert value(text, "vllm:request_success_total", finished_reason="stop") == 8
    assert value(text, "vllm:time_to_first_token_seconds_count") == 11
    assert value(text, "vllm:e2e_request_latency_seconds_count") == 8
    assert examine(text)["signals"]["aborted_total"]["count"] == 3


def test_sglang_counters_move_when_a_request_finishes_and_realtime_ones_before() -> None:
    spec = pool("sglang")
    state = replica(spec)
    face = SglangFace(spec, state)
    serve(state, 0, 2)
    face.observe(state.engines[0], state.engines[0].observations.drain())
    face.refresh(state, 1010.0)
    text = face.page.text()
    assert math.isnan(value(text, "sglang:prompt_tokens_total"))
    assert value(text, "sglang:realtime_tokens_total", mode="decode") == 40
    assert value(text, "sglang:num_aborted_requests_total") == 2
    serve(state, 1)
    face.observe(state.engines[0], state.engines[0].observations.drain())
    face.refresh(state, 1020.0)
    text = face.page.text()
    assert value(text, "sglang:prompt_tokens_total", workload="chat", is_streaming="true") == 100
    assert value(text, "sglang:generation_tokens_total", workload="chat") == 20


def test_sglang_hit_rate_gauge_is_zero_while_it_decodes() -> None:
    face, state = shown("sglang")
    state.engines[0].gauges.update(running=3.0, hit_rate_last=0.8)
    face.refresh(state, 1020.0)
    assert value(face.page.text(), "sglang:cache_hit_rate") == 0


def test_sglang_queues_show_a_total_beside_the_priorities() -> None:
    face, state = shown("sglang")
    engine = state.engines[0]
    engine.gauges["running"] = 5.0
    engine.running_by_workload = {"chat": 3, "batch": 2}
    face.refresh(state, 1020.0)
    text = face.page.text()
    assert value(text, "sglang:num_running_reqs", priority="0") == 3
    assert value(text, "sglang:num_running_reqs", priority="10") == 2
    assert value(text, "sglang:num_running_reqs", priority="") == 5
    assert examine(text)["signals"]["requests_running"]["value"] == 5


def test_only_vllm_shows_when_its_process_began() -> None:
    assert value(shown("vllm")[0].page.text(), "process_start_time_seconds") == 1000
    assert "_created{" in shown("vllm")[0].page.text()
    for engine in ("sglang", "dynamo"):
        text = shown(engine)[0].page.text()
        assert "_created" not in text
        assert "process_start" not in text


def test_edges_are_spelled_as_each_exporter_spells_them() -> None:
    assert 'le="1.0"' in shown("vllm")[0].page.text()
    assert 'le="1"' in shown("dynamo")[0].page.text()


def test_tensorrt_llm_skips_observations_of_zero() -> None:
    spec = pool("tensorrt_llm")
    state = replica(spec)
    face = TrtllmFace(spec, state)
    serve(state, 2)
    for f in state.engines[0].observations.finishes:
        f.queue = 0.0
    face.observe(state.engines[0], state.engines[0].observations.drain())
    face.refresh(state, 1010.0)
    text = face.page.text()
    assert "trtllm_request_queue_time_seconds" not in text
    assert value(text, "trtllm_e2e_request_latency_seconds_count") == 2


def test_inter_token_latency_means_gaps_for_vllm_and_tokens_for_sglang() -> None:
    """8 gaps of 20 ms brought 20 tokens: 8 observations of 20 ms there, 20 of 8 ms here."""
    vllm, sglang = shown("vllm", 1)[0].page.text(), shown("sglang", 1)[0].page.text()
    assert value(vllm, "vllm:inter_token_latency_seconds_count") == 8
    assert value(vllm, "vllm:inter_token_latency_seconds_sum") == pytest.approx(0.16)
    assert value(sglang, "sglang:inter_token_latency_seconds_count") == 20
    assert value(sglang, "sglang:inter_token_latency_seconds_sum") == pytest.approx(0.16)
    assert value(sglang, "sglang:inter_token_latency_seconds_bucket", le="0.008") == 20


def test_old_vllm_exports_less() -> None:
    old, new = (examine(shown("vllm", version=v)[0].page.text()) for v in ("0.11.0", "0.32.0"))
    gone = {m["id"] for m in old["missing"]} - {m["id"] for m in new["missing"]}
    assert {"requests_waiting_by_reason", "prompt_tokens_by_source", "kv_block_lifetime_seconds"} <= gone


def test_one_block_in_a_hundred_is_followed() -> None:
    spec = pool("vllm")
    state = replica(spec)
    face = VllmFace(spec, state)
    state.engines[0].observations.blocks += [BlockEvents(1.0, "evict", 60.0, 20.0, 30) for _ in range(20)]
    face.observe(state.engines[0], state.engines[0].observations.drain())
    assert value(face.page.text(), "vllm:kv_block_lifetime_seconds_count") == 6


def test_a_gpu_that_fell_off_the_bus_has_no_lines() -> None:
    state = replica(pool())
    face = DcgmFace(state)
    state.gpus[0].xid = 79
    face.refresh(state)
    assert value(face.page.text(), "DCGM_FI_DEV_XID_ERRORS") == 79
    assert examine(face.page.text())["components"] == ["dcgm_exporter"]
    state.gpus[0].present = False
    face.refresh(state)
    assert len(face.gone) == face.page.size


def test_throttling_by_heat_and_by_power_are_counted_apart() -> None:
    state = replica(pool())
    face = DcgmFace(state)
    gpu = state.gpus[0]
    gpu.throttle, gpu.throttle_seconds = frozenset({"thermal"}), 5.0
    face.refresh(state)
    gpu.throttle, gpu.throttle_seconds = frozenset({"power"}), 7.0
    face.refresh(state)
    text = face.page.text()
    assert value(text, "DCGM_FI_DEV_THERMAL_VIOLATION") == 5e9
    assert value(text, "DCGM_FI_DEV_POWER_VIOLATION") == 2e9


def test_the_front_end_counts_a_client_that_left_as_cancelled() -> None:
    face = DynamoFrontendFace(0.0)
    for status in (200, 200, 499, 503):
        face.observe_attempt(attempt(status), "m")
    face.refresh({"m": (2.0, 1.0)}, {"m": pool("dynamo")}, 10.0)
    found = examine(face.page.text())
    assert found["components"] == ["dynamo_frontend"]
    assert found["signals"]["request_success_total"]["count"] == 2
    assert found["signals"]["aborted_total"]["count"] == 1
    assert found["signals"]["errors_total"]["count"] == 1


def attempt(status: int) -> Attempt:
    ttft = 0.3 if status == 200 else None
    return Attempt(5.0, "chat", "acme", "p", "p-0:8000", status, ttft, 2.0, 100, 20, "s", 0, 0, "a")


def test_the_gateway_times_only_what_was_answered() -> None:
    face = GatewayFace({"p": "m"}, 0.0)
    face.observe([attempt(200), attempt(200), attempt(502)])
    face.refresh(GatewayState(healthy={"p": False}))
    text = face.page.text()
    found = examine(text)
    assert found["components"] == ["litellm"]
    assert value(text, "litellm_request_total_latency_metric_count") == 2
    assert value(text, "litellm_proxy_failed_requests_metric_total", exception_status="502") == 1
    assert value(text, "litellm_deployment_state") == 2


# ------------------------------------------------------------------------------------------------- what is wrong


def test_signals_can_be_dropped_blanked_or_made_impossible() -> None:
    page = shown("vllm")[0].page
    assert "vllm:time_to_first_token_seconds" in families_of("ttft")
    assert "time_to_first_token" not in body_of(page, {"drop": ["ttft"]})
    assert math.isnan(value(body_of(page, {"nan": ["kv_usage"]}), "vllm:kv_cache_usage_perc"))
    assert value(body_of(page, {"negative": ["running"]}), "vllm:num_requests_running") == -1
    assert body_of(page, {}) == page.text()


def test_a_saturated_histogram_has_no_edges_for_what_is_slow() -> None:
    text = body_of(shown("vllm")[0].page, {"saturate": True})
    last = edges(parse(text).series)["vllm:time_to_first_token_seconds_bucket"]
    assert last[-2:] == ["0.25", "+Inf"]


# --------------------------------------------------------------------------------------------------------- pages


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(1, 50)), max_size=40))
def test_a_histogram_counts_every_observation_in_its_bucket(seen: list[tuple[float, int]]) -> None:
    page = Page()
    hist = page.histogram("h", {}, (0.1, 1.0, 10.0))
    for v, n in seen:
        hist.observe([v], [float(n)])
    got = page.snapshot()
    want = [sum(n for v, n in seen if v <= e) for e in (0.1, 1.0, 10.0, math.inf)]
    assert got[:4].tolist() == want
    assert got[4] == pytest.approx(sum(v * n for v, n in seen))
    assert got[5] == want[-1]


def test_a_page_writes_again_only_what_moved_and_never_something_old() -> None:
    page = Page()
    for i in range(5):
        page.counter("c_total", {"i": str(i)}, i)
    first = page.text()
    assert page.text() is first
    page.counter("c_total", {"i": "3"}, 7)
    page.gauge("g", {"of": 'a "b"\n'}, 0.5)
    text = page.text()
    assert value(text, "c_total", i="3") == 7
    assert value(text, "c_total", i="4") == 4
    assert r'g{of="a \"b\"\n"} 0.5' in text


def test_a_page_can_be_given_a_past() -> None:
    page = Page()
    page.counter("c_total", {}, 5)
    page.gauge("g", {}, 1)
    page.carry(np.asarray([100.0]))
    page.counter("d_total", {}, 2)
    assert page.snapshot().tolist() == [105, 1, 2]
    assert value(page.text(), "c_total") == 105
    assert page.cumulative.tolist() == [True, False, True]


@given(st.floats(allow_nan=False, allow_infinity=False, width=64).map(abs))
def test_every_spelling_of_a_number_is_that_number(x: float) -> None:
    assert float(python_number(x)) == x
    assert float(go_number(x)) == x
    assert float(plain_number(x)) == pytest.approx(x, rel=1e-9, abs=1e-11)


def test_numbers_are_spelled_as_the_clients_do() -> None:
    spelled = [python_number(x) for x in (1.0, 2097152.0, 1e6, 0.1, math.inf)]
    assert spelled == ["1.0", "2.097152e+06", "1e+06", "0.1", "+Inf"]
    assert [plain_number(x) for x in (1.0, 0.0000025, 1e6)] == ["1", "0.0000025", "1000000"]


@given(st.lists(st.integers(0, 200), max_size=20), st.floats(0.05, 0.98), st.integers(1, 6))
def test_parts_of_a_counter_add_up_and_never_fall(steps: list[int], ratio: float, parts: int) -> None:
    split, total, before = Split(parts), 0, [0] * parts
    for step in steps:
        total += step
        now = list(split.to(total, ratio))
        assert sum(now) == total
        assert all(a >= b for a, b in zip(now, before, strict=True))
        before = now


def test_a_page_may_have_any_number_of_series() -> None:
    page = Page()
    for i in range(1000):
        page.gauge("g", {"i": str(i)}, float(i))
        page.counter("c_total", {"i": str(i)}, 2.0 * i)
        page.add("d_total", {"i": str(i)}, 3.0)
    found = parse(page.text())
    values = {(n, dict(labels)["i"]): v for (n, labels), v in zip(found.series, found.values, strict=True)}
    assert len(values) == 3000
    assert values["g", "256"] == 256.0
    assert values["c_total", "999"] == 1998.0
    assert {v for (n, _), v in values.items() if n == "d_total"} == {3.0}


def test_the_dictionaries_stand_where_the_faces_look_for_them() -> None:
    from fleet.faces.telemetry import ENGINES

    assert (Path(ENGINES) / "vllm.yaml").is_file()
