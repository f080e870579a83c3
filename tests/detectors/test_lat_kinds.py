"""Load skew, blocking, host stalls, slower releases, traffic shifts, burning budgets: what fires and what only looks so.

The detectors that could mistake one for the other run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.records import Event
from detectors.capacity_shortfall import CapacityShortfall
from detectors.contract import Context
from detectors.head_of_line import HeadOfLine
from detectors.host_stall import HostStall
from detectors.kv_eviction_storm import KvEvictionStorm
from detectors.replica_skew import ReplicaSkew
from detectors.slo_burn import SloBurn
from detectors.slow_replica import SlowReplica
from detectors.tail_latency_spike import TailLatencySpike
from detectors.throughput_regression import ThroughputRegression
from detectors.traffic_shift import TrafficShift
from detectors.wedged import Wedged
from tests.detectors.fleet import START, Run
from tests.detectors.lat_fleet import Say, Step, only, play, run

ITEMS = (
    Wedged(),
    ThroughputRegression(),
    ReplicaSkew(),
    HeadOfLine(),
    KvEvictionStorm(),
    SlowReplica(),
    HostStall(),
    CapacityShortfall(),
    TailLatencySpike(),
    SloBurn(),
    TrafficShift(),
)


def said(say: Say, minutes: float = 40, **more: object) -> Run:
    """What these detectors say of a history."""
    log = {k: more.pop(k) for k in ("context", "events", "tenants", "failed") if k in more}
    return run(play(say, minutes, **more), ITEMS, **log)  # type: ignore[arg-type]


def since(minute: float, names: Sequence[str] = (), **changed: object) -> Say:
    """From a minute on some replicas (all where none is named) do something else."""

    def say(m: float, name: str) -> Step:
        hit = m >= minute and (not names or name in names)
        return replace(Step(), **changed) if hit else Step()  # type: ignore[arg-type]

    return say


# ---------------------------------------------------------------- load skew


def lopsided(m: float, name: str) -> Step:
    """From minute 30 on everything goes to a-1."""
    if m < 30:
        return Step()
    if name == "a-1":
        return replace(
            Step(), arrivals=12, running=45, waiting=20, queue=2.0, kv=0.98, preempted=0.8, itl=0.05
        )
    return replace(Step(), arrivals=0, running=0, kv=0.0)


def test_one_replica_that_gets_everything_is_skew_although_its_cache_is_full() -> None:
    r = said(lopsided)
    only(r, "replica_skew", ["a-1"])
    i = r.incidents[0].incident
    assert i.severity == "page"
    share = next(e for e in i.evidence if "new requests" in e.unit)
    assert share.before == pytest.approx(1 / 3, abs=0.02)
    assert share.now == pytest.approx(1.0, abs=0.01)
    assert i.detail["control"] == ["a-0", "a-2"]


def test_a_replica_that_is_drained_and_comes_back_is_no_skew() -> None:
    """Its peer of a pool of two takes everything for a minute, then it restarts."""

    def say(m: float, name: str) -> Step:
        if m < 30:
            return Step()
        if name == "a-0":
            return Step(arrivals=0, running=0) if m < 31 else Step(up=m >= 31.5, restart=31.5 <= m < 31.75)
        return Step(arrivals=8, running=20) if m < 32 else Step()

    assert said(say, pools={"a": ("a-0", "a-1")}).kinds == []


def test_requests_that_pile_up_on_a_slow_replica_are_not_placed_there() -> None:
    r = said(since(30, ["a-1"], itl=0.06, running=30.0, clock=0.7e9, arrivals=3.9))
    only(r, "slow_replica", ["a-1"])


def test_a_busy_pool_leans_on_nobody() -> None:
    assert "replica_skew" not in said(since(30, running=40.0, arrivals=9.0)).kinds


def ranked(m: float, name: str) -> Step:
    """From minute 30 on rank 1 of a-0 has the work of all four."""
    even = ((8.0, 0.0),) * 4
    lean = ((0.0, 0.0), (30.0, 9.0), (0.0, 0.0), (0.0, 0.0))
    hot = m >= 30 and name == "a-0"
    return replace(Step(), ranks=lean if hot else even, itl=0.06 if hot else 0.02)


def test_one_rank_that_has_all_the_work_is_named_and_its_replica_is_not_called_slow() -> None:
    r = said(ranked, pools={"a": ("a-0", "a-1")})
    only(r, "replica_skew", ["a-0"])
    i = r.incidents[0].incident
    assert i.ranks == ("a-0/1",)
    assert i.detail["which"] == "ranks"
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 150


def test_ranks_that_are_all_busy_are_balanced() -> None:
    busy = ((30.0, 0.5), (22.0, 0.0), (35.0, 1.0), (28.0, 0.5))
    assert said(lambda m, n: Step(ranks=busy if m >= 30 else ((8.0, 0.0),) * 4)).kinds == []


# ---------------------------------------------------------------- head of line


def giants(m: float, name: str) -> Step:
    """From minute 30 on, every 15 s one prompt of 90,000 tokens a replica, and the short ones wait."""
    if m < 30:
        return Step()
    return Step(ttft=4.0, waiting=4, itl=0.05, kv=0.9, more=(("chat", 9.0, 90_000, 1),))


def test_a_few_giant_prompts_that_make_short_ones_late_are_head_of_line_blocking() -> None:
    r = said(giants)
    only(r, "head_of_line", ["a-0", "a-1", "a-2"])
    i = r.incidents[0].incident
    assert i.detail["which"] == "prompts"
    first = i.evidence[0]
    assert first.signal == "request_prompt_tokens"
    assert first.now is not None
    assert 33 <= first.now <= 48, "three replicas, twelve scrapes, and a few of the longest usual ones"
    assert START + 29.5 * 60 <= i.started_at <= START + 31 * 60


def test_the_tenant_who_sends_them_is_named_where_a_gateway_logs_it() -> None:
    r = said(
        giants,
        tenants=lambda m: (
            {"acme": (300, 1500), "globex": (300, 1500)} | ({"hugo": (12, 90_000)} if m >= 30 else {})
        ),
    )
    assert "tenant hugo" in r.incidents[0].incident.cause


def test_giant_prompts_that_hold_up_nobody_are_nothing() -> None:
    assert said(since(30, more=(("chat", 9.0, 90_000, 1),))).kinds == []


def test_prompts_that_all_grow_are_another_workload() -> None:
    """Ten times the length on every request, and late: no head of line."""
    assert "head_of_line" not in said(since(30, prompt=15_000.0, prefill=1.4)).kinds


def test_long_contexts_that_come_from_the_cache_hold_up_nobody() -> None:
    """No more prompt tokens are computed than usual, so the giants were found in the cache: late for another reason."""
    r = said(since(30, ttft=4.0, more=(("chat", 0.3, 90_000, 1),), hidden=90_000))
    assert "head_of_line" not in r.kinds, r.kinds


def test_requests_that_wait_for_a_grammar_are_blocked_by_its_compiler() -> None:
    def say(m: float, name: str) -> Step:
        return Step(ttft=6.0, waiting=6, grammar=6.0) if m >= 30 else Step(grammar=0.0)

    r = said(say)
    only(r, "head_of_line")
    assert r.incidents[0].incident.detail["which"] == "grammar"


# ---------------------------------------------------------------- host stalls


def test_steps_that_stop_now_and_then_on_one_replica_are_host_stalls() -> None:
    r = said(since(30, ["a-0"], gaps=((1.6, 16),)))
    only(r, "host_stall", ["a-0"])
    i = r.incidents[0].incident
    assert i.severity == "ticket", "nobody is late for that"
    size = next(e for e in i.evidence if e.unit == "s (one stall)")
    assert size.now == pytest.approx(1.6, rel=0.25)


def test_slower_steps_are_no_stalls() -> None:
    assert said(since(30, ["a-0"], itl=0.05)).kinds == ["slow_replica"]


def test_stalls_on_all_replicas_are_not_one_host() -> None:
    assert "host_stall" not in said(since(30, gaps=((1.6, 16),))).kinds


def test_gaps_that_were_always_there_are_normal() -> None:
    assert said(lambda m, n: Step(gaps=((1.6, 16),))).kinds == []


# ---------------------------------------------------------------- slower since a release


def rolled(m: float, name: str, **after: object) -> Step:
    """One replica after the other restarts from minute 40 on, a minute apart: before, the fit has forty minutes to learn from."""
    at = 40 + int(name[-1])
    if m < at:
        return Step()
    if m < at + 0.5:
        return Step(up=False)
    cold = 0.0 if m < at + 4 else 0.5
    return replace(Step(), restart=m < at + 0.75, hit=cold, **after)  # type: ignore[arg-type]


def test_a_release_that_is_slower_at_the_same_work_is_named_with_its_stage() -> None:
    event = Event(START + 40 * 60, "deploy", "release 0.11.1", "a")
    r = said(lambda m, n: rolled(m, n, itl=0.04), 48, events=[event])
    only(r, "throughput_regression", ["a-0", "a-1", "a-2"])
    i = r.incidents[0].incident
    assert "release 0.11.1" in i.title
    assert i.detail["stage"] == "decode"
    busy = next(e for e in i.evidence if "busy" in e.unit)
    assert busy.before is not None
    assert busy.now is not None


def test_without_an_event_the_version_that_targets_say_names_it() -> None:
    def canary(m: float, name: str) -> Step:
        return rolled(m, "a-0", itl=0.04) if name == "a-0" else Step()

    r = said(canary, 47, version=lambda n: "0.11.1" if n == "a-0" else "0.11.0")
    only(r, "throughput_regression", ["a-0"])
    assert "0.11.1" in r.incidents[0].incident.title


def test_a_release_that_is_as_fast_is_no_incident() -> None:
    assert said(rolled, 47).kinds == []


def test_more_load_after_a_release_is_not_its_fault() -> None:
    """Twice the batch takes 1.5 times as long a step, as it did before."""

    def say(m: float, name: str) -> Step:
        wave = 20.0 if int(m) % 6 < 3 else 10.0
        busy = 20.0 if m >= 40 else wave
        return replace(rolled(m, name), running=busy, itl=0.01 + 0.001 * busy)

    assert said(say, 48).kinds == []


def test_all_replicas_slower_without_a_release_are_none() -> None:
    assert "throughput_regression" not in said(since(30, itl=0.04)).kinds


# ---------------------------------------------------------------- traffic


def shifts(r: Run) -> list[str]:
    """Titles of traffic shifts."""
    return [t.incident.title for t in r.fold.tracker.tracked.values() if t.incident.kind == "traffic_shift"]


def test_a_tenant_who_trebles_is_information_and_no_alarm() -> None:
    r = said(
        lambda m, n: Step(), tenants=lambda m: {"acme": (200, 900), "umbrella": (180 if m >= 30 else 60, 900)}
    )
    assert r.kinds == []
    assert [t for t in shifts(r) if "tenant umbrella" in t]


def test_a_tenant_who_leaves_is_told_too() -> None:
    r = said(
        lambda m, n: Step(), tenants=lambda m: {"acme": (200, 900), "umbrella": (0 if m >= 30 else 60, 900)}
    )
    assert [t for t in shifts(r) if "tenant umbrella" in t]


def test_attempts_that_fail_are_no_demand() -> None:
    r = said(
        lambda m, n: Step(),
        tenants=lambda m: {"acme": (200, 900)},
        failed=lambda m: {"acme": (900 if m >= 30 else 0, 900)},
    )
    assert shifts(r) == []


def test_a_rhythm_that_all_follow_is_no_shift() -> None:
    r = said(lambda m, n: Step(), tenants=lambda m: {t: (int(100 + 2 * m), 900) for t in ("acme", "globex")})
    assert shifts(r) == []


def test_a_shortfall_names_the_tenant_whose_traffic_did_it() -> None:
    say = since(30, arrivals=8.0, running=48.0, waiting=200.0, queue=20.0)
    r = said(say, tenants=lambda m: {"acme": (200, 900), "globex": (900 if m >= 30 else 100, 900)})
    only(r, "capacity_shortfall")
    i = r.incidents[0].incident
    assert i.detail["whose"] == "tenant globex"
    assert "tenant globex" in i.cause


def test_what_waits_now_is_late_before_it_is_recorded() -> None:
    """Sixty wait for four a second: fifteen seconds, although no first token was late yet."""
    r = said(since(30, running=48.0, waiting=60.0))
    only(r, "capacity_shortfall")
    i = r.incidents[0].incident
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 75


# ---------------------------------------------------------------- budgets


def test_a_small_share_that_is_late_for_half_an_hour_burns_the_budget() -> None:
    r = said(since(30, more=(("chat", 6.0, 1500, 2),)), 75)
    only(r, "slo_burn")
    i = r.incidents[0].incident
    assert i.severity == "ticket"
    assert i.detected_at is not None
    assert 25 * 60 <= i.detected_at - (START + 30 * 60) <= 36 * 60


def test_a_share_within_the_budget_burns_nothing() -> None:
    assert (
        said(lambda m, n: Step(more=(("chat", 6.0, 1500, 1),) if int(m * 4) % 4 == 0 else ()), 75).kinds == []
    )


def test_a_burn_without_an_objective_does_not_exist() -> None:
    assert said(since(30, more=(("chat", 6.0, 1500, 2),)), 75, context=Context()).kinds == []


# ---------------------------------------------------------------- speed without gap metrics


def test_a_slow_replica_is_seen_by_tokens_per_running_request_where_no_gap_is_exported() -> None:
    def say(m: float, name: str) -> Step:
        batch = (8.0, 12.0, 16.0)[int(m / 2) % 3]
        slow = 1.8 if m >= 40 and name == "a-2" else 1.0
        return Step(itl=None, running=batch, arrivals=batch / 3, finished=batch / 3 / slow)

    r = said(say, 48)
    only(r, "slow_replica", ["a-2"])
    assert r.incidents[0].incident.evidence[0].signal == "generation_tokens_total"
