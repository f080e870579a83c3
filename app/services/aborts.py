"""Requests that clients gave up, as far as engines let one know: an abort counter, else HTTP 2xx minus successes.

vLLM answers a client that left with HTTP 2xx, never counts it as a success, and leaves its abort counter at 0: the difference
is the only trace. Engines do not export the age at which a client left, so these requests are bad or excluded: nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.services.view import View
from core.classes import SHARED
from sql.store import Store

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class GivenUp:
    """``count`` int64 per step: given up and of this class, or of one of several classes that one counter serves (an upper bound
    for each). ``pools``: those for which it is known."""

    count: IntArray
    pools: frozenset[str]


def given_up(
    store: Store, class_: str, start: float, end: float, step: float, size: int, view: View
) -> GivenUp:
    """What was given up in each of ``size`` steps from ``start`` on."""

    def increases(signal: str, **labels: str) -> dict[str, IntArray]:
        """Per pool, the increase in each step."""
        found: dict[str, IntArray] = {}
        rows = store.rollup_matrix(
            signal, start, end, step=int(step), classes=[class_, SHARED], labels=labels or None
        )
        for (_, pool, _, model, _), (ts, counts, totals) in rows.items():
            if view.has(pool=pool, model=model):
                values = counts.clip(min=0).sum(axis=1) if counts.shape[1] else totals.astype(np.int64)
                np.add.at(found.setdefault(pool, np.zeros(size, np.int64)), _at(ts, start, step), values)
        return found

    counted = increases("aborted_total")
    answered = increases("http_responses_total", status="2xx")
    succeeded = increases("request_success_total")
    for pool, ok in answered.items():
        if pool not in counted and pool in succeeded:
            counted[pool] = hidden(ok, succeeded[pool])
    count = sum(counted.values(), np.zeros(size, np.int64))
    return GivenUp(count, frozenset(counted))


def hidden(answered: IntArray, succeeded: IntArray) -> IntArray:
    """Answered without success, per step; never negative, and in all not more than the difference of the totals.

    The two counters move at slightly different moments: what one step shows too much the next one takes back. The largest curve
    that never falls below the later ones is taken.

    >>> hidden(np.array([5, 5, 5]), np.array([4, 6, 4])).tolist()
    [0, 0, 1]
    """
    if not len(answered):
        return answered
    difference = np.cumsum(answered - succeeded)
    settled = np.minimum.accumulate(difference[::-1])[::-1].clip(min=0)
    return np.diff(settled, prepend=0)


def _at(ts: IntArray, start: float, step: float) -> IntArray:
    return ((ts - start) // step).astype(np.int64)
