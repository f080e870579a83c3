"""The collector against real servers: a PostgreSQL that goes away and comes back, a Prometheus that is followed live."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from collectors.service import run_collect
from core.config_models import Config
from core.errors import StoreError
from core.frames import Frame
from sql.store import Store
from tests.app.test_supervisor_kill import column_value
from tests.collectors.misbehaving import plain, raw_server
from tests.collectors.test_scrape import vllm
from tests.conftest import PrometheusStarter
from tests.servers import free_port
from tests.sql import postgres


class Gate:
    """A TCP relay in front of a server that can be shut and opened: to its clients the server goes away and comes back."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._server: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", self.port))
        server.listen()
        self._server = server
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def shut(self) -> None:
        if self._server is not None:
            # A close alone would not wake up the thread that waits in accept().
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        with self._lock:
            for s in self._open:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, there}
            for a, b in ((client, there), (there, client)):
                threading.Thread(target=self._relay, args=(a, b), daemon=True).start()

    def _relay(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        with self._lock:
            if a in self._open:
                self._open.discard(a)
                a.close()


@contextmanager
def gate_to(url: str) -> Iterator[tuple[Gate, str]]:
    """A gate in front of a database URL, open, and the URL through it."""
    target = int(url.rsplit(":", 1)[1].split("/")[0])
    gate = Gate(target)
    gate.open()
    try:
        yield gate, url.replace(f":{target}", f":{gate.port}")
    finally:
        gate.shut()


@asynccontextmanager
async def moving_engine() -> AsyncIterator[int]:
    """An engine whose gauge counts scrapes and whose counter moves by a hundred each."""
    seen = 0

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal seen
        if b"/metrics" in head:
            seen += 1
            writer.write(plain(vllm(seen, requests=seen + 2)))
        else:
            writer.write(plain(b"", "404 Not Found"))
        return True

    async with raw_server(answer) as port:
        yield port


def frames_of(url: str) -> list[Frame]:
    try:
        with Store.open(url, read_only=True) as store:
            return list(store.frames(0, 4e9))
    except StoreError:
        return []


async def until_frames(url: str, after: float, count: int, timeout: float = 60.0) -> list[Frame]:
    end = time.monotonic() + timeout
    while True:
        frames = await asyncio.to_thread(frames_of, url)
        if sum(f.t1 > after for f in frames) >= count:
            return frames
        assert time.monotonic() < end, "the frames did not appear"
        await asyncio.sleep(0.3)


@pytest.mark.postgres
async def test_a_database_that_goes_away_costs_not_one_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := postgres.missing():
        pytest.skip(why)
    monkeypatch.chdir(tmp_path)  # where the spool of a server's database lies
    with postgres.server() as url, gate_to(f"{url}/postgres") as (gate, through):
        async with moving_engine() as port:
            scrape = {
                "targets": [f"127.0.0.1:{port}"],
                "every": "500ms",
                "timeout": "400ms",
                "labels": {"pool": "p"},
            }
            config = Config.model_validate({"database": through, "sources": [{"scrape": scrape}]})
            stop = threading.Event()
            task = asyncio.create_task(run_collect(config, stop))
            try:
                await until_frames(f"{url}/postgres", 0, 3)
                gate.shut()
                away = time.time()
                await asyncio.sleep(6)
                assert list(tmp_path.glob("gustfront-spool-*/*.spool")), "nothing was spooled"
                gate.open()
                back = time.time()
                frames = await until_frames(f"{url}/postgres", back + 1, 2)
            finally:
                stop.set()
                await task
        with Store.open(f"{url}/postgres", read_only=True) as store:
            codes = {p.code for p in store.problems()}
    during = [f for f in frames if away < f.t1 < back]
    assert len(during) >= 10
    for x, y in pairwise(frames):
        assert y.t0 == x.t1
        scrapes = column_value(y, "requests_running") - column_value(x, "requests_running")
        assert scrapes == 1
        assert column_value(y, "generation_tokens_total") == 100
    assert "database_away" in codes
    assert not list(tmp_path.glob("gustfront-spool-*/*.spool"))


@pytest.mark.prometheus
async def test_a_prometheus_server_is_followed_live(tmp_path: Path, prometheus: PrometheusStarter) -> None:
    async with moving_engine() as port:
        scrape = f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: vllm
  static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{pool: p}}}}]
"""
        with prometheus(tmp_path / "tsdb", scrape_config=scrape) as url:
            source = {"url": url, "every": "1s", "lag": "2s"}
            config = Config.model_validate(
                {"database": f"sqlite:///{tmp_path}/g.db", "sources": [{"prometheus": source}]}
            )
            stop = threading.Event()
            task = asyncio.create_task(run_collect(config, stop))
            try:
                frames = await until_frames(config.database, 0, 8)
            finally:
                stop.set()
                await task
    for x, y in pairwise(frames):
        assert y.t0 == x.t1
        scrapes = column_value(y, "requests_running") - column_value(x, "requests_running")
        assert column_value(y, "generation_tokens_total") == 100 * scrapes
