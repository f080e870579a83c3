"""The writer and the collector service: order, outages, refusals, heartbeat, every kind of source, imports."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from collectors.selfmetrics import HEARTBEAT, METRICS
from collectors.service import run_collect, spool_folder
from collectors.spool import Spool
from collectors.writer import Writer
from core.config_models import Config
from core.errors import StoreError
from core.frames import Layout, Reading, Target, column
from core.records import Problem
from sql.store import Store
from tests.collectors.misbehaving import always, plain, raw_server
from tests.collectors.test_scrape import vllm

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = Layout((column("requests_running"),))


def reading(t: float, address: str = "a:1") -> Reading:
    return Reading(
        Target(address, pool="p", replica=address),
        t,
        LAYOUT,
        np.array([t]),
        np.empty(0, np.int64),
        np.empty(0),
    )


class Database:
    """A store that notes what it gets and can be switched off, or refuse single readings."""

    def __init__(self) -> None:
        self.away = False
        self.refused: set[float] = set()
        self.got: list[float] = []
        self.cursors: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.opened = 0

    def open(self) -> Database:
        self._check()
        self.opened += 1
        return self

    def _check(self) -> None:
        if self.away:
            raise StoreError("db: connection refused")

    def append(self, readings: Sequence[Reading], *, stream: str = "live", events: bool = True) -> None:
        self._check()
        if any(r.t in self.refused for r in readings):
            raise ValueError("this reading cannot be stored")
        self.got += [r.t for r in readings]

    def add_problems(self, problems: Sequence[Problem]) -> None:
        self._check()
        self.problems += problems

    def set_cursor(self, name: str, value: str) -> None:
        self._check()
        self.cursors[name] = value

    def close(self) -> None:
        pass


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def writer_of(database: Database, spool: Spool, **more: float) -> Writer:
    return Writer(database.open, spool, heartbeat=0.0, **more)  # type: ignore[arg-type]


def skip_backoff(writer: Writer) -> None:
    writer._retry_at = 0.0


def test_readings_are_committed_in_order(spool: Spool) -> None:
    database = Database()
    writer = writer_of(database, spool)
    for t in range(5):
        writer.put(reading(t))
    writer.step()
    assert database.got == [0, 1, 2, 3, 4]
    assert not spool


def test_nothing_is_lost_and_order_holds_over_an_outage(spool: Spool) -> None:
    database = Database()
    writer = writer_of(database, spool)
    for t in range(30):
        database.away = 5 <= t < 20
        writer.put(reading(t))
        writer.step()
        if t == 19:
            skip_backoff(writer)
    for _ in range(3):
        skip_backoff(writer)
        writer.step()
    assert database.got == list(range(30))
    assert not spool
    assert spool.dropped == 0
    assert "database_away" in {p.code for p in database.problems}


def test_an_outage_over_a_restart_of_the_collector_loses_nothing(tmp_path: Path) -> None:
    database = Database()
    database.away = True
    first = writer_of(database, Spool(tmp_path / "s"))
    for t in range(10):
        first.put(reading(t))
        first.step()
    database.away = False
    second = writer_of(database, Spool(tmp_path / "s"))
    second.put(reading(10))
    second.step()
    assert database.got == list(range(11))


def test_while_away_the_database_is_tried_ever_less_often(spool: Spool) -> None:
    database = Database()
    tries = 0

    def opening() -> Database:
        nonlocal tries
        tries += 1
        raise StoreError("away")

    writer = Writer(opening, spool, heartbeat=0.0)
    for t in range(100):
        writer.put(reading(t))
        writer.step()
    assert tries < 5
    assert database.got == []


def test_a_reading_that_the_database_refuses_costs_only_itself(spool: Spool) -> None:
    database = Database()
    database.refused = {3.0, 11.0}
    writer = writer_of(database, spool)
    for t in range(20):
        writer.put(reading(t))
    writer.step()
    writer.step()
    assert database.got == [t for t in range(20) if t not in (3, 11)]
    (problem,) = [p for p in database.problems if p.code == "reading_refused"]
    assert problem.count == 2
    assert "cannot be stored" in problem.message
    assert not spool


def test_a_database_that_refuses_everything_is_taken_for_broken_and_nothing_is_given_up(spool: Spool) -> None:
    database = Database()
    database.refused = {float(t) for t in range(10)}
    writer = writer_of(database, spool)
    for t in range(10):
        writer.put(reading(t))
    writer.step()
    assert spool
    database.refused = set()
    skip_backoff(writer)
    writer.step()
    assert database.got == list(range(10))


def test_a_full_spool_says_how_much_it_gave_up(tmp_path: Path) -> None:
    database = Database()
    database.away = True
    spool = Spool(tmp_path / "s", max_bytes=4000, segment_bytes=1000)
    writer = writer_of(database, spool)
    for t in range(200):
        writer.put(reading(t))
        writer.step()
    database.away = False
    for _ in range(3):
        skip_backoff(writer)
        writer.step()
    assert database.got == list(range(200 - len(database.got), 200))
    (problem,) = [p for p in database.problems if p.code == "spool_full"]
    assert problem.count == spool.dropped == 200 - len(database.got) > 0


def test_without_database_and_disk_the_newest_readings_stay_in_memory(tmp_path: Path) -> None:
    database = Database()
    database.away = True
    (tmp_path / "s").write_text("a file where the folder should be")
    writer = writer_of(database, Spool(tmp_path / "s"), memory_limit=10)
    for t in range(25):
        writer.put(reading(t))
        writer.step()
    database.away = False
    for _ in range(2):
        skip_backoff(writer)
        writer.step()
    assert database.got == list(range(15, 25))
    assert "spool_unwritable" in {p.code for p in database.problems}


def test_a_cursor_is_set_only_when_its_readings_are_safe_in_the_database(spool: Spool) -> None:
    database = Database()
    database.away = True
    writer = writer_of(database, spool)
    writer.put_history([reading(1)], {"live:x": "1"}, threading.Event())
    writer.step()
    assert "live:x" not in database.cursors
    database.away = False
    skip_backoff(writer)
    writer.step()
    assert database.got == [1]
    assert database.cursors["live:x"] == "1"


def test_repeated_problems_are_counted_not_repeated(spool: Spool) -> None:
    database = Database()
    writer = writer_of(database, spool)
    for t in range(5):
        writer.problem(Problem(t, "s", "scrape_timeout", "a:1", f"try {t}"))
    writer.step()
    assert [(p.count, p.ts, p.message) for p in database.problems] == [(5, 4, "try 4")]


def config_of(tmp_path: Path, sources: Sequence[Mapping[str, object]]) -> Config:
    return Config.model_validate({"database": f"sqlite:///{tmp_path}/g.db", "sources": list(sources)})


async def collect_until(config: Config, condition: Callable[[Store], bool], timeout: float = 20.0) -> None:
    """Run the service until the database shows what is waited for."""
    stop = threading.Event()
    task = asyncio.create_task(run_collect(config, stop))
    end = time.monotonic() + timeout
    try:
        while True:
            await asyncio.sleep(0.2)
            if task.done():
                task.result()
            try:
                with Store.open(config.database, read_only=True) as store:
                    if condition(store):
                        return
            except StoreError:
                pass
            assert time.monotonic() < end, "it did not appear in the database"
    finally:
        stop.set()
        await task


async def test_scraped_targets_arrive_with_frames_problems_and_heartbeat(tmp_path: Path) -> None:
    n = 0

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal n
        if b"GET /metrics" in head:
            n += 1
            writer.write(plain(vllm(n, requests=n + 2)))
        else:
            writer.write(plain(b"", "404 Not Found"))
        return True

    async with raw_server(answer) as port:
        targets = [
            {"url": f"127.0.0.1:{port}", "labels": {"pool": "good"}},
            {"url": "127.0.0.1:1", "labels": {"pool": "bad"}},
        ]
        config = config_of(tmp_path, [{"scrape": {"targets": targets, "every": "500ms", "timeout": "400ms"}}])

        def enough(store: Store) -> bool:
            return (
                sum(1 for _ in store.frames(0, 4e9)) >= 3
                and store.get_cursor(HEARTBEAT) is not None
                and len(store.problems()) > 0
            )

        await collect_until(config, enough)
        with Store.open(config.database, read_only=True) as store:
            frames = list(store.frames(0, 4e9))
            targets_found = {t.target.pool: t for t in store.targets()}
            assert abs(float(store.get_cursor(HEARTBEAT) or 0) - time.time()) < 10
            assert "gustfront_scrapes_total" in (store.get_cursor(METRICS) or "")
            assert {p.code for p in store.problems()} == {"scrape_refused"}
    assert targets_found["good"].up
    assert not targets_found["bad"].up
    increments = [int(f.counts.sum()) for f in frames]
    assert all(i > 0 for i in increments)
    spans = [(f.t0, f.t1) for f in frames]
    assert all(x[1] == y[0] for x, y in pairwise(spans))


async def test_followed_files_are_imported_and_what_is_appended_too(tmp_path: Path) -> None:
    log = tmp_path / "gateway.jsonl"
    line = {
        "ts": 1_700_000_000.0,
        "status": 200,
        "workload": "chat",
        "ttft_s": 0.2,
        "duration_s": 1.0,
        "prompt_tokens": 10,
    }
    log.write_text(json.dumps(line) + "\n")
    config = config_of(tmp_path, [{"requests": {"file": str(log)}}])

    def count(store: Store) -> int:
        return sum(cell.n for _, cell in store.request_cells(0, 4e9))

    stop = threading.Event()
    task = asyncio.create_task(run_collect(config, stop))
    try:
        for wanted in (1, 3):
            end = time.monotonic() + 20
            while True:
                await asyncio.sleep(0.3)
                try:
                    with Store.open(config.database, read_only=True) as store:
                        if count(store) == wanted:
                            break
                except StoreError:
                    pass
                assert time.monotonic() < end
            with log.open("a") as file:
                file.write((json.dumps({**line, "ts": 1_700_000_060.0 + wanted}) + "\n") * 2)
    finally:
        stop.set()
        await task


async def test_stopping_commits_what_was_read(tmp_path: Path) -> None:
    async with raw_server(always(plain(vllm()))) as port:
        config = config_of(
            tmp_path, [{"scrape": {"targets": [f"127.0.0.1:{port}"], "every": "200ms", "timeout": "200ms"}}]
        )
        stop = threading.Event()
        task = asyncio.create_task(run_collect(config, stop))
        await asyncio.sleep(3)
        begin = time.monotonic()
        stop.set()
        await task
        ended = time.time()
        assert time.monotonic() - begin < 5
    with Store.open(config.database, read_only=True) as store:
        newest = store.newest()
    assert newest is not None
    assert ended - newest < 1.5


async def test_without_sources_the_collector_keeps_its_heartbeat(tmp_path: Path) -> None:
    await collect_until(config_of(tmp_path, []), lambda store: store.get_cursor(HEARTBEAT) is not None)


def test_the_spool_lies_beside_the_database_and_hides_passwords(tmp_path: Path) -> None:
    assert spool_folder(f"sqlite:///{tmp_path}/x.db") == tmp_path / "x.db-spool"
    assert "secret" not in str(spool_folder("postgresql://u:secret@h/db"))


def test_collecting_loads_neither_the_screens_nor_the_learning_library() -> None:
    code = (
        "import sys, app.cli, collectors.service, collectors.backfill, collectors.doctor;"
        "bad = {'streamlit', 'sklearn', 'plotly'} & set(sys.modules); sys.exit(f'loaded: {bad}' if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
