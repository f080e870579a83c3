"""How fast the store takes readings, how many bytes a sample takes, how long roll-ups take to read.

    python bench/store.py [--url URL] [--replicas 200] [--hours 0.5] [--day 12]

Readings are drawn once with a fixed seed: 60 gauges and counters and 20 histograms of 20 buckets a replica, about four of
ten slots moving between two scrapes. The roll-up read is timed on a day of minute roll-ups of three classes.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator

from core.frames import Column, Layout, Reading, Target, column
from core.packing import samples
from core.signals import SIGNALS
from sql.store import Store

EDGES = tuple(0.001 * 2**i for i in range(20))
EVERY = 15.0
START = 1_790_000_000.0 // 3600 * 3600
CLASSES = ("coding-agent", "chat", "batch")


def layout(workload: str) -> Layout:
    """30 gauges, 30 counters and 20 histograms: signals of the registry, the first ones again with a label where short."""
    columns: list[Column] = []
    for kind, wanted in (("gauge", 30), ("counter", 30), ("histogram", 20)):
        ids = [s.id for s in SIGNALS.values() if s.kind == kind]
        for i in range(wanted):
            part = {"stage": str(i // len(ids))} if i >= len(ids) else {}
            edges = EDGES if kind == "histogram" else ()
            columns.append(column(ids[i % len(ids)], kind, edges, class_=workload, **part))  # type: ignore[arg-type]
    return Layout(tuple(columns))


class Fleet:
    """Replicas with cumulative values that move as a busy engine's do."""

    def __init__(self, replicas: int, random: Generator) -> None:
        self.random = random
        layouts = {c: layout(c) for c in CLASSES}
        self.targets = [
            (
                Target(
                    f"10.0.{i // 250}.{i % 250}:8000",
                    pool=CLASSES[i % 3],
                    replica=f"r{i}",
                    source="bench",
                    model="m",
                ),
                layouts[CLASSES[i % 3]],
            )
            for i in range(replicas)
        ]
        _, n, s = self.targets[0][1].size
        self.rate = random.gamma(0.3, 2.0, n)
        self.counts = np.zeros((replicas, n), np.int64)
        self.sums = np.zeros((replicas, s))

    def tick(self, t: float) -> list[Reading]:
        """All replicas at one instant."""
        g = self.targets[0][1].size[0]
        self.counts = self.counts + self.random.poisson(self.rate, self.counts.shape)
        self.sums = self.sums + self.random.gamma(1.0, 1.0, self.sums.shape)
        gauges = self.random.integers(0, 50, (len(self.targets), g)).astype(np.float64)
        return [
            Reading(target, t, lay, gauges[i], self.counts[i], self.sums[i], start=START - 60)
            for i, (target, lay) in enumerate(self.targets)
        ]


def ticks(fleet: Fleet, hours: float, start: float = START) -> Iterator[list[Reading]]:
    """Readings of ``hours``, a list a tick."""
    for i in range(int(hours * 3600 / EVERY) + 1):
        yield fleet.tick(start + i * EVERY)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="database; a new SQLite file if not given")
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--day", type=int, default=12, help="replicas of the day whose roll-ups are read")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        live(args.url or f"sqlite:///{Path(folder) / 'live.db'}", args.replicas, args.hours)
        day(args.url or f"sqlite:///{Path(folder) / 'day.db'}", args.day)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def live(url: str, replicas: int, hours: float) -> None:
    """A commit a tick, as a collector does."""
    fleet = Fleet(replicas, np.random.default_rng(7))
    per_reading = samples(fleet.targets[0][1])
    took: list[float] = []
    cpu = 0.0
    with Store.open(url) as store:
        before = store.size_bytes()
        for batch in ticks(fleet, hours):
            at, used = time.perf_counter(), time.process_time()
            store.append(batch)
            took.append(time.perf_counter() - at)
            cpu += time.process_time() - used
        total = replicas * (len(took) - 1) * per_reading
        size = store.size_bytes() - before
    p50, p99, worst = np.quantile(took[1:], (0.5, 0.99, 1.0)) * 1000
    rate = total / sum(took[1:])
    print(
        f"live: {replicas} replicas x {len(took) - 1} ticks, {per_reading} samples a reading, a commit a tick:"
    )
    print(
        f"  {rate / 1e6:.2f} M samples/s, {rate * EVERY / (replicas * per_reading):.0f} x the rate at which they come"
    )
    print(f"  commit p50 {p50:.0f} p99 {p99:.0f} max {worst:.0f} ms")
    print(f"  {cpu * 1000 / replicas / len(took):.3f} ms of CPU a reading")
    print(f"  {size / total:.2f} bytes a sample (frames, states, roll-ups, indexes)")


def day(url: str, replicas: int) -> None:
    """A day back-filled an hour a call, then read."""
    fleet = Fleet(replicas, np.random.default_rng(8))
    batch: list[Reading] = []
    spent, n = 0.0, 0
    begin = START + 30 * 86_400  # clear of the other part, which may be in the same database
    with Store.open(url) as store:
        for i, tick in enumerate(ticks(fleet, 24, begin)):
            batch += tick
            if i % 240 == 239:
                at = time.perf_counter()
                n += store.append(batch, stream="backfill").inserted
                spent += time.perf_counter() - at
                batch = []
        rate = n * samples(fleet.targets[0][1]) / spent / 1e6
        print(f"back-fill: a day of {replicas} replicas, an hour a call: {rate:.2f} M samples/s")
        signal = next(
            c.signal
            for c in fleet.targets[0][1].columns
            if c.kind == "histogram" and SIGNALS[c.signal].rollup
        )
        end = begin + 86_400
        for step in (60, 300, 3600):
            times = []
            for _ in range(5):
                at = time.perf_counter()
                matrix = store.rollup_matrix(signal, begin, end, step)
                times.append(time.perf_counter() - at)
            shape = "+".join(str(len(ts)) for ts, _, _ in matrix.values())
            print(f"rollup_matrix({signal}, 24 h, step {step} s): {shape} rows, {min(times) * 1000:.1f} ms")
        at = time.perf_counter()
        frames = sum(1 for _ in store.frames(end - 3600, end))
        each = (time.perf_counter() - at) / max(frames, 1) * 1e6
        print(f"frames of an hour: {frames}, {each:.0f} us each")


if __name__ == "__main__":
    main()
