"""How long a step, or the prefill of a prompt, takes for the work that a replica is doing, and how long it usually takes there.

Decode steps take longer with more requests in the batch and with more prefill beside them, so speed is only comparable at
equal work. Per pool, weighted least squares over two-minute blocks of the past::

    step    = a + b * running + c * prefill tokens/s            ratio = step / fit
    prefill = a + b * running + c * prompt tokens computed per request

``step`` is the mean gap between tokens where an engine exports it, else the seconds that a running request needs for one
token (running requests over decode tokens a second). ``prefill`` is the time to the first token without the queue. Each
replica's own usual ratio is learnt beside the fit: replicas of one pool differ for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Json
from detectors.measures import blocks, now
from detectors.normal import GAP_S, MIN_BLOCKS
from detectors.stats import centre_spread, zeroed
from detectors.window import Window

F = NDArray[np.float64]
BLOCK_S = 120.0
LEAST_SPREAD = 0.03
"""A ratio that never left 1 by more than a percent has still only been seen for a while."""
UNKNOWN_SPREAD = 0.08
Stage = Literal["step", "prefill"]
_MEASURES: Mapping[Stage, tuple[str, ...]] = {
    "step": ("itl", "token_seconds", "running", "compute"),
    "prefill": ("prefill_seconds", "running", "work"),
}


def learn_pace(history: Window, stage: Stage = "step") -> Json:
    """Fits, the largest batch seen while they were learnt, and each replica's usual ratio and its spread."""
    cells, gap = int(BLOCK_S // history.step), int(GAP_S // history.step)
    b = blocks(history, cells, gap, *_MEASURES[stage])
    other = b[_MEASURES[stage][-1]]
    step = _taken(history, b, stage)
    fits: dict[str, list[float]] = {}
    reach: dict[str, float] = {}
    for pool, idx in history.pools.items():
        y = step[idx].ravel()
        x = np.stack([np.ones_like(y), b["running"][idx].ravel(), zeroed(other[idx].ravel()) / 1e4])
        ok = ~np.isnan(y) & ~np.isnan(x).any(axis=0) & (y > 0)
        if ok.sum() < 3 * MIN_BLOCKS:
            continue
        # Weights 1/y: a relative error, because the ratio is what is judged.
        coef, *_ = np.linalg.lstsq((x[:, ok] / y[ok]).T, np.ones(int(ok.sum())), rcond=None)
        fits[pool] = [float(v) for v in coef]
        reach[pool] = float(np.nanmax(b["running"][idx]))
    ratio = _over_fit(history, fits, step, b["running"], other)
    c, s = centre_spread(ratio)
    few = (~np.isnan(ratio)).sum(axis=1) < MIN_BLOCKS
    c[few], s[few] = 1.0, np.nan
    own: list[list[float | None]] = [[_j(v) for v in c], [_j(max(v, LEAST_SPREAD)) for v in s]]
    return {
        "units": [u.key for u in history.units],
        "fits": fits,
        "reach": reach,
        "ratio": own,
        "stage": stage,
    }


@dataclass(frozen=True)
class Pace:
    """A learnt pace, aligned to the units of a window: arrays ``[units]``."""

    window: Window
    fits: dict[str, list[float]]
    own: F
    spread: F
    reach: F
    stage: Stage

    @classmethod
    def of(cls, learnt: Json, window: Window) -> Pace:
        """What :func:`learn_pace` gave; a replica that it does not know has the ratio 1 and a wide spread."""
        at = {k: i for i, k in enumerate(learnt.get("units", []))}
        c, s = learnt.get("ratio", [[], []])
        own, spread = np.ones(len(window.units)), np.full(len(window.units), UNKNOWN_SPREAD)
        for i, u in enumerate(window.units):
            j = at.get(u.key)
            if j is not None and c[j] is not None:
                own[i] = c[j]
                spread[i] = s[j] if s[j] is not None else UNKNOWN_SPREAD
        known = learnt.get("reach", {})
        reach = np.asarray([known.get(u.pool, np.inf) for u in window.units], np.float64)
        return cls(window, learnt.get("fits", {}), own, spread, reach, learnt.get("stage", "step"))

    def ratio(self, cells: int) -> F:
        """Time taken over the last cells, over what this work takes here usually; NaN where unknown."""
        m = now(self.window, cells, *_MEASURES[self.stage])
        taken, other = _taken(self.window, m, self.stage), m[_MEASURES[self.stage][-1]]
        return _over_fit(self.window, self.fits, taken, m["running"], other) / self.own

    def z(self, ratio: F) -> F:
        """Deviation of a ratio from 1 in robust standard deviations of two-minute blocks."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (ratio - 1.0) * self.own / self.spread

    def within_reach(self, running: F) -> NDArray[np.bool_]:
        """Whether a batch is not far beyond those that were seen: the fit is a guess there, and a surge is not slowness."""
        return running <= 2.5 * np.maximum(self.reach, 2.0)


def _taken(window: Window, m: dict[str, F], stage: Stage) -> F:
    """Prefill time, or the gap between tokens; seconds per token of a running request where a pool exports no gap."""
    if stage == "prefill":
        return m["prefill_seconds"]
    out = m["itl"].copy()
    for idx in window.pools.values():
        # A whole pool, never one replica: the two are not the same number.
        if np.isnan(out[idx]).all():
            out[idx] = m["token_seconds"][idx]
    return out


def _over_fit(window: Window, fits: dict[str, list[float]], step: F, running: F, other: F) -> F:
    out = np.full(step.shape, np.nan)
    for pool, idx in window.pools.items():
        if pool not in fits:
            continue
        a, b, c = fits[pool]
        expected = a + b * running[idx] + c * zeroed(other[idx]) / 1e4
        with np.errstate(invalid="ignore", divide="ignore"):
            out[idx] = np.where(expected > 0, step[idx] / expected, np.nan)
    return out


def _j(x: float) -> float | None:
    return None if x != x else round(float(x), 6)
