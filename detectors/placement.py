"""Whether load lies unevenly: on one replica of a pool, or on one rank inside a replica, while others have nothing to do.

Load is running plus waiting requests. Replicas behind a prefix-affine router differ for good, so a replica's share of its pool is
compared with its own usual share; what a router decides is seen in the share of *new* work (first tokens and growth of the
queue), which a merely slow replica does not get more of. Ranks have no such past: they are balanced by design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Json
from detectors.measures import blocks, now
from detectors.normal import GAP_S, MIN_BLOCKS
from detectors.stats import nanmedian, zeroed
from detectors.window import Window, nanmean

F = NDArray[np.float64]
B = NDArray[np.bool_]
SPAN_S = 120.0
LEARN_S = 120.0
LEAST_LOAD = 4.0
"""Below four requests on the fullest one, chance alone places three beside none."""
LEAN = 3.0
MORE = 1.5


def learn_shares(history: Window) -> Json:
    """Each replica's usual share of its pool's first tokens, and its usual load; None where nothing is known."""
    b = blocks(history, int(LEARN_S // history.step), int(GAP_S // history.step), "n", "running", "waiting")
    share = np.full(b["n"].shape, np.nan)
    for idx in history.pools.values():
        total = np.nansum(b["n"][idx], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share[idx] = np.where(total > 0, b["n"][idx] / total, np.nan)
    few = (~np.isnan(share)).sum(axis=1) < MIN_BLOCKS
    usual, load = nanmedian(share), nanmedian(b["running"] + zeroed(b["waiting"]))
    usual[few], load[few] = np.nan, np.nan
    return {"units": [u.key for u in history.units], "share": _json(usual), "load": _json(load)}


@dataclass(frozen=True)
class Placement:
    """Arrays ``[units]``: ``hot`` replicas, their ``load`` now and usually, their ``share`` of new work now and usually."""

    hot: B
    load: F
    usual_load: F
    share: F
    usual_share: F


def placement(window: Window, learnt: Json, span_s: float = SPAN_S) -> Placement:
    """Where the load of each pool lies over the last two minutes."""
    cells = max(2, int(span_s // window.step))
    m = now(window, cells, "running", "waiting", "arrivals")
    half = now(window, max(1, cells // 2), "running", "waiting")
    load = m["running"] + zeroed(m["waiting"])
    latest = half["running"] + zeroed(half["waiting"])
    new = m["arrivals"] + zeroed(_growth(window, cells))
    usual_share, usual_load = _aligned(learnt, window, "share"), _aligned(learnt, window, "load")
    share, hot = np.full(len(load), np.nan), np.zeros(len(load), bool)
    steady = window.since_restart(int(900 // window.step)) > 600
    for idx in window.pools.values():
        known = idx[~np.isnan(load[idx])]
        if len(known) < 2 or not steady[known].all():
            # A peer that has just come or is about to go is not passed over, it is out of service.
            continue
        total = np.nansum(new[known])
        share[known] = np.maximum(zeroed(new[known]), 0.0) / total if total > 0 else np.nan
        hot[known] = _leans(load[known]) & _leans(latest[known])
        with np.errstate(invalid="ignore"):
            idle = load[known] <= 0.5 * np.maximum(usual_load[known], 1.0)
            # With two replicas both numbers are one: a share that was a half can at most double.
            more = share[known] >= np.fmin(
                MORE * usual_share[known], usual_share[known] + 0.5 * (1 - usual_share[known])
            )
        hot[known] &= more & idle.any() & (load[known] >= 2.0 * np.maximum(usual_load[known], 1.0))
    return Placement(hot, load, usual_load, share, usual_share)


@dataclass(frozen=True, slots=True)
class Lean:
    """The ranks of one replica: names and load of all, and which are hot; ``seconds`` for which they have been."""

    ranks: tuple[str, ...]
    load: tuple[float, ...]
    hot: tuple[str, ...]
    seconds: float


def leaning_ranks(window: Window, unit: int, span_s: float = SPAN_S) -> Lean | None:
    """Ranks of a replica that hold its work while others idle, over the last two minutes; None where they are balanced."""
    names = window.ranks.names(unit)
    if not names:
        return None
    cells = max(2, int(span_s // window.step))
    depth = int(900 // window.step)
    load = window.ranks.values("requests_running", unit, depth) + zeroed(
        window.ranks.values("requests_waiting", unit, depth)
    )
    recent, latest = nanmean(load[:, -cells:]), nanmean(load[:, -max(1, cells // 2) :])
    hot = _leans(recent) & _leans(latest)
    if not hot.any():
        return None
    top = int(np.nanargmax(recent))
    cell = (load[top] >= 2.0 * nanmean(load.T)) | np.isnan(load[top])
    broken = np.flatnonzero(~cell)
    since = len(cell) - 1 - (broken[-1] if len(broken) else -1)
    return Lean(
        tuple(names),
        tuple(float(x) for x in recent),
        tuple(n for n, h in zip(names, hot, strict=True) if h),
        float(since * window.step),
    )


def _leans(load: F) -> B:
    """Which of some holders are hot: more than twice the mean of all (three times the others where there are two) and at
    least four requests, while another has less than a quarter of the mean."""
    known = load[~np.isnan(load)]
    if len(known) < 2 or known.sum() <= 0:
        return np.zeros(len(load), bool)
    mean = float(known.mean())
    others = (known.sum() - load) / (len(known) - 1)
    with np.errstate(invalid="ignore"):
        hot = (load >= LEAN * np.maximum(others, 1e-9)) if len(known) == 2 else (load > 2.0 * mean)
        return hot & (load >= LEAST_LOAD) & bool((known < 0.25 * mean).any())


def _growth(window: Window, cells: int) -> F:
    """Requests per second by which the queue of each replica grew."""
    wait = window.value("waiting", cells)
    if wait.shape[1] < cells:
        return np.zeros(len(window.units))
    third = max(1, cells // 3)
    return np.maximum(nanmean(wait[:, -third:]) - nanmean(wait[:, :third]), 0.0) / (
        (cells - third) * window.step
    )


def _aligned(learnt: Json, window: Window, name: str) -> F:
    at = {k: v for k, v in zip(learnt.get("units", []), learnt.get(name, []), strict=True) if v is not None}
    return np.asarray([at.get(u.key, np.nan) for u in window.units], np.float64)


def _json(x: F) -> list[float | None]:
    return [None if np.isnan(v) else round(float(v), 6) for v in x]
