"""When each link of a cause chain first gave way, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.measures import FORMULAS
from detectors.window import Window

F = NDArray[np.float64]
LOOKBACK = 240
SMOOTH = 8


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a cause chain: a measure, the level it had to cross, and how to say it."""

    what: str
    measure: str
    level: float
    above: bool = True
    show: Callable[[float], str] = lambda x: f"{x:.3g}"


def trace(window: Window, units: NDArray[np.intp], measure: str) -> tuple[F, F]:
    """A measure over the last hour, joined over some replicas, in trailing windows of two minutes: (end times, values)."""
    cells = min(LOOKBACK, window.stop - window.start)
    count = cells - SMOOTH + 1
    if count <= 0:
        return np.zeros(0), np.zeros(0)

    def get(name: str) -> F:
        x = window.value(name, cells)[units]
        y = np.lib.stride_tricks.sliding_window_view(x, SMOOTH, axis=1)
        # [units, count, SMOOTH] -> [count, units * SMOOTH]: sums and means then run over replicas and time at once.
        return np.moveaxis(y, 0, 1).reshape(count, -1)

    values = FORMULAS[measure](get)
    times = window.end - window.step * np.arange(count - 1, -1, -1, dtype=np.float64)
    return times, values


def crossing(times: F, values: F, level: float, above: bool = True, hold: int = 6) -> float | None:
    """End of the first trailing window from which ``values`` stay beyond ``level`` for ``hold`` steps (or to the end), going back
    from the last such run; None where the last value is not beyond it or it always was."""
    beyond = (values > level) if above else (values < level)
    if not len(beyond) or not beyond[-1]:
        inside = np.flatnonzero(beyond)
        if not len(inside):
            return None
        beyond = beyond[: inside[-1] + 1]
    # Walk back over holes shorter than ``hold``.
    at = len(beyond) - 1
    hole = 0
    first = at
    while at >= 0 and hole < hold:
        if beyond[at]:
            first, hole = at, 0
        else:
            hole += 1
        at -= 1
    return None if first == 0 else float(times[first])


def follow(window: Window, units: NDArray[np.intp], links: Sequence[Link]) -> list[dict[str, Any]]:
    """The links that gave way, ordered by time: ``{"at": Unix seconds, "what": text, "value": text}``."""
    out: list[dict[str, Any]] = []
    for link in links:
        times, values = trace(window, units, link.measure)
        at = crossing(times, values, link.level, link.above)
        if at is None:
            continue
        peak = values[np.searchsorted(times, at) :]
        peak = peak[~np.isnan(peak)]
        if not len(peak):
            continue
        worst = float(peak.max() if link.above else peak.min())
        out.append({"at": at, "what": link.what, "value": link.show(worst)})
    return sorted(out, key=lambda e: (e["at"], e["what"]))
