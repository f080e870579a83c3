"""Gustfront beside what one would otherwise run: ``python -m bench.peers [SCENARIO ...] [--seeds 1 2] [--jobs N] [--kept]``.

Same histories, same store, same scorer. Peers name no cause, so for this table every kind counts as right: a fault is found
if an alert fits it in time and pool; further ones on the same fault are extra, what fits none is a false alarm.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from bench.histories import HOURS, MOST, kept
from bench.judged import counted
from bench.peers.alerts import KIND
from bench.peers.run import run
from bench.report import UNKNOWN, WEEK, poisson_upper
from bench.score import TEXTUAL, Score, score
from fleet import scenarios

OURS = "Gustfront"
SEEDS = (1, 2, 3, 4, 5)


def blind(truth: dict[str, Any]) -> dict[str, Any]:
    """The truth for those who name no kind."""
    incidents = [{**i, "accept": [KIND]} for i in truth["incidents"]]
    return {**truth, "incidents": incidents}


def line(who: str, scores: Sequence[Score], right: str) -> str:
    """One row of the table."""
    faults = [r for s in scores for r in s.rows]
    found = [r for r in faults if r.said]
    latency = [r.delay for r in found if r.delay is not None and r.kind not in TEXTUAL]
    false = sum(len(s.false) for s in scores)
    weeks = sum(s.replica_hours for s in scores) / WEEK
    calm = [s for s in scores if not s.rows]
    quiet = sum(not s.false for s in calm)
    delay = f"{statistics.median_low(latency):.0f} s" if latency else "-"
    extra = sum(s.duplicates for s in scores)
    placed = sum(r.overlap >= 0.5 for r in found)
    return (
        f"{who:32s} {len(found):4d}/{len(faults):<4d} {placed:4d}    {right:9s} {delay:>7s} {extra:6d} {false:6d} "
        f"{false / weeks:9.1f} (≤ {poisson_upper(false) / weeks:.1f})   {quiet}/{len(calm)}"
    )


def main() -> None:
    """Judge and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kept", action="store_true", help="make no history")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table: dict[str, list[Score]] = {}
    right = faults = 0
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        work = [
            pool.submit(run, name, seed)
            for seed in args.seeds
            for name in args.scenarios or list(scenarios.scenarios())
            if not args.kept or kept(name, seed)
        ]
        for future in work:
            ours, peers = future.result()
            print(f"{ours.name} {ours.seed}", file=sys.stderr, flush=True)
            truth = blind(ours.truth)
            if not ours.name.startswith(UNKNOWN):
                right += sum(r.right for r in ours.score.rows)
                faults += len(ours.score.rows)
            anonymous = [{**i, "kind": KIND} for i in counted(ours.truth, ours.found)]
            for who, alerts in {OURS: anonymous, **peers}.items():
                table.setdefault(who, []).append(score(truth, alerts))
    print(f"\n{len(work)} histories of at most {MOST} replicas and {HOURS * 60:.0f} minutes")
    print(
        f"{'':32s} found     placed  right     delay     extra  false  a replica-week (95 % bound)  calm silent"
    )
    for who, scores in table.items():
        print(line(who, scores, f"{right}/{faults}" if who == OURS else "no names"))
    print(
        "found: an alert in time and pool · placed: on at least half the right replicas · right: kind and replicas"
    )
    print("delay: median from the first late requests · extra: further alerts on a fault already found")


if __name__ == "__main__":
    main()
