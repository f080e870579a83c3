"""``loop_drift`` (soft): a loop that changes a little each time ("item 17 costs 4", "item 18 costs 9"), so that no exact rule
sees it.

Of the last 1,200 characters, 70 % or more stand in 16-grams that the text holds five times or more, the text is 600
characters or longer, and at least half of these grams are language rather than syntax. Tables and generated lists look the
same: a rate only.
"""

from __future__ import annotations

import numpy as np

from core.text.loops import Grams
from core.text.view import View

TAIL, MIN_CHARS, MIN_TIMES, MIN_SHARE = 1200, 600, 5, 0.70
_GRAM = 16


def drift_rules(view: View, grams: Grams) -> dict[str, float]:
    """Rule ``loop_drift`` with the share of the tail that is repeated."""
    tail = min(TAIL, grams.hashes.size)
    if grams.codes.size < MIN_CHARS or grams.repeated < MIN_SHARE * tail * 0.6:
        return {}
    _, where, times = np.unique(grams.hashes, return_inverse=True, return_counts=True)
    often = times[where] >= MIN_TIMES
    # a character is covered if any gram over it is frequent
    edges = np.zeros(grams.codes.size + 1, dtype=np.int64)
    at = np.flatnonzero(often)
    np.add.at(edges, at, 1)
    np.add.at(edges, at + _GRAM, -1)
    covered = np.cumsum(edges)[:-1] > 0
    share = float(covered[-tail:].mean())
    if share < MIN_SHARE:
        return {}
    end = len(view.text)
    letters = sum(c.isalpha() or c == " " for c in view.text[-tail:])
    if letters < 0.7 * tail or view.in_closed_fence(end - tail, end):
        return {}
    return {"loop_drift": round(share, 3)}
