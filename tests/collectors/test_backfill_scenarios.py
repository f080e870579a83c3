"""Back-fill of whole histories out of a real Prometheus: not one request is lost or counted twice, restarts included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.backfill import backfill
from collectors.dictionary import load_dictionary
from core.classes import ClassRules
from core.config_models import PrometheusSource
from core.roles import Roles
from sql.store import Store
from tests.collectors.prometheus_truth import (
    CLASSES,
    SELECTOR,
    class_of,
    count_samples,
    frame_sums,
    increases,
)
from tests.conftest import PrometheusStarter, Scenario

pytestmark = [pytest.mark.prometheus, pytest.mark.shared]

TTFT = ["vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count"]
BUCKETS = ["vllm:time_to_first_token_seconds_bucket", "sglang:time_to_first_token_seconds_bucket"]


@pytest.mark.parametrize("name", ["calm_deploy-11", "storm_preempt-11", "overload-11"])
def test_every_request_of_a_history_is_counted_once(
    name: str, scenario: Callable[[str], Scenario], prometheus: PrometheusStarter, tmp_path: Path
) -> None:
    history = scenario(name)
    with prometheus(history.tsdb) as url, Store.open(f"sqlite:///{tmp_path}/g.db") as store:
        source = PrometheusSource(url=url, selector=SELECTOR)
        result = backfill(
            store,
            source,
            load_dictionary(),
            ClassRules.from_config(CLASSES),
            Roles(),
            history.start,
            history.end,
        )
        frames = list(store.frames(history.start, history.end + 60))
        truth = increases(url, TTFT, history.start, history.end, class_of)
        buckets = increases(
            url, BUCKETS, history.start, history.end, lambda m: (class_of(m), m["job"], float(m["le"]))
        )
        samples = count_samples(url, SELECTOR, history.start, history.end)
        rolled = store.rollup_matrix("ttft_seconds", history.start - 60, history.end + 60)
    assert result.complete
    assert result.samples == samples
    assert result.targets == 22
    found: dict[str, int] = defaultdict(int)
    for (class_, _), counts in frame_sums(frames, "ttft_seconds").items():
        found[class_] += sum(counts)
    assert dict(found) == truth
    in_rollups: dict[str, int] = defaultdict(int)
    for key, (_, counts, _) in rolled.items():
        in_rollups[key[0]] += int(counts.sum())
    assert dict(in_rollups) == truth
    for (class_, edges), counts in frame_sums(frames, "ttft_seconds").items():
        job = {e for (c, j, e) in buckets if c == class_ and j == "vllm"} == {*edges, float("inf")}
        running = 0
        for edge, count in zip((*edges, float("inf")), counts, strict=True):
            running += count
            assert running == buckets[class_, "vllm" if job else "sglang", edge]
