"""p99 per class over 24 hours at one-minute steps for 200 replicas, from the minute roll-ups.

    python -m bench.rollup_p99 [--replicas 200] [--hours 24] [--url URL] [--json]

The history is written through the store as collectors write it (one scrape a minute and replica, fixed seed), three classes in
six pools with two bucket layouts. Timed is what a page does: read, put on a grid, 1,440 percentiles per class with intervals.
Goal: under 0.3 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from app.services import latency
from app.services.view import View
from core.frames import Layout, Reading, Target, column
from sql.store import Store

START = 1_790_000_000.0 // 86400 * 86400
CLASSES = ("coding-agent", "chat", "batch")
LAYOUTS = (
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
    (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0),
)  # fmt: skip


def fill(store: Store, replicas: int, hours: float) -> None:
    """Write the history, ten minutes a transaction."""
    random = np.random.default_rng(11)
    targets = []
    for i in range(replicas):
        edges = LAYOUTS[i % 2]
        layout = Layout((column("ttft_seconds", "histogram", edges, class_=CLASSES[i % 3]),))
        target = Target(
            f"r{i}:8000", pool=f"{CLASSES[i % 3]}-{i % 2}", replica=f"r{i}", source="bench", model="m"
        )
        values = np.searchsorted(edges, random.lognormal(0.0, 1.2, 4000), side="left")
        share = np.bincount(values, minlength=len(edges) + 1) / 4000
        targets.append((target, layout, share, np.zeros(len(edges) + 1, np.int64)))
    minutes = int(hours * 60)
    batch: list[Reading] = []
    for minute in range(minutes + 1):
        t = START + minute * 60.0 + 1
        for target, layout, share, counts in targets:
            counts += random.poisson(60 * share)
            batch.append(
                Reading(target, t, layout, np.zeros(0), counts.copy(), np.array([counts.sum() * 1.0]))
            )
        if minute % 10 == 9 or minute == minutes:
            store.append(batch)
            batch = []
            print(f"\r{minute}/{minutes} minutes written", end="", file=sys.stderr)
    print(file=sys.stderr)


def measure(store: Store, hours: float) -> tuple[float, int]:
    """Seconds of one read, and how many percentiles it gave."""
    start, end = START, START + hours * 3600
    view = View(start, end, live=False)
    begin = time.perf_counter()
    found = latency.load(store, "ttft_seconds", view, start, end, 60.0)
    points = sum(
        len(latency.series_of(hists, 0.99, start, 60.0, draw_from=start).value) for hists in found.values()
    )
    return time.perf_counter() - begin, points


def main() -> None:
    """Write once, read ten times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--url", default="", help="database to fill; a temporary SQLite file by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or f"sqlite:///{Path(folder) / 'rollups.db'}"
        with Store.open(url) as store:
            fill(store, options.replicas, options.hours)
        with Store.open(url, read_only=True) as store:
            times = [measure(store, options.hours) for _ in range(10)]
    seconds = [t for t, _ in times]
    result = {
        "replicas": options.replicas,
        "hours": options.hours,
        "percentiles": times[0][1],
        "first_s": round(seconds[0], 3),
        "median_s": round(statistics.median(seconds), 3),
        "best_s": round(min(seconds), 3),
        "goal_s": 0.3,
    }
    print(json.dumps(result) if options.json else "\n".join(f"{k:12} {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
