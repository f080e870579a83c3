"""Errors, gateways, retries, lost replicas, GPUs, odd settings and stuck requests: what is said, and of what it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.incidents import Finding, Scope
from core.records import Event
from detectors.incidents import Tracker, step
from tests.detectors.err_fleet import Gate, Say, Step, infos, only, play
from tests.detectors.fleet import START

QUIET = Step()


def on(name: str, since: float, until: float = 1e9, **changed: object) -> Say:
    """Between two minutes one replica (all where the name is empty) behaves otherwise."""

    def say(m: float, replica: str) -> Step:
        hit = since <= m < until and name in ("", replica)
        return replace(QUIET, **changed) if hit else QUIET  # type: ignore[arg-type]

    return say


def log(since: float = 1e9, until: float = 1e9, **changed: object) -> object:
    """A gateway's log: 720 answers a minute, otherwise between two minutes."""
    return lambda m, pool: Gate(**changed) if since <= m < until else Gate()  # type: ignore[arg-type]


# ---------------------------------------------------------------- engine errors


def test_a_replica_that_answers_5xx_is_named_while_its_peers_are_not() -> None:
    r = play(on("a-1", 30, failed=1.0, done=3.0), gate=log(30, statuses={200: 660, 500: 60}))  # type: ignore[arg-type]
    only(r, "error_burst", ["a-1"])
    i = r.incidents[0].incident
    assert i.severity == "page"
    assert "500" in i.title
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 90
    assert START + 29.5 * 60 <= i.started_at <= START + 31 * 60


def test_all_replicas_that_fail_are_one_burst_of_the_pool() -> None:
    only(play(on("", 30, failed=0.6, done=3.4)), "error_burst", ["a-0", "a-1", "a-2"])


def test_without_a_gateway_log_the_missing_source_is_said() -> None:
    r = play(on("a-1", 30, failed=1.0, done=3.0))
    assert "no gateway log" in r.incidents[0].incident.detail["gateway_log"]


def test_a_pool_that_always_fails_a_little_is_judged_against_itself() -> None:
    assert play(lambda m, name: replace(QUIET, failed=0.08, done=3.92)).kinds == []


def test_engines_that_count_no_failures_leave_the_gateway_in_doubt() -> None:
    r = play(on("", 0, by_status=False), gate=log(30, statuses={200: 600, 500: 120}))  # type: ignore[arg-type]
    assert r.kinds == ["error_burst"]
    i = r.incidents[0].incident
    assert i.confidence <= 0.5
    assert i.runner_up == "gateway_fault"


def test_refusals_of_a_full_engine_are_no_burst_and_of_an_idle_one_are() -> None:
    full = play(on("", 30, refused=1.5, waiting=40.0, running=30.0))
    assert "error_burst" not in full.kinds
    only(play(on("", 30, refused=1.5)), "error_burst")


# ---------------------------------------------------------------- gateway


def test_failures_that_engines_do_not_count_are_the_gateways() -> None:
    r = play(on("", 30, arrivals=3.0, done=3.0), gate=log(30, statuses={200: 540, 502: 180}))  # type: ignore[arg-type]
    only(r, "gateway_fault", ["a-0", "a-1", "a-2"])
    assert "502" in r.incidents[0].incident.title


def test_time_that_the_gateway_adds_before_idle_engines_is_its_fault() -> None:
    r = play(on("", 1e9), gate=log(30, ttft=1.8, late=0.4))  # type: ignore[arg-type]
    only(r, "gateway_fault")
    added = r.incidents[0].incident.evidence[0]
    assert added.now == pytest.approx(1.68, abs=0.01)
    assert added.before == pytest.approx(0.001, abs=0.001)


def test_late_requests_of_slow_engines_are_not_the_gateways() -> None:
    r = play(on("", 30, ttft=1.8), gate=log(30, ttft=1.8, late=0.9))  # type: ignore[arg-type]
    assert "gateway_fault" not in r.kinds


def test_where_prefill_and_decode_are_apart_time_is_no_proof_against_the_gateway() -> None:
    r = play(
        on("", 1e9),
        gate=log(30, ttft=1.8, late=0.4),  # type: ignore[arg-type]
        roles={"a": "prefill"},
        versions={n: [(0, "0.7.0")] for n in ("a-0", "a-1", "a-2")},
    )
    assert "gateway_fault" not in r.kinds


# ---------------------------------------------------------------- retries


def test_attempts_that_multiply_while_answers_fall_are_a_retry_storm() -> None:
    r = play(
        on("", 30, done=2.0, left=14.0, running=24.0, waiting=50.0),
        gate=log(30, statuses={200: 360, 499: 2500}),  # type: ignore[arg-type]
    )
    assert r.kinds == ["retry_storm"]


def test_a_retry_storm_is_seen_from_the_engines_alone() -> None:
    assert play(on("", 30, done=2.0, left=14.0, running=24.0, waiting=50.0)).kinds == ["retry_storm"]


def test_more_demand_of_which_more_gets_done_is_no_retry_storm() -> None:
    r = play(
        on("", 30, arrivals=6.0, done=6.0, left=4.0, running=24.0, waiting=60.0),
        gate=log(30, statuses={200: 1080, 499: 720}),  # type: ignore[arg-type]
    )
    assert "retry_storm" not in r.kinds


def test_demand_that_rose_well_before_failures_is_no_retry_storm() -> None:
    def say(m: float, name: str) -> Step:
        if m >= 33:
            return replace(QUIET, done=3.0, left=6.0, running=24.0, waiting=60.0)
        return replace(QUIET, arrivals=7.0, done=7.0, running=18.0) if m >= 29 else QUIET

    assert "retry_storm" not in play(say).kinds


# ---------------------------------------------------------------- lost and starting replicas


def _gone(m: float, name: str, scraped: bool | None = False, more: float = 2.0) -> Step:
    """From minute 30 on a-1 is gone and the others take ``more`` requests a second on top."""
    if m < 30:
        return QUIET
    if name == "a-1":
        return replace(QUIET, scraped=scraped)
    return replace(QUIET, arrivals=4.0 + more, done=4.0 + more, running=10 + 2.5 * more)


def test_a_replica_that_died_and_whose_load_the_rest_carries_is_lost_capacity() -> None:
    r = play(_gone)
    only(r, "capacity_lost", ["a-1"])
    i = r.incidents[0].incident
    assert i.severity == "ticket", "nobody is late"
    assert i.detected_at is not None
    assert 180 <= i.detected_at - (START + 30 * 60) <= 240


def test_where_the_rest_is_late_it_is_a_page_within_two_minutes() -> None:
    r = play(lambda m, n: replace(_gone(m, n), ttft=1.8) if m >= 30 and n != "a-1" else _gone(m, n))
    i = next(i.incident for i in r.incidents if i.incident.kind == "capacity_lost")
    assert i.severity == "page"
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 120


def test_a_replica_whose_load_nobody_took_is_only_unseen() -> None:
    assert play(lambda m, n: _gone(m, n, more=0.0)).kinds == []


def test_with_a_log_the_share_that_the_rest_sees_decides() -> None:
    """The pool's demand halves at the moment of the loss: first tokens of the rest do not rise, but they are all of them."""
    steady = play(lambda m, n: _gone(m, n, more=0.0), gate=log(30, statuses={200: 480}))  # type: ignore[arg-type]
    only(steady, "capacity_lost", ["a-1"])
    unseen = play(lambda m, n: _gone(m, n, more=0.0), gate=log())  # type: ignore[arg-type]
    assert unseen.kinds == []


def test_a_replica_taken_off_the_list_is_not_lost() -> None:
    assert play(lambda m, n: _gone(m, n, scraped=None)).kinds == []


def test_a_drained_replica_is_not_lost() -> None:
    def say(m: float, name: str) -> Step:
        if name == "a-1" and 28 <= m < 30:
            return replace(QUIET, arrivals=0.0, done=0.0, running=0.0, tokens=0.0, prompt=0.0)
        return _gone(m, name)

    assert play(say).kinds == []


def test_a_pod_that_came_back_under_another_name_is_no_loss() -> None:
    def say(m: float, name: str) -> Step:
        if name == "a-9":
            return replace(QUIET, scraped=None) if m < 31 else QUIET
        return replace(QUIET, scraped=False) if name == "a-1" and m >= 30 else QUIET

    assert play(say, pools={"a": ("a-0", "a-1", "a-2", "a-9")}).kinds == []


def test_an_announced_scaling_waits_ten_minutes() -> None:
    planned = Event(START + 29.5 * 60, "scale", "down by 1", "a")
    assert play(_gone, 38, events=[planned]).kinds == []


def _starts(count: int) -> Say:
    def say(m: float, name: str) -> Step:
        if name != "a-1" or m < 28:
            return QUIET
        k = (m - 28) / 3
        if k < count and k % 1 < 0.3:
            return replace(QUIET, scraped=False)
        return replace(QUIET, restart=k < count and 0.3 <= k % 1 < 0.38)

    return say


def test_three_starts_in_half_an_hour_are_a_crash_loop_and_two_are_not() -> None:
    only(play(_starts(3)), "capacity_lost", ["a-1"])
    assert play(_starts(2)).kinds == []


def _finding(kind: str, replica: str, at: float) -> Finding:
    return Finding(kind, Scope(("chat",), ("a",), (replica,)), at, at - 60.0, 1.0, 0.9, "page", title=kind)


@pytest.mark.parametrize("order", [("capacity_lost", "slow_replica"), ("slow_replica", "capacity_lost")])
def test_what_lost_capacity_does_to_the_rest_is_a_symptom_whichever_came_first(
    order: tuple[str, str],
) -> None:
    where = {"capacity_lost": "a-1", "slow_replica": "a-0"}
    tracker = Tracker()
    for k in range(24):
        now = START + 15.0 * k
        found = [_finding(kind, where[kind], now) for i, kind in enumerate(order) if k >= 6 * i]
        tracker, _ = step(tracker, found, now)
    (only_one,) = tracker.tracked.values()
    assert only_one.incident.kind == "capacity_lost"
    assert "a-1" in only_one.incident.replicas


def test_two_slow_replicas_of_a_pool_with_a_wedged_one_stay_apart() -> None:
    tracker = Tracker()
    for k in range(12):
        now = START + 15.0 * k
        tracker, _ = step(
            tracker, [_finding("wedged", "a-1", now), _finding("slow_replica", "a-0", now)], now
        )
    assert sorted(t.incident.kind for t in tracker.tracked.values()) == ["slow_replica", "wedged"]


def test_a_start_with_cold_caches_is_information_only() -> None:
    def say(m: float, name: str) -> Step:
        if name != "a-1" or m < 30:
            return QUIET
        if m < 31:
            return replace(QUIET, scraped=False)
        return replace(QUIET, restart=m < 31.25, ttft=0.5 if m < 34 else 0.12, hit=0.3 if m < 34 else 0.8)

    r = play(say, 50)
    assert r.kinds == []
    assert infos(r, "warm_up")


# ---------------------------------------------------------------- GPUs


def _gpu(**changed: object) -> Say:
    healthy = replace(QUIET, xid=0.0)

    def say(m: float, name: str) -> Step:
        return replace(healthy, **changed) if name == "a-1" and m >= 30 else healthy  # type: ignore[arg-type]

    return say


@pytest.mark.parametrize("xid", [48.0, 79.0, 95.0])
def test_an_xid_that_asks_for_draining_is_a_gpu_fault_at_one_scrape(xid: float) -> None:
    r = play(_gpu(xid=xid), 34)
    only(r, "gpu_fault", ["a-1"])
    i = r.incidents[0].incident
    assert f"Xid {xid:.0f}" in i.title
    assert i.detected_at is not None
    assert i.detected_at - (START + 30 * 60) <= 60


@pytest.mark.parametrize("xid", [13.0, 31.0, 43.0, 45.0, 94.0])
def test_codes_of_software_and_contained_errors_are_no_fault(xid: float) -> None:
    assert play(_gpu(xid=xid), 34).kinds == []


def test_an_old_code_that_stood_when_watching_began_is_not_told() -> None:
    assert play(lambda m, n: replace(QUIET, xid=48.0 if n == "a-1" else 0.0), 34).kinds == []


def test_uncorrectable_errors_are_a_fault_without_any_xid() -> None:
    r = play(lambda m, n: replace(QUIET, xid=0.0, ecc=2 if n == "a-1" and 30 <= m < 30.25 else 0), 36)
    only(r, "gpu_fault", ["a-1"])


def test_a_gpu_that_reports_no_more_beside_its_neighbour_is_gone() -> None:
    r = play(_gpu(gpus=1), 36)
    only(r, "gpu_fault", ["a-1"])
    assert "gone" in r.incidents[0].incident.title


def test_an_exporter_that_restarts_takes_all_its_gpus_along_and_is_no_fault() -> None:
    def say(m: float, name: str) -> Step:
        return replace(QUIET, xid=None if name == "a-1" and 30 <= m < 32 else 0.0)

    assert play(say, 36).kinds == []


# ---------------------------------------------------------------- configuration


def test_a_ceiling_that_peers_do_not_have_is_a_number_of_slots() -> None:
    def say(m: float, name: str) -> Step:
        wave = 10 + 6 * (int(m * 4) % 5 - 2) / 2
        if name != "a-1" or m < 30:
            return replace(QUIET, running=wave)
        if m < 30.5:
            return replace(QUIET, scraped=False)
        return replace(QUIET, running=min(wave, 6.0), waiting=max(wave - 6.0, 0.0), restart=m < 30.8)

    r = play(say, 42)
    only(r, "config_drift", ["a-1"])
    assert "slots 6 instead of at least 16" in r.incidents[0].incident.title


def test_another_kv_size_after_a_restart_is_told_once_the_pool_has_settled() -> None:
    def say(m: float, name: str) -> Step:
        if name != "a-1" or m < 26:
            return QUIET
        return replace(QUIET, capacity=400_000.0, restart=m < 26.25)

    r = play(say, 45)
    only(r, "config_drift", ["a-1"])
    assert r.incidents[0].incident.detected_at is not None
    assert r.incidents[0].incident.detected_at >= START + 41 * 60
    assert "400,000" in r.incidents[0].incident.title


def test_kv_sizes_that_differ_by_one_per_cent_are_profiling() -> None:
    sizes = {"a-0": 500_000.0, "a-1": 505_000.0, "a-2": 498_000.0}
    assert play(lambda m, n: replace(QUIET, capacity=sizes[n])).kinds == []


def test_another_version_is_seen_only_from_the_start_of_its_process() -> None:
    known = {"a-0": [(0, "0.11.0")], "a-2": [(0, "0.11.0")], "a-1": [(0, "0.11.0"), (26, "0.10.2")]}

    def say(m: float, name: str) -> Step:
        return replace(QUIET, restart=name == "a-1" and 26 <= m < 26.25)

    assert play(say, 40, versions=known).kinds == []
    r = play(say, 45, versions=known)
    only(r, "config_drift", ["a-1"])
    assert "version 0.10.2 instead of 0.11.0" in r.incidents[0].incident.title


def test_a_rolling_release_passes_without_a_word() -> None:
    turn = {"a-0": 27.0, "a-1": 32.0, "a-2": 37.0}
    known = {n: [(0, "0.11.0"), (t, "0.11.1")] for n, t in turn.items()}

    def say(m: float, name: str) -> Step:
        return replace(QUIET, restart=turn[name] <= m < turn[name] + 0.25)

    assert play(say, 50, versions=known).kinds == []


def test_a_feature_that_all_peers_export_and_one_does_not_is_a_drift() -> None:
    r = play(lambda m, n: replace(QUIET, spec=n != "a-1"))
    only(r, "config_drift", ["a-1"])
    assert "speculative decoding off instead of on" in r.incidents[0].incident.title


# ---------------------------------------------------------------- stuck requests


def _zombies(m: float, name: str) -> Step:
    """From minute 30 on a-1 gains four zombies a minute while it serves the others as ever; a client leaves for each."""
    if name != "a-1" or m < 30:
        return QUIET
    stuck = min(40.0, 4.0 * (m - 30))
    return replace(QUIET, running=10.0 + stuck, kv=min(0.95, 0.3 + 0.015 * stuck), left=4 / 60)


def test_a_ledger_that_does_not_close_is_stuck_requests() -> None:
    r = play(_zombies, 45)
    only(r, "stuck_requests", ["a-1"])
    i = r.incidents[0].incident
    assert i.detail["which"] == "zombies"
    assert i.started_at >= START + 29 * 60


def test_zombies_that_fill_every_slot_are_not_a_wedge() -> None:
    def say(m: float, name: str) -> Step:
        if name == "a-1" and m >= 38:
            return replace(QUIET, arrivals=0, done=0, tokens=0, prompt=0, running=42.0, waiting=30.0, kv=0.95)
        return _zombies(m, name)

    only(play(say, 55), "stuck_requests", ["a-1"])


def test_requests_that_take_four_times_as_long_still_close_the_ledger() -> None:
    assert "stuck_requests" not in play(on("", 30, seconds=10.0, running=40.0), 45).kinds


def test_clients_that_leave_and_give_their_slot_back_are_not_stuck() -> None:
    assert play(on("", 30, left=0.4, running=11.0)).kinds == []


def test_an_engine_that_wedges_with_a_closed_ledger_is_wedged() -> None:
    r = play(on("a-1", 30, arrivals=0, done=0, tokens=0, prompt=0, waiting=20.0))
    only(r, "wedged", ["a-1"])


def test_one_request_that_never_ends_before_a_queue_blocks_it() -> None:
    r = play(on("a-1", 30, arrivals=0, done=0, prompt=0, tokens=60.0, running=1.0, waiting=6.0, kv=0.1), 42)
    assert "stuck_requests" in r.kinds
    assert "wedged" not in r.kinds


# ---------------------------------------------------------------- nothing


def test_a_quiet_pool_with_a_log_is_quiet() -> None:
    assert play(on("", 1e9), 45, gate=log()).kinds == []  # type: ignore[arg-type]


def test_a_log_that_stops_is_no_outage() -> None:
    r = play(on("", 1e9), gate=lambda m, pool: Gate() if m < 30 else None)
    assert r.kinds == []
