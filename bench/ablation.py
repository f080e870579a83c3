"""Which parts of the detectors carry the result: ``python -m bench.ablation [--seeds 1] [--every 1] [--only NAME ...]``.

The kept histories (:mod:`bench.histories`) are judged again with one part taken out at a time. A part whose loss changes nothing
is useless and goes. ``--every 3`` takes each third scenario.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.histories import history, kept
from bench.judged import LAG, Judged
from bench.report import Total
from core.records import Event
from detectors import incidents, normal, order, registry, stats, window
from detectors.attempts import AttemptsView
from detectors.backtest import backtest
from detectors.contract import Detector
from detectors.incidents import Policy
from detectors.samples import Samples
from fleet import scenarios
from sql.store import Store

Part = Callable[[], AbstractContextManager[Any]]


@contextmanager
def pool_normals() -> Iterator[None]:
    """Every replica is held against its pool's mean instead of its own past."""
    real = normal.Normal.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[normal.Normal], baseline: Mapping[str, Any], at: window.Window) -> normal.Normal:
        own: normal.Normal = real(cls, baseline, at)
        centre = {k: v.copy() for k, v in own.centre.items()}
        for values in centre.values():
            for idx in at.pools.values():
                known = values[idx][~np.isnan(values[idx])]
                values[idx] = known.mean() if len(known) else np.nan
        return normal.Normal(centre, own.spread)

    with patch.object(normal.Normal, "of", classmethod(of)):
        yield


@contextmanager
def without_detector(kind: str) -> Iterator[None]:
    """One detector does not run."""
    import detectors.backtest as run

    rest: tuple[Detector, ...] = tuple(d for d in registry.detectors() if d.kind != kind)
    with patch.object(run, "all_detectors", lambda: rest):
        yield


def _no_wait(kind: str) -> Policy:
    known = incidents.POLICIES.get(kind, Policy())
    return Policy(0.0, 0.0, known.quiet, known.reopen)


PARTS: Mapping[str, Part] = {
    "nothing": ExitStack,
    "own normal (the pool's mean instead)": pool_normals,
    "order of pressure and lost hits": lambda: _many(
        order, "pressure_first", lambda o, w: np.ones(len(w.units), bool)
    ),
    "guard after a restart": lambda: patch.object(
        window.Window, "since_restart", lambda self, cells: np.full(len(self.units), np.inf)
    ),
    "measured over-dispersion": lambda: _many(stats, "dispersion", lambda k, n: 1.0),
    "confirmation over ticks": lambda: patch.object(incidents, "policy", _no_wait),
    "folding of symptoms": lambda: patch.object(incidents, "group_of", lambda kind: kind),
    "sampled answers": lambda: patch.object(
        Samples, "of", classmethod(lambda cls, records, _of=Samples.of: _of([]))
    ),
    "gateway log": lambda: patch.object(AttemptsView, "known", lambda self, pool, minutes: False),
    "events": lambda: patch.object(Store, "events", lambda self, *a, **k: _none()),
}


def _none() -> list[Event]:
    return []


def _many(module: Any, name: str, new: Callable[..., Any]) -> ExitStack:
    """Replace a function in its own module and in every module that has taken it by name."""
    old, stack = getattr(module, name), ExitStack()
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("detectors.") and getattr(other, name, None) is old:
            stack.enter_context(patch.object(other, name, new))
    return stack


def judge(part: str, name: str, seed: int) -> Judged | None:
    """One kept history judged without a part; None where the history is not kept."""
    if not kept(name, seed):
        return None
    h = history(name, seed)
    make = PARTS[part] if part in PARTS else lambda: without_detector(part)
    with make(), Store.open(h.config.database, read_only=True) as store:
        found = [i.as_json() for i in backtest(store, h.config, h.truth["start"], h.truth["end"], LAG)]
    return Judged(name, seed, h.truth, found)


def row(part: str, total: Total, full: Total) -> str:
    """One line: what was right and what was raised falsely without the part."""
    return (
        f"| {part} | {total.right}/{len(total.rows)} | {total.right - full.right:+d} | "
        f"{len(total.false)} | {len(total.false) - len(full.false):+d} | {total.duplicates} |"
    )


def main() -> None:
    """Judge and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--every", type=int, default=1, help="each n-th scenario")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", help="these parts (or kinds); all by default")
    args = parser.parse_args()
    names = list(scenarios.scenarios())[:: args.every]
    parts = args.only or [*PARTS, *(d.kind for d in registry.detectors())]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results: dict[str, list[Judged]] = {}
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        work = {
            p: [pool.submit(judge, p, n, s) for n in names for s in args.seeds]
            for p in dict.fromkeys(["nothing", *parts])
        }
        for part, futures in work.items():
            results[part] = [j for f in futures if (j := f.result()) is not None]
            print(f"without {part}: done", file=sys.stderr, flush=True)
    full = Total.of(results["nothing"])
    print("| without | right | | false alarms | | duplicates |\n|---|---|---|---|---|---|")
    for part, judged in results.items():
        print(row(part, Total.of(judged), full))


if __name__ == "__main__":
    main()
