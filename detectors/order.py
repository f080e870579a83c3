"""What came first on each replica: pressure (more requests running) or lost prefix hits.

Both are watched over the same two minutes, so that neither is late. The memory is JSON: replica -> [pressure
since, hits lost since].
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
SLACK_S = 60.0


@dataclass
class Order:
    """Unix seconds since when each replica is pressed and since when its hits are lost; NaN where they are not."""

    pressed: F
    lost: F

    @classmethod
    def of(cls, state: Json, window: Window) -> Order:
        """Read the memory back for the window's replicas."""
        known = state.get("order", {})
        rows = [known.get(f"{u.cluster}/{u.pool}/{u.replica}", (None, None)) for u in window.units]
        pressed, lost = (
            np.asarray([np.nan if r[k] is None else r[k] for r in rows], np.float64) for k in (0, 1)
        )
        return cls(pressed, lost)

    def to_json(self, window: Window) -> Json:
        """The memory, without replicas that are as usual."""
        rows = {}
        for i, u in enumerate(window.units):
            a, b = float(self.pressed[i]), float(self.lost[i])
            if a == a or b == b:
                rows[f"{u.cluster}/{u.pool}/{u.replica}"] = [a if a == a else None, b if b == b else None]
        return {"order": rows}


def watch(order: Order, window: Window, normal: Normal) -> None:
    """Move the memory on by one tick: a state that ends is forgotten, one that begins is dated."""
    m = now(window, max(1, int(SPAN_S // window.step)), "running", "hit", "n")
    with np.errstate(invalid="ignore"):
        pressed = m["running"] >= 1.7 * np.maximum(normal.centre["running"], 1.0)
        # Half as long a block spreads 1.4 times as much.
        lost = (normal.z("hit", m["hit"]) / 1.4 <= -4) & (m["n"] >= 3)
    # Pressure that led to the loss stays its cause until the hits are back, even if the pressure itself has gone.
    since = np.where(np.isnan(order.pressed), window.end, order.pressed)
    order.pressed = np.where(pressed, since, np.where(lost, order.pressed, np.nan))
    order.lost = np.where(lost, np.where(np.isnan(order.lost), window.end, order.lost), np.nan)


def pressure_first(order: Order, window: Window) -> NDArray[np.bool_]:
    """Replicas on which pressure began before hits were lost, or at the same time."""
    with np.errstate(invalid="ignore"):
        return ~np.isnan(order.pressed) & ~(order.lost + SLACK_S < order.pressed)
