"""Storms come from work and memory, and go with them."""

from __future__ import annotations

import statistics

from fleet.model import FaultSpec, FleetSpec
from fleet.simulation import Simulation
from tests.fleet.builders import START, chatters, coders


def minutes(spec: FleetSpec, count: int) -> list[dict[str, float]]:
    """Per minute: hit rate, prompt tokens computed, completions, median TTFT, preemptions."""
    sim = Simulation(spec)
    rows = []
    before: dict[str, float] | None = None
    for i in range(count + 1):
        sim.run(START + 60.0 * i)
        total = {k: sum(r.counters[k] for r in sim.replicas) for k in sim.replicas[0].counters}
        ttft = [f.ttft for r in sim.replicas for e in r.engines for f in e.observations.drain().first_tokens]
        if before is not None:
            d = {k: total[k] - before[k] for k in total}
            rows.append(
                {
                    "hit": d["cached_tokens"] / max(1.0, d["query_tokens"]),
                    "computed": d["prefill_computed_tokens"],
                    "evicted": d["evicted_tokens"],
                    "done": d["finished_stop"] + d["finished_length"],
                    "preempted": d["preemptions"],
                    "ttft": statistics.median(ttft) if ttft else 0.0,
                    "waiting": sum(r.gauges["waiting"] for r in sim.replicas),
                    "running": sum(r.gauges["running"] for r in sim.replicas),
                }
            )
        before = total
    return rows


def mean(rows: list[dict[str, float]], key: str) -> float:
    return statistics.mean(r[key] for r in rows)


def test_more_agents_than_the_cache_can_hold_make_a_storm_that_fades_when_they_leave() -> None:
    more = FaultSpec("knobs", START + 600, 900, "code", None, {"rate": 3.0})
    rows = minutes(coders(11, more, kv=1_000_000), 50)
    calm, storm, after = rows[3:10], rows[14:24], rows[40:50]
    assert mean(calm, "hit") > 0.9
    assert mean(storm, "hit") < 0.6
    assert mean(after, "hit") > 0.9
    assert mean(storm, "computed") > 4 * mean(calm, "computed")
    assert mean(storm, "ttft") > 20 * mean(calm, "ttft")
    # Three times the users, but each gets less done: work is done twice.
    assert mean(storm, "done") / 33 < 0.7 * mean(calm, "done") / 11
    assert mean(after, "ttft") < 3 * mean(calm, "ttft")


def test_the_same_agents_make_no_storm_where_memory_is_large() -> None:
    more = FaultSpec("knobs", START + 600, 900, "code", None, {"rate": 3.0})
    rows = minutes(coders(11, more, kv=20_000_000), 25)
    assert mean(rows[14:24], "hit") > 0.85
    assert mean(rows[14:24], "evicted") == 0.0


def test_longer_contexts_alone_make_a_storm() -> None:
    longer = FaultSpec("knobs", START + 600, None, "code", None, {"context": 2.5, "new": 3.0})
    rows = minutes(coders(12, longer, kv=1_000_000), 40)
    assert mean(rows[3:10], "hit") > 0.9
    assert mean(rows[30:40], "hit") < 0.75


def test_long_answers_on_little_memory_are_preempted_and_running_falls_as_waiting_rises() -> None:
    longer = FaultSpec("knobs", START + 300, 600, "talk", None, {"output": 4.0})
    rows = minutes(chatters(0.8, longer, replicas=1, kv_tokens=48_000), 40)
    assert mean(rows[1:5], "preempted") < 2
    assert mean(rows[8:14], "preempted") > 20
    assert mean(rows[8:14], "waiting") > 20
    assert mean(rows[34:40], "waiting") < 2


def test_round_robin_destroys_hits_without_more_evictions_than_memory_explains() -> None:
    fault = FaultSpec("routing", START + 600, None, "code", None, {"policy": "round_robin"})
    rows = minutes(coders(16, fault, kv=3_000_000, replicas=4), 20)
    assert mean(rows[3:10], "hit") > 0.9
    assert mean(rows[10:14], "hit") < 0.8
    assert mean(rows[10:14], "evicted") < 0.2 * mean(rows[10:14], "computed")


def test_a_restart_costs_the_cache_but_it_comes_back() -> None:
    fault = FaultSpec("restart", START + 600, None, "code", (0,), {})
    rows = minutes(coders(10, fault, kv=1_500_000), 25)
    assert min(r["hit"] for r in rows[10:14]) < 0.6
    assert mean(rows[18:25], "hit") > 0.9
