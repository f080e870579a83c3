"""What ``gustfront odd`` finds, how often it speaks without cause, and how long it takes: ``python -m
bench.odd``.

Found: five minutes of a simulated fault (it bites from its second minute on, and the past must be six
windows long); does the first row name the faulty pool and one of the replicas really hit? Without cause:
windows of 5, 10 and 15 minutes of calm histories, and of fault histories before the fault. Time: 24
replicas of 40 signals, scraped every 15 s, ten minutes against two hours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from app.services.odd import CELL, odd
from bench.histories import History, history
from core.frames import Column, Layout, Reading, Target, column
from core.signals import SIGNALS
from detectors.series.rarity import BLOCKS
from sql.store import Store

EDGES = tuple(0.001 * 2**i for i in range(20))
START = 1_790_000_000.0 // 3600 * 3600
FAULTS = [
    "storm_load", "storm_preempt", "slow_replica", "prefix_routing", "tenant_burst", "kv_leak", "head_of_line", "overload",
    "retry_storm", "kv_transfer_slow",
]  # fmt: skip
CALM = ["calm", "calm_mix"]
CHANGED = ["calm_quiet", "calm_tenant"]
"""Traffic that really changes without being a fault: rows are right there, and counted apart."""
LENGTHS = (300.0, 600.0, 900.0)


def forty() -> Layout:
    """15 gauges, 15 counters, 10 histograms of 20 buckets."""
    columns: list[Column] = []
    for kind, wanted in (("gauge", 15), ("counter", 15), ("histogram", 10)):
        ids = [s.id for s in SIGNALS.values() if s.kind == kind][:wanted]
        columns += [column(i, kind, EDGES if kind == "histogram" else (), class_="chat") for i in ids]  # type: ignore[arg-type]
    return Layout(tuple(columns))


def readings(replicas: int, scrapes: int) -> Iterator[list[Reading]]:
    """One list a scrape: cumulative values that move as a steady fleet's do."""
    rng = np.random.default_rng(1)
    layout = forty()
    targets = [
        Target(f"r{i}:8000", pool=f"p{i // 8}", replica=f"r{i}", source="bench") for i in range(replicas)
    ]
    g, n, s = layout.size
    counts, sums = np.zeros((replicas, n), np.int64), np.zeros((replicas, s))
    for k in range(scrapes):
        counts += rng.poisson(3.0, counts.shape)
        sums += rng.gamma(3.0, 0.1, sums.shape)
        gauges = rng.poisson(10.0, (replicas, g)).astype(np.float64)
        yield [
            Reading(t, START + 15.0 * k, layout, gauges[i], counts[i].copy(), sums[i].copy())
            for i, t in enumerate(targets)
        ]


def speed(replicas: int = 24) -> None:
    """Wall and processor seconds of one question, after one that filled the caches."""
    scrapes = (120 + 10) * 4 + 8
    with tempfile.TemporaryDirectory() as folder, Store.open(f"sqlite:///{Path(folder) / 'odd.db'}") as store:
        batch: list[Reading] = []
        for one in readings(replicas, scrapes):
            batch += one
            if len(batch) >= 2000:
                store.append(batch)
                batch = []
        store.append(batch)
        end = START + 15.0 * (scrapes - 4) // CELL * CELL
        for _ in range(2):
            wall, cpu = time.perf_counter(), time.process_time()
            report = odd(store, end - 600.0, end)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{replicas} replicas, {report.tested} series against {report.past_seconds / 60:.0f} min: "
        f"{wall:.2f} s, {cpu:.2f} CPU s, {len(report.rows)} rows"
    )


def named(one: History, start: float, length: float = 300.0) -> tuple[bool, bool, int]:
    """Whether the first row, and whether one of the first three, names the fault's pool and a replica it hit; rows in all."""
    fault = one.truth["incidents"][0]
    with Store.open(one.config.database, read_only=True) as store:
        rows = odd(store, start, start + length).rows
    right = [r.pool == fault["pool"] and bool(set(r.replicas) & set(fault["replicas"])) for r in rows]
    return any(right[:1]), any(right[:3]), len(rows)


def quiet_windows(one: History, length: float, rng: np.random.Generator, count: int) -> list[int]:
    """Rows of random windows that end before anything happened."""
    first, last = float(one.truth["start"]), float(one.truth["end"])
    happened = [float(i["start"]) for i in one.truth["incidents"]] + [
        float(e["ts"]) for e in one.truth.get("events", [])
    ]
    last = min([last, *(t - 60.0 for t in happened)])
    low = first + (BLOCKS + 1) * length
    if last - length <= low:
        return []
    with Store.open(one.config.database, read_only=True) as store:
        starts = rng.uniform(low, last - length, count) // CELL * CELL
        return [len(odd(store, float(s), float(s) + length).rows) for s in starts]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--windows", type=int, default=6, help="quiet windows a history and length")
    parser.add_argument("--faults", nargs="*", default=FAULTS)
    parser.add_argument("--calm", nargs="*", default=CALM)
    options = parser.parse_args()
    speed()
    first = third = total = 0
    for name in options.faults:
        for seed in options.seeds:
            one = history(name, seed)
            fault = one.truth["incidents"][0]
            # Two minutes in: past the onset, and inside the shortest fault.
            top, three, rows = named(one, float(fault["start"]) // CELL * CELL + 120.0)
            first, third, total = first + top, third + three, total + 1
            print(
                f"  {name} {seed}: {'first row' if top else 'rows 2-3' if three else 'not named'}, {rows} rows"
            )
    if total:
        print(
            f"fault's pool and replica named by the first row: {first} of {total}, by the first three: {third}"
        )
    rng = np.random.default_rng(1)
    for what, names in (("quiet", options.calm + options.faults), ("changed", CHANGED)):
        for length in LENGTHS:
            rows = [
                n
                for name in names
                for seed in options.seeds
                for n in quiet_windows(history(name, seed), length, rng, options.windows)
            ]
            if rows:
                print(
                    f"{what} windows of {length / 60:.0f} min: {len(rows)}, {np.mean(np.asarray(rows) > 0):.1%} with a row, "
                    f"{np.mean(rows):.2f} rows a window, at most {max(rows)}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
