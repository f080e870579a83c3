"""Writers and readers at once, in threads and in processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from core.records import Problem, RequestRecord
from core.requests import fine_edges, fold
from sql.store import Store
from tests.sql.make import DONE, T0, TTFT, reading, target

ROOT = Path(__file__).resolve().parents[2]


def run(*jobs: Callable[[], None]) -> None:
    """Run jobs in threads; the first error of any is raised."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_writers_of_one_pool_lose_no_rollups(opener: Callable[[], Store]) -> None:
    opener().close()

    def writer(name: str) -> Callable[[], None]:
        def work() -> None:
            with opener() as store:
                for i in range(30):
                    store.append(
                        [reading(15.0 * i, {TTFT: ((i, i, 0, 0), 1.0 * i), DONE: i}, of=target(name))]
                    )
                    store.add_problems(
                        [Problem(T0, "s", code, "x", "m") for code in (f"{i % 5}", name, "same")]
                    )

        return work

    run(*[writer(f"r{i}") for i in range(3)])
    with opener() as store:
        assert sum(r.n for r in store.rollups("ttft_seconds", 0, 1e11)) == 3 * 29 * 2
        assert sum(r.n for r in store.rollups("ttft_seconds", 0, 1e11, resolution=3600)) == 3 * 29 * 2
        assert sum(r.n for r in store.rollups("request_success_total", 0, 1e11)) == 3 * 29
        assert {p.count for p in store.problems() if p.code == "same"} == {90}


def test_two_collectors_of_the_same_targets_count_once(opener: Callable[[], Store]) -> None:
    opener().close()

    def collector() -> None:
        with opener() as store:
            for i in range(30):
                store.append([reading(15.0 * i, {DONE: 2 * i}, of=target(f"r{k}")) for k in range(3)])

    run(collector, collector)
    with opener() as store:
        assert sum(r.n for r in store.rollups("request_success_total", 0, 1e11)) == 3 * 29 * 2
        assert len(list(store.frames(0, 1e11))) == 3 * 29
        assert store.events() == []


def test_writers_in_several_processes_lose_no_rollups(store_url: str) -> None:
    Store.open(store_url).close()
    code = """
import sys
from sql.store import Store
from tests.sql.make import DONE, reading, target
with Store.open(sys.argv[1]) as store:
    for i in range(25):
        store.append([reading(15.0 * i, {DONE: i}, of=target(sys.argv[2]))])
"""
    started = [
        subprocess.Popen([sys.executable, "-c", code, store_url, f"r{i}"], cwd=ROOT, stderr=subprocess.PIPE)
        for i in range(3)
    ]
    for p in started:
        _, err = p.communicate(timeout=120)
        assert p.returncode == 0, err.decode()
    with Store.open(store_url, read_only=True) as store:
        assert sum(r.n for r in store.rollups("request_success_total", 0, 1e11)) == 3 * 24


def test_imports_that_run_together_lose_no_requests(opener: Callable[[], Store]) -> None:
    opener().close()
    cells = fold([RequestRecord(T0 + i, 200, "chat", 1.0, 0.1, 10, 5) for i in range(200)], fine_edges())

    def importer() -> None:
        with opener() as store:
            for _ in range(10):
                store.add_requests(cells)

    run(importer, importer)
    with opener() as store:
        assert sum(c.n for _, c in store.request_cells(0, 1e11)) == 2 * 10 * 200
        assert sum(int(c.ttft[1].sum()) for _, c in store.request_cells(0, 1e11)) == 2 * 10 * 200


def test_a_reader_sees_whole_batches_while_a_writer_writes(
    store_url: str, opener: Callable[[], Store]
) -> None:
    opener().close()
    finished = threading.Event()
    looks: list[int] = []

    def write() -> None:
        try:
            with opener() as store:
                for i in range(60):
                    store.append([reading(15.0 * i, {DONE: i}, of=target(f"r{k}")) for k in range(4)])
        finally:
            finished.set()

    def read() -> None:
        with Store.open(store_url, read_only=True) as store:
            while not finished.is_set():
                n = len(list(store.frames(0, 1e11)))
                assert n % 4 == 0
                assert not looks or n >= looks[-1]
                looks.append(n)

    run(write, read)
    assert len(looks) > 2
    with opener() as store:
        assert len(list(store.frames(0, 1e11))) == 4 * 59


def test_threads_share_one_store(store: Store) -> None:
    def work(k: int) -> Callable[[], None]:
        def go() -> None:
            for i in range(15):
                store.append([reading(15.0 * i, {DONE: i}, of=target(f"r{k}"))])
                store.rollup_matrix("request_success_total", 0, 1e11)
                list(store.frames(0, 1e11))

        return go

    run(*[work(k) for k in range(4)])
    assert sum(r.n for r in store.rollups("request_success_total", 0, 1e11)) == 4 * 14
