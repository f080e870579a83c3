"""Who is hurt decides who is woken."""

from __future__ import annotations

from detectors.contract import Context, Objective
from tests.detectors.fleet import CONTEXT, history, on, run

SLOW = on(("a-1",), 30, itl=0.032)


def test_a_slow_replica_that_makes_nobody_late_wakes_nobody() -> None:
    (one,) = run(history(45, fault=SLOW)).incidents
    assert one.incident.kind == "slow_replica"
    assert one.incident.detail["harm"]["share_late"] < 0.01
    assert one.incident.severity == "ticket"


def test_the_same_replica_pages_once_requests_are_late() -> None:
    hurts = on(("a-1",), 30, itl=0.032, prefill=0.9)
    (one,) = run(history(45, fault=hurts), context=CONTEXT).incidents
    assert one.incident.severity == "page"
    assert one.incident.detail["harm"]["requests_late"] >= 5


def test_without_an_objective_of_its_class_the_detector_decides() -> None:
    none = Context((Objective("other", "batch", "ttft_seconds", 1.0, 99.0),))
    (one,) = run(history(45, fault=SLOW), context=none).incidents
    assert "requests_late" not in one.incident.detail["harm"]
    assert one.incident.severity == "page"


def test_sessions_are_counted_once_and_only_on_the_replicas_that_are_hurt() -> None:
    h = history(45, fault=SLOW, sample=0.2)
    (one,) = run(h).incidents
    since = one.incident.started_at
    mine = {o.session for o in h.outputs if o.replica == "a-1" and o.ts > since}
    said = one.incident.detail["harm"]["sessions_sampled"]
    assert 0.9 * len(mine) <= said <= len(mine)


def test_an_incident_says_how_much_past_its_normal_rests_on() -> None:
    (one,) = run(history(45, fault=SLOW)).incidents
    assert 25 * 60 <= one.incident.detail["learnt_s"] <= 31 * 60
