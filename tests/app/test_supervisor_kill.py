"""``gustfront run`` killed with ``kill -9`` in the middle of ingesting, again and again: real processes, a real database."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from core.errors import StoreError
from core.frames import Frame
from sql.store import Store
from tests.app.test_supervisor import alive, wait_until
from tests.collectors.misbehaving import plain, raw_server
from tests.collectors.test_scrape import vllm
from tests.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 10


@contextmanager
def engines(count: int) -> Iterator[list[int]]:
    """Ports of engines whose counters move with each scrape, served from a thread."""
    ports: list[int] = []
    ready, ending = threading.Event(), threading.Event()

    async def serve() -> None:
        seen = [0] * count
        async with asyncio.TaskGroup() as group:
            for i in range(count):
                group.create_task(engine(i, seen))
            while not ending.is_set():
                await asyncio.sleep(0.05)
                if len(ports) == count:
                    ready.set()

    async def engine(i: int, seen: list[int]) -> None:
        async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
            if b"GET /metrics" in head:
                seen[i] += 1
                writer.write(plain(vllm(seen[i], requests=seen[i] + 2)))
            else:
                writer.write(plain(b"", "404 Not Found"))
            return True

        async with raw_server(answer) as port:
            ports.append(port)
            while not ending.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield ports
    finally:
        ending.set()
        thread.join(10)


def children_of(pid: int) -> list[int]:
    """Direct children of a process."""
    out: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        out += [int(p) for p in (task / "children").read_text().split()]
    return out


def frames_in(database: Path) -> list[Frame]:
    """All committed frames, none while there is no database."""
    try:
        with Store.open(f"sqlite:///{database}", read_only=True) as store:
            return list(store.frames(0, 4e9))
    except StoreError:
        return []


def column_value(frame: Frame, signal_id: str) -> float:
    (i,) = [i for i, c in enumerate(frame.layout.columns) if c.signal == signal_id]
    g, n, _ = frame.layout.slots[i]
    return float([*frame.gauges[g], *frame.counts[n]][0])


@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see who is whose child")
def test_ten_kills_lose_no_committed_frame_leave_no_child_and_the_next_start_works(tmp_path: Path) -> None:
    rng = random.Random(4)
    database = tmp_path / "g.db"
    started: list[subprocess.Popen[bytes]] = []
    everyone: set[int] = set()
    with engines(3) as ports, (tmp_path / "log").open("wb") as log:
        config = tmp_path / "gustfront.yaml"
        targets = [f"127.0.0.1:{p}" for p in ports]
        scrape = {
            "name": "e",
            "targets": targets,
            "every": "400ms",
            "timeout": "400ms",
            "labels": {"pool": "p"},
        }
        config.write_text(
            yaml.safe_dump({"database": f"sqlite:///{database}", "sources": [{"scrape": scrape}]})
        )
        port = free_port()
        command = [sys.executable, "-m", "app.cli", "--config", str(config), "run", "--port", str(port)]
        try:
            for _ in range(ROUNDS):
                process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
                started.append(process)
                before = len(frames_in(database))
                wait_until(lambda n=before: len(frames_in(database)) >= n + 6, 60)  # type: ignore[misc]
                assert process.poll() is None
                time.sleep(rng.uniform(0, 0.8))
                children = children_of(process.pid)
                assert len(children) == 3
                everyone.update(children)
                kept = {(f.target_id, f.t1) for f in frames_in(database)}
                process.send_signal(signal.SIGKILL)
                process.wait()
                wait_until(lambda: not any(map(alive, everyone)), 10.0)
                assert kept <= {(f.target_id, f.t1) for f in frames_in(database)}
        finally:
            for process in started:
                process.kill()
                process.wait()
            for pid in everyone:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
    with sqlite3.connect(database) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()
    frames = frames_in(database)
    for target in {f.target_id for f in frames}:
        own = [f for f in frames if f.target_id == target]
        assert len(own) >= ROUNDS
        for x, y in pairwise(own):
            # The gauge counts scrapes and the counter a hundred a scrape: each increment is exactly what happened since, over
            # the kills too.
            scrapes = column_value(y, "requests_running") - column_value(x, "requests_running")
            assert column_value(y, "generation_tokens_total") == 100 * scrapes
            assert y.t0 == x.t1


def test_ctrl_c_ends_the_real_commands_within_five_seconds(tmp_path: Path) -> None:
    config = tmp_path / "gustfront.yaml"
    config.write_text(yaml.safe_dump({"database": f"sqlite:///{tmp_path}/g.db"}))
    command = [sys.executable, "-m", "app.cli", "--config", str(config), "run", "--port", str(free_port())]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(children_of(process.pid)) == 3, 30)
        children = children_of(process.pid)
        time.sleep(4)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 5
        assert not any(map(alive, children))
    finally:
        process.kill()
        process.wait()


def test_a_taken_port_ends_the_start_with_code_3_before_anything_runs(tmp_path: Path) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = tmp_path / "gustfront.yaml"
        config.write_text(yaml.safe_dump({"database": f"sqlite:///{tmp_path}/g.db"}))
        command = [
            sys.executable,
            "-m",
            "app.cli",
            "--config",
            str(config),
            "run",
            "--port",
            str(other.getsockname()[1]),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "--port" in done.stderr
    assert not (tmp_path / "g.db").exists()
