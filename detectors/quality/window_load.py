"""From a detector's window to cells: the load that each sampled output met at its admission, without itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.quality.cells import Cells, codes, prompt_band
from detectors.quality.load import LoadSeries
from detectors.stats import zeroed
from detectors.window import Window

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
GRID_S = 5.0
UNFINISHED_S = 120.0
BEYOND = ("cpu", "host", "disk", "remote")
"""Cache sources that had to be brought back to the GPU."""


def running(window: Window) -> F:
    """Running and waiting requests ``[units, cells]``; NaN only where running is unknown."""
    out: F = window.value("running") + zeroed(window.value("waiting"))
    return out


def load_series(window: Window, pool: str, since: float) -> LoadSeries:
    """The load of a pool's replicas from ``since`` to the end of the window.

    Two noisy witnesses of the same thing are averaged, which keeps errors of measurement from watering down a dependence:
    running + waiting as scraped, and the sampled requests in flight. The gauge of a step is the last one scraped before it.
    """
    idx = window.pools.get(pool, np.zeros(0, np.intp))
    grid = np.arange(since // GRID_S * GRID_S, window.end, GRID_S)
    gauge, flight = np.full((2, len(window.units), len(grid)), np.nan)
    load = running(window)
    mids = (window.cube.first + window.start + np.arange(load.shape[1]) + 0.5) * window.step
    s = window.samples
    rows = np.arange(s.since(since - 3600), s.upto(window.end))
    rows = rows[s.pool[rows] == s.code(pool)]
    for i in idx:
        known = ~np.isnan(load[i])
        if known.sum() >= 2:
            gauge[i] = np.interp(grid, mids[known], load[i][known])
        mine = rows[s.replica[rows] == s.code(window.units[i].replica)]
        if len(mine):
            begun = np.searchsorted(np.sort(s.admitted[mine]), grid, "right")
            flight[i] = begun - np.searchsorted(np.sort(s.ts[mine]), grid, "right")
    parts = []
    for x in (gauge, flight):
        known = x[idx][~np.isnan(x[idx])]
        if len(known) and known.mean() > 0:
            parts.append(x / known.mean())
    if not parts:
        return LoadSeries(float(since), np.full((len(window.units), 1), np.nan))
    stack = np.stack(parts)
    seen = (~np.isnan(stack)).sum(axis=0)
    total = np.where(seen > 0, np.nansum(stack, axis=0) / np.maximum(seen, 1), np.nan)
    return LoadSeries(float(grid[0]), total, GRID_S)


def unit_of(window: Window, rows: I) -> I:
    """Replica index of each sampled output, -1 where its replica is not scraped."""
    s = window.samples
    table = np.full((len(s.names) + 1, 2), -1, np.intp)
    at: dict[tuple[int, int], int] = {}
    for i, u in enumerate(window.units):
        pool, replica = s.code(u.pool), s.code(u.replica)
        at[pool, replica] = i
        if replica >= 0:
            # Names are unique within a pool; where two pools share one, the slow way below decides.
            table[replica] = (-2, i) if table[replica, 1] >= 0 else (pool, i)
    pool_of, unit = table[s.replica[rows], 0], table[s.replica[rows], 1]
    out = np.where(pool_of == s.pool[rows], unit, -1)
    for k in np.flatnonzero(pool_of == -2):
        out[k] = at.get((int(s.pool[rows[k]]), int(s.replica[rows[k]])), -1)
    return out


def cells_of(window: Window, rows: I, series: LoadSeries) -> Cells:
    """One cell per sampled output of ``rows`` (indices into the samples)."""
    s = window.samples
    unit = unit_of(window, rows)
    admitted = s.admitted[rows]
    band = prompt_band(s.prompt_tokens[rows])
    beyond = np.isin(s.cache[rows], [c for c in map(s.code, BEYOND) if c >= 0])
    cell = ((admitted - (window.cube.first + window.start) * window.step) // window.step).astype(np.intp)
    preempted = window.value("preempted")
    ok = (unit >= 0) & (cell >= 0) & (cell < preempted.shape[1])
    squeezed = np.zeros(len(rows))
    squeezed[ok] = zeroed(preempted[unit[ok], cell[ok]]) > 0
    return Cells(
        k=s.bad[rows].astype(np.float64),
        n=np.ones(len(rows)),
        t=admitted,
        class_=s.workload_class[rows].astype(np.intp),
        stratum=codes(s.workload_class[rows], band, s.model[rows], s.release[rows]),
        unit=unit,
        load=series.at(unit, admitted),
        host=beyond.astype(np.float64),
        preempt=squeezed,
    )
