"""``gustfront demo``: what it refuses, the past it writes, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands.demo import CONFIG, CURSOR, clear, take_folder
from app.demo_fleet import Orders
from app.demo_history import HistoryMaker
from app.fleet_ingest import Gather, tools_of
from core.config import load_config
from core.errors import EnvironmentProblem
from fleet import scenarios
from fleet.faces.targets import Seen
from fleet.model import Attempt, FleetSpec, PoolSpec, TrafficSpec
from fleet.simulation import Simulation
from sql.store import Store

ROOT = Path(__file__).resolve().parents[2]
START = 1_790_000_100.0


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["demo", *arguments])
    return result.exit_code, result.output


# ---------------------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--scenario", "nonsense"), "no such scenario"),
        (("--speed", "0"), "must be more than 0"),
        (("--write", "x"), "name a scenario with --scenario"),
        (("--write", "x", "--scenario", "calm", "--hours", "1000"), "between 0.25 and 48"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_2(arguments: tuple[str, ...], says: str) -> None:
    code, text = invoke(*arguments)
    assert code == 2
    assert says in " ".join(text.split())


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, text = invoke("--port", port, "--dir", str(tmp_path / "d"))
    assert code == 3
    assert f"127.0.0.1:{port} cannot be listened on" in " ".join(text.split())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    code, text = invoke("--port", "0", "--dir", str(tmp_path / "f" / "d"))
    assert code == 3
    assert "cannot be written" in text


def test_two_demonstrations_do_not_share_a_folder(tmp_path: Path) -> None:
    with take_folder(tmp_path), pytest.raises(EnvironmentProblem, match="another demonstration is running"):
        take_folder(tmp_path)
    take_folder(tmp_path).close()


def test_a_database_that_is_no_demonstration_is_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "demo.db"
    with Store.open(f"sqlite:///{database}"):
        pass
    with pytest.raises(EnvironmentProblem, match="left alone"):
        clear(tmp_path)
    assert database.exists()
    database.write_text("something else")
    with pytest.raises(EnvironmentProblem, match="move it away"):
        clear(tmp_path)
    assert database.read_text() == "something else"


def test_what_an_earlier_demonstration_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/demo.db") as store:
        store.set_cursor(CURSOR, "{}")
    for name in ("demo.json", "history.done", "requests.jsonl.1", "mine.txt"):
        (tmp_path / name).write_text("")
    clear(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_scenarios_can_be_listed() -> None:
    code, text = invoke("--list")
    assert code == 0
    assert text.split() == ["story", *scenarios.names()]


def test_orders_travel_through_their_file(tmp_path: Path) -> None:
    orders = Orders(1234, "storm_load", 2.0, 5)
    orders.write(tmp_path)
    assert Orders.read(tmp_path) == orders
    spec, story = orders.fleet(START)
    assert (spec.faults, spec.start, spec.end) == ((), START, None)
    assert any(s.fault is not None for s in story)
    assert sum(p.replicas for p in Orders(1).fleet(START)[0].pools) == 24


# ----------------------------------------------------------------------------------------------------- its past


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Three replicas with half a day behind them."""
    folder = tmp_path_factory.mktemp("past")
    path = folder / "gustfront.yaml"
    names = {n: json.dumps(str(folder / f"{n}.jsonl")) for n in ("gateway", "answers")}
    url = json.dumps(f"sqlite:///{folder}/demo.db")
    path.write_text(
        CONFIG.format(database=url, control="http://127.0.0.1:9", host="127.0.0.1", port=1, **names)
    )
    config = load_config(path)
    pools = (
        PoolSpec("chat-a", replicas=2, version="0.32.0"),
        PoolSpec("mixed-s", "sglang", 1, version="0.5.18"),
    )
    traffic = (TrafficSpec("chat", "chat-a", rate=0.5), TrafficSpec("batch", "mixed-s", rate=0.2))
    sim = Simulation(FleetSpec(pools, traffic, start=START, lead=30.0, seed=2))
    lines: list[str] = []
    attempts: list[Attempt] = []
    with Store.open(config.database) as store:
        source = config.sources[0].scrape
        assert source is not None
        gather = Gather(tools_of(config), source, "127.0.0.1:9")
        maker = HistoryMaker(
            store, config, sim, gather, log_answers=lines.extend, log_attempts=attempts.extend,
            long=10 * 3600.0, recent=1800.0, fresh=420.0,
        )  # fmt: skip
        maker.write()
        seen: list[Seen] = []
        maker.catch_up(START + 480, seen.append)
        yield {"store": store, "sim": sim, "lines": lines, "attempts": attempts, "seen": seen}


def test_the_past_has_no_gap_no_restart_and_no_doubled_minute(past: dict[str, Any]) -> None:
    store: Store = past["store"]
    spans: dict[int, list[tuple[float, float]]] = {}
    for frame in store.frames(0, START + 1000):
        assert not frame.reset
        spans.setdefault(frame.target_id, []).append((frame.t0, frame.t1))
    assert len(spans) == 6
    for many in spans.values():
        assert all(a[1] == b[0] for a, b in pairwise(many))
        assert many[-1][1] - many[0][0] > 9 * 3600
    assert store.events(0, START + 1000) == []
    assert store.problems() == []


def test_the_past_shows_classes_with_the_traffic_of_the_present(past: dict[str, Any]) -> None:
    store: Store = past["store"]
    totals: dict[str, float] = {}
    hour: dict[str, float] = {}
    for (class_, *_), (ts, counts, _) in store.rollup_matrix("ttft_seconds", 0, START + 1000, 3600).items():
        totals[class_] = totals.get(class_, 0.0) + float(counts.sum())
        hour[class_] = hour.get(class_, 0.0) + float(np.median(counts.sum(axis=1)[1:-1]))
        assert len(ts) >= 9
    assert set(totals) == {"chat", "batch"}
    rate = sum(a.workload == "chat" for a in past["attempts"]) / 420 * 3600
    assert 0.5 * rate < hour["chat"] < 2.0 * rate


def test_the_gateway_log_of_the_past_is_folded_and_that_of_the_present_is_left_to_the_importer(
    past: dict[str, Any],
) -> None:
    store: Store = past["store"]
    cells = store.request_cells(0, START + 1000)
    newest = max(key.minute for key, _ in cells)
    oldest_line = min(a.ts for a in past["attempts"])
    assert newest < oldest_line
    assert oldest_line - newest < 150


def test_answers_of_the_past_are_sampled_once_each(past: dict[str, Any]) -> None:
    ids = [json.loads(line)["id"] for line in past["lines"]]
    assert len(ids) == len(set(ids)) > 20


# ---------------------------------------------------------------------------------------------- stopping at once


def test_ctrl_c_while_the_past_is_written_leaves_nothing_running_and_the_database_intact(
    tmp_path: Path,
) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folder = tmp_path / "d"
    command = [sys.executable, "-m", "app.cli", "demo", "--dir", str(folder), "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log)
        try:
            end = time.monotonic() + 60
            while "simulating" not in (tmp_path / "log").read_text() and time.monotonic() < end:
                time.sleep(0.2)
            demo.send_signal(signal.SIGINT)
            assert demo.wait(15) == 0, (tmp_path / "log").read_text()
        finally:
            demo.kill()
            demo.wait()
    assert running(str(folder)) == []
    with sqlite3.connect(folder / "demo.db") as c:
        assert c.execute("pragma integrity_check").fetchone() == ("ok",)


def running(text: str) -> list[str]:
    """Command lines that hold ``text``."""
    out = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                out.append(line)
    return out
