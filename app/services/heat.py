"""The heat map: every replica against its own normal, so that only what is wrong is dark."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.services.measures import Measure
from app.services.replicas import Curve
from core.frames import FloatArray

WORST = 20
COLUMNS = 120
MIN_NORMAL_POINTS = 8


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One replica: its normal (median of the time before the range), its values, and the score 0..1 of each."""

    replica: str
    pool: str
    normal: float
    value: FloatArray
    score: FloatArray


@dataclass(frozen=True, slots=True)
class HeatMap:
    """``rows`` are the worst replicas in order of pool and name; ``total`` is how many export the measure."""

    measure: Measure
    t: FloatArray
    rows: tuple[HeatRow, ...]
    total: int
    own_range: bool
    """The normal had to be taken from the range itself (not enough history before it)."""


def step_for_heat(length: float) -> float:
    """Whole minutes, at most :data:`COLUMNS` columns."""
    return max(60.0, float(np.ceil(length / COLUMNS / 60)) * 60)


def floor_of(measure: Measure) -> float:
    """Below this a value counts as this: 0 → 5 waiting requests is a factor of 6, not infinity."""
    return 0.05 if measure.unit == "s" else 1.0


def score(measure: Measure, value: FloatArray, normal: float) -> FloatArray:
    """How far a value is from normal in the bad direction, 0 (normal or better) to 1 (full scale); NaN stays NaN."""
    if not np.isfinite(normal):
        return np.full_like(value, np.nan)
    if measure.as_difference:
        away = (value - normal) * (measure.worse or 1)
        raw = away / measure.full_scale
    else:
        least = floor_of(measure)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.log(np.maximum(value, least) / max(normal, least))
        raw = factor * (measure.worse or 1) / np.log(measure.full_scale)
    return np.clip(raw, 0.0, 1.0)


def normal_of(before: FloatArray | None, during: FloatArray) -> tuple[float, bool]:
    """(normal, taken from the range itself)."""
    if before is not None and np.isfinite(before).sum() >= MIN_NORMAL_POINTS:
        return (float(np.nanmedian(before)), False)
    if np.isfinite(during).sum() == 0:
        return (float("nan"), True)
    return (float(np.nanmedian(during)), True)


def heat_map(measure: Measure, during: Sequence[Curve], before: Sequence[Curve]) -> HeatMap:
    """The map of one measure from curves in the range and curves of the time before it."""
    history = {(c.pool, c.replica): c.value for c in before}
    rows: list[HeatRow] = []
    own = False
    for c in during:
        normal, from_range = normal_of(history.get((c.pool, c.replica)), c.value)
        own = own or from_range
        rows.append(HeatRow(c.replica, c.pool, normal, c.value, score(measure, c.value, normal)))
    total = len(rows)
    rows.sort(key=lambda r: (-badness(r.score), r.pool, r.replica))
    worst = sorted(rows[:WORST], key=lambda r: (r.pool, natural(r.replica)))
    t = during[0].t if during else np.zeros(0)
    return HeatMap(measure, t, tuple(worst), total, own)


def badness(values: FloatArray) -> float:
    """The mean score of the last third, plus a tenth of the mean of all: what is wrong now comes first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        recent = float(np.nanmean(values[-max(1, len(values) // 3) :])) if len(values) else 0.0
        whole = float(np.nanmean(values)) if len(values) else 0.0
    return (0.0 if np.isnan(recent) else recent) + 0.1 * (0.0 if np.isnan(whole) else whole)


def natural(name: str) -> tuple[str | int, ...]:
    """``a-2`` before ``a-10``: text and numbers alternate, so that like is compared with like."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]{1,18})", name)))
