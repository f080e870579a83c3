"""The servers that other tests stand on do what they say."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PrometheusStarter, Scenario
from tests.servers import build_tsdb

pytestmark = pytest.mark.prometheus


def ask(url: str, query: str, at: float) -> list[dict[str, object]]:
    args = urllib.parse.urlencode({"query": query, "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{args}", timeout=10) as answer:
        result: list[dict[str, object]] = json.load(answer)["data"]["result"]
    return result


def test_a_tsdb_built_from_lines_is_answered_by_prometheus(
    tmp_path: Path, prometheus: PrometheusStarter
) -> None:
    tsdb = build_tsdb([f'x{{a="1"}} {i} {1_790_000_000 + 15 * i}' for i in range(8)], tmp_path / "tsdb")
    with prometheus(tsdb) as url:
        (row,) = ask(url, "x[1h]", 1_790_000_200)
    assert row["values"] == [[1_790_000_000 + 15 * i, str(i)] for i in range(8)]


@pytest.mark.shared
def test_a_scenario_holds_three_hours_of_eleven_replicas(
    scenario: Callable[[str], Scenario], prometheus: PrometheusStarter
) -> None:
    calm = scenario("calm-11")
    assert calm.end - calm.start == 3 * 3600
    with prometheus(calm.tsdb) as url:
        rows = ask(url, 'count by (job) (up{job=~"vllm|sglang|dcgm"})', calm.end - 60)
    assert {r["metric"]["job"]: r["value"][1] for r in rows} == {"vllm": "8", "sglang": "3", "dcgm": "11"}  # type: ignore[index]
