"""Conservation, determinism, and requests whose course can be computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fleet.fleets import disaggregated, standard
from fleet.model import ENGINE_COUNTERS, FaultSpec, FleetSpec
from fleet.simulation import Simulation
from tests.fleet.builders import START, chatters, coders, drained, single

MONOTONE = [name for name in ENGINE_COUNTERS if name != "stall_seconds"]


def check_books(sim: Simulation) -> None:
    for replica in sim.all_replicas():
        for engine in replica.engines:
            engine.cache.check()
            c = engine.state.counters
            ended = sum(c[f"finished_{why}"] for why in ("stop", "length", "abort", "error"))
            inside = len(engine.everything())
            if engine.spec.role == "decode":
                inside += sim.transfers.waiting(engine)
            assert c["started"] == ended + inside
            assert c["accepted_tokens"] <= c["draft_tokens"]
            assert c["cached_tokens"] <= c["query_tokens"]
            held = sum(s.own for s in engine.everything())
            assert held == engine.cache.owned
            for name, value in engine.state.gauges.items():
                assert value >= 0.0, name
            assert 0.0 <= engine.state.gauges["kv_usage"] <= 1.0
            assert engine.state.gauges["running"] <= engine.max_running


def run_checked(spec: FleetSpec, seconds: float) -> Simulation:
    """Look every 30 s: books balance, counters of a process never fall."""
    sim = Simulation(spec)
    before: dict[int, dict[str, float]] = {}
    for i in range(int(seconds / 30) + 1):
        sim.run(spec.start + 30.0 * i)
        check_books(sim)
        for replica in sim.all_replicas():
            for engine in replica.engines:
                now = dict(engine.state.counters)
                last = before.get(id(engine.state), now)
                assert all(now[name] >= last[name] for name in MONOTONE)
                before[id(engine.state)] = now
    return sim


def test_nothing_is_lost_in_a_fleet_of_all_classes() -> None:
    sim = run_checked(replace(standard(1), lead=60.0), 300)
    flow = sim.gateway_flow
    assert flow.started == flow.completed + sum(sim.gateway.in_flight.values())


def test_nothing_is_lost_when_memory_is_short_and_requests_are_preempted() -> None:
    sim = run_checked(chatters(4.0, kv_tokens=24_000, replicas=1), 300)
    assert sum(r.counters["preemptions"] for r in sim.replicas) > 20


def test_nothing_is_lost_between_prefill_and_decode() -> None:
    spec = disaggregated(1)
    slow = FaultSpec("transfer", spec.start + 60, 120, "docs-d", None, {"slowdown": 10.0, "failures": 0.1})
    sim = run_checked(replace(spec, faults=(slow,), lead=60.0), 330)
    decode = [r for r in sim.replicas if r.role == "decode"]
    assert sum(r.counters["transfers"] for r in decode) > 300
    assert sum(r.counters["transfer_failures"] for r in decode) > 5


def test_tokens_of_finished_requests_are_the_tokens_counted() -> None:
    spec = chatters(3.0, FaultSpec("knobs", START + 240, None, "talk", None, {"rate": 0.0}), kv_tokens=40_000)
    sim = Simulation(replace(spec, lead=0.0))
    sim.run(START + 1500)
    assert sum(sim.gateway.in_flight.values()) == 0
    seen = drained(sim)
    output = sum(f.output_tokens for o in seen for f in o.finishes)
    output += sum(a.output_tokens for o in seen for a in o.aborts)
    assert sum(r.counters["generation_tokens"] for r in sim.replicas) == pytest.approx(
        output, abs=len(sim.replicas)
    )
    told = sum(g.tokens for o in seen for g in o.gaps) + sum(len(o.first_tokens) for o in seen)
    assert told == pytest.approx(output, rel=0.01)
    computed = sum(r.counters["prefill_computed_tokens"] for r in sim.replicas)
    asked = sum(r.counters["query_tokens"] - r.counters["cached_tokens"] for r in sim.replicas)
    assert computed <= asked
    assert computed == pytest.approx(asked, rel=0.02)  # aborted in the middle of their prefill


def test_the_same_seed_gives_the_same_fleet_and_another_seed_another() -> None:
    def story(seed: int) -> list[tuple[float, str, int]]:
        sim = Simulation(chatters(2.0, seed=seed))
        sim.run(START + 100)
        return [(a.ts, a.id, a.output_tokens) for a in sim.drain_attempts()]

    assert story(1) == story(1)
    assert story(1) != story(2)


@pytest.mark.parametrize("step", [0.7, 13.0, 300.0])
def test_how_the_run_is_split_changes_nothing(step: float) -> None:
    fault = FaultSpec("slow", START + 60, 60, "talk", (0,), {"factor": 0.5})
    spec = chatters(2.0, fault, kv_tokens=60_000)
    spec = replace(spec, lead=60.0)
    whole, split = Simulation(spec), Simulation(spec)
    whole.run(START + 200)
    t = START
    while t < START + 200:
        t = min(START + 200, t + step)
        split.run(t)
    assert [(a.ts, a.id, a.status, a.ttft) for a in whole.drain_attempts()] == [
        (a.ts, a.id, a.status, a.ttft) for a in split.drain_attempts()
    ]
    for a, b in zip(whole.replicas, split.replicas, strict=True):
        assert a.counters == b.counters
        assert a.gauges == b.gauges
        assert a.gpus == b.gpus
    count = [sum(g.count for o in drained(s) for g in o.gaps) for s in (whole, split)]
    assert count[0] == count[1]


def test_a_lone_request_takes_the_time_that_its_tokens_take() -> None:
    # 4,000 prompt tokens in two steps of 2,000 (0.01 + 0.2 s each), then 100 steps of 10 ms.
    sim = Simulation(single(4_000, 101, rate=0.02))
    sim.run(START + 2_000)
    all_ = sorted((f for o in drained(sim) for f in o.finishes), key=lambda f: f.t)
    spans = [(f.t - f.e2e, f.t) for f in all_]
    lone = [
        f
        for i, f in enumerate(all_)
        if all(b <= spans[i][0] or a >= spans[i][1] for k, (a, b) in enumerate(spans) if k != i)
    ]
    assert len(lone) > 10
    for finish in lone:
        assert finish.ttft == pytest.approx(0.42, abs=1e-6)
        assert finish.e2e == pytest.approx(1.42, abs=1e-6)
        assert (finish.prompt_tokens, finish.output_tokens, finish.finish_reason) == (4_000, 101, "stop")


def test_a_long_prompt_makes_the_others_wait_for_their_next_token() -> None:
    sim = Simulation(single(20_000, 400, rate=0.3, kv_tokens=800_000))
    sim.run(START + 300)
    gaps = [g for o in drained(sim) for g in o.gaps]
    assert min(g.gap for g in gaps) == pytest.approx(0.01, abs=1e-6)
    assert max(g.gap for g in gaps) > 0.2


def test_an_engine_that_prefills_apart_shows_the_whole_wait_as_one_gap() -> None:
    spec = single(20_000, 400, rate=0.3, kv_tokens=800_000)
    sim = Simulation(replace(spec, pools=(replace(spec.pools[0], engine="sglang"),)))
    sim.run(START + 300)
    assert max(g.gap for o in drained(sim) for g in o.gaps) > 2.0


def test_a_prompt_that_can_never_fit_is_refused_and_the_others_go_on() -> None:
    sim = Simulation(single(200_000, 10, rate=0.1))
    sim.run(START + 300)
    attempts = sim.drain_attempts()
    assert attempts
    assert {a.status for a in attempts} == {400}
    check_books(sim)


def test_clients_give_up_when_the_first_token_does_not_come() -> None:
    spec = chatters(9.0, replicas=1, max_running=8)
    sim = Simulation(spec)
    sim.run(START + 400)
    gone = [a for a in sim.drain_attempts() if a.status == 499 and a.ttft is None and a.duration > 30.0]
    assert len(gone) > 50
    assert all(math.isclose(a.duration, 60.0, abs_tol=1e-6) for a in gone if a.duration > 59.9)
    assert any(a.retry == 1 for a in gone)
    waited = [a for o in drained(sim) for a in o.aborts if a.phase == "queue"]
    assert waited


def test_agents_find_their_context_in_the_cache() -> None:
    sim = Simulation(coders(6))
    sim.run(START + 600)
    c = sim.replicas[0].counters
    assert 0.9 < c["cached_tokens"] / c["query_tokens"] < 0.99
