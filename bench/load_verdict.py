"""Size and power of "is it load?" by simulation: ``python -m bench.load_verdict [--runs 200] [--only NAME,...] [--json]``.

Each world is a week (or some hours) of three replicas under a daily wave with noise; a second class has five times the base
rate and a share that grows with load (confounding), and every hour has a rate factor of its own (over-dispersion). Prints,
for each world, how often the verdict was yes, no and open, how often the test of "no rise with load" rejected at 1 %, and the
mean ratio. A yes in a world without a load effect is a false one; the goal is at most 1.5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from detectors.quality.cells import Cells, rank
from detectors.quality.decision import Setting, decide
from detectors.quality.load import LoadSeries
from detectors.quality.verdict import LoadVerdict

F = NDArray[np.float64]
STEP, REPLICAS, START = 600.0, 3, 1_790_000_400.0
WEEK = 7 * 86400.0


@dataclass
class World:
    """Steps × replicas × two classes, flat: outputs ``n`` and load; ``rate`` per output is what a world adds."""

    rng: np.random.Generator
    series: LoadSeries
    t: F
    unit: NDArray[np.intp]
    class_: NDArray[np.intp]
    load: F
    n: F
    x: F
    noise: F
    """Over-dispersion: a factor per hour."""

    def cells(self, k: F, n: F | None = None, host: F | None = None) -> Cells:
        """As the statistics take them."""
        zero = np.zeros(len(self.t))
        return Cells(
            k, self.n if n is None else n, self.t, self.class_, self.class_, self.unit, self.load,
            zero if host is None else host, zero,
        )  # fmt: skip

    def draw(self, rate: F, n: F | None = None) -> F:
        """Bad outputs at a rate per output."""
        n = self.n if n is None else n
        return self.rng.poisson(n * np.minimum(rate * self.noise, 1.0)).astype(float)

    @property
    def base(self) -> F:
        """3 in 10,000; 15 in the long-context class."""
        return np.where(self.class_ == 1, 15e-4, 3e-4)


def world(seed: int, outputs: int, *, span: float = WEEK, sigma: float = 0.5, wave: float = 86400.0) -> World:
    """A fleet without a fault; ``wave`` is the period of its load in seconds."""
    rng = np.random.default_rng(seed)
    steps = int(span // STEP)
    t = START + np.arange(steps) * STEP
    day = 1 + 0.45 * np.sin(2 * np.pi * (t - START) / wave)
    noise = rng.normal(0, 0.18, steps)
    for i in range(1, steps):
        noise[i] = 0.7 * noise[i - 1] + noise[i] * 0.7
    load = np.clip(day[None] * (1 + noise)[None] * (1 + rng.normal(0, 0.12, (REPLICAS, steps))), 0.05, None)
    load /= load.mean()
    share = np.clip(0.1 + 0.2 * (load - 0.5), 0.02, 0.6)
    mean = outputs * load / load.sum()
    n = np.stack([rng.poisson(mean * (1 - share)), rng.poisson(mean * share)]).astype(float)
    hour = ((t - START) // 3600).astype(int)
    factor = np.exp(rng.normal(0, sigma, hour.max() + 1) - sigma**2 / 2)[hour]

    def flat(a: NDArray[Any]) -> F:
        return np.broadcast_to(a, n.shape).reshape(-1).astype(np.float64)

    lo = flat(load)
    return World(
        rng,
        LoadSeries(START, load, STEP),
        flat(t) + STEP / 2,
        flat(np.arange(REPLICAS, dtype=float)[:, None]).astype(np.intp),
        flat(np.arange(2.0)[:, None, None]).astype(np.intp),
        lo,
        n.reshape(-1),
        rank(lo, n.reshape(-1)),
        flat(factor),
    )


def setting(w: World, missing: tuple[float, float] | None = None) -> Setting:
    """One pool."""
    return Setting(w.series, np.zeros(REPLICAS, np.intp), missing)


def confounded(seed: int) -> LoadVerdict:
    """Class and load move together; load does nothing. Hours differ by a log-normal factor of sigma 1."""
    w = world(seed, 100_000, sigma=1.0)
    return decide(w.cells(w.draw(w.base)), setting(w))


def one_surge(seed: int) -> LoadVerdict:
    """A fault of two hours that meets a surge: 3 → 150 in 10,000 while it lasts."""
    w = world(seed, 100_000)
    total = w.series.total()
    high = np.flatnonzero(total > np.quantile(total, 0.9))
    at = START + float(w.rng.choice(high)) * STEP
    fault = np.abs(w.t - at) < 3600
    return decide(w.cells(w.draw(np.where(fault, 150e-4, w.base))), setting(w))


def mediator(seed: int) -> LoadVerdict:
    """Load only decides how often the prefix comes from the host tier; that path garbles, at any load."""
    w = world(seed, 100_000)
    share = np.clip(0.02 + 0.35 * w.x, 0, 1)
    from_host = w.rng.binomial(w.n.astype(int), share).astype(float)
    parts = [
        w.cells(w.draw(np.full(len(w.t), 60e-4), from_host), from_host, np.ones(len(w.t))),
        w.cells(w.draw(np.full(len(w.t), 3e-4), w.n - from_host), w.n - from_host),
    ]
    joined = Cells(**{f: np.concatenate([getattr(p, f) for p in parts]) for f in Cells.__dataclass_fields__})
    return decide(joined, setting(w))


def aborts(seed: int) -> LoadVerdict:
    """Clients give up under load: up to 45 % of clean answers are missing at the top, none of the broken ones (short)."""
    w = world(seed, 120_000)
    k = w.draw(np.full(len(w.t), 9e-4))
    seen = w.rng.binomial(w.n.astype(int), 1 - 0.45 * w.x).astype(float)
    top, bottom = w.x > 0.75, w.x <= 0.25
    missing = tuple(float(1 - seen[q].sum() / w.n[q].sum()) for q in (bottom, top))
    return decide(w.cells(k, np.maximum(seen, k)), setting(w, (missing[0], missing[1])))


def loops(seed: int) -> LoadVerdict:
    """Broken answers run to the limit and fill slots: they are followed by load, not preceded by it."""
    w = world(seed, 100_000)
    steps = w.series.values.shape[1]
    k = w.draw(np.full(len(w.t), 60e-4))
    each = k.reshape(2, REPLICAS, steps).sum(axis=0)
    load = w.series.values.copy()
    for lag in (1, 2):
        load[:, lag:] += 0.25 * each[:, :-lag]
    series = LoadSeries(START, load, STEP)
    return decide(w.cells(k).with_load(series.at(w.unit, w.t)), Setting(series, np.zeros(REPLICAS, np.intp)))


def poisoned(seed: int) -> LoadVerdict:
    """Sessions that went bad stay bad, and sessions are longer under load: only first bad turns may count."""
    w = world(seed, 30_000)
    rng = w.rng
    at = np.repeat(np.arange(len(w.t)), w.n.astype(int))
    turns = rng.geometric(1 / (2 + 10 * w.x[at]))
    first = rng.geometric(9e-4, len(at))
    bad = first <= turns
    risk = np.where(bad, first, turns)
    k = np.bincount(at[bad], minlength=len(w.t)).astype(float)
    n = np.bincount(at, weights=risk, minlength=len(w.t)).astype(np.float64)
    return decide(w.cells(k, n), setting(w))


def bad_days(seed: int) -> LoadVerdict:
    """Rates that wander by the day (sigma 1.2) with load doing nothing: long dependence."""
    w = world(seed, 100_000, sigma=0.5)
    day = ((w.t - START) // 86400).astype(int)
    factor = np.exp(w.rng.normal(0, 1.2, day.max() + 1))[day]
    return decide(w.cells(w.draw(9e-4 * factor)), setting(w))


def effect(
    outputs: int, rate: Callable[[F], F], *, sigma: float = 0.3, **more: float
) -> Callable[[int], LoadVerdict]:
    """A real effect: ``rate`` per 10,000 of the rank of load; hours differ by a log-normal factor of ``sigma``."""

    def run(seed: int) -> LoadVerdict:
        w = world(seed, outputs, sigma=sigma, **more)
        return decide(w.cells(w.draw(rate(w.x) * 1e-4)), setting(w))

    return run


def step(low: float, high: float, at: float) -> Callable[[F], F]:
    """``low`` up to the share ``at`` of outputs by load, ``high`` beyond."""
    return lambda x: np.where(x > at, high, low)


def line(low: float, high: float) -> Callable[[F], F]:
    """Straight in the rank, ``low`` and ``high`` being the means of the bottom and the top quarter."""
    return lambda x: np.clip(low + (x - 0.125) / 0.75 * (high - low), 0.3, None)


WORLDS: dict[str, tuple[str, str, Callable[[int], LoadVerdict]]] = {
    "confounded": ("null", "class confounded with load, hours over-dispersed (sigma 1), 100k", confounded),
    "one_surge": ("null", "a fault of two hours that meets a surge, 100k", one_surge),
    "mediator": ("null", "the host cache path garbles, load only feeds it, 100k", mediator),
    "aborts": ("null", "up to 45 % of clean answers missing under load, 120k", aborts),
    "loops": ("null", "loops that are the load, 100k", loops),
    "poisoned": ("null", "poisoned sessions, longer under load, ~100k turns", poisoned),
    "bad_days": ("null", "rates wander by the day (sigma 1.2), 100k", bad_days),
    "step_3_15": ("effect", "3 → 15 below and above the median load, 100k", effect(100_000, step(3, 15, 0.5))),
    "top_3_15": ("effect", "3 → 15 in the top quarter of load, 100k", effect(100_000, step(3, 15, 0.75))),
    "line_3_15": ("effect", "3 → 15 rising straight from quarter to quarter, 100k", effect(100_000, line(3, 15))),
    "line_3_300": ("effect", "3 → 300 rising straight, 15k", effect(15_000, line(3, 300))),
    "top_3_300": ("effect", "3 → 300 in the top quarter, 15k", effect(15_000, step(3, 300, 0.75))),
    "few_3_15": ("open", "3 → 15 below and above the median, 10k: too few", effect(10_000, step(3, 15, 0.5))),
    "short_3_300": (
        "open",
        "3 → 300, 15k in 10 hours with 2 waves of load: too few episodes",
        effect(15_000, line(3, 300), span=36_000.0, wave=18_000.0),
    ),
}  # fmt: skip


def judge(name: str, runs: int, seed: int = 1000) -> dict[str, float | int | str]:
    """Shares of verdicts over ``runs`` simulated weeks."""
    kind, what, run = WORLDS[name]
    found = [run(seed + i) for i in range(runs)]
    yes = sum(v.verdict is True for v in found)
    ratios = [v.ratio for v in found if v.ratio is not None and v.ratio > 0]
    return {
        "world": name,
        "kind": kind,
        "what": what,
        "runs": runs,
        "yes": yes / runs,
        "no": sum(v.verdict is False for v in found) / runs,
        "open": sum(v.verdict is None for v in found) / runs,
        "rejected_at_1_percent": sum(v.p is not None and v.p <= 0.01 for v in found) / runs,
        "ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan"),
    }


def reasons(name: str, runs: int, seed: int = 1000) -> list[str]:
    """Why each run ended as it did, without numbers: for reading."""
    run = WORLDS[name][2]
    return [replace(run(seed + i), ratio=None).why for i in range(runs)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200, help="simulated weeks for each world")
    parser.add_argument("--only", default="", help="names of worlds, separated by commas")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = [n for n in args.only.split(",") if n] or list(WORLDS)
    rows = []
    if not args.json:
        print(
            f"{'world':<12}{'kind':<8}{'runs':>5}{'yes':>8}{'no':>8}{'open':>8}{'p<=1%':>8}{'ratio':>8}  what"
        )
    for name in names:
        row = judge(name, args.runs)
        rows.append(row)
        if not args.json:
            print(
                f"{row['world']:<12}{row['kind']:<8}{row['runs']:>5}{row['yes']:>8.3f}{row['no']:>8.3f}{row['open']:>8.3f}"
                f"{row['rejected_at_1_percent']:>8.3f}{row['ratio']:>8.2f}  {row['what']}",
                flush=True,
            )
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
