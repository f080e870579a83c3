"""Two detectors of the benchmark's scoreboard, from their public definitions: they check the scorer, and run
beside Gustfront's own.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc, xlogy
from scipy.stats import chi2

from core.frames import FloatArray


def windowed_gaussian(x: FloatArray, window: int = 6400) -> FloatArray:
    """1 - the tail probability of each value under mean and deviation of the values before it, at most ``window`` of them."""
    out = np.zeros(len(x))
    for i in range(1, len(x)):
        past = x[max(0, i - window) : i]
        z = abs(x[i] - past.mean()) / (past.std() or 1e-6)
        out[i] = 1.0 - 0.5 * erfc(z / 1.4142)
    return out


def relative_entropy(x: FloatArray, window: int = 52, parts: int = 5) -> FloatArray:
    """1 where the last ``window`` values agree with no earlier window (parts of the whole file's range, which it is told)."""
    out = np.zeros(len(x))
    low, high = x.min(), x.max()
    if high == low:
        return out
    part = np.minimum(np.ceil((x - low) / (high - low) * parts), parts).astype(int)
    limit = chi2.isf(0.01, parts - 1)
    known = np.empty((0, parts))
    for i in range(window - 1, len(x)):
        # The published code counts 0 apart and the two highest parts together.
        counts = np.bincount(part[i - window + 1 : i + 1], minlength=parts + 1)
        held = np.append(counts[: parts - 1], counts[parts - 1] + counts[parts]) / window
        if len(known):
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(held > 0, xlogy(held, held / known), 0.0)
            out[i] = float((2 * window * terms.sum(axis=1)).min() >= limit)
        if out[i] or not len(known):
            known = np.vstack([known, held])
    return out
