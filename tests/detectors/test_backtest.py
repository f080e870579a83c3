"""Back-test and live service over a real store: the same fold, the same incidents."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.classes import ClassRules
from core.config import load_config
from core.config_models import Config
from core.frames import Layout, Reading
from core.incidents import Incident
from core.roles import Roles
from detectors.backtest import LogLine, backtest
from detectors.service import STATE, Live, run_detect
from sql.store import Store
from tests.conftest import PrometheusStarter, Scenario
from tests.detectors.fleet import START, STEP, History, Normal, history, on

STORM = {"hit": 0.05, "prefill": 1.6, "running": 40, "waiting": 6, "queue": 3.0, "kv": 0.9, "arrivals": 2.0}


def readings(h: History) -> list[Reading]:
    """What collectors would hand over: cumulative values of the same history, one reading before the first frame."""
    out: list[Reading] = []
    total: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for f in h.frames:
        if f.target_id not in total:
            total[f.target_id] = (np.zeros_like(f.counts), np.zeros_like(f.sums))
            zero = np.zeros(f.layout.size[0])
            out.append(
                Reading(h.targets[f.target_id], f.t0, f.layout, zero, *total[f.target_id], start=START - 9e4)
            )
        n, s = total[f.target_id]
        total[f.target_id] = (n + f.counts, s + f.sums)
        out.append(
            Reading(h.targets[f.target_id], f.t1, f.layout, f.gauges, *total[f.target_id], start=START - 9e4)
        )
    return sorted(out, key=lambda r: r.t)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "gustfront.yaml"
    file.write_text(
        f"database: sqlite:///{tmp_path}/g.db\n"
        "detect: {lag: 30s}\n"
        "slos:\n  - {name: chat-ttft, class: chat, signal: ttft, threshold: 1s, objective_percent: 99}\n"
    )
    return load_config(file)


@pytest.fixture
def store(config: Config) -> Iterator[Store]:
    with Store.open(config.database) as s:
        yield s


@pytest.fixture(scope="module")
def stormy() -> History:
    everyone = ["a-0", "a-1", "a-2"]

    def fault(m: float, name: str, n: Normal) -> Normal:
        n = on(everyone, 32, 42, running=25, kv=0.75, arrivals=5.0)(m, name, n)
        return on(everyone, 34, 42, **STORM)(m, name, n)

    return history(60, fault=fault, sample=0.1)


def facts(incidents: list[Incident]) -> list[dict[str, object]]:
    keys = (
        "id",
        "kind",
        "severity",
        "started_at",
        "announced_at",
        "detected_at",
        "diagnosed_at",
        "ended_at",
        "replicas",
        "title",
    )
    return [{k: getattr(i, k) for k in keys} for i in incidents]


def test_a_backtest_finds_the_storm_and_saves_it_only_when_asked(
    store: Store, config: Config, stormy: History
) -> None:
    store.append(readings(stormy))
    store.add_outputs(stormy.outputs)
    log: list[LogLine] = []
    found = backtest(store, config, START, stormy.end, 30.0, log=log)
    assert [i.kind for i in found] == ["kv_eviction_storm"]
    assert store.incidents() == []
    assert [line.action for line in log][-1] == "resolved"
    again = backtest(store, config, START, stormy.end, 30.0, save=True)
    assert facts(again) == facts(found)
    saved = store.incident(found[0].id)
    assert saved is not None
    assert facts([saved]) == facts(found)
    assert [e.action for e in store.incident_log(found[0].id)] == [line.action for line in log]
    json.dumps([i.as_json() for i in found], allow_nan=False)


def test_saving_twice_keeps_one_incident_and_one_log(store: Store, config: Config, stormy: History) -> None:
    store.append(readings(stormy))
    for _ in range(2):
        (i,) = backtest(store, config, START, stormy.end, 30.0, save=True)
    assert len(store.incidents()) == 1
    actions = [e.action for e in store.incident_log(i.id)]
    assert actions.count("opened") == 1


def test_more_lag_means_later_detection_and_no_other_verdict(
    store: Store, config: Config, stormy: History
) -> None:
    store.append(readings(stormy))
    (a,) = backtest(store, config, START, stormy.end, 30.0)
    (b,) = backtest(store, config, START, stormy.end, 90.0)
    assert (a.kind, a.replicas) == (b.kind, b.replicas)
    assert a.detected_at is not None
    assert b.detected_at == a.detected_at + 60


def test_live_ticks_raise_what_the_backtest_raises(store: Store, config: Config, stormy: History) -> None:
    """Data arrive bit by bit, the service is stopped and started twice; the incidents are those of the back-test."""
    rows = readings(stormy)
    live: Live | None = None
    done = 0
    now = START + STEP
    k = 0
    while now <= stormy.end:
        ready = next((i for i in range(done, len(rows)) if rows[i].t > now - 10), len(rows))
        store.append(rows[done:ready])
        done = ready
        if live is None and store.newest() is not None:
            live = Live(store, config, depth=stormy.minutes * 60 + 600)
        if live is not None:
            live.tick(now)
        now, k = now + STEP, k + 1
        if k in (97, 150) and live is not None:
            live.save_state()
            live = Live(store, config, depth=stormy.minutes * 60 + 600)
    want = backtest(store, config, START, stormy.end, 30.0)
    got = store.incidents()
    assert [(i.kind, i.replicas) for i in got] == [(i.kind, i.replicas) for i in want]
    assert [i.detected_at for i in got] == pytest.approx([i.detected_at for i in want], abs=STEP)
    assert got[0].state == "resolved"
    assert store.baseline("kv_eviction_storm", "fleet", stormy.end) is not None


def test_a_live_tick_at_the_same_instant_does_nothing_twice(
    store: Store, config: Config, stormy: History
) -> None:
    store.append(readings(stormy))
    live = Live(store, config)
    live.tick(stormy.end)
    before = live.fold.dump()
    assert live.tick(stormy.end) == []
    assert live.fold.dump() == before


def test_the_lag_is_measured_from_what_arrives(tmp_path: Path, stormy: History) -> None:
    file = tmp_path / "auto.yaml"
    file.write_text(f"database: sqlite:///{tmp_path}/auto.db\n")
    config = load_config(file)
    with Store.open(config.database) as store:
        store.append([r for r in readings(stormy) if r.t < START + 300])
        live = Live(store, config)
        newest = store.newest()
        assert newest is not None
        assert live.measure_lag(newest + 22) == pytest.approx(22, abs=0.1)
        assert live.measure_lag(newest + 1) < 22, "it comes down, but slowly"
        assert live.measure_lag(newest + 1) > 5


def test_the_service_stops_when_told_and_keeps_its_memory(config: Config, stormy: History) -> None:
    with Store.open(config.database) as store:
        store.append(readings(stormy))
    stop = threading.Event()
    clock: Callable[[], float] = lambda: stormy.end + 30  # noqa: E731
    worker = threading.Thread(target=run_detect, args=(config, stop), kwargs={"clock": clock})
    worker.start()
    deadline = time.monotonic() + 20
    with Store.open(config.database) as store:
        while store.load_state(STATE) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        worker.join(20)
        assert not worker.is_alive()
        assert store.load_state(STATE)


def test_a_database_that_is_away_is_waited_for(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    lost = config.model_copy(update={"database": "postgresql://127.0.0.1:1/nothing"})
    worker = threading.Thread(target=run_detect, args=(lost, stop))
    worker.start()
    time.sleep(1.0)
    assert worker.is_alive()
    stop.set()
    worker.join(20)
    assert not worker.is_alive()
    assert sum("waits for the database" in r.message for r in caplog.records) == 1


def test_an_empty_store_has_no_incidents(store: Store, config: Config) -> None:
    assert backtest(store, config, START, START + 600) == []
    assert Live(store, config).tick(START) == []


def test_a_layout_that_changes_in_the_middle_costs_nothing(
    store: Store, config: Config, stormy: History
) -> None:
    """An upgrade adds a column half way: what was learnt before still stands."""
    rows = readings(stormy)
    half = START + 20 * 60
    moved = [replace(r, layout=Layout(tuple(r.layout.columns))) if r.t > half else r for r in rows]
    store.append(moved)
    assert [i.kind for i in backtest(store, config, START, stormy.end, 30.0)] == ["kv_eviction_storm"]


@pytest.mark.shared
@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("name", "kind", "load"),
    [
        ("calm_deploy-11", None, None),
        ("storm_load-11", "kv_eviction_storm", None),
        ("garble_replica-11", "degraded_generations", False),
    ],
)
def test_a_labelled_history_end_to_end(
    name: str,
    kind: str | None,
    load: bool | None,
    scenario: Callable[[str], Scenario],
    prometheus: PrometheusStarter,
    tmp_path: Path,
) -> None:
    """Prometheus → back-fill → outputs → back-test says what the label says."""
    from collectors.backfill import backfill
    from collectors.dictionary import load_dictionary
    from collectors.outputs import import_outputs

    s = scenario(name)
    with prometheus(s.tsdb) as url:
        file = tmp_path / "gustfront.yaml"
        text = (s.folder.parent / "gustfront.yaml").read_text()
        file.write_text(text.replace("http://127.0.0.1:PORT", url).replace("FILE", f"{tmp_path}/s.db"))
        config = load_config(file)
        rules, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
        with Store.open(config.database) as store:
            done = backfill(store, config.sources[0], load_dictionary(), rules, roles, s.start, s.end + 1)
            assert done.complete
            import_outputs(store, s.requests, rules, roles, config=config)
            found = [i for i in backtest(store, config, s.start, s.end + 1, 30.0) if i.severity != "info"]
    assert [i.kind for i in found] == ([kind] if kind else [])
    for i, truth in zip(found, s.truth["incidents"], strict=True):
        overlap = set(i.replicas) & set(truth["replicas"])
        assert len(overlap) / len(set(i.replicas) | set(truth["replicas"])) >= 0.5
        assert i.pools == (truth["pool"],)
        assert i.load_correlated is load
        assert i.detected_at is not None
        assert truth["start"] - 120 <= i.detected_at <= truth["end"] + 600
