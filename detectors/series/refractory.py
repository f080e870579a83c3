"""One alarm for one event: what goes on is not said again.

A score counts only where it is higher than all of the last half day. Half a day, because people look at a
series twice a shift and what is still as odd as this morning is no news; a stronger departure is, at any
time.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from core.frames import FloatArray

HOLD = 43200.0


def news(t: FloatArray, score: FloatArray, hold: float = HOLD) -> FloatArray:
    """``score`` where it exceeds every score of the ``hold`` seconds before, else 0. ``t`` ascending, ``score`` >= 0, no NaN."""
    out = np.zeros(len(score))
    falling: deque[tuple[float, float]] = deque()
    for i in np.flatnonzero(score > 0):
        now, s = float(t[i]), float(score[i])
        while falling and falling[0][0] <= now - hold:
            falling.popleft()
        if not falling or s > falling[0][1]:
            out[i] = s
        while falling and falling[-1][1] <= s:
            falling.pop()
        falling.append((now, s))
    return out
