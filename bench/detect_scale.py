"""How long one tick of detection takes for many replicas: ``python bench/detect_scale.py [--replicas 1000] [--hours 1]``.

A made-up quiet fleet of pools of 20 replicas; the cube is filled tick by tick as live detection does it.
Prints milliseconds of filling,
of an ordinary tick and of one in which baselines are learnt anew, as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.frames import Frame, Layout, Target, column
from detectors.contract import Context, Objective
from detectors.cube import Cube
from detectors.fold import REFIT_S, Fold
from detectors.registry import detectors, wanted
from detectors.samples import EMPTY

START = 1_790_000_100.0
STEP = 15.0
EDGES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
LAYOUT = Layout(
    (
        *(
            column(s, class_="chat")
            for s in ("requests_running", "requests_waiting", "kv_cache_usage_ratio", "gpu_sm_clock_hz")
        ),
        *(
            column(s, "counter", class_="chat")
            for s in (
                "prefix_cache_queries_tokens_total",
                "prefix_cache_hit_tokens_total",
                "preemptions_total",
                "request_success_total",
                "generation_tokens_total",
            )
        ),
        *(
            column(s, "histogram", EDGES, class_="chat")
            for s in ("ttft_seconds", "queue_time_seconds", "inter_token_latency_seconds")
        ),
    )
)


def frames(rng: np.random.Generator, count: int, t: float) -> list[Frame]:
    """One scrape of every replica at ``t``."""
    done = rng.poisson(60, count)
    out = []
    for i in range(count):
        n = int(done[i])
        hist = np.bincount(rng.integers(0, 4, n), minlength=len(EDGES) + 1)
        counts = np.concatenate([[n * 2000, n * 1600, 0, n, n * 200], hist, hist, hist])
        gauges = np.asarray([rng.poisson(10), 0.0, 0.3, 1.98e9])
        out.append(Frame(i, t - STEP, t, LAYOUT, gauges, counts, np.asarray([n * 0.1, n * 0.01, n * 0.02])))
    return out


def main() -> None:
    """Fill, tick, print."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--replicas", type=int, default=1000)
    p.add_argument("--hours", type=float, default=1.0)
    a = p.parse_args()
    items = detectors()
    needs, hists = wanted(items)
    cube = Cube(needs, hists, start=START, depth=6 * 3600)
    fold = Fold(Context((Objective("o", "chat", "ttft_seconds", 1.0, 99.0),)), items)
    targets = {
        i: Target(f"r-{i}:8000", pool=f"p-{i // 20}", replica=f"r-{i}", components=("vllm",))
        for i in range(a.replicas)
    }
    rng = np.random.default_rng(0)
    fills, ticks, fits = [], [], []
    now = START
    while now < START + a.hours * 3600:
        new = frames(rng, a.replicas, now + 10)
        now += STEP
        t0 = time.process_time()
        cube.extend(new, targets, now)
        t1 = time.process_time()
        fold.tick(cube, EMPTY, [], now, now)
        t2 = time.process_time()
        fills.append(t1 - t0)
        (fits if now % REFIT_S < STEP else ticks).append(t2 - t1)
    assert not fold.errors, fold.errors
    ms = lambda x: round(1000 * statistics.median(x[len(x) // 2 :]), 1)  # noqa: E731
    print(
        json.dumps(
            {"replicas": a.replicas, "fill_ms": ms(fills), "tick_ms": ms(ticks), "tick_with_fit_ms": ms(fits)}
        )
    )


if __name__ == "__main__":
    main()
