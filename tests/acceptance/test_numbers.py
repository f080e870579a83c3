"""Numbers on screen against independent ones: Prometheus's own quantile, and the gateway log read line by line."""

from __future__ import annotations

import io
import json
import math
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from app.services.slos import rows as slo_rows
from app.services.view import View
from core.buckets import quantile
from core.config import load_config
from sql.store import Store
from tests.acceptance.conftest import Run
from tests.conftest import PrometheusStarter

pytestmark = [pytest.mark.shared, pytest.mark.prometheus, pytest.mark.timeout(900)]
SCENARIO = "storm_load-11"
FAMILIES = {
    ("coding-agent", "vllm"): 'vllm:time_to_first_token_seconds_bucket{pool="coder-a"}',
    ("chat", "vllm"): 'vllm:time_to_first_token_seconds_bucket{pool="chat-a"}',
    ("chat", "sglang"): 'sglang:time_to_first_token_seconds_bucket{workload="chat"}',
    ("coding-agent", "sglang"): 'sglang:time_to_first_token_seconds_bucket{workload="coding-agent"}',
    ("batch", "sglang"): 'sglang:time_to_first_token_seconds_bucket{workload="batch"}',
}


def ask(url: str, promql: str, at: float) -> list[dict[str, object]]:
    query = urllib.parse.urlencode({"query": promql, "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=30) as answer:
        return list(json.load(answer)["data"]["result"])


def test_p99_per_class_and_layout_agrees_with_prometheus_within_the_bucket(
    run: Callable[[str], Run], prometheus: PrometheusStarter
) -> None:
    one = run(SCENARIO)
    start, end = one.scenario.start + 3600, one.scenario.start + 7200
    with Store.open(one.database, read_only=True) as store:
        stored = store.rollup_matrix("ttft_seconds", start, end, step=60)
    with prometheus(one.scenario.tsdb) as url:
        compared = 0
        for (name, engine), selector in FAMILIES.items():
            result = ask(url, f"histogram_quantile(0.99, sum by (le) (increase({selector}[1h])))", end)
            theirs = float(result[0]["value"][1])  # type: ignore[index]
            first_edge = 0.001 if engine == "vllm" else 0.1
            mine: dict[tuple[float, ...], np.ndarray] = {}
            for key, (_, counts, _) in stored.items():
                if key[0] == name and key[-1][0] == first_edge:
                    mine[key[-1]] = mine.get(key[-1], 0) + counts.sum(axis=0)
            ((edges, counts),) = mine.items()
            ours = quantile([(edges, counts)], 0.99)
            assert ours.value is not None, (name, engine, ours)
            grid = np.array(edges)
            # increase() extrapolates by up to a scrape at either end: the same bucket or, on its very edge, the next.
            there, here = (int(np.searchsorted(grid, v * (1 - 1e-9))) for v in (theirs, ours.value))
            share = 1 - counts.cumsum() / counts.sum()
            on_edge = min(abs(share[: len(grid)] - 0.01)) < 2e-4
            assert there == here or (on_edge and abs(there - here) == 1), (name, engine, theirs, ours)
            compared += 1
    assert compared == len(FAMILIES)


def truth(
    log: Path, threshold: dict[str, float], start: float, end: float
) -> dict[str, tuple[int, int, int]]:
    """Good, bad and excluded attempts of each class, straight from the lines."""
    classes = {"coder-a": "coding-agent", "chat-a": "chat"}
    out = {name: [0, 0, 0] for name in threshold}
    with log.open("rb") as packed:
        reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed)
        for line in io.TextIOWrapper(reader, encoding="utf-8"):
            row = json.loads(line)
            if not start <= row["ts"] < end:
                continue
            name = classes.get(row["pool"], row["workload"])
            limit = threshold[name]
            ttft = row.get("ttft_s")
            if row["status"] == 200:
                verdict = 0 if ttft is not None and ttft <= limit else 1
            elif row["status"] == 499:
                age = ttft if ttft is not None else row["duration_s"]
                verdict = 1 if age > limit else 2
            else:
                verdict = 1
            out[name][verdict] += 1
    return {name: (v[0], v[1], v[2]) for name, v in out.items()}


@pytest.mark.parametrize("name", [SCENARIO, "overload-11", "calm_deploy-11"])
def test_attainment_from_the_gateway_log_is_that_of_the_log_read_line_by_line(
    name: str, run: Callable[[str], Run]
) -> None:
    one = run(name)
    start, end = one.scenario.start, math.floor(one.scenario.end / 60) * 60
    expected = truth(one.scenario.gateway, {"coding-agent": 5.0, "chat": 1.0, "batch": 5.0}, start, end)
    with Store.open(one.database, read_only=True) as store:
        shown = slo_rows(store, View(start, end, live=False), load_config(one.config))
    assert {row.config.class_ for row in shown} == set(expected)
    for row in shown:
        good, bad, excluded = expected[row.config.class_]
        tally = row.attainment.tally
        assert row.point == "gateway"
        assert (tally.good, tally.bad, tally.excluded) == (good, bad, excluded), row.config.name
        assert row.attainment.low <= good / (good + bad) <= row.attainment.high


@pytest.mark.parametrize("name", [SCENARIO, "overload-11", "calm-11"])
def test_attainment_from_the_engines_alone_holds_the_truth_of_the_gateway_log(
    name: str, run: Callable[[str], Run]
) -> None:
    one = run(name)
    start, end = one.scenario.start, math.floor(one.scenario.end / 60) * 60
    with Store.open(one.database, read_only=True) as store:
        shown = slo_rows(store, View(start, end, live=False), load_config(one.config))
    for row in shown:
        assert row.other is not None, "the engine's own attainment stands beside the gateway's"
        truth_here = row.attainment.low
        assert row.other.low - 2e-3 <= truth_here <= row.other.high + 2e-3, (
            row.config.name,
            row.other.text(),
        )
