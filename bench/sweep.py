"""Every scenario with every seed, judged: ``python -m bench.sweep [SCENARIO ...] [--seeds 1 2 3 4 5] [--jobs N]``.

Small fleets (8 replicas, 75 minutes, :mod:`bench.histories`) so that hundreds of incidents are affordable. Histories and
verdicts are kept: a second run judges only what is new, a changed detector is judged anew, an interrupted run goes on. Beside
it the labelled histories below ``--histories`` (default ``../shared/scenarios`` where that exists), which another simulator made.
``--write`` puts the confusion matrix into ``docs/detectors/confusion.md``; ``--kept`` makes no history.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.histories import HOURS, MOST, ROOT, kept
from bench.judged import Judged, judge, labelled
from bench.labelled import judge_labelled
from bench.report import Total, by_scenario, confusion, confusion_lines, markdown
from fleet import scenarios

SEEDS = (1, 2, 3, 4, 5)
PAGE = ROOT / "docs" / "detectors" / "confusion.md"


def _tell(one: Judged) -> None:
    got = one.score
    said = ", ".join(f"{r.said or 'nothing'}{'' if r.right else ' (wrong)'}" for r in got.rows) or "calm"
    false = f"; FALSE {', '.join(f.kind for f in got.false)}" if got.false else ""
    print(f"{one.name} {one.seed}: {said}{false}; {one.seconds:.0f} s", file=sys.stderr, flush=True)


def _gather(futures: Sequence[Future[Judged]]) -> list[Judged]:
    out = []
    for future in futures:
        one = future.result()
        _tell(one)
        out.append(one)
    return out


def _print(title: str, many: Sequence[Judged]) -> None:
    if not many:
        return
    total = Total.of(many)
    print(f"\n== {title}: {len(many)} histories\n")
    print("\n".join((*by_scenario(many), "", *total.lines(), "", "confusion (true kind: said)")))
    print("\n".join(confusion_lines(confusion(total))))


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", help="all that are not pairs by default; 'pairs'; 'none'")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kept", action="store_true", help="make no history")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--histories", type=Path, default=ROOT.parent / "shared" / "scenarios")
    args = parser.parse_args()
    names = {"none": [], "pairs": list(scenarios.pairs())}.get(" ".join(args.scenarios), args.scenarios)
    if not args.scenarios:
        names = list(scenarios.scenarios())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        simulated = [
            pool.submit(judge, name, seed)
            for seed in args.seeds
            for name in names
            if not args.kept or kept(name, seed)
        ]
        others = [pool.submit(judge_labelled, folder) for folder in labelled(args.histories)]
        ours, theirs = _gather(simulated), _gather(others)
    _print("simulated here", ours)
    _print("labelled histories of another simulator", theirs)
    if args.write and ours:
        head = (
            f"{len(ours)} histories ({len({j.name for j in ours})} scenarios, {len({j.seed for j in ours})} seeds) "
            f"of at most {MOST} replicas and {HOURS * 60:.0f} minutes, made by `fleet/`; "
            "written by `python -m bench.sweep --write`."
        )
        PAGE.write_text(markdown(Total.of(ours), head), "utf-8")


if __name__ == "__main__":
    main()
