"""Whether a replica whose numbers stand still really stands still: if answers keep coming from it, only the numbers do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.attempts import OK
from detectors.stats import zeroed
from detectors.window import Window

F = NDArray[np.float64]
B = NDArray[np.bool_]
GRACE_S = 30.0
"""What was under way when the numbers stopped may still be finishing."""
LEAST_SAMPLED = 2
LEAST_ANSWERED = 10


def still_for(window: Window, names: tuple[str, ...], cells: int) -> tuple[NDArray[np.int_], F]:
    """For how many scrapes, and how many seconds, no value of a replica has changed: counters without increment, gauges equal.

    Arrays ``[units]``, over at most ``cells`` cells; cells without a scrape neither break nor lengthen it. A replica of which
    nothing is known has stood still for no scrape.
    """
    scraped = ~np.isnan(window.value("span", cells))
    moved = zeroed(window.value("restart", cells)) > 0
    known = np.zeros(scraped.shape, bool)
    for name in names:
        x = window.value(name, cells)
        known |= ~np.isnan(x)
        moved |= _changed(x) if name in GAUGES else zeroed(x) > 0
    still = scraped & known & ~moved
    broken = scraped & ~still
    last = np.where(broken.any(axis=1), broken.shape[1] - np.argmax(broken[:, ::-1], axis=1), 0)
    after = np.arange(still.shape[1])[None, :] >= last[:, None]
    count = (still & after).sum(axis=1)
    return count, np.where(count > 0, (still.shape[1] - last) * window.step, 0.0)


GAUGES = frozenset({"running", "waiting", "kv"})


def _changed(x: F) -> B:
    """Cells whose value differs from the last known one before."""
    known = ~np.isnan(x)
    at = np.maximum.accumulate(np.where(known, np.arange(x.shape[1])[None, :], -1), axis=1)
    before = np.pad(at, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    old = np.take_along_axis(x, np.maximum(before, 0), axis=1)
    return np.asarray(known & (before >= 0) & (x != old), np.bool_)


def still_answering(window: Window, seconds: F) -> B:
    """Replicas that have answered since their numbers stopped ``seconds`` ago (0: they have not), ``[units]``.

    By sampled answers of the replica, or by the gateway where the numbers of its whole pool stand still.
    """
    out = np.zeros(len(window.units), bool)
    s = window.samples
    for i in np.flatnonzero(seconds > GRACE_S):
        u = window.units[i]
        a, b = s.since(window.end - float(seconds[i]) + GRACE_S), s.upto(window.end)
        here = (s.replica[a:b] == s.code(u.replica)) & (s.pool[a:b] == s.code(u.pool))
        out[i] = int(here.sum()) >= LEAST_SAMPLED
    for pool, idx in window.pools.items():
        seen = idx[~np.isnan(window.value("span", 4)[idx]).all(axis=1)]
        minutes = int((float(seconds[seen].min(initial=np.inf)) - GRACE_S) // 60) if len(seen) else 0
        if minutes >= 1 and window.gateway.known(pool, minutes):
            out[seen] |= float(np.nansum(window.gateway.count(pool, minutes, OK))) >= LEAST_ANSWERED
    return out
