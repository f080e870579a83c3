"""Our scorer against the rules, and against the one that came with the labelled histories."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.score import Score, score
from tests.conftest import shared_folder

KINDS = ("kv_eviction_storm", "slow_replica", "degraded_generations", "wedged")


def true(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "slow_replica", "pool": "a", "replicas": ["a-1"], "classes": ["chat"], "start": 1000, "end": 2000,
        "load_correlated": None, "accept": [], "ttft_impact": None, **changes,
    }  # fmt: skip


def said(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "slow_replica", "severity": "page", "detected_at": 1100.0, "ended_at": None, "pools": ["a"],
        "replicas": ["a-1"], "load_correlated": None, **changes,
    }  # fmt: skip


def of(truths: list[dict[str, Any]], incidents: list[dict[str, Any]]) -> Score:
    return score({"scenario": "x", "start": 0, "end": 7200, "replicas": 4, "incidents": truths}, incidents)


def test_the_right_kind_in_the_right_place_is_right() -> None:
    got = of([true()], [said()])
    assert [(r.said, r.right, r.delay, r.overlap) for r in got.rows] == [("slow_replica", True, 100.0, 1.0)]
    assert got.false == []


def test_too_early_too_late_or_elsewhere_is_a_false_alarm() -> None:
    elsewhere, over = said(pools=["b"], replicas=["b-1"]), said(ended_at=999.0)
    for wrong in (said(detected_at=879.0), said(detected_at=2601.0), elsewhere, over):
        got = of([true()], [wrong])
        assert (got.rows[0].said, len(got.false)) == ("", 1)
    assert of([true()], [said(detected_at=880.0)]).rows[0].right


def test_twins_are_duplicates_and_wrong_kinds_false_alarms() -> None:
    got = of(
        [true()],
        [said(kind="wedged"), said(replicas=["a-1", "a-2"]), said(detected_at="1970-01-01T00:20:00Z")],
    )
    assert got.rows[0].delay == 200.0
    assert (got.duplicates, [f[1] for f in got.false]) == (1, ["wedged"])


def test_info_does_not_count_and_a_warning_before_the_harm_is_a_negative_delay() -> None:
    got = of(
        [true(ttft_impact=[1500, 1900])], [said(severity="info"), said(severity="ticket", detected_at=1400.0)]
    )
    assert (got.rows[0].delay, got.false) == (-100.0, [])


truths = st.builds(
    true,
    kind=st.sampled_from(KINDS),
    pool=st.sampled_from("ab"),
    replicas=st.lists(st.sampled_from(("a-1", "a-2", "b-1")), unique=True, min_size=1),
    start=st.integers(1000, 3000),
    end=st.integers(3000, 5000),
    load_correlated=st.sampled_from((True, False, None)),
    accept=st.lists(st.sampled_from(KINDS), max_size=1),
    ttft_impact=st.none() | st.tuples(st.integers(1000, 3000), st.integers(3000, 6000)).map(list),
)
answers = st.builds(
    said,
    kind=st.sampled_from(KINDS),
    severity=st.sampled_from(("info", "ticket", "page")),
    detected_at=st.integers(500, 6000),
    ended_at=st.none() | st.integers(500, 6000),
    pools=st.lists(st.sampled_from("ab"), unique=True),
    replicas=st.lists(st.sampled_from(("a-1:8000", "a-2", "b-1:8000")), unique=True),
    load_correlated=st.sampled_from((True, False, None)),
)


@given(st.lists(truths, max_size=3), st.lists(answers, max_size=5))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_both_scorers_agree(
    tmp_path: Path, incidents: list[dict[str, Any]], found: list[dict[str, Any]]
) -> None:
    folder = shared_folder()
    if folder is None or not (folder / "score.py").is_file():
        pytest.skip("the other scorer is not here")
    spec = importlib.util.spec_from_file_location("other_score", folder / "score.py")
    assert spec is not None
    assert spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    truth = {"scenario": "x", "start": 0, "end": 7200, "replicas": 4, "incidents": incidents}
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "found.json").write_text(json.dumps(found))
    want = other.score([(tmp_path, tmp_path / "found.json")])
    got = score(truth, found)
    assert {k: want[k] for k in got.summary()} == got.summary()
    rows = [(r["said"], r["right"], r["load"]) for r in want["rows"]]
    assert [(r.said or None, r.right, r.load) for r in got.rows] == rows
