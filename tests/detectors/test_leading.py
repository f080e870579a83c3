"""Two detectors over one database: one leads, the other takes over when it dies; no incident is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from core.beats import DETECT_STANDBY
from core.config import load_config
from detectors.leading import LEASE, LEAST_S, Leader
from detectors.service import STATE, LeaseLost, Live
from sql.store import Store
from tests.detectors.fleet import START, History
from tests.detectors.test_backtest import readings, stormy

__all__ = ["stormy"]  # fixtures

ROOT = Path(__file__).resolve().parents[2]
SPEED = 30.0
# The service as it is, on a clock that begins in the middle of the history and runs faster.
PROGRAM = """
import logging, sys, threading, time
from core.config import load_config
from detectors.service import run_detect
logging.basicConfig(level=logging.INFO)
first, began = float(sys.argv[2]), float(sys.argv[3])
run_detect(load_config(sys.argv[1]), threading.Event(), clock=lambda: first + (time.time() - began) * float(sys.argv[4]))
"""


def eventually(condition: Callable[[], bool], seconds: float) -> float:
    """Seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + seconds, "it did not happen in time"
        time.sleep(0.05)
    return time.monotonic() - begin


def test_the_standby_takes_over_from_a_leader_that_is_killed_and_the_incident_is_told_once(
    tmp_path: Path, stormy: History
) -> None:
    file = tmp_path / "gustfront.yaml"
    file.write_text(f"database: sqlite:///{tmp_path}/g.db\ndetect: {{lag: 30s, every: 1s}}\n")
    database = load_config(file).database
    with Store.open(database) as store:
        store.append(readings(stormy))
        began = str(time.time() + 3)
        argv = [sys.executable, "-c", PROGRAM, str(file), str(START + 33 * 60), began, str(SPEED)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for n in range(2):
                with (tmp_path / f"{n}.log").open("wb") as log:
                    processes.append(subprocess.Popen(argv, cwd=ROOT, stderr=log))
            eventually(lambda: store.lease(LEASE) is not None, 20)
            eventually(lambda: store.get_cursor(DETECT_STANDBY) is not None, 20)
            eventually(lambda: any(i.state == "open" for i in store.incidents()), 25)
            held = store.lease(LEASE)
            assert held is not None
            leader = next(p for p in processes if f":{p.pid}:" in held.holder)
            (other,) = (p for p in processes if p is not leader)
            leader.kill()
            leader.wait()
            took = eventually(lambda: f":{other.pid}:" in getattr(store.lease(LEASE), "holder", ""), 15)
            assert took <= 2 * LEAST_S
            eventually(lambda: all(i.state == "resolved" for i in store.incidents()), 40)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        incidents = store.incidents()
        (storm,) = (i for i in incidents if i.kind == "kv_eviction_storm")
        for incident in incidents:
            told = Counter(entry.action for entry in store.incident_log(incident.id))
            assert told["opened"] <= 1
            assert told["resolved"] == 1
        assert storm.detected_at is not None
    logs = [(tmp_path / f"{n}.log").read_text() for n in range(2)]
    second = logs[processes.index(other)]
    assert second.count("this one stands by") == 1
    assert second.count("this detector leads") == 1
    assert "Traceback" not in "".join(logs)


def test_what_a_detector_found_after_it_lost_the_lease_is_not_stored(stormy: History, tmp_path: Path) -> None:
    file = tmp_path / "fence.yaml"
    file.write_text(f"database: sqlite:///{tmp_path}/f.db\ndetect: {{lag: 30s}}\n")
    settings = load_config(file)
    with Store.open(settings.database) as store:
        store.append(readings(stormy))
        paused = Live(store, settings, holder="paused")
        assert store.acquire_lease(LEASE, "other", 30) is not None
        with pytest.raises(LeaseLost):
            paused.tick(START + 36 * 60)
        assert store.load_state(STATE) is None
        assert store.incidents() == []


def test_a_leader_that_stops_gives_the_lease_back_at_once(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/g.db") as store:
        first, second = Leader(store, 15), Leader(store, 15)
        assert first.lead()
        assert not second.lead()
        first.close()
        assert second.lead()
        assert second.term > 0
        second.close()
        assert store.lease(LEASE) is None
