"""Requests that miss a latency objective, counted exactly from bucket edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Objective
from detectors.window import Window

F = NDArray[np.float64]


@dataclass(frozen=True)
class Late:
    """Per replica and cell: observations beyond the objective and in all. ``edge`` is the bucket edge that stood in for it."""

    objective: Objective
    late: F
    total: F
    edge: float


def late_cells(window: Window, objective: Objective, cells: int | None = None) -> Late | None:
    """Observations of the objective's class that are surely late (beyond the first edge at or above the threshold).

    None where no replica exports the histogram for that class. Several bucket layouts add up; the largest edge is reported.
    """
    memo = ("late", objective.name, cells)
    if memo in window.memo:
        return window.memo[memo]  # type: ignore[no-any-return]
    late = total = None
    edge = 0.0
    for key in window.hist_keys(objective.signal):
        if key[0] != objective.workload_class:
            continue
        at = int(np.searchsorted(np.asarray(key[1]), objective.threshold * (1 - 1e-9)))
        edge = max(edge, key[1][at] if at < len(key[1]) else float("inf"))
        c = window.counts(objective.signal, key, cells)
        beyond, n = c[:, :, at + 1 :].sum(axis=2), c.sum(axis=2)
        late = beyond if late is None else _add(late, beyond)
        total = n if total is None else _add(total, n)
    found = None if late is None or total is None else Late(objective, late, total, edge)
    window.memo[memo] = found
    return found


def all_late(window: Window, cells: int | None = None, signal: str = "ttft_seconds") -> list[Late]:
    """:func:`late_cells` of every objective on a signal."""
    found = (late_cells(window, o, cells) for o in window.context.objectives if o.signal == signal)
    return [x for x in found if x is not None]


def harm(
    window: Window, units: NDArray[np.intp], since: float, signal: str = "ttft_seconds"
) -> Mapping[str, float]:
    """Requests beyond their objective on some replicas since a time: number, of how many, and share."""
    cells = max(1, int((window.end - since) // window.step) + 1)
    bad = n = 0.0
    for x in all_late(window, min(cells, window.stop - window.start), signal):
        bad += float(np.nansum(x.late[units]))
        n += float(np.nansum(x.total[units]))
    if n <= 0:
        return {}
    return {"requests_late": round(bad), "requests": round(n), "share_late": round(bad / n, 4)}


def strictest_objective(window: Window) -> F:
    """The shortest TTFT objective of the classes that each replica serves, seconds; 1 s where there is none."""
    out = np.ones(len(window.units))
    for i in range(len(window.units)):
        known = [o.threshold for c in window.classes_of([i]) if (o := window.context.objective(c))]
        if known:
            out[i] = min(known)
    return out


def _add(a: F, b: F) -> F:
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, a + b))
