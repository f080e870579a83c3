"""The labelled histories, scored by the scorer that comes with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import NAMES, Run

pytestmark = [pytest.mark.shared, pytest.mark.prometheus, pytest.mark.timeout(900)]
FAULTS = {
    "garble_load-11": "degraded_generations",
    "garble_replica-11": "degraded_generations",
    "storm_load-11": "kv_eviction_storm",
    "storm_preempt-11": "kv_eviction_storm",
}


def score(shared: Path, one: Run) -> dict[str, Any]:
    argv = [
        sys.executable,
        str(shared / "score.py"),
        str(one.scenario.folder),
        str(one.incidents_file),
        "--json",
    ]
    return dict(json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_is_found_with_its_kind_its_pool_and_its_replicas(
    name: str, run: Callable[[str], Run], shared: Path
) -> None:
    result = score(shared, run(name))
    row = result["rows"][0]
    assert row["found"], result
    assert row["said"] == FAULTS[name]
    assert row["right"], row
    assert row["load"] in (True, None), row
    assert result["false_alarms"] == 0, result["false"]
    assert result["duplicates"] == 0, result


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("calm")])
def test_a_calm_history_raises_nothing(name: str, run: Callable[[str], Run], shared: Path) -> None:
    result = score(shared, run(name))
    assert result["false_alarms"] == 0, result["false"]


@pytest.mark.parametrize("name", ["storm_load-11"])
def test_a_storm_names_what_it_is_not_and_what_to_do(name: str, run: Callable[[str], Run]) -> None:
    storm = next(i for i in run(name).incidents if i["kind"] == "kv_eviction_storm")
    assert len(storm["ruled_out"]) >= 3
    assert all(r["test"] and r["result"] for r in storm["ruled_out"])
    assert len(storm["evidence"]) >= 3
    assert storm["detail"]["actions"]["now"]
    times = [link["at"] for link in storm["detail"]["chain"]]
    assert times == sorted(times)
