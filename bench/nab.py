"""The generic series detector on a part of the Numenta Anomaly Benchmark: ``python -m bench.nab``.

Printed: the benchmark's score by its own protocol (the best threshold common to all series, as for every
published figure) and at the detector's own threshold, which a false-alarm budget on made-up series fixed
(``bench/series_made.py``); what is caught at one false alarm a series-week, and false alarms a day,
beside a random score; processor seconds. Needs the folder that ``bench/nab_data.py`` names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bench import nab_score as score
from bench.nab_data import Series, folder, load
from bench.nab_peers import relative_entropy, windowed_gaussian
from bench.series_made import clean, faulty
from core.frames import FloatArray
from detectors.series.scorer import ALARM, score_series

PUBLISHED: Mapping[str, float] = {
    "ARTime": 73.5,
    "Numenta HTM": 69.5,
    "HTM Java": 66.3,
    "CAD-OSE": 66.1,
    "random cut forest": 61.3,
    "relative entropy": 54.1,
    "KNN-CAD": 52.5,
    "Skyline (earthgecko)": 51.6,
    "Twitter ADVec": 44.1,
    "Etsy Skyline": 43.0,
    "windowed Gaussian": 37.7,
    "Bayes change point": 25.7,
    "EXPoSE": 23.5,
    "random": 17.2,
    "null": 0.0,
}
"""Standard scores of the published results on these 31 series (best common threshold)."""
WEEKLY = 1.0 / 7.0
Scores = dict[str, FloatArray]


def own(series: Sequence[Series]) -> Scores:
    """Gustfront's scores."""
    return {s.name: score_series(s.t, s.value).total for s in series}


def random_scores(series: Sequence[Series], seed: int) -> Scores:
    """A control that knows nothing."""
    rng = np.random.default_rng(seed)
    return {s.name: rng.random(len(s.value)) for s in series}


def _row(name: str, scores: Scores, series: Sequence[Series], alarm: float | None = None) -> str:
    best = [score.best(scores, series, p)[0] for p in score.PROFILES]
    weekly = score.raised(scores, series, score.threshold_for(scores, series, WEEKLY))
    text = f"{name:26}" + "".join(f"{b:9.2f}" for b in best) + f"{weekly.recall:12.2f}"
    if alarm is None:
        return text
    fixed = [score.at(scores, series, alarm, p) for p in score.PROFILES]
    events = score.raised(scores, series, alarm)
    return (
        f"{text}\n{'  at its own threshold':26}"
        + "".join(f"{b:9.2f}" for b in fixed)
        + f"\n  there: {events.recall:.2f} of {events.windows} windows, first seen at {events.delay:.2f} of a window (median), "
        f"{events.false_per_day:.3f} false alarms a series-day on {events.days:,.0f} days"
    )


def control(series: Sequence[Series], false_per_day: float, seeds: int = 5) -> float:
    """Share of windows that random scores catch at the same false alarms a day."""
    found = []
    for seed in range(seeds):
        scores = random_scores(series, seed)
        found.append(score.raised(scores, series, score.threshold_for(scores, series, false_per_day)).recall)
    return float(np.mean(found))


def made(seeds: int) -> None:
    """How the threshold came about: false alarms on made-up series without a fault, and the score on those with one."""
    for text, days, step in (("5 min, 30 days", 30.0, 300.0), ("1 h, 60 days", 60.0, 3600.0)):
        quiet = [replace(s, windows=()) for seed in range(seeds) for s in clean(seed, days, step)]
        scores = own(quiet)
        rate = score.raised(scores, quiet, ALARM).false_per_day
        print(
            f"  without a fault, {text}: {rate:.3f} false alarms a series-day at {ALARM}; "
            f"one a week at {score.threshold_for(scores, quiet, WEEKLY):.2f}"
        )
    broken = [s for seed in range(max(1, seeds // 2)) for s in faulty(seed)]
    scores = own(broken)
    seen = score.raised(scores, broken, ALARM)
    best, where = score.best(scores, broken)
    print(
        f"  with a fault (5 min, 14 days, {len(broken)}): score {score.at(scores, broken, ALARM):.1f} "
        f"(best {best:.1f} at {where:.2f}), {seen.recall:.2f} caught"
    )


def main() -> int:
    """Print the tables; 0, also where the series are not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the made-up series")
    options = parser.parse_args()
    print("made-up series")
    made(options.seeds)
    where = folder()
    if where is None:
        print("the benchmark's series are not here (../shared/nab or $GUSTFRONT_SHARED/nab): skipped")
        return 0
    series = load(where)
    points = sum(len(s.value) for s in series)
    began = time.process_time()
    mine = own(series)
    spent = time.process_time() - began
    windows = sum(len(s.windows) for s in series)
    print(
        f"\n{len(series)} series, {windows} windows, {points:,} points: {spent / points * 1e5:.2f} CPU s per 100,000 points"
    )
    print(f"{'':26}{'standard':>9}{'low-FP':>9}{'low-FN':>9}{'rec@1/7d':>12}")
    print(_row("Gustfront", mine, series, ALARM))
    at_alarm = score.raised(mine, series, ALARM).false_per_day
    print(f"  a random score at as many false alarms: {control(series, at_alarm):.2f} of the windows")
    peers: Mapping[str, Callable[[FloatArray], FloatArray]] = {
        "relative entropy, run here": relative_entropy,
        "windowed Gaussian, run here": windowed_gaussian,
    }
    for name, detector in peers.items():
        print(_row(name, {s.name: detector(s.value) for s in series}, series))
    randoms = [score.best(random_scores(series, i), series)[0] for i in range(5)]
    print(f"{'random, 5 seeds':26}{np.mean(randoms):9.2f}{'':18}{control(series, WEEKLY):12.2f}")
    print(
        "published (standard, best common threshold): " + ", ".join(f"{k} {v}" for k, v in PUBLISHED.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
