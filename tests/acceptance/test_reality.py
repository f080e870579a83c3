"""The verdicts hold in a world less tidy than the labelled histories: slower scrapes, later data, missing families, less past."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from bench.score import score
from core.config import load_config
from detectors.backtest import backtest
from sql.store import Store
from tests.acceptance.coarser import Coarser
from tests.acceptance.conftest import Run

pytestmark = [pytest.mark.shared, pytest.mark.prometheus, pytest.mark.timeout(900)]

FAULTS = ("garble_replica-11", "overload-11", "slow_replica-11", "storm_load-11", "storm_preempt-11")
CALM = ("calm-11", "calm_deploy-11", "calm_mix-11")
WORLDS = {
    "a scrape every 30 s, 30 s of lag": (2, 30.0, frozenset[str](), 0.0),
    "a scrape every 60 s, 60 s of lag": (4, 60.0, frozenset[str](), 0.0),
    "no GPU metrics": (
        1,
        30.0,
        frozenset({"gpu_sm_clock_hz", "gpu_power_watts", "gpu_temperature_celsius"}),
        0.0,
    ),
    "no queue time": (1, 30.0, frozenset({"queue_time_seconds"}), 0.0),
    "forty minutes less of past": (1, 30.0, frozenset[str](), 2400.0),
}


def judged(one: Run, world: str) -> tuple[int, list[str], list[str]]:
    """(right, said, false alarms) in one of the worlds."""
    every, lag, without, skipped = WORLDS[world]
    truth = one.scenario.truth
    with Store.open(one.database, read_only=True) as store:
        seen = cast(Store, Coarser(store, every, without))
        found = [
            i.as_json()
            for i in backtest(seen, load_config(one.config), truth["start"] + skipped, truth["end"], lag)
        ]
    s = score(truth, found)
    return sum(r.right for r in s.rows), [r.said for r in s.rows], [f"{f}" for f in s.false]


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_every_fault_keeps_its_name_and_place(run: Callable[[str], Run], world: str) -> None:
    wrong = {}
    for name in FAULTS:
        right, said, false = judged(run(name), world)
        if not right or false:
            wrong[name] = (said, false)
    assert not wrong


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_calm_stays_calm(run: Callable[[str], Run], world: str) -> None:
    raised = {name: false for name in CALM if (false := judged(run(name), world)[2])}
    assert not raised
