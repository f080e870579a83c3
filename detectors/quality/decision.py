"""Is it load? The decision of three outcomes, and what it would take to decide.

``True``: the lower 95 % bound of the adjusted ratio of top to bottom quarter of load is over 2, there were at least 40 hours
or 5 separate load episodes, moving the load within its episodes does not do the same, no single episode makes it, the
placebos show nothing, and neither missing outputs nor the cache path explain it. ``False``: the upper bound is under 2, or
something else carries it. ``None``: cannot tell yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from detectors.quality.cells import Cells, rank
from detectors.quality.load import Episodes, LoadSeries, episodes, neighbour, rotation_p, tomorrow, trend
from detectors.quality.ratio import Ratio, adjusted, crude, quarters, shapes
from detectors.quality.verdict import LoadVerdict
from detectors.stats import zeroed

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
RATIO = 2.0
ALPHA = 0.01
GUARD = 0.05
"""Bound of the permutation where 40 hours and more carry the interval: it only has to unmask what rests on few episodes."""
HOURS = 40
EPISODES = 5
LEAST_BAD = 15
SURE_Z = 3.29
"""A coefficient of the cache path this many errors over 0 (p 0.0005, one-sided) carries a rise that load alone does not."""
LEAST_KNOWN = 0.5
UNKNOWN_LOAD = "running requests are not exported: the load at admission is unknown"
LEAST_SPREAD = 1.15
"""Upper over lower quartile of load from which on there is something to compare."""


@dataclass(frozen=True)
class Setting:
    """What surrounds the cells: load over time, pool of each unit, shares of outputs missing at low and high load (if known)."""

    series: LoadSeries
    group: I
    missing: tuple[float, float] | None = None
    carried: str = ""
    """Who else carries the raised rate, in words; empty where nobody does."""
    final: bool = True
    """Whether that settles it, or only where the load does not show by itself (a change in time can be both)."""


def decide(cells: Cells, setting: Setting) -> LoadVerdict:
    """Judge the outputs of one pool (or several, with load relative to each pool's mean)."""
    if cells.bad < LEAST_BAD:
        return _carried(
            LoadVerdict(None, f"{cells.bad} bad answers so far, {LEAST_BAD} are needed to begin with"),
            setting,
        )
    known = ~np.isnan(cells.load)
    if cells.n[known].sum() < LEAST_KNOWN * cells.n.sum():
        return _carried(LoadVerdict(None, UNKNOWN_LOAD), setting)
    cells = cells.where(known)
    x = rank(cells.load, cells.n)
    low_edge, high_edge = _edges(cells, x)
    blocks = episodes(setting.series.total(), setting.series.start, setting.series.step)
    hours = len(np.unique(cells.hour))
    clusters = [cells.hour] if hours >= 10 else [_tens(cells)]
    ratio = adjusted(cells, x, clusters=tuple(clusters))
    bottom, top = quarters(x)
    if ratio is None:
        return _carried(LoadVerdict(None, "bad answers are too few, or the load hardly changed"), setting)
    plain, full = crude(cells), _mechanism(cells, x, tuple(clusters))
    found = LoadVerdict(
        None,
        "",
        ratio.value,
        ratio.low,
        ratio.high,
        ratio.p,
        blocks.count,
        (round(float(cells.k[bottom].sum())), round(float(cells.n[bottom].sum()))),
        (round(float(cells.k[top].sum())), round(float(cells.n[top].sum()))),
        (low_edge, high_edge),
        crude=None if plain is None else (plain.value, plain.low, plain.high),
        mechanism=None if full is None else (full.value, full.low, full.high),
        trend=trend(cells, x),
        shape=ratio.shape,
        hours=hours,
        inflation=ratio.inflation,
    )
    if setting.carried and (setting.final or ratio.low <= RATIO):
        return _carried(found, setting)
    if low_edge <= 0 or high_edge / low_edge < LEAST_SPREAD:
        return replace(found, why="the load hardly changed: there is no high and low to compare")
    if ratio.high < RATIO:
        return replace(found, verdict=False, why="upper bound under 2")
    if ratio.low <= RATIO:
        return _open(found, cells, ratio)
    return _confirm(found, cells, x, setting, blocks, tuple(clusters), full)


def _confirm(
    found: LoadVerdict,
    cells: Cells,
    x: F,
    setting: Setting,
    blocks: Episodes,
    clusters: tuple[I, ...],
    full: Ratio | None,
) -> LoadVerdict:
    """The lower bound is over 2: every other explanation has its say."""
    if full is not None and (full.value < RATIO or full.p > ALPHA / 2):
        # With the path held fixed nothing is left to load; whether the path itself matters says if that is known or a guess.
        known = full.high < RATIO or (full.control_z is not None and full.control_z > SURE_Z)
        return replace(
            found,
            verdict=False if known else None,
            why="the cache path or preemption carries it: with them held fixed, load does not matter"
            if known
            else "with cache path and preemption held fixed, a rise with load is not shown yet",
        )
    if found.hours < HOURS and blocks.count < EPISODES:
        return replace(
            found,
            why=f"{blocks.count} of {EPISODES} separate load episodes so far (or {found.hours} of {HOURS} hours)",
        )
    turned = rotation_p(cells, setting.series, blocks)
    found = replace(found, rotation=turned)
    if turned is None or turned > (GUARD if found.hours >= HOURS else ALPHA):
        return replace(
            found, why="the same load in another order fits nearly as well: chance is not ruled out"
        )
    without = _without_best_block(cells, x, blocks)
    if without is not None and without <= RATIO:
        return replace(found, why=f"one load episode makes it: without that one the ratio is ×{without:.1f}")
    placebos = _placebos(cells, x, setting, clusters, found.shape)
    found = replace(found, placebos={k: v[0] for k, v in placebos.items()})
    loud = [k for k, (p, stronger) in placebos.items() if p < ALPHA and stronger]
    if loud:
        return replace(
            found, why=f"{' and '.join(loud)} explains it as well, which it cannot: something else moves both"
        )
    if setting.missing is not None:
        bottom, top = setting.missing
        kept = (1 - top) / max(1 - bottom, 1e-9)
        if found.low is not None and found.low * kept <= RATIO:
            return replace(
                found,
                why=f"outputs are missing ({bottom:.0%} at low load, {top:.0%} at high): "
                f"were those all clean, the lower bound would be ×{found.low * kept:.1f}",
            )
    return replace(found, verdict=True, why="lower bound over 2 and no chance order of load does the same")


def _carried(found: LoadVerdict, setting: Setting) -> LoadVerdict:
    """Something else carries it: not load, however it looks."""
    return replace(found, verdict=False, why=setting.carried) if setting.carried else found


def _open(found: LoadVerdict, cells: Cells, ratio: Ratio) -> LoadVerdict:
    """The interval spans 2: how many more outputs would settle it."""
    more = needed(ratio, cells.outputs)
    rises = (
        "it rises with load, but more than double is not shown yet"
        if ratio.p < ALPHA
        else "the interval still spans 2"
    )
    return replace(found, why=f"{rises}: about {more:,} more sampled outputs are needed", more=more)


def needed(ratio: Ratio, outputs: int) -> int:
    """Further outputs until the nearer bound clears 2, if the ratio is what it seems (errors shrink with the root of outputs)."""
    value = min(max(ratio.value, 0.05), 200.0)
    gap = log(value / RATIO)
    # A ratio just at 2 would take for ever: the plan is for one that is half as far again as its error allows to see.
    half = log(value / max(ratio.low, 1e-3)) if gap > 0 else log(min(ratio.high, 1e3) / value)
    gap = max(abs(gap), 0.2)
    factor = (half / gap) ** 2
    return int(max(outputs * 0.1, outputs * (factor - 1.0)) // 100 * 100) + 100


def _edges(cells: Cells, x: F) -> tuple[float, float]:
    bottom, top = quarters(x)
    if not bottom.any():
        return 0.0, 0.0
    return float(cells.load[bottom].max()), float(cells.load[top].min())


def _tens(cells: Cells) -> I:
    """Blocks of ten minutes: the clusters of a short span."""
    return np.unique(cells.t // 600.0, return_inverse=True)[1].astype(np.intp)


def _mechanism(cells: Cells, x: F, clusters: tuple[I, ...]) -> Ratio | None:
    """The ratio with cache path and preemption held fixed as well; None where neither varies."""
    columns = [c for c in (cells.host, cells.preempt) if np.nanstd(c) > 0]
    if not columns:
        return None
    return adjusted(cells, x, clusters=clusters, controls=zeroed(np.column_stack(columns)))


def _without_best_block(cells: Cells, x: F, blocks: Episodes) -> float | None:
    """The ratio without the block that holds most of the bad outputs beyond its share; None where one block is all there is."""
    block = blocks.block(cells.t)
    size = int(block.max(initial=0)) + 1
    if size < 2:
        return None
    high = x > 0.5
    excess = np.bincount(block, cells.k * high, size) - cells.k.sum() * np.bincount(
        block, cells.n * high, size
    ) / max(cells.n.sum(), 1e-12)
    keep = block != int(np.argmax(excess))
    rest = adjusted(cells.where(keep), x[keep])
    return None if rest is None else rest.value


def _placebos(
    cells: Cells, x: F, setting: Setting, clusters: tuple[I, ...], shape: str
) -> dict[str, tuple[float, bool]]:
    """p of each placebo beside the real load (in the shape that fits it), and whether it says more than the real one does."""
    out = {}
    for name, load in (
        ("the load of another time", tomorrow(cells, setting.series)),
        ("the load of another replica", neighbour(cells, setting.series, setting.group)),
    ):
        ok = ~np.isnan(load)
        if cells.n[ok].sum() < LEAST_KNOWN * cells.n.sum():
            continue
        part = cells.where(ok)
        other, real = rank(load[ok], part.n), x[ok]
        own = tuple(np.unique(c[ok], return_inverse=True)[1] for c in clusters)
        fake = adjusted(part, other, clusters=own, controls=shapes(real)[shape][:, None])
        true = adjusted(part, real, clusters=own, controls=np.column_stack([other]))
        if fake is not None and true is not None:
            out[name] = (fake.p, fake.z > true.z)
    return out


def bounds_with_missing(found: LoadVerdict, missing: tuple[float, float]) -> tuple[float, float]:
    """Ratio if all outputs missing at high load were clean, and if they were as bad as those at the other end of its interval."""
    bottom, top = missing
    low = (found.low or 0.0) * (1 - top) / max(1 - bottom, 1e-9)
    high = (found.high or float("inf")) * (1 - bottom) / max(1 - top, 1e-9)
    return low, high if high < exp(20) else float("inf")
