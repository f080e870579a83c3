"""One seed of six kinds through simulation, store and detectors: each named right, nothing else said, and the peers beside."""

from __future__ import annotations

import pytest

from bench.histories import history, kept
from bench.judged import judge
from bench.peers.run import run
from bench.report import Total
from fleet import scenarios

pytestmark = pytest.mark.timeout(900)
SIX = ("storm_load", "prefix_salt", "overload", "slow_replica", "wedged", "garble_replica")


@pytest.mark.parametrize("name", SIX)
def test_a_fault_of_a_small_simulated_fleet_is_named_right_and_nothing_else_is_said(name: str) -> None:
    one = judge(name, 1)
    assert [r.kind for r in one.score.rows] == [scenarios.scenarios()[name].kind]
    total = Total.of([one])
    assert total.right == 1, one.score.rows
    assert total.false == ()
    assert total.duplicates == 0


def test_a_calm_history_is_silent() -> None:
    assert Total.of([judge("calm_surge", 1)]).false == ()


def test_a_verdict_is_kept_and_given_again() -> None:
    first = judge("wedged", 1)
    again = judge("wedged", 1)
    assert again.seconds == 0.0
    assert again.found == first.found
    assert kept("wedged", 1)
    assert not kept("wedged", 987_654)


def test_peers_read_the_same_store_and_see_the_storm_that_they_are_made_to_see() -> None:
    """A dead engine behind work that waits: whoever alerts on a queue sees it, as Gustfront does."""
    ours, peers = run("wedged", 1)
    assert ours.score.rows[0].right
    assert set(peers) == {
        "Grafana adaptive bands", "Grafana robust bands", "Netdata k-means", "p99 above objective for 5 min",
        "KV usage > 90 %", "waiting > 0", "preemptions > 0",
    }  # fmt: skip
    fault = history("wedged", 1).truth["incidents"][0]
    late = peers["waiting > 0"] + peers["p99 above objective for 5 min"]
    assert any(a["pools"] == [fault["pool"]] and a["ended_at"] > fault["start"] for a in late)
