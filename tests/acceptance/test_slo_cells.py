"""Attainment per class and hour: exact from the gateway log, an interval that holds it from the engines alone."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.services.engine_slo import engine_tallies
from app.services.slos import slo_rows
from app.services.view import View
from bench.histories import history
from core.classes import ClassRules
from core.config import Config, load_config
from core.slo import Objective
from detectors.backtest import backtest
from sql.store import Store
from tests.acceptance.conftest import NAMES, Run
from tests.slo.truth import per_class_and_hour

pytestmark = [pytest.mark.timeout(1800)]
HOUR = 3600
SIMULATED = (
    "calm", "calm_deploy", "calm_surge", "capacity_lost", "crash_loop", "error_burst", "garble_aborts", "overload",
    "retry_storm", "storm_load", "storm_preempt", "telemetry_vanished",
)  # fmt: skip
"""One of each way in which engines and gateway see different things, those that only the gateway sees aside: an error of the
gateway itself reaches no engine."""


@dataclass
class Cells:
    """How many cells were looked at, which of them miss the truth, how many were not reportable, and how wide they are."""

    n: int = 0
    missed: list[str] = field(default_factory=list)
    unreportable: int = 0
    widths: list[float] = field(default_factory=list)


def look(store: Store, config: Config, log: Path, name: str, into: Cells) -> None:
    """Compare every class and hour of one history."""
    rules = ClassRules.from_config(config.classes)
    objectives = {s.class_: Objective.from_config(s) for s in config.slos if s.signal == "ttft_seconds"}
    limits = {c: o.threshold for c, o in objectives.items()}
    truth = per_class_and_hour(
        log, limits, lambda row: rules.classify({k: str(v) for k, v in row.items() if v is not None})
    )
    oldest, newest = store.oldest(), store.newest()
    assert oldest is not None
    assert newest is not None
    first, last = math.floor(oldest / 60) * 60, math.floor(newest / 60) * 60
    for (class_, hour), counts in sorted(truth.items()):
        seconds = min(hour + HOUR, last) - max(hour, first)
        judged = counts["good"] + counts["bad"]
        if seconds <= 0 or not judged:
            continue
        engine = engine_tallies(
            store, objectives[class_], hour, hour + HOUR, View(hour, hour + HOUR, live=False)
        )
        if engine.covered < 0.95 * seconds / 60:
            into.unreportable += 1
            continue
        low, high = engine.total.within(engine.edge)
        share = counts["good"] / judged
        into.n += 1
        into.widths.append(high - low)
        if not low - 1e-12 <= share <= high + 1e-12:
            into.missed.append(f"{name} {class_} {hour}: {share:.5f} not in {low:.5f}..{high:.5f}")


@pytest.mark.shared
@pytest.mark.prometheus
@pytest.mark.parametrize("name", NAMES)
def test_engines_alone_hold_the_truth_of_every_class_and_hour_of_a_labelled_history(
    name: str, run: Callable[[str], Run]
) -> None:
    one = run(name)
    cells = Cells()
    with Store.open(one.database, read_only=True) as store:
        look(store, load_config(one.config), one.scenario.gateway, name, cells)
    assert cells.n >= 8
    assert not cells.missed
    if name.startswith("calm"):
        assert max(cells.widths) < 0.01, "an interval that says nothing would always be right"


@pytest.mark.shared
@pytest.mark.prometheus
@pytest.mark.parametrize("name", NAMES)
def test_the_gateway_log_gives_exactly_what_its_lines_say_hour_by_hour(
    name: str, run: Callable[[str], Run]
) -> None:
    one = run(name)
    config = load_config(one.config)
    rules = ClassRules.from_config(config.classes)
    limits = {s.class_: s.threshold for s in config.slos}
    truth = per_class_and_hour(
        one.scenario.gateway,
        limits,
        lambda row: rules.classify({k: str(v) for k, v in row.items() if v is not None}),
    )
    hours = sorted({h for _, h in truth})
    with Store.open(one.database, read_only=True) as store:
        for hour in hours:
            shown = {r.config.class_: r for r in slo_rows(store, config, hour, hour + HOUR)}
            for class_ in limits:
                tally = shown[class_].attainment.tally
                expected = truth.get((class_, hour), {"good": 0, "bad": 0, "excluded": 0})
                found = {"good": tally.good, "bad": tally.bad, "excluded": tally.excluded}
                if (class_, hour) in truth:
                    assert shown[class_].point == "gateway"
                    assert found == expected, (class_, hour)
                    assert tally.exact


def test_engines_alone_hold_the_truth_in_99_of_100_cells_of_simulated_histories(tmp_path: Path) -> None:
    cells = Cells()
    for name in SIMULATED:
        made = history(name, 1)
        url = f"sqlite:///{made.folder / 'fleet.db'}"
        if name.startswith("telemetry"):
            # What the product would know by then: where the telemetry lied.
            copy = tmp_path / f"{name}.db"
            with (
                closing(sqlite3.connect(made.folder / "fleet.db")) as kept,
                closing(sqlite3.connect(copy)) as ours,
            ):
                kept.backup(ours)
            url = f"sqlite:///{copy}"
        with Store.open(url) as store:
            if name.startswith("telemetry"):
                start, end = store.oldest(), store.newest()
                assert start is not None
                assert end is not None
                backtest(store, made.config, start, end, lag=30, save=True)
            look(store, made.config, made.folder / "gateway.jsonl", name, cells)
    assert cells.n >= 40
    assert len(cells.missed) <= 0.01 * cells.n, cells.missed
    assert sorted(cells.widths)[len(cells.widths) // 2] < 0.02
