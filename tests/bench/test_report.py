"""Figures of a sweep: intervals, what counts as right, unknown or confidently wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bench.judged import Judged, counted
from bench.report import CALM, NOTHING, Total, by_scenario, confusion, exact_interval, markdown, poisson_upper

SPAN = {"start": 0, "end": 7200, "replicas": 4}


def true(kind: str = "slow_replica", **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind, "pool": "a", "replicas": ["a-1"], "classes": ["chat"], "start": 1000, "end": 2000,
        "load_correlated": None, "accept": [], "ttft_impact": None, **changes,
    }  # fmt: skip


def said(kind: str = "slow_replica", confidence: float = 0.9, **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind, "severity": "page", "detected_at": 1100.0, "diagnosed_at": 1100.0, "ended_at": None,
        "pools": ["a"], "replicas": ["a-1"], "load_correlated": None, "confidence": confidence, **changes,
    }  # fmt: skip


def judged(name: str, truths: list[dict[str, Any]], found: list[dict[str, Any]], seed: int = 1) -> Judged:
    return Judged(name, seed, {"scenario": name, **SPAN, "incidents": truths}, found)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_of_a_share_is_clopper_and_pearsons(k_n: tuple[int, int]) -> None:
    k, n = k_n
    theirs = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    assert exact_interval(k, n) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@pytest.mark.parametrize(("k", "bound"), [(0, 2.9957), (1, 4.7439), (5, 10.513)])
def test_the_bound_of_a_rate_is_the_exact_poisson_one(k: int, bound: float) -> None:
    assert poisson_upper(k) == pytest.approx(bound, abs=1e-3)


def test_right_wrong_and_false_are_told_apart() -> None:
    total = Total.of(
        [
            judged("x", [true()], [said()]),
            judged("y", [true()], [said("wedged", 0.85)]),
            judged("z", [true()], []),
            judged("calm", [], [said("wedged", 0.5)]),
        ]
    )
    assert (total.right, len(total.rows), len(total.false), total.sure_and_wrong) == (1, 3, 1, 1)
    assert confusion(total) == {
        "slow_replica": {("slow_replica", True): 1, ("wedged", False): 1, (NOTHING, False): 1},
        CALM: {("wedged", False): 1},
    }
    text = "\n".join(total.lines())
    assert "1/3 = 33.3 %" in text
    assert "0.8–90.6 %" in text
    assert "confidently wrong            1/3" in text


def test_an_unsure_false_name_is_not_confidently_wrong_and_a_sure_false_alarm_is() -> None:
    assert Total.of([judged("y", [true()], [said("wedged", 0.79)])]).sure_and_wrong == 0
    assert Total.of([judged("calm", [], [said("wedged", 0.8)])]).sure_and_wrong == 1


@pytest.mark.parametrize(
    ("answer", "obeyed"),
    [([], True), ([said("tail_latency_spike")], True), ([said("slo_burn")], True), ([said()], False)],
)
def test_a_fault_of_no_known_kind_may_be_left_unnamed_and_does_not_count_among_the_others(
    answer: list[dict[str, Any]], obeyed: bool
) -> None:
    total = Total.of([judged("unknown_x", [true("tail_latency_spike")], answer)])
    assert total.rows == ()
    assert f"unknown faults left unnamed  {int(obeyed)}/1" in "\n".join(total.lines())
    assert total.sure_and_wrong == (not obeyed)


def test_a_telemetry_fault_counts_though_it_is_only_information() -> None:
    info = said("telemetry_fault", severity="info", detected_at=None, diagnosed_at=1180.0)
    one = judged("t", [true("telemetry_fault")], [info])
    assert [(r.right, r.delay) for r in one.score.rows] == [(True, 180.0)]
    elsewhere = said("telemetry_fault", severity="info", detected_at=None, pools=["b"], replicas=["b-1"])
    assert judged("t", [true("telemetry_fault")], [elsewhere]).score.false == []
    assert counted({"incidents": []}, [info]) == [info]


def test_a_table_has_one_line_for_each_scenario_and_names_false_alarms() -> None:
    lines = by_scenario(
        [
            judged("x", [true()], [said()]),
            judged("x", [true()], [said("wedged")], seed=2),
            judged("calm", [], [said("wedged", pools=["b"])]),
        ]
    )
    assert any(line.startswith("x ") and "1/2" in line and "wedged 1" in line for line in lines)
    assert any(line.startswith("calm ") and "0/1" in line for line in lines)
    assert any("FALSE ALARM: wedged on b 1" in line for line in lines)


def test_the_page_holds_the_matrix_with_its_diagonal_in_bold() -> None:
    page = markdown(
        Total.of([judged("x", [true()], [said()]), judged("y", [true()], [said("wedged")])]), "Head."
    )
    assert page.startswith("# What is said of which fault\n\nHead.\n")
    assert "| slow_replica | **1** | 1 |" in page
    assert "Columns: 1 `slow_replica` · 2 `wedged`." in page
