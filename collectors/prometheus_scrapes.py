"""Which scrapes of a target to take: their times, whether they failed, and which copy of the server is believed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collectors.prometheus_series import Copy, LabelPairs, Times
from core.frames import FloatArray, IntArray

TOGETHER = 1.0
"""Where no ``up`` gives the times of scrapes, samples closer than this belong to one."""
SWITCH_AFTER = 1.5
"""Scrape intervals without a reading after which another copy of the server is believed."""


def choose(
    copies: Mapping[LabelPairs, Copy],
    grids: Mapping[LabelPairs, Times],
    believed: LabelPairs | None,
    newest: float,
    every: float,
) -> tuple[list[tuple[float, LabelPairs]], list[float], LabelPairs | None]:
    """Readings to make after ``newest``: (time, copy) ascending; times at which the target was down; the copy believed now.

    Two servers that scrape the same process see it at different times with clocks of their own: mixing them would make
    counters fall. One copy is believed until it has had nothing for :data:`SWITCH_AFTER` intervals.
    """
    if len(copies) == 1:
        ((tag, copy),) = copies.items()
        new = [t for t in grids[tag] if t > newest]
        ups = [(t, tag) for t in new if copy.up.get(t, True)]
        return ups, [t for t in new if not copy.up.get(t, True)], tag
    ups = sorted((t, tag) for tag, c in copies.items() for t in grids[tag] if c.up.get(t, True))
    if believed is None and ups:
        believed = max(copies, key=lambda tag: (len(grids[tag]), tag))
    chosen: list[tuple[float, LabelPairs]] = []
    last = newest
    for t, tag in ups:
        if t <= last:
            continue
        if tag != believed:
            if t - last <= SWITCH_AFTER * every:
                continue
            if last == float("-inf") and any(other == believed for _, other in ups):
                continue
            believed = tag
        chosen.append((t, tag))
        last = t
    seen_up = np.array([t for t, _ in ups])
    of_believed = copies.get(believed) if believed is not None else None
    down = sorted(
        t
        for t, up in (of_believed.up if of_believed else {}).items()
        if not up and t > newest and not (np.abs(seen_up - t) <= every).any()
    )
    return chosen, down, believed


def grid_of(copy: Copy) -> Times:
    """The times of scrapes: those of ``up``, else of the samples, close ones taken as one."""
    if copy.up:
        return tuple(sorted(copy.up))
    distinct = {s.times for s in copy.series}
    if len(distinct) == 1:
        return distinct.pop()
    times = np.unique(np.concatenate([np.array(t) for t in distinct])) if distinct else np.empty(0)
    if not len(times):
        return ()
    last_of_scrape = np.append(np.diff(times) > TOGETHER, True)
    return tuple(times[last_of_scrape].tolist())


def align(
    times: FloatArray, grid: FloatArray, chosen: FloatArray, every: float
) -> tuple[IntArray, IntArray, int]:
    """Which samples go into which of the ``chosen`` times: (sample index, place, samples that belong to no scrape at all).

    A sample belongs to the first scrape at or after it, less than an interval away; of several the last one counts.
    """
    scrape = np.searchsorted(grid, times)
    fits = scrape < len(grid)
    nearest = grid[np.minimum(scrape, len(grid) - 1)]
    fits &= nearest - times < every
    place = np.searchsorted(chosen, nearest)
    wanted = fits & (place < len(chosen))
    wanted &= chosen[np.minimum(place, len(chosen) - 1)] == nearest
    source = np.flatnonzero(wanted)
    return source, place[source], int((~fits).sum())
