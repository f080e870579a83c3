"""What faults do, whom they hit, and what the truth says of them."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from core.errors import ConfigError
from fleet.fleets import adapters, data_parallel, disaggregated, tiered
from fleet.mechanisms import MECHANISMS
from fleet.model import Attempt, FaultSpec, FleetSpec, Observations
from fleet.simulation import Simulation
from tests.fleet.builders import START, chatters, coders, drained


def play(spec: FleetSpec, seconds: float) -> tuple[Simulation, list[Attempt], dict[str, Observations]]:
    """Run; attempts and observations of each replica after the start."""
    sim = Simulation(replace(spec, lead=60.0))
    sim.run(START + seconds)
    seen = {r.name: r.engines[0].observations.drain() for r in sim.replicas}
    return sim, sim.drain_attempts(), seen


def fault(kind: str, pool: str, lasts: float | None = None, at: float = 0.0, **params: Any) -> FaultSpec:
    replicas = params.pop("replicas", None)
    label = params.pop("label", None)
    return FaultSpec(kind, START + at, lasts, pool, replicas, params, label)


def median_gap(seen: Observations) -> float:
    return statistics.median(g.gap for g in seen.gaps)


def test_an_unknown_mechanism_or_pool_is_refused_at_once() -> None:
    sim = Simulation(chatters(1.0))
    with pytest.raises(ConfigError, match="gremlins"):
        sim.inject(fault("gremlins", "talk"))
    with pytest.raises(ConfigError, match="elsewhere"):
        sim.inject(fault("slow", "elsewhere"))


def test_a_throttled_gpu_slows_its_replica_and_shows_it() -> None:
    sim, _, seen = play(chatters(1.0, fault("slow", "talk", replicas=(1,), factor=0.4)), 240)
    assert median_gap(seen["talk-1"]) > 2.0 * median_gap(seen["talk-0"])
    good, bad = (r.gpus[0] for r in sim.replicas)
    assert bad.sm_clock_hz < 0.5 * good.sm_clock_hz
    assert bad.throttle == {"thermal"}
    assert bad.temperature > good.temperature


def test_a_wedged_engine_answers_nothing_and_is_restarted_at_the_end() -> None:
    sim = Simulation(replace(chatters(1.0, fault("wedge", "talk", 90.0, at=30.0, replicas=(0,))), lead=60.0))
    sim.run(START + 60)
    before = sim.replicas[0].counters["generation_tokens"]
    started = sim.replicas[0].process_start
    sim.run(START + 110)
    assert sim.replicas[0].up
    assert sim.replicas[0].counters["generation_tokens"] == before
    assert sim.replicas[0].gauges["running"] + sim.replicas[0].gauges["waiting"] > 0
    sim.run(START + 140)
    assert not sim.replicas[0].up
    sim.run(START + 300)
    assert sim.replicas[0].process_start > started
    assert sim.replicas[0].counters["generation_tokens"] > 0
    assert any(a.status == 502 for a in sim.drain_attempts())


def test_a_restart_begins_new_counters_and_loses_what_ran() -> None:
    sim = Simulation(
        replace(chatters(2.0, fault("restart", "talk", at=60.0, replicas=(0,), down=10.0)), lead=60.0)
    )
    sim.run(START + 59)
    before = sim.replicas[0].counters["prompt_tokens"]
    sim.run(START + 75)
    assert 0 < sim.replicas[0].counters["prompt_tokens"] < before
    assert sim.replicas[0].process_start == START + 70.0
    lost = [a for a in sim.drain_attempts() if a.status == 502]
    assert lost
    assert {a.upstream for a in lost} == {"talk-0:8000"}


def test_a_pod_that_goes_leaves_its_name_and_address_to_the_next() -> None:
    down = fault("scale", "talk", add=-1, at=30.0)
    up = fault("scale", "talk", add=1, at=260.0)
    sim = Simulation(replace(chatters(1.0, down, up), lead=60.0))
    sim.run(START + 10)
    first = sim.replicas[1]
    sim.run(START + 255)
    assert [r.name for r in sim.replicas] == ["talk-0"]
    assert first.terminated
    sim.run(START + 400)
    again = sim.replicas[1]
    assert again is not first
    assert again.address == first.address
    assert again.process_start > first.process_start
    assert [e.kind for e in sim.events] == ["scale", "scale"]


def test_a_rolling_release_drains_each_replica_and_changes_version() -> None:
    roll = fault("rolling", "talk", gap=60.0, version="0.11.9", at=10.0)
    sim, attempts, _ = play(chatters(1.0, roll), 400)
    assert {r.version for r in sim.replicas} == {"0.11.9"}
    assert {r.release for r in sim.replicas} == {"r2"}
    assert not [a for a in attempts if a.status in (502, 503)]


def test_a_leak_takes_memory_until_requests_wait_though_nothing_runs() -> None:
    leak = fault("leak", "talk", replicas=(0,), share=20.0)
    sim, _, _ = play(chatters(1.0, leak), 300)
    gauges = sim.replicas[0].gauges
    assert gauges["pinned_blocks"] > 0
    assert gauges["kv_usage"] > 0.9
    assert gauges["waiting"] > 0
    assert sim.replicas[1].gauges["pinned_blocks"] == 0


def test_zombies_keep_slots_and_memory_and_the_ledger_does_not_close() -> None:
    leave = fault("knobs", "talk", aborts=0.3)
    spec = chatters(1.5, leave, fault("zombies", "talk", replicas=(0,)), router="round_robin")
    sim, _, seen = play(spec, 180)
    bad, good = sim.replicas
    assert bad.gauges["running"] > 3 * good.gauges["running"]
    assert bad.gauges["pinned_blocks"] > 0
    c = bad.counters
    assert c["started"] - c["finished_stop"] - c["finished_length"] - c["finished_abort"] > 20
    assert len(seen["talk-1"].aborts) > 5 > len([a for a in seen["talk-0"].aborts if a.phase == "decode"])


def test_a_salted_prompt_never_hits() -> None:
    sim, _, _ = play(coders(5), 200)
    sim.inject(fault("knobs", "code", salt=True))
    before = sim.replicas[0].counters
    sim.run(START + 400)
    after = sim.replicas[0].counters
    hits, asked = (after[k] - before[k] for k in ("cached_tokens", "query_tokens"))
    assert hits < 0.1 * asked


def test_rejected_drafts_make_tokens_slower_and_nothing_else() -> None:
    _, _, seen = play(chatters(1.0, fault("acceptance", "talk", replicas=(0,), factor=0.1)), 180)
    lengths = {
        name: statistics.median(f.accept_length for f in o.finishes if f.accept_length)
        for name, o in seen.items()
    }
    assert lengths["talk-0"] < 1.3 < 1.8 < lengths["talk-1"]
    assert sum(bool(f.corrupt) for o in seen.values() for f in o.finishes) < 3


def test_host_stalls_leave_the_median_alone() -> None:
    _, _, seen = play(chatters(1.0, fault("stall", "talk", replicas=(0,), seconds=1.5, every=10.0)), 200)
    assert median_gap(seen["talk-0"]) == pytest.approx(median_gap(seen["talk-1"]), rel=0.15)
    assert max(g.gap for g in seen["talk-0"].gaps) > 1.4 > 0.8 > max(g.gap for g in seen["talk-1"].gaps)


def test_the_gateway_holds_requests_before_idle_engines() -> None:
    _, attempts, seen = play(chatters(1.0, fault("gateway", "talk", delay=3.0)), 200)
    at_client = statistics.median(a.ttft for a in attempts if a.ttft is not None)
    at_engine = statistics.median(f.ttft for o in seen.values() for f in o.finishes)
    assert at_client > 1.0 > 0.3 > at_engine


def test_engine_errors_are_counted_and_logged() -> None:
    sim, attempts, _ = play(chatters(1.0, fault("errors", "talk", replicas=(1,), share=0.5)), 200)
    failed = [a for a in attempts if a.status == 500]
    assert {a.upstream for a in failed} == {"talk-1:8000"}
    assert sim.replicas[1].http[500] >= len(failed) > 20
    assert sim.replicas[1].counters["finished_error"] == sim.replicas[1].http[500]
    assert any(a.retry > 0 for a in attempts)


def test_slow_transfers_raise_the_first_token_but_not_the_gaps() -> None:
    def ttft(*faults: FaultSpec) -> tuple[float, float]:
        sim = Simulation(replace(disaggregated(2), start=START, lead=30.0, faults=faults))
        sim.run(START + 150)
        attempts = [a for a in sim.drain_attempts() if a.pool == "docs-p" and a.ttft is not None]
        gaps = [
            g.gap for r in sim.replicas if r.role == "decode" for e in r.engines for g in e.observations.gaps
        ]
        return statistics.median(a.ttft or 0.0 for a in attempts), statistics.median(gaps)

    fast, slow = ttft(), ttft(fault("transfer", "docs-d", slowdown=9.0))
    assert slow[0] > 2.0 * fast[0]
    assert slow[1] < 1.5 * fast[1]


def test_a_pinned_rank_queues_while_its_sisters_idle() -> None:
    sim = Simulation(
        replace(
            data_parallel(2),
            start=START,
            lead=30.0,
            faults=(fault("rank_skew", "moe-a", replicas=(0,), rank=2),),
        )
    )
    sim.run(START + 150)
    loads = [e.gauges["running"] + e.gauges["waiting"] for e in sim.replicas[0].engines]
    assert loads[2] == max(loads)
    assert loads[2] > 5 * max(1.0, sum(loads) - loads[2])


def test_adapters_that_do_not_fit_are_loaded_again_and_again() -> None:
    def loads(*faults: FaultSpec) -> float:
        sim = Simulation(replace(adapters(2), start=START, lead=30.0, faults=faults))
        sim.run(START + 150)
        return sum(r.counters["adapter_loads"] for r in sim.replicas)

    assert loads(fault("knobs", "chat-a", lora_uniform=True)) > 3 * loads()


def test_a_slow_host_tier_makes_hits_that_cost_more_than_computing_would() -> None:
    def ttft(*faults: FaultSpec) -> tuple[float, float]:
        sim = Simulation(replace(tiered(2), start=START, lead=240.0, faults=faults))
        sim.run(START + 200)
        finishes = [f for o in drained(sim) for f in o.finishes if f.workload == "coding-agent"]
        by = {s: [f.ttft for f in finishes if f.cache_source == s] for s in ("host", "device")}
        assert len(by["host"]) > 50
        return statistics.median(by["host"]), statistics.median(by["device"])

    host, device = ttft(fault("offload", "coder-a", slowdown=20.0))
    assert host > 3.0 > 1.0 > device
    assert ttft()[0] < 1.0


def test_texts_of_one_replica_break_and_behave_so() -> None:
    rule = fault("corrupt", "talk", replicas=(1,), share=0.2, kinds=["loop", "garble"])
    _, _, seen = play(chatters(1.5, rule), 250)
    bad = [f for f in seen["talk-1"].finishes if f.corrupt]
    assert len(bad) > 30
    assert sum(bool(f.corrupt) for f in seen["talk-0"].finishes) < 3
    loops = [f.accept_length or 0.0 for f in bad if f.corrupt == "loop"]
    garbled = [f.accept_length or 0.0 for f in bad if f.corrupt == "garble"]
    assert min(loops) > 3.4 > 1.5 > max(garbled)
    assert any(f.finish_reason == "length" for f in bad)


def test_texts_break_with_load_where_load_is_the_cause() -> None:
    rule = fault("corrupt", "talk", by="load", share=0.5, low=0.3, high=1.0, busy=30, kinds=["garble"])
    _, _, seen = play(chatters(4.0, rule, fault("wave", "talk", factor=0.25, period=120.0)), 360)
    finishes = sorted((f for o in seen.values() for f in o.finishes), key=lambda f: f.running + f.waiting)
    quarter = len(finishes) // 4
    calm, busy = (sum(bool(f.corrupt) for f in part) for part in (finishes[:quarter], finishes[-quarter:]))
    assert busy > 5 * max(1, calm)


def test_a_poisoned_session_stays_bad() -> None:
    rule = fault("corrupt", "code", share=0.2, poison=1.0, kinds=["bad_tool_call"])
    _, _, seen = play(coders(8, rule), 500)
    turns: dict[str, list[bool]] = {}
    for f in sorted(seen["code-0"].finishes, key=lambda f: (f.session, f.turn)):
        turns.setdefault(f.session, []).append(bool(f.corrupt))
    after = [bad for t in turns.values() if any(t) for bad in t[t.index(True) + 1 :]]
    assert len(after) > 30
    assert 0.75 < statistics.mean(after) < 1.0


def test_impatient_clients_multiply_their_requests() -> None:
    storm = fault("stampede", "talk", 120.0, at=60.0, stop=30.0, retries=8, deadline=3.0)
    _, attempts, _ = play(chatters(2.0, storm), 240)
    calm = sum(a.ts < START + 60 for a in attempts) / 60
    wild = sum(START + 60 <= a.ts < START + 100 for a in attempts) / 40
    assert wild > 2 * calm
    assert max(a.retry for a in attempts) >= 5


def test_the_truth_names_what_really_happened() -> None:
    more = replace(
        fault("knobs", "talk", 240.0, at=120.0, rate=5.0, label="capacity_shortfall"), note="too many"
    )
    spec = replace(chatters(1.5, more, max_running=10), lead=60.0, end=START + 900, name="over")
    sim = Simulation(spec)
    sim.run(START + 900)
    truth = sim.truth()
    assert {k: truth[k] for k in ("scenario", "seed", "start", "end")} == {
        "scenario": "over",
        "seed": 3,
        "start": int(START),
        "end": int(START + 900),
    }
    (incident,) = truth["incidents"]
    assert incident["kind"] == "capacity_shortfall"
    assert incident["replicas"] == ["talk-0", "talk-1"]
    assert incident["classes"] == ["chat"]
    assert (incident["start"], incident["end"]) == (START + 120, START + 360)
    assert incident["load_correlated"] is None
    assert incident["note"] == "too many"
    first, last = incident["ttft_impact"]
    assert START + 120 <= first < START + 260
    assert START + 360 <= last <= START + 900


def test_what_must_stay_silent_is_no_incident() -> None:
    sim, _, _ = play(chatters(1.0, fault("restart", "talk", replicas=(0,))), 60)
    truth = sim.truth()
    assert truth["incidents"] == []
    assert [e["kind"] for e in truth["events"]] == ["restart"]


def test_telemetry_faults_touch_the_telemetry_alone() -> None:
    sim = Simulation(replace(chatters(1.0, fault("telemetry", "talk", 60.0, stale=True)), lead=30.0))
    sim.run(START + 30)
    assert all(r.telemetry == {"stale": True} for r in sim.replicas)
    sim.run(START + 90)
    assert all(not r.telemetry for r in sim.replicas)


@pytest.mark.parametrize("kind", sorted(MECHANISMS))
def test_every_mechanism_can_begin_and_end_and_leaves_the_fleet_working(kind: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "tenant_rate": {"tenant": "acme", "factor": 2.0},
        "mix": {"rates": {"chat": 1.5}},
        "scale": {"add": 1},
        "newcomer": {"prompt": 4_000, "rate": 0.5},
    }
    spec = replace(chatters(1.0, fault(kind, "talk", 60.0, at=20.0, **needed.get(kind, {}))), lead=20.0)
    sim = Simulation(spec)
    sim.run(START + 300)
    drained(sim)
    sim.drain_attempts()
    sim.run(START + 360)
    good = [a for a in sim.drain_attempts() if a.status == 200]
    assert len(good) > 60
    for replica in sim.all_replicas():
        for engine in replica.engines:
            engine.cache.check()


def test_a_front_end_that_sits_on_requests_delays_them_and_nothing_else() -> None:
    _, _, seen = play(chatters(1.0, fault("front_end", "talk", replicas=(0,), share=0.3, delay=6.0)), 240)
    late = {name: statistics.mean(f.ttft > 1.5 for f in o.finishes) for name, o in seen.items()}
    assert 0.15 < late["talk-0"] < 0.4
    assert late["talk-1"] == 0.0
    assert all(f.ttft > f.queue > 1.0 for f in seen["talk-0"].finishes if f.ttft > 1.5)
