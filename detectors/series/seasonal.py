"""Values that are odd for their time of day.

Formula: r = |x - median of the same slot of the day and its two neighbours over the last 14 days|, from
the third day on (nine values); then the records of r. A slot is one step of the series, at least five
minutes and at most one hour; of finer series it holds the mean. The first day of residuals only teaches:
of few, each second one is a record.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from core.frames import FloatArray
from detectors.series.records import new_records

DAY = 86400.0
DAYS = 14
NEEDED = 9
TEACHING = DAY
FIRST = 100
"""The step is read off this many points and then kept: later points must not change earlier scores."""


def odd_for_the_hour(t: FloatArray, x: FloatArray) -> FloatArray:
    """How far each residual lies over all earlier ones, as a share of the highest; 0 where it does not or nothing is known yet.

    ``t`` Unix seconds, ascending; NaN in ``x`` is a gap. Element i depends on elements up to i only.
    """
    residual = day_residual(t, x)
    out = new_records(residual)
    known = np.flatnonzero(~np.isnan(residual))
    if len(known):
        out[t < t[known[0]] + TEACHING] = 0.0
    return out


def slot_length(t: FloatArray) -> float:
    """Seconds of a slot: the step of the first hundred points, between five minutes and an hour."""
    gaps = np.diff(t[:FIRST])
    return float(np.clip(np.median(gaps), 300.0, 3600.0)) if len(gaps) else 300.0


def day_residual(t: FloatArray, x: FloatArray) -> FloatArray:
    """Distance of each value from the usual of its time of day.

    NaN where x is NaN or less than three days are there to compare with.
    """
    out = np.full(len(x), np.nan)
    if len(x) < FIRST:
        return out
    length = slot_length(t)
    per_day = max(1, round(DAY / length))
    past: list[deque[float]] = [deque(maxlen=DAYS) for _ in range(per_day)]
    slots = ((t % DAY) / length).astype(np.intp) % per_day
    starts = np.flatnonzero(np.diff(np.floor(t / length), prepend=-np.inf) != 0)
    for a, b in zip(starts, np.append(starts[1:], len(x)), strict=True):
        slot = int(slots[a])
        near = sorted([*past[slot - 1], *past[slot], *past[(slot + 1) % per_day]])
        values = x[a:b]
        if len(near) >= NEEDED:
            out[a:b] = np.abs(values - near[len(near) // 2])
        known = values[~np.isnan(values)]
        if len(known):
            past[slot].append(float(known.mean()))
    out[:FIRST] = np.nan
    return out
