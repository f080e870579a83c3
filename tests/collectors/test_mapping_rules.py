"""The fifteen normalisation rules on real bodies, one test a rule; the last part goes through the store."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.dictionary import load_dictionary
from collectors.exposition import parse
from collectors.mapping import plan
from collectors.plan import Plan
from collectors.scrape import ACCEPT
from core.classes import ClassRules
from core.frames import FloatArray, Reading, Target
from sql.store import Store

pytestmark = pytest.mark.shared


def read(shared: Path, name: str) -> tuple[Plan, FloatArray]:
    found = parse((shared / "captures" / f"{name}.prom").read_bytes())
    return plan(
        found.series, load_dictionary(), ClassRules(), Target("host:8000", pool="p", replica="r")
    ), found.values


def columns(shared: Path, name: str, signal: str) -> dict[str, Any]:
    """Values of a signal's columns by their labels but class; histograms as (number of observations, sum)."""
    found, values = read(shared, name)
    gauges, counts, sums = found.apply(values)
    out: dict[str, Any] = {}
    for c, (g, n, s) in zip(found.layout.columns, found.layout.slots, strict=True):
        if c.signal == signal:
            key = ",".join(f"{k}={v}" for k, v in c.labels if k != "class")
            one = {
                "gauge": lambda g=g: gauges[g][0],
                "counter": lambda n=n: counts[n][0],
                "sum": lambda s=s: sums[s][0],
            }
            out[key] = one[c.kind]() if c.kind in one else (int(counts[n].sum()), float(sums[s][0]))
    return out


def test_r1_both_spellings_of_one_server_give_the_same_columns(shared: Path) -> None:
    plain, values = read(shared, "sglang-0.5.18-gen-t1")
    mangled, others = read(shared, "sglang-0.5.18-gen-openmetrics")
    assert plain.layout == mangled.layout
    for a, b in zip(plain.apply(values), mangled.apply(others), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_r2_scrapes_ask_for_the_plain_text_format() -> None:
    assert ACCEPT == "text/plain;version=0.0.4"


def test_r3_counters_without_their_suffix_are_counters(shared: Path) -> None:
    assert columns(shared, "triton-24-datadog-fixture", "request_success_total")["model=densenet_onnx"] == 3
    assert columns(shared, "tgi-3.3.7-source-shape", "request_success_total") == {"": 44}


def test_r4_the_dictionary_is_believed_and_not_the_type_line(shared: Path) -> None:
    assert columns(shared, "production-stack-router-0.1.12-gen", "prefix_cache_queries_tokens_total") == {
        "": 1_620_000
    }
    found, _ = read(shared, "llamacpp-b10573-precision-reset")
    assert {c.kind for c in found.layout.columns if c.signal == "iteration_tokens_mean"} == {"gauge"}


def test_r5_created_gives_the_start_and_is_no_signal(shared: Path) -> None:
    found, values = read(shared, "vllm-0.10.0-production-stack617")
    assert found.start(values) == 1753795326.9356403
    assert found.layout.columns == ()


def test_r7_copies_per_process_do_not_add_up(shared: Path) -> None:
    found, values = read(shared, "vllm-0.11-2025-10-02-gen-multiproc-pid-t1")
    copies = [values[i] for i, n in enumerate(found.names) if n == "vllm:kv_cache_usage_perc"]
    assert len(copies) > 1
    assert columns(shared, "vllm-0.11-2025-10-02-gen-multiproc-pid-t1", "kv_cache_usage_ratio") == {
        "": max(copies)
    }


def test_r8_gauges_with_le_make_no_histogram(shared: Path) -> None:
    found, _ = read(shared, "sglang-0.5.18-gen-t1")
    assert not any(
        "routing_key" in f for c in found.signals.values() for f in c.families if "unique" not in f
    )


def test_r9_the_total_beside_its_parts_counts_once(shared: Path) -> None:
    assert columns(shared, "sglang-0.5.18-gen-t1", "requests_running") == {"rank=0": 5.0, "rank=1": 21.0}


def test_r10_sentinels_and_minus_one_are_gaps(shared: Path) -> None:
    assert math.isnan(
        columns(shared, "dcgm-exporter-4.8.2-readme", "gpu_temperature_celsius")["gpu=0,part=memory"]
    )
    (rate,) = columns(shared, "ray-vllm-0.6-datadog-fixture", "prefix_cache_hit_rate").values()
    assert math.isnan(rate)


def test_r11_other_bucket_sets_are_other_columns(shared: Path) -> None:
    old, _ = read(shared, "sglang-0.4.8-gen-t1")
    new, _ = read(shared, "sglang-0.5.18-gen-t1")

    def edges(found: Plan) -> set[tuple[float, ...]]:
        return {c.edges for c in found.layout.columns if c.signal == "request_latency_seconds"}

    assert edges(old).isdisjoint(edges(new))
    assert max(max(e) for e in edges(old)) == 800
    assert max(max(e) for e in edges(new)) == 2400


def test_r12_what_is_exported_under_two_names_counts_once(shared: Path) -> None:
    assert sum(columns(shared, "llmd-router-0.10-dual-emission", "request_success_total").values()) == 4
    usage = columns(shared, "vllm-0.10.0-gen-t1", "kv_cache_usage_ratio")
    assert len(usage) == 1


def test_r13_a_router_s_copies_are_not_an_engine(shared: Path) -> None:
    found, _ = read(shared, "production-stack-router-0.1.12-gen")
    assert found.components == ("production_stack_router",)
    worker, _ = read(shared, "live-dynamo-mocker-worker1-1.6.1-after")
    assert worker.components == ("dynamo_component", "vllm")
    assert worker.signals["request_latency_seconds"].families == ("vllm:e2e_request_latency_seconds",)


def test_r14_a_body_inside_a_json_string_reads_the_same(shared: Path) -> None:
    text = (shared / "captures" / "llamacpp-b5200-pr13196.prom").read_text()
    plain, wrapped = parse(text), parse(json.dumps(text))
    assert wrapped.series == plain.series
    assert np.array_equal(wrapped.values, plain.values)


def test_r15_time_stamps_of_samples_are_ignored(shared: Path) -> None:
    clocks = columns(shared, "ascend-npu-exporter-docs", "gpu_sm_clock_hz")
    assert clocks == {"gpu=0": 1e9}


# ---------------------------------------------------------------- R6, through the store


def increments(tmp_path: Path, readings: list[Reading]) -> tuple[Any, list[int]]:
    """The last frame that the store makes of successive readings, and the number of restarts it saw."""
    with Store.open(f"sqlite:///{tmp_path / 'g.db'}") as store:
        restarts = sum(len(store.append([r]).restarts) for r in readings)
        frames = list(store.frames(0, 1e12))
        return frames[-1], [restarts]


def reading(shared: Path, name: str, t: float) -> Reading:
    found, values = read(shared, name)
    gauges, counts, sums = found.apply(values)
    return Reading(found.target, t, found.layout, gauges, counts, sums, found.start(values))


def test_r6_one_falling_bucket_is_a_restart_of_the_whole_process(shared: Path, tmp_path: Path) -> None:
    before = reading(shared, "synthetic-counter-reset-1-before", 1_796_000_000)
    after = reading(shared, "synthetic-counter-reset-2-after", 1_796_000_015)
    for start in (after.start, None):  # with the start exported, and from the counts alone
        path = tmp_path / str(start)
        path.mkdir()
        first = Reading(
            before.target,
            before.t,
            before.layout,
            before.gauges,
            before.counts,
            before.sums,
            start and before.start,
        )
        then = Reading(after.target, after.t, after.layout, after.gauges, after.counts, after.sums, start)
        frame, restarts = increments(path, [first, then])
        assert frame.reset
        assert restarts == [1]
        assert frame.counts.tolist() == after.counts.tolist()
        assert frame.sums.tolist() == [400.0]


def test_r6_a_process_that_went_on_counts_only_what_is_new(shared: Path, tmp_path: Path) -> None:
    first = reading(shared, "live-vllm-0.32.0-before", 1_796_057_000)
    last = reading(shared, "live-vllm-0.32.0-after", 1_796_057_060)
    frame, restarts = increments(tmp_path, [first, last])
    assert restarts == [0]
    assert not frame.reset
    assert (frame.counts >= 0).all()
    ttft = next(i for i, c in enumerate(frame.layout.columns) if c.signal == "ttft_seconds")
    assert frame.counts[frame.layout.slots[ttft][1]].sum() == 200


def test_r6_a_real_restart_is_seen_and_loses_nothing(shared: Path, tmp_path: Path) -> None:
    before = reading(shared, "vllm-main-2026-08-17-gen-t1", 1_796_057_000)
    after = reading(shared, "vllm-main-2026-08-17-gen-restart", 1_796_057_060)
    assert before.start is not None
    assert after.start is not None
    assert after.start > before.start
    frame, restarts = increments(tmp_path, [before, after])
    assert restarts == [1]
    assert frame.counts.tolist() == after.counts.tolist()
