"""A writer killed in the middle: what was acknowledged is there, nothing is there by half."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from sql.store import Store
from tests.sql.make import DONE, T0, TTFT

ROOT = Path(__file__).resolve().parents[2]
TARGETS = 12
WRITER = f"""
import sys
from sql.store import Store
from tests.sql.make import DONE, TTFT, reading, target
targets = [target(f"r{{i}}") for i in range({TARGETS})]
with Store.open(sys.argv[1]) as store:
    first = int(sys.argv[2])
    for i in range(first, first + 100_000):
        store.append([reading(15.0 * i, {{DONE: 3 * i, TTFT: ((i, 0, i, 0), 2.0 * i)}}, of=t) for t in targets])
        print(i, flush=True)
"""


def test_a_killed_writer_loses_nothing_acknowledged_and_leaves_nothing_half_done(store_url: str) -> None:
    Store.open(store_url).close()
    draw = random.Random(11)
    acknowledged = -1
    for _ in range(4):
        acknowledged = max(
            acknowledged, _write_and_kill(store_url, acknowledged + 1, draw.uniform(0.05, 0.4))
        )
        newest = _check(store_url, acknowledged)
        acknowledged = max(acknowledged, newest)
    assert acknowledged > 8


def _write_and_kill(url: str, first: int, after: float) -> int:
    """Let a writer run for ``after`` seconds beyond its first commits, kill it; the last tick that it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(first)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert all(lines), "the writer ended by itself"
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    whole = [line for line in lines if line.endswith(b"\n")]
    return int(whole[-1])


def _check(url: str, acknowledged: int) -> int:
    """Every tick is there for all targets or for none; roll-ups and states agree with the frames. Returns the last tick."""
    with Store.open(url) as store:
        ticks: dict[int, int] = defaultdict(int)
        done = seconds = 0.0
        for f in store.frames(0, 1e11):
            ticks[round((f.t1 - T0) / 15)] += 1
            done += int(f.counts[0])
            seconds += float(f.sums[0])
        last = max(ticks)
        assert last >= acknowledged
        assert ticks == dict.fromkeys(range(1, last + 1), TARGETS)
        assert (done, seconds) == (3 * last * TARGETS, pytest.approx(2.0 * last * TARGETS))
        for signal_, per_tick in ((DONE.signal, 3), (TTFT.signal, 2)):
            for unit in (False, True):
                rows = store.rollups(signal_, 0, 1e11, per_unit=unit)
                assert sum(r.n for r in rows) == per_tick * last * TARGETS
        assert {t.last_seen for t in store.targets()} == {T0 + 15 * last}
        return last
