"""Stretches whose values are spread as no earlier stretch was.

Idea: remember how the values of short windows were distributed over five equal parts of the range seen so
far; a window that agrees with none of the remembered ones (relative entropy against the nearest, chi-
square distributed under agreement) is new, is told once, and is remembered. A level shift, a flat line, a
lost daily peak and a changed variance are all new spreads; a pattern that comes back is not.
Formula: 2 W * min_j sum_b p_b ln(p_b / q_jb), W = 52 values, b = 1..5, over the chi-square point of 1 %
at 4 degrees of freedom.
Source: Wang et al., "Statistical techniques for online anomaly detection in data centers", IM 2011
(multiple null hypotheses).
What differs: the parts are of the past's range only and move with it, empty parts count as a tenth of one
value, and the memory is bounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from scipy.stats import chi2

from core.frames import FloatArray
from detectors.series.records import TINY

WINDOW, PARTS, ALPHA = 52, 5, 0.01
LIMIT = float(chi2.isf(ALPHA, PARTS - 1))
MOST = 256
"""Remembered windows; of more the oldest is dropped."""
BLOCK = 512
EMPTY = 0.5 / PARTS
"""What an empty part of a remembered window counts, in values."""


def unseen_spread(x: FloatArray) -> FloatArray:
    """The distance of the window that ends at each element to the nearest remembered window, in units of the 1 % point.

    ``x`` without NaN. 0 until the first window is full. Element i depends on elements up to i only.
    """
    n = len(x)
    out = np.zeros(n)
    if n < WINDOW:
        return out
    high, low = np.maximum.accumulate(x), np.minimum.accumulate(x)
    grown = np.flatnonzero((np.diff(high) > 0) | (np.diff(low) < 0)) + 1
    memory: list[int] = []
    i = WINDOW - 1
    while i < n:
        # Between two records the range, and so the parts, stay the same.
        after = int(np.searchsorted(grown, i, "right"))
        stop = int(grown[after]) if after < len(grown) else n
        if high[i] - low[i] > TINY * max(abs(high[i]), abs(low[i])):
            i = _stretch(x, i, stop, float(low[i]), float(high[i]), memory, out)
        else:
            memory[:] = memory or [i]
            i = stop
    return out


def _stretch(
    x: FloatArray, start: int, stop: int, low: float, high: float, memory: list[int], out: FloatArray
) -> int:
    """Fill ``out[start:stop]`` with one set of parts; ``memory`` (last elements of windows) grows."""
    begin = min([start - WINDOW + 1, *(m - WINDOW + 1 for m in memory)])
    part = np.clip(np.ceil((x[begin:stop] - low) / (high - low) * PARTS).astype(np.intp) - 1, 0, PARTS - 1)
    counts = np.zeros((len(part) + 1, PARTS))
    counts[np.arange(1, len(part) + 1), part] = 1.0
    np.cumsum(counts, axis=0, out=counts)

    def windows(ends: NDArray[np.intp]) -> FloatArray:
        last = ends - begin + 1
        return counts[last] - counts[last - WINDOW]

    if not memory:
        memory.append(start)
    known = _logs(windows(np.asarray(memory, np.intp)))
    while start < stop:
        ends = np.arange(start, min(stop, start + BLOCK))
        held = windows(ends) / WINDOW
        distance = 2.0 * WINDOW * (xlogy(held, held).sum(axis=1) - _products(held, known).max(axis=1)) / LIMIT
        new = np.flatnonzero(distance >= 1.0)
        upto = int(new[0]) + 1 if len(new) else len(ends)
        out[start : start + upto] = distance[:upto]
        start += upto
        if len(new):
            memory.append(start - 1)
            del memory[:-MOST]
            known = _logs(windows(np.asarray(memory, np.intp)))
    return stop


def _products(held: FloatArray, known: FloatArray) -> FloatArray:
    """``held @ known.T``, term by term: a matrix product rounds differently for other shapes, and a score must not depend on
    how many points come after it."""
    out = held[:, :1] * known[:, 0]
    for part in range(1, PARTS):
        out += held[:, part : part + 1] * known[:, part]
    return out


def _logs(counts: FloatArray) -> FloatArray:
    return np.log(np.maximum(counts, EMPTY) / WINDOW)
