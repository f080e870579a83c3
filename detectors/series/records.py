"""Values outside everything seen before.

Idea: among n exchangeable values the newest is the largest with probability 1/n, whatever their
distribution: a rule that speaks only on records needs no model and grows quieter by itself (about
ln(n2/n1) false records between the n1-th and the n2-th value). A record counts by its margin beyond the
old range, as a share of that range, so neither unit nor offset matters.
"""

from __future__ import annotations

import numpy as np

from core.frames import FloatArray

TINY = 1e-9
"""Differences below this share of a value are rounding, not change."""


def beyond_range(x: FloatArray) -> FloatArray:
    """How far each value lies outside the range of all earlier ones, as a share of that range: 0 inside, inf after a constant.

    NaN counts as absent and gets 0. Element i depends on elements up to i only.
    """
    high = _before(np.fmax.accumulate(x))
    low = _before(np.fmin.accumulate(x))
    with np.errstate(invalid="ignore"):
        out = np.fmax(x - high, low - x)
        rounding = TINY * np.maximum(np.abs(high), np.abs(low))
        real = out > rounding
    span = np.maximum(high - low, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(real, out / np.where(span > rounding, span, 0.0), 0.0)


def new_records(x: FloatArray) -> FloatArray:
    """How far each value of a non-negative measure lies over all earlier ones, as a share of the highest.

    0 for no record, inf for the first above 0.
    """
    high = _before(np.fmax.accumulate(np.fmax(x, 0.0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(x > high * (1.0 + TINY), x / high - 1.0, 0.0)


def _before(running: FloatArray) -> FloatArray:
    """The running value as it was one element earlier; NaN before the first."""
    return np.concatenate([[np.nan], running[:-1]])
