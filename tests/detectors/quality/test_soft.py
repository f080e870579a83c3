"""Rates of soft rules alarm against their own stratum's past, and never count as degraded answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.records import OutputRecord
from detectors.degraded_generations import DegradedGenerations
from detectors.quality.soft import false_alarm_after, steps, upper_rate
from detectors.samples import GROUPS, Samples
from tests.detectors.fleet import START, History, history, run

BROKEN = {"call_text": 1.0}


def calls(
    after: float,
    usual: float = 0.0,
    *,
    rules: dict[str, float] = BROKEN,
    only: str = "",
    replicas: tuple[str, ...] = ("a-0", "a-1", "a-2"),
    minutes: float = 60,
    verdict: str = "soft",
) -> History:
    """Every answer is a call; a share ``usual`` breaks ``rules`` at first, ``after`` from minute 30 on (on ``only``, or all)."""
    h = history(minutes, replicas, sample=0.4)
    rng = np.random.default_rng(5)
    out = []
    for r in h.outputs:
        share = after if r.ts > START + 1800 and only in ("", r.replica) else usual
        bad = rng.random() < share
        out.append(
            replace(
                r, verdict=verdict if bad else "clean", rules=rules if bad else {}, features={"calls": 1.0}
            )
        )
    return replace(h, outputs=out)


def said(h: History) -> list[tuple[str, str, tuple[str, ...]]]:
    found = run(h, [DegradedGenerations()]).incidents
    return [(c.incident.severity, c.incident.title.split(" on ")[0], c.incident.replicas) for c in found]


def test_malformed_calls_of_all_replicas_open_a_ticket_that_says_where_to_look() -> None:
    h = calls(0.03)
    (change,) = run(h, [DegradedGenerations()]).incidents
    i = change.incident
    assert (i.kind, i.severity, i.pools, i.classes) == ("degraded_generations", "ticket", ("a",), ("chat",))
    assert i.title.startswith("Malformed tool calls on a: ")
    assert "of calls, normal none of " in i.title
    assert i.replicas == ("a-0", "a-1", "a-2")
    assert i.load_correlated is not True
    assert START + 1800 <= i.started_at <= START + 2100
    assert "answers_broken" not in i.detail["harm"]
    assert any("tool schema" in a for a in i.detail["actions"]["now"])


def test_one_replica_that_writes_malformed_calls_is_named() -> None:
    assert said(calls(0.06, only="a-1")) == [("ticket", "Malformed tool calls", ("a-1",))]


def test_a_rate_that_was_always_so_is_no_incident() -> None:
    assert said(calls(0.06, usual=0.06)) == []
    assert said(calls(0.3, usual=0.3, rules={"truncated": 1.0}, verdict="clean")) == []


def test_a_stratum_without_a_past_is_not_judged() -> None:
    h = calls(0.05)
    late = [r for r in h.outputs if r.ts > START + 1790]
    assert said(replace(h, outputs=late)) == []


@pytest.mark.parametrize(
    ("rule", "title"),
    [("empty", "Empty or broken-off answers"), ("truncated", "Answers cut by the length limit")],
)
def test_each_group_of_rules_has_a_name(rule: str, title: str) -> None:
    verdict = "clean" if rule == "truncated" else "soft"
    found = said(calls(0.05, usual=0.003, rules={rule: 1.0}, verdict=verdict))
    assert found == [("ticket", title, ("a-0", "a-1", "a-2"))]


def test_where_a_hard_rule_says_it_the_soft_ones_are_silent() -> None:
    h = calls(0.0)
    rng = np.random.default_rng(2)
    both = {"loop_long": 30.0, "truncated": 1.0}
    out = [
        replace(r, verdict="hard", rules=both) if r.ts > START + 1800 and rng.random() < 0.05 else r
        for r in h.outputs
    ]
    assert [x[:2] for x in said(replace(h, outputs=out))] == [("page", "Degraded generations")]


def test_a_session_that_repeats_its_mistake_counts_once_and_calls_are_counted_among_calls() -> None:
    def record(i: int, session: str, rules: dict[str, float], called: bool) -> OutputRecord:
        return OutputRecord(
            f"r{i}", START + i, START + i - 1, "c", pool="p", session=session, rules=rules,
            verdict="soft" if rules else "clean", features={"calls": 1.0} if called else {},
        )  # fmt: skip

    s = Samples.of(
        [
            record(0, "x", BROKEN, True),
            record(1, "x", BROKEN, True),
            record(2, "y", {}, True),
            record(3, "z", {}, False),
            record(4, "z", {"empty": 1.0}, False),
        ]
    )
    at = GROUPS.index("calls")
    assert s.soft[at].tolist() == [True, False, False, False, False]
    assert s.soft_aside[at].tolist() == [False, True, False, True, True]
    assert not s.bad.any()
    assert not s.aside.any()
    assert s.soft[GROUPS.index("endings")].tolist() == [False, False, False, False, True]


@pytest.mark.parametrize(("p0", "answers"), [(0.001, 100_000_000), (0.01, 10_000_000), (0.1, 1_000_000)])
def test_false_alarms_are_as_far_apart_as_documented(p0: float, answers: float) -> None:
    assert false_alarm_after(p0) > answers


def test_the_charts_raise_odds_so_that_a_common_rule_can_alarm_too() -> None:
    up, down = steps(0.4)[0]
    assert up > 0 > down
    # five times the odds of 40 % are 77 %
    assert 0.4 * np.exp(up) == pytest.approx(0.769, abs=1e-3)
    assert upper_rate(0, 0) == pytest.approx(1.92 / 500, rel=0.01)


def test_a_fault_that_comes_and_goes_is_judged_over_all_its_spans() -> None:
    """Half an hour of broken answers, forty clean minutes, and again: what the second span says rests on both."""
    h = history(150, ("a-0", "a-1", "a-2"), sample=0.4)
    rng = np.random.default_rng(3)

    def raised(ts: float) -> bool:
        minute = (ts - START) / 60
        return 30 < minute < 50 or 100 < minute < 120

    out = [
        replace(r, verdict="hard", rules={"loop_long": 9.0}) if raised(r.ts) and rng.random() < 0.01 else r
        for r in h.outputs
    ]
    (change,) = run(replace(h, outputs=out), [DegradedGenerations()]).incidents
    first = sum(raised(r.ts) and r.verdict == "hard" and r.ts < START + 4000 for r in out)
    assert change.incident.detail["harm"]["answers_broken"] > first
    assert change.incident.replicas == ("a-0", "a-1", "a-2")
