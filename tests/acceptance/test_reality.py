"""The verdicts hold in a world less tidy than the labelled histories: slower scrapes, later data, missing families, less past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from bench.score import score
from core.config import load_config
from detectors.backtest import backtest
from sql.store import Store
from tests.acceptance.coarser import Coarser
from tests.acceptance.conftest import Run

pytestmark = [pytest.mark.shared, pytest.mark.prometheus, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class World:
    """Scrapes taken as one, lag in seconds, signals nobody exports, seconds of unknown past; the histories to look at."""

    every: int = 1
    lag: float = 30.0
    without: frozenset[str] = frozenset()
    skipped: float = 0.0
    histories: tuple[str, ...] = ()


WORLDS = {
    "a scrape every 60 s, 60 s of lag": World(
        every=4, lag=60.0, histories=("storm_load-11", "slow_replica-11", "calm_mix-11")
    ),
    "no GPU metrics": World(
        without=frozenset({"gpu_sm_clock_hz", "gpu_power_watts", "gpu_temperature_celsius"}),
        histories=("slow_replica-11",),
    ),
    "no queue time": World(without=frozenset({"queue_time_seconds"}), histories=("storm_load-11",)),
    "forty minutes less of past": World(skipped=2400.0, histories=("slow_replica-11",)),
}


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_every_fault_keeps_its_name_and_place_and_calm_stays_calm(
    run: Callable[[str], Run], world: str
) -> None:
    w, wrong = WORLDS[world], {}
    for name in w.histories:
        one = run(name)
        truth = one.scenario.truth
        with Store.open(one.database, read_only=True) as store:
            seen = cast(Store, Coarser(store, w.every, w.without))
            config = load_config(one.config)
            found = backtest(seen, config, truth["start"] + w.skipped, truth["end"], w.lag)
        s = score(truth, [i.as_json() for i in found])
        if not all(r.right for r in s.rows) or s.false:
            wrong[name] = ([r.said for r in s.rows], [str(f) for f in s.false])
    assert not wrong
