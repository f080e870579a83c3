"""The score of the Numenta Anomaly Benchmark (v1.1), from its published definition.

A detection inside a labelled window earns up to 1, the earlier the more (a sigmoid of the position; only
the best point of a window counts); a window without one costs 1 (2 in the low-FN profile). Every point
over the threshold outside costs up to 0.11 (0.22 in the low-FP profile), less just behind a window. The
first 15 % of a series (at most 750 points) are for learning and not scored. The sum over all series is
scaled so that raising nothing is 0 and perfect is 100. The benchmark's own protocol picks the one
threshold, common to all series, that is best (:func:`best`); :func:`at` scores a threshold that was fixed
before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.nab_data import Series
from core.frames import FloatArray

PROFILES: Mapping[str, tuple[float, float, float]] = {
    "standard": (1.0, 1.0, 0.11),
    "low-FP": (1.0, 1.0, 0.22),
    "low-FN": (1.0, 2.0, 0.11),
}
"""Weight of a detection, of a missed window and of a false point."""
LEARNING_SHARE, LEARNING_MOST = 0.15, 5000


def learning(n: int) -> float:
    """Points with a smaller index than this are not scored."""
    return float(min(np.floor(LEARNING_SHARE * n), LEARNING_SHARE * LEARNING_MOST))


def _sigmoid(x: FloatArray) -> FloatArray:
    """1 far before 0, 0 at 0, -1 far behind (exactly from 3 on)."""
    return np.where(x >= 3.0, -1.0, 2.0 / (1.0 + np.exp(5.0 * np.minimum(x, 3.0))) - 1.0)


@dataclass(frozen=True)
class _Points:
    """What each scored point is worth: ``worth`` before weights, ``window`` (running number over all series, -1 outside)."""

    worth: FloatArray
    window: NDArray[np.intp]
    scored: NDArray[np.bool_]


def _points(series: Series, first_window: int) -> _Points:
    n = len(series.value)
    worth, window = np.full(n, -1.0), np.full(n, -1, np.intp)
    most = float(_sigmoid(np.asarray(-1.0)))
    for k, (a, b) in enumerate(series.windows):
        inside = np.arange(a, b + 1)
        window[inside] = first_window + k
        worth[inside] = _sigmoid(-(b - inside + 1) / (b - a + 1)) / most
        stop = series.windows[k + 1][0] if k + 1 < len(series.windows) else n
        behind = np.arange(b + 1, stop)
        worth[behind] = _sigmoid((behind - b) / (b - a))
    return _Points(worth, window, np.arange(n) >= learning(n))


def _gather(
    scores: Mapping[str, FloatArray], series: Sequence[Series]
) -> tuple[FloatArray, FloatArray, NDArray[np.intp], int]:
    """Scores, worths and windows of all scored points, and the number of windows."""
    parts, total = [], 0
    for s in series:
        p = _points(s, total)
        total += len(s.windows)
        values = np.asarray(scores[s.name], np.float64)
        if values.shape != s.value.shape:
            raise ValueError(f"{s.name}: {len(values)} scores for {len(s.value)} points")
        parts.append((np.nan_to_num(values, nan=-np.inf)[p.scored], p.worth[p.scored], p.window[p.scored]))
    score, worth, window = (np.concatenate(x) for x in zip(*parts, strict=True))
    return score, worth, window, total


def curve(
    scores: Mapping[str, FloatArray], series: Sequence[Series], profile: str = "standard"
) -> tuple[FloatArray, FloatArray]:
    """Thresholds (falling; the first is infinite: nothing raised) and the score 0..100 (or below) at each."""
    hit, miss, false = PROFILES[profile]
    score, worth, window, total = _gather(scores, series)
    order = np.argsort(-score, kind="stable")
    score, worth, window = score[order], worth[order], window[order]
    gain = np.where(window < 0, worth * false, 0.0)
    for w in np.unique(window[window >= 0]):
        at = np.flatnonzero(window == w)
        # Only the best point of a window counts, beside the penalty for missing it.
        gain[at] = np.diff(np.maximum.accumulate(np.concatenate([[-miss], hit * worth[at]])))
    sums = np.concatenate([[0.0], np.cumsum(gain)])
    last = np.concatenate([[True], np.append(score[1:] != score[:-1], True)])
    return (
        np.concatenate([[np.inf], score])[last],
        (100.0 * sums / ((hit + miss) * total) if total else sums * np.nan)[last],
    )


def best(
    scores: Mapping[str, FloatArray], series: Sequence[Series], profile: str = "standard"
) -> tuple[float, float]:
    """The benchmark's own protocol: the best score over all common thresholds, and that threshold."""
    thresholds, value = curve(scores, series, profile)
    i = int(np.argmax(value))
    return float(value[i]), float(thresholds[i])


def at(
    scores: Mapping[str, FloatArray], series: Sequence[Series], threshold: float, profile: str = "standard"
) -> float:
    """The score with every point at or over ``threshold`` raised."""
    thresholds, value = curve(scores, series, profile)
    return float(value[np.flatnonzero(thresholds >= threshold)[-1]])


@dataclass(frozen=True, slots=True)
class Raised:
    """``recall`` of windows with a scored point, false alarm episodes a series-day outside windows, and how many days that were;
    ``delay`` is the median position of the first hit in its window (0 = its first point)."""

    recall: float
    windows: int
    false_per_day: float
    days: float
    delay: float


def raised(scores: Mapping[str, FloatArray], series: Sequence[Series], threshold: float) -> Raised:
    """Events at a threshold. False points within an hour of each other are one false alarm."""
    hits = windows = episodes = 0
    days, delays = 0.0, []
    for s in series:
        n = len(s.value)
        scored = np.arange(n) >= learning(n)
        over = (np.nan_to_num(scores[s.name], nan=-np.inf) >= threshold) & scored
        outside = scored.copy()
        for a, b in s.windows:
            outside[a : b + 1] = False
            if not scored[b]:
                continue
            windows += 1
            found = np.flatnonzero(over[a : b + 1])
            if len(found):
                hits += 1
                delays.append(found[0] / (b - a + 1))
        false = s.t[over & outside]
        episodes += int(len(false) > 0) + int((np.diff(false) > 3600).sum())
        days += outside.sum() * s.step / 86400
    return Raised(
        hits / max(windows, 1), windows, episodes / days, days, float(np.median(delays)) if delays else np.nan
    )


def threshold_for(scores: Mapping[str, FloatArray], series: Sequence[Series], false_per_day: float) -> float:
    """The lowest threshold at which no more than ``false_per_day`` false alarms a series-day are raised."""
    values = np.unique(
        np.concatenate([np.asarray(scores[s.name])[int(learning(len(s.value))) :] for s in series])
    )
    values = values[np.isfinite(values)]
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if raised(scores, series, float(values[middle])).false_per_day <= false_per_day:
            high = middle
        else:
            low = middle + 1
    return float(values[low]) if low < len(values) else np.inf
