"""What each detector says of the failures that were reported in public, and of their harmless twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from detectors.contract import Context
from tests.detectors.fleet import START, Change_, History, Normal, Run, after, history, on, run

PRESSURE = {"running": 25, "kv": 0.75, "arrivals": 5.0}
STORM = {"hit": 0.05, "prefill": 1.6, "running": 40, "waiting": 6, "queue": 3.0, "kv": 0.9, "arrivals": 2.0}


def storm(names: Sequence[str] = ("a-0", "a-1", "a-2"), until: float = 1e9) -> Change_:
    """Pressure from minute 28 on, and from minute 30 on the cache gives way."""

    def fault(m: float, name: str, n: Normal) -> Normal:
        return on(names, 30, until, **STORM)(m, name, on(names, 28, until, **PRESSURE)(m, name, n))

    return fault


def said(fault: Change_ | None, minutes: float = 45, **more: object) -> Run:
    """A run over a made-up history with a fault."""
    return run(history(minutes, fault=fault, **more))  # type: ignore[arg-type]


def only(r: Run, kind: str, replicas: Sequence[str] | None = None) -> None:
    """One incident, of that kind, on those replicas."""
    assert r.kinds == [kind], [(i.incident.kind, i.incident.title) for i in r.incidents]
    if replicas is not None:
        assert r.incidents[0].incident.replicas == tuple(replicas)


# ---------------------------------------------------------------- nothing is wrong


@pytest.mark.parametrize("seed", range(4))
def test_a_quiet_fleet_is_quiet(seed: int) -> None:
    assert said(None, seed=seed).kinds == []


def test_a_benign_surge_without_a_queue_is_no_incident() -> None:
    assert said(after(30, arrivals=7.0, running=17, kv=0.5)).kinds == []


def test_high_kv_usage_alone_is_no_incident() -> None:
    """HO-17: 94 to 96 % used, nothing waits, nothing is redone."""
    assert said(after(30, kv=0.95)).kinds == []


def test_a_cache_that_was_always_tight_and_preempts_as_ever_is_healthy() -> None:
    """HO-15: 7.4 % of the requests preempted, day in day out."""
    assert said(None, normal=Normal(preempted=0.3, kv=0.93)).kinds == []


def test_a_cold_cache_after_a_restart_is_no_storm() -> None:
    """HO-9: no hits for some minutes, then as before."""

    def fault(m: float, name: str, n: Normal) -> Normal:
        if name != "a-1" or m < 30:
            return n
        if m < 31:
            return replace(n, up=False)
        cold = max(0.0, 1 - (m - 31) / 6)
        return replace(
            n,
            restart=m < 31.25,
            hit=n.hit * (1 - cold),
            prefill=n.prefill * (1 + 4 * cold),
            running=n.running * (1 + cold),
        )

    assert said(fault).kinds == []


def test_a_quiet_night_is_not_a_wedge() -> None:
    assert said(after(30, arrivals=0.0, running=0.0, waiting=0.0)).kinds == []


def test_missing_scrapes_of_one_replica_are_for_data_health_only() -> None:
    r = said(on(["a-1"], 30, up=False))
    assert r.kinds == []
    info = [t.incident for t in r.fold.tracker.tracked.values() if t.incident.kind == "telemetry_fault"]
    assert [i.replicas for i in info] == [("a-1",)]
    assert info[0].severity == "info"


# ---------------------------------------------------------------- storms


def test_hits_lost_under_pressure_with_dear_prefill_are_an_eviction_storm() -> None:
    r = said(storm())
    only(r, "kv_eviction_storm", ["a-0", "a-1", "a-2"])
    i = r.incidents[0].incident
    assert i.severity == "page"
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 180
    assert i.evidence[0].signal == "prefix_cache_hit_tokens_total"
    assert i.evidence[0].before == pytest.approx(0.8, abs=0.02)
    assert i.evidence[0].now == pytest.approx(0.05, abs=0.05)


def test_a_storm_on_one_replica_leaves_its_peers_as_control_group() -> None:
    r = said(storm(["a-1"]))
    only(r, "kv_eviction_storm", ["a-1"])
    assert r.incidents[0].incident.detail["control"] == ["a-0", "a-2"]


def test_preemptions_beyond_the_own_rate_with_full_kv_are_a_storm() -> None:
    """B1/B2: running requests are thrown out, progress per running request halves."""
    r = said(after(30, preempted=1.0, kv=0.98, running=40, waiting=50, queue=5.0, finished=4.5))
    only(r, "kv_eviction_storm", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.evidence[0].signal == "preemptions_total"


def test_hits_lost_without_pressure_are_a_lost_prefix_cache() -> None:
    """B4: the prompt begins with something new; running and KV stay as they were."""
    r = said(after(30, hit=0.05, prefill=0.4))
    only(r, "prefix_cache_loss", ["a-0", "a-1", "a-2"])
    i = r.incidents[0].incident
    assert i.severity == "ticket", "nobody is late yet"
    assert i.detail["which"] == "prompt"


def test_load_that_piles_up_after_the_hits_went_is_still_a_lost_cache() -> None:
    def fault(m: float, name: str, n: Normal) -> Normal:
        n = after(30, hit=0.02, prefill=0.9)(m, name, n)
        return after(33, running=30, waiting=2, kv=0.7, finished=3.0)(m, name, n)

    only(said(fault), "prefix_cache_loss", ["a-0", "a-1", "a-2"])


def test_one_engine_that_lost_its_cache_is_told_from_its_peers() -> None:
    r = said(on(["a-2"], 30, hit=0.0, prefill=0.4))
    only(r, "prefix_cache_loss", ["a-2"])
    assert r.incidents[0].incident.detail["which"] == "engine"


def test_hits_that_stay_away_after_the_pressure_went_belong_to_the_storm() -> None:
    def fault(m: float, name: str, n: Normal) -> Normal:
        n = storm(until=38)(m, name, n)
        return on(["a-0", "a-1", "a-2"], 38, 44, hit=0.3)(m, name, n)

    only(said(fault, minutes=55), "kv_eviction_storm")


def test_a_storm_that_passes_ends_at_its_last_evidence() -> None:
    r = said(storm(until=38), minutes=60)
    only(r, "kv_eviction_storm")
    i = r.incidents[0].incident
    assert i.state == "resolved"
    assert i.ended_at is not None
    assert START + 37 * 60 <= i.ended_at <= START + 43 * 60


# ---------------------------------------------------------------- capacity, one slow, wedged


def test_more_demand_than_slots_is_a_shortfall_although_hits_suffer() -> None:
    """Slots are full, prefill stays quick: old prefixes fall out because sessions wait, not because KV is short."""
    r = said(after(30, arrivals=8.0, running=48, waiting=200, queue=30.0, hit=0.2, kv=0.5))
    only(r, "capacity_shortfall", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.detail["owner"] == "traffic"


def test_fewer_served_at_usual_demand_names_capacity_as_owner() -> None:
    r = said(after(30, running=20, waiting=60, queue=15.0))
    only(r, "capacity_shortfall")
    assert r.incidents[0].incident.detail["owner"] == "capacity"


def test_one_throttled_gpu_is_a_slow_replica_with_its_clock_as_cause() -> None:
    r = said(on(["a-2"], 30, itl=0.036, clock=1.05e9, running=18))
    only(r, "slow_replica", ["a-2"])
    assert "1050 MHz instead of 1980 MHz" in r.incidents[0].incident.cause


def test_a_slow_replica_is_seen_without_any_gpu_metric() -> None:
    r = said(on(["a-2"], 30, itl=0.036), normal=Normal(missing=frozenset({"gpu_sm_clock_hz"})))
    only(r, "slow_replica", ["a-2"])
    assert "no GPU clock is exported" in r.incidents[0].incident.cause


def test_steps_that_grow_on_all_replicas_are_not_one_slow_replica() -> None:
    assert "slow_replica" not in said(after(30, itl=0.036)).kinds


def test_an_engine_that_answers_but_does_nothing_is_wedged() -> None:
    """HO-43: running 0, waiting 3, both throughputs 0."""
    r = said(on(["a-0"], 30, frozen=True, running=0.0, waiting=3.0))
    only(r, "wedged", ["a-0"])
    i = r.incidents[0].incident
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 150


def test_a_slow_survivor_that_still_makes_tokens_is_not_wedged() -> None:
    """HO-41, D5: one request runs, tokens flow."""
    assert "wedged" not in said(on(["a-0"], 30, arrivals=0.2, running=1.0, waiting=4.0)).kinds


def test_late_answers_without_a_known_cause_are_said_to_be_just_that() -> None:
    r = said(after(30, prefill=1.1))
    only(r, "tail_latency_spike")
    assert "cause not established" in r.incidents[0].incident.title


def test_a_symptom_opens_nothing_beside_its_cause() -> None:
    r = said(storm())
    assert set(r.incidents[0].incident.detail.get("symptoms", {})) <= {
        "tail_latency_spike",
        "capacity_shortfall",
    }


def test_without_an_objective_nothing_is_late() -> None:
    h = history(45, fault=after(30, prefill=1.1))
    assert run(h, context=Context()).kinds == []


# ---------------------------------------------------------------- telemetry


def test_half_a_pool_gone_dark_is_a_ticket() -> None:
    r = said(on(["a-0", "a-1"], 30, up=False))
    only(r, "telemetry_fault")
    assert r.incidents[0].incident.severity == "ticket"


def test_a_family_that_vanishes_is_named() -> None:
    r = said(on(["a-0"], 30, missing=frozenset({"kv_cache_usage_ratio"})))
    titles = [t.incident.title for t in r.fold.tracker.tracked.values()]
    assert any("kv_cache_usage_ratio" in t for t in titles)


# ---------------------------------------------------------------- texts


def test_bad_answers_of_one_replica_are_found_and_are_not_load() -> None:
    r = said(on(["a-1"], 40, bad=0.03), minutes=60, sample=0.5)
    only(r, "degraded_generations", ["a-1"])
    i = r.incidents[0].incident
    assert i.load_correlated is False
    assert i.detected_at is not None
    assert i.detected_at - (START + 40 * 60) <= 300


def test_bad_answers_everywhere_without_load_slope_are_not_called_load() -> None:
    r = said(after(40, bad=0.02), minutes=75, sample=0.5)
    only(r, "degraded_generations", ["a-0", "a-1", "a-2"])
    assert r.incidents[0].incident.load_correlated is not True


def _waves(m: float, name: str, n: Normal) -> Normal:
    """Load in waves of twelve minutes; from minute 40 on the share of bad answers follows it."""
    high = (m % 12) < 5
    n = replace(n, arrivals=5.0 if high else 2.5, running=16.0 if high else 5.0)
    return replace(n, bad=(0.03 if high else 0.002) if m >= 40 else n.bad)


def test_bad_answers_that_follow_five_waves_of_load_are_load() -> None:
    r = said(_waves, minutes=130, sample=0.5)
    only(r, "degraded_generations", ["a-0", "a-1", "a-2"])
    i = r.incidents[0].incident
    assert i.load_correlated is True
    assert i.detail["load"]["episodes"] >= 5
    assert i.detail["load"]["low"] > 2


def test_before_five_waves_nobody_knows() -> None:
    r = said(_waves, minutes=70, sample=0.5)
    assert r.incidents[0].incident.load_correlated is None


@pytest.mark.parametrize("seed", range(3))
def test_the_base_rate_of_bad_answers_is_no_incident(seed: int) -> None:
    assert said(None, minutes=90, seed=seed, normal=Normal(bad=6e-4, arrivals=6.0), sample=0.5).kinds == []


def test_a_deployment_that_was_always_bad_is_judged_against_itself() -> None:
    """K2VV: half a percent malformed day in day out is this deployment's normal."""
    assert said(None, minutes=60, normal=Normal(bad=2e-3), sample=0.5).kinds == []


def test_one_session_that_repeats_itself_counts_once() -> None:
    h: History = history(60, sample=0.5)
    loops = [
        replace(o, id=f"loop-{k}", session="same", verdict="hard", ts=START + 45 * 60 + k)
        for k, o in enumerate(h.outputs[:30])
    ]
    assert run(replace(h, outputs=[*h.outputs, *loops])).kinds == []
