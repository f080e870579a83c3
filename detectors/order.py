"""What came first on each replica: pressure (more demand, longer prompts, or more running and more KV in use) or lost hits.

Crowding is a cause of lost hits and an effect of them, so it must have come first. A jump in demand is no effect of
lost hits (new sessions have no prefix yet), and neither are prompts that grow: those may come with them. All are watched
over the same two minutes, so that none is late. The memory is JSON: replica -> [crowded, surging, hits lost, growing since].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Json
from detectors.measures import now
from detectors.normal import Normal
from detectors.window import Window

F = NDArray[np.float64]
SPAN_S = 120.0
LEAD_S = 15.0
SURGE_SLACK_S = 120.0
NEW_S = 300.0
LONGER = 1.25
_PARTS = ("crowded", "surging", "lost", "growing")


@dataclass
class Order:
    """Unix seconds since when each replica is crowded, meets a surge, has lost its hits, and its pool's prompts are longer
    than usual; NaN where it does not."""

    crowded: F
    surging: F
    lost: F
    growing: F

    @classmethod
    def of(cls, state: Json, window: Window) -> Order:
        """Read the memory back for the window's replicas."""
        known = state.get("order", {})
        rows = [known.get(u.key, ()) for u in window.units]
        return cls(
            *(
                np.asarray([np.nan if len(r) <= k or r[k] is None else r[k] for r in rows], np.float64)
                for k in range(len(_PARTS))
            )
        )

    def to_json(self, window: Window) -> Json:
        """The memory, without replicas that are as usual."""
        rows = {}
        for i, u in enumerate(window.units):
            times = [float(getattr(self, part)[i]) for part in _PARTS]
            if any(t == t for t in times):
                rows[u.key] = [t if t == t else None for t in times]
        return {"order": rows}


def watch(order: Order, window: Window, normal: Normal) -> None:
    """Move the memory on by one tick: a state that ends is forgotten, one that begins is dated."""
    m = now(
        window, max(1, int(SPAN_S // window.step)), "running", "kv", "arrivals", "hit", "n", "prompt_length"
    )
    # Half as long a span spreads 1.4 times as much as the one that the normal was learnt over.
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = m["running"] >= 1.7 * np.maximum(normal.centre["running"], 1.0)
        crowded = busy & ~(normal.factor("kv", m["kv"]) < 1.7)
        more, far = normal.factor("arrivals", m["arrivals"]), normal.z("arrivals", m["arrivals"]) / 1.4
        surging = (more >= 1.25) & (far >= 3)
        lost = (normal.z("hit", m["hit"]) / 1.4 <= -4) & (m["n"] >= 3)
        # Two requests say nothing: hits that were lost before them still are.
        lost |= ~(m["n"] >= 3) & ~np.isnan(order.lost)
        growing = np.zeros(len(window.units), bool)
        longer = normal.factor("prompt_length", m["prompt_length"])
        beyond = normal.z("prompt_length", m["prompt_length"]) / 1.4
        for idx in window.pools.values():
            # One replica's prompts wander; contexts that grow do so on the whole pool.
            seen = idx[~np.isnan(longer[idx])]
            growing[idx] = (
                len(seen) > 0
                and float(np.median(longer[seen])) >= LONGER
                and float(np.median(beyond[seen])) >= 3
            )
    for part, is_so in (("crowded", crowded), ("surging", surging), ("growing", growing)):
        since = getattr(order, part)
        # What led to the loss stays its cause until the hits are back, even if it has gone itself.
        setattr(order, part, np.where(is_so, _begun(since, window), np.where(lost, since, np.nan)))
    order.lost = np.where(lost, _begun(order.lost, window), np.nan)


def pressure_first(order: Order, window: Window) -> NDArray[np.bool_]:
    """Replicas in whose pool pressure explains the loss of hits on at least half of those that lost them.

    One cause, one answer: a replica that happened to be busy when the whole pool lost its hits does not make a storm. True where
    nobody lost any.
    """
    out = np.ones(len(window.units), bool)
    with np.errstate(invalid="ignore"):
        first = (order.crowded + LEAD_S <= order.lost) | (order.surging <= order.lost + SURGE_SLACK_S)
        first |= order.growing + LEAD_S <= order.lost
    for idx in window.pools.values():
        lost = idx[~np.isnan(order.lost[idx])]
        if len(lost):
            out[idx] = first[lost].mean() >= 0.5
    return out


def new_sessions(order: Order) -> NDArray[np.bool_]:
    """Replicas whose lost hits new sessions may explain: hits went within five minutes of a jump in demand.

    A first turn finds no prefix. That passes; a cache that is too small gets worse.
    """
    with np.errstate(invalid="ignore"):
        return order.lost < order.surging + NEW_S


def _begun(since: F, window: Window) -> F:
    return np.where(np.isnan(since), window.end, since)
