"""A replica's own normal, learnt from its past and borrowed from its pool while it has none of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Json
from detectors.cube import Cube
from detectors.measures import blocks
from detectors.stats import centre_spread
from detectors.window import Window

F = NDArray[np.float64]
GAP_S = 600.0
"""The last ten minutes never teach a baseline: a fault that is just beginning must not become normal."""
MIN_BLOCKS = 10


def learn(
    window: Window,
    as_of: float,
    floors: Mapping[str, float],
    *,
    block_s: float = 240.0,
    min_requests: int = 0,
) -> Json:
    """Median and robust spread of each measure over blocks of ``block_s``, per replica and per pool.

    ``floors`` names the measures and the smallest spread that is believed of each, as a share of the centre
    (or absolute where the
    centre is near 0). Blocks with fewer than ``min_requests`` first tokens say nothing.
    """
    names = tuple(floors)
    cells = max(1, int(block_s // window.step))
    data = blocks(window, cells, int(GAP_S // window.step), *names, "n")
    thin = data["n"] < min_requests
    out: Json = {"as_of": as_of, "units": [u.key for u in window.units], "values": {}}
    for name in names:
        x = np.where(thin, np.nan, data[name])
        c, s = centre_spread(x)
        count = (~np.isnan(x)).sum(axis=1)
        for idx in window.pools.values():
            pooled = x[idx].reshape(1, -1)
            if (~np.isnan(pooled)).sum() < MIN_BLOCKS:
                continue
            pc, ps = centre_spread(pooled)
            young = idx[count[idx] < MIN_BLOCKS]
            c[young], s[young] = pc[0], ps[0]
            count[young] = (~np.isnan(pooled)).sum()
        c[count < MIN_BLOCKS] = np.nan
        s = np.maximum(s, floors[name] * np.maximum(np.abs(c), 1e-12))
        out["values"][name] = [_json(c), _json(s)]
    return out


@dataclass(frozen=True)
class Normal:
    """Centres and spreads of measures, aligned to the units of a window; NaN where nothing has been learnt yet."""

    centre: Mapping[str, F]
    spread: Mapping[str, F]

    @classmethod
    def of(cls, baseline: Json, window: Window) -> Normal:
        """Read a baseline back; replicas that it does not know take the mean of their pool's known ones.

        A baseline holds for many ticks, so the last reading of it is kept; its arrays are not to be written.
        """
        kept = _read.get(id(baseline))
        same = kept is not None and kept[0] is baseline and kept[1]() is window.cube
        if kept is not None and same and len(window.units) == kept[2]:
            return kept[3]
        while len(_read) >= MOST_READ:
            _read.pop(next(iter(_read)))
        found = cls._of(baseline, window)
        for x in (*found.centre.values(), *found.spread.values()):
            x.flags.writeable = False
        _read[id(baseline)] = (baseline, ref(window.cube), len(window.units), found)
        return found

    @classmethod
    def _of(cls, baseline: Json, window: Window) -> Normal:
        known: Sequence[str] = baseline.get("units", [])
        here = [u.key for u in window.units]
        at = {k: i for i, k in enumerate(known)}
        order = np.asarray([at.get(k, -1) for k in here], np.intp)
        centre, spread = {}, {}
        for name, (c, s) in baseline.get("values", {}).items():
            cc, ss = _array(c, order), _array(s, order)
            if (order < 0).any():
                for idx in window.pools.values():
                    new = idx[order[idx] < 0]
                    if len(new) and len(new) < len(idx):
                        old = idx[order[idx] >= 0]
                        cc[new], ss[new] = _mean(cc[old]), _mean(ss[old])
            centre[name], spread[name] = cc, ss
        return cls(centre, spread)

    def z(self, name: str, x: F) -> F:
        """Deviation in robust standard deviations; NaN without a normal."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (x - self.centre[name]) / self.spread[name]

    def factor(self, name: str, x: F, least: float = 1e-9) -> F:
        """``x`` over its normal (at least ``least``)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return x / np.maximum(self.centre[name], least)


MOST_READ = 40
_read: dict[int, tuple[Json, ref[Cube], int, Normal]] = {}


def _json(x: F) -> list[float | None]:
    return [None if np.isnan(v) else round(float(v), 9) for v in x]


def _array(values: Sequence[float | None], order: NDArray[np.intp]) -> F:
    x = np.asarray([np.nan if v is None else v for v in values] or [np.nan], np.float64)
    return np.where(order >= 0, x[np.maximum(order, 0)], np.nan)


def _mean(x: F) -> float:
    ok = x[~np.isnan(x)]
    return float(ok.mean()) if len(ok) else float("nan")
