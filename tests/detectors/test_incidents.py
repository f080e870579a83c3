"""The state machine, by the path that an incident takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.incidents import Finding, Scope, Severity
from detectors.incidents import Change, Tracker, policy, step

T0 = 1_790_000_100.0


def finding(
    kind: str = "kv_eviction_storm",
    replicas: Sequence[str] = ("a-0",),
    pool: str = "a",
    *,
    announced: bool = False,
    severity: Severity | None = None,
    strength: float = 1.0,
    onset: float = T0 - 60,
    load: bool | None = None,
) -> Finding:
    return Finding(
        kind,
        Scope(("chat",), (pool,), tuple(replicas)),
        at=T0,
        onset=onset,
        strength=strength,
        confidence=0.8,
        severity=severity or ("ticket" if announced else "page"),
        announced=announced,
        title=f"{kind} {strength:g}",
        load_correlated=load,
    )


class Story:
    """Ticks one after the other; ``at`` is the number of the tick."""

    def __init__(self) -> None:
        self.tracker, self.k, self.log = Tracker(), 0, list[tuple[int, Change]]()

    def tick(self, *findings: Finding, times: int = 1) -> Story:
        for _ in range(times):
            now = T0 + 15 * self.k
            moved = [
                Finding(**{**{s: getattr(f, s) for s in Finding.__slots__}, "at": now - 5}) for f in findings
            ]
            self.tracker, changes = step(self.tracker, moved, now)
            self.log += [(self.k, c) for c in changes]
            self.k += 1
        return self

    @property
    def path(self) -> str:
        return "=>".join(c.action for _, c in self.log)

    @property
    def incidents(self) -> list[Change]:
        return [Change("", t.incident) for t in self.tracker.tracked.values()]

    @property
    def one(self) -> Change:
        (only,) = self.incidents
        return only


def test_pending_then_nothing_is_never_heard_of() -> None:
    assert Story().tick(finding()).tick(times=40).path == ""


def test_opened_resolved() -> None:
    s = Story().tick(finding(), times=10).tick(times=40)
    assert s.path == "opened=>resolved"
    i = s.one.incident
    assert i.detected_at == T0 + 15
    assert i.ended_at == T0 + 9 * 15 - 5, "the last evidence, not the moment it was found to be over"
    assert i.started_at == T0 - 60


def test_announced_opened_resolved_is_one_incident_detected_at_the_warning() -> None:
    s = Story().tick(finding(announced=True), times=6).tick(finding(), times=6).tick(times=30)
    assert s.path == "announced=>opened=>resolved"
    i = s.one.incident
    assert i.announced_at == i.detected_at == T0 + 30
    assert i.severity == "page"


def test_a_warning_that_fades_says_so() -> None:
    s = Story().tick(finding(announced=True), times=6).tick(times=30)
    assert s.path == "announced=>resolved"
    assert "faded" in s.log[-1][1].text


def test_opened_resolved_reopened_is_the_same_incident() -> None:
    s = Story().tick(finding(), times=5).tick(times=25).tick(finding(), times=5)
    assert s.path == "opened=>resolved=>reopened"
    assert s.one.incident.ended_at is None
    assert s.one.incident.state == "open"


def test_much_later_it_is_another_one() -> None:
    later = int((policy("kv_eviction_storm").quiet + policy("kv_eviction_storm").reopen) / 15) + 10
    s = Story().tick(finding(), times=5).tick(times=later).tick(finding(), times=5)
    assert len({c.incident.id for _, c in s.log}) == 2


def test_a_hole_of_one_tick_does_not_close_anything() -> None:
    s = Story()
    for _ in range(20):
        s.tick(finding()).tick()
    assert s.path == "opened"


def test_replicas_that_follow_are_added_to_the_incident() -> None:
    s = Story().tick(finding(replicas=["a-0"]), times=5).tick(finding(replicas=["a-0", "a-1"]), times=5)
    assert s.path == "opened"
    assert s.one.incident.replicas == ("a-0", "a-1")


def test_a_replica_seen_for_a_single_tick_is_not_named() -> None:
    s = (
        Story()
        .tick(finding(replicas=["a-0"]), times=5)
        .tick(finding(replicas=["a-0", "a-1"]))
        .tick(finding(replicas=["a-0"]), times=3)
    )
    assert s.one.incident.replicas == ("a-0",)


def test_a_symptom_folds_into_its_cause() -> None:
    s = Story().tick(finding(), finding("tail_latency_spike"), times=10)
    assert s.path == "opened"
    assert s.one.incident.kind == "kv_eviction_storm"
    assert list(s.one.incident.detail["symptoms"]) == ["tail_latency_spike"]


def test_a_symptom_that_came_first_takes_the_name_of_its_cause_and_keeps_its_detection() -> None:
    s = (
        Story()
        .tick(finding("tail_latency_spike"), times=8)
        .tick(finding(), finding("tail_latency_spike"), times=5)
    )
    assert s.path == "opened=>diagnosed"
    i = s.one.incident
    assert i.kind == "kv_eviction_storm"
    assert i.detected_at == T0 + policy("tail_latency_spike").confirm
    assert i.diagnosed_at == T0 + 9 * 15


def test_a_flicker_of_a_stronger_cause_does_not_overturn_a_long_diagnosis() -> None:
    s = Story().tick(finding("capacity_shortfall"), times=100)
    s.tick(finding("capacity_shortfall"), finding("slow_replica"), times=6)
    assert s.one.incident.kind == "capacity_shortfall"
    s.tick(finding("capacity_shortfall"), finding("slow_replica"), times=30)
    assert s.one.incident.kind == "slow_replica"


def test_a_weaker_cause_does_not_rename_a_stronger_one() -> None:
    s = Story().tick(finding(), times=5).tick(finding(), finding("capacity_shortfall"), times=20)
    assert s.one.incident.kind == "kv_eviction_storm"


def test_a_warning_does_not_rename_what_is_biting() -> None:
    s = (
        Story()
        .tick(finding("capacity_shortfall"), times=5)
        .tick(finding("capacity_shortfall"), finding(announced=True), times=10)
    )
    assert s.one.incident.kind == "capacity_shortfall"


def test_a_warned_cause_that_falls_silent_gives_way_to_the_one_that_is_there() -> None:
    s = Story().tick(finding(announced=True), times=4).tick(finding("capacity_shortfall"), times=20)
    assert s.one.incident.kind == "capacity_shortfall"


def test_two_pools_are_two_incidents() -> None:
    s = Story().tick(finding(pool="a"), finding(pool="b", replicas=["b-0"]), times=5)
    assert sorted(c.incident.pools for c in s.incidents) == [("a",), ("b",)]


def test_different_causes_on_different_replicas_are_two_incidents() -> None:
    s = Story().tick(finding(replicas=["a-0"]), finding("slow_replica", replicas=["a-1"]), times=5)
    assert sorted(c.incident.kind for c in s.incidents) == ["kv_eviction_storm", "slow_replica"]


def test_quality_does_not_fold_into_latency() -> None:
    s = Story().tick(finding(), finding("degraded_generations"), times=5)
    assert sorted(c.incident.kind for c in s.incidents) == ["degraded_generations", "kv_eviction_storm"]


def test_information_absorbs_nothing() -> None:
    s = Story().tick(finding("telemetry_fault", severity="info"), finding("tail_latency_spike"), times=8)
    assert sorted(c.incident.kind for c in s.incidents) == ["tail_latency_spike", "telemetry_fault"]
    assert [c.incident.detected_at for c in s.incidents if c.incident.kind == "telemetry_fault"] == [None]


def test_severity_only_rises_while_open() -> None:
    s = (
        Story()
        .tick(finding(severity="ticket"), times=5)
        .tick(finding(severity="page"), times=3)
        .tick(finding(severity="ticket"), times=3)
    )
    assert s.one.incident.severity == "page"


def test_the_strongest_moment_is_what_is_shown() -> None:
    s = (
        Story()
        .tick(finding(strength=1), times=3)
        .tick(finding(strength=9), times=3)
        .tick(finding(strength=2), times=3)
    )
    assert s.one.incident.title == "kv_eviction_storm 9"


def test_the_latest_verdict_on_quality_replaces_the_earlier() -> None:
    s = Story().tick(finding("degraded_generations", ["a-0"]), times=3)
    s.tick(finding("degraded_generations", ["a-0", "a-1"], load=True, strength=0.1), times=3)
    assert s.one.incident.replicas == ("a-0", "a-1")
    assert s.one.incident.load_correlated is True


def test_ids_are_the_same_in_every_run() -> None:
    a, b = (Story().tick(finding(), times=5).one.incident.id for _ in range(2))
    assert a == b


KINDS = st.sampled_from(
    [
        "kv_eviction_storm",
        "tail_latency_spike",
        "capacity_shortfall",
        "degraded_generations",
        "telemetry_fault",
        "wedged",
    ]
)
FINDINGS = st.lists(
    st.builds(
        finding,
        KINDS,
        st.sampled_from([["a-0"], ["a-1"], ["a-0", "a-1"]]),
        st.sampled_from(["a", "b"]),
        announced=st.booleans(),
        strength=st.floats(0, 5),
    ),
    max_size=4,
)


@given(st.lists(FINDINGS, min_size=1, max_size=12), st.integers(0, 11))
def test_a_state_written_as_json_goes_on_as_if_nothing_had_happened(
    ticks: list[list[Finding]], cut: int
) -> None:
    a = b = Tracker()
    for k, found in enumerate(ticks):
        now = T0 + 15 * k
        before = deepcopy(a)
        after, changes = step(a, found, now)
        assert a == before, "the given state is not altered"
        if k == cut:
            b = Tracker.from_json(json.loads(json.dumps(b.to_json())))
        b, same = step(b, found, now)
        assert same == changes
        a = after
    assert a.to_json() == b.to_json()
    for t in a.tracked.values():
        i = t.incident
        assert (i.state == "resolved") == (i.ended_at is not None)
        assert i.detected_at is None or i.detected_at >= T0


@pytest.mark.parametrize("kind", ["wedged", "degraded_generations"])
def test_every_kind_has_hysteresis(kind: str) -> None:
    assert policy(kind).quiet >= 60
