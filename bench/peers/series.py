"""A history's store as the series that a Prometheus user would have: per replica, and per pool and class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.signals import SIGNALS
from detectors.contract import Need
from detectors.cube import Cube
from detectors.source import fill
from sql.store import Store

F = NDArray[np.float64]
STEP, MINUTE = 15.0, 60.0
PER_MINUTE = int(MINUTE // STEP)
RATE = 5 * PER_MINUTE
"""Cells of ``rate(...[5m])``."""
GAUGES = tuple(
    Need(f"g:{s.id}", s.id, "max" if s.across == "max" else "sum")
    for s in SIGNALS.values()
    if s.kind == "gauge"
)
COUNTERS = tuple(Need(f"c:{s.id}", s.id) for s in SIGNALS.values() if s.kind == "counter")
HISTS = ("ttft_seconds", "inter_token_latency_seconds", "request_latency_seconds", "queue_time_seconds")


@dataclass(frozen=True)
class Series:
    """``units`` are (pool, replica); arrays are ``[units, cells]`` of 15 s. Missing is NaN."""

    start: float
    units: tuple[tuple[str, str], ...]
    cube: Cube
    errors: Mapping[str, F]

    @classmethod
    def of(cls, store: Store, start: float, end: float) -> Series:
        """Everything of ``[start, end)``; failed requests (5xx) by pool come from the gateway log, a minute a cell."""
        cube = Cube((*GAUGES, *COUNTERS), HISTS, start=start, step=STEP)
        fill(cube, store, end)
        minutes = int((end - start) // MINUTE) + 1
        errors: dict[str, F] = {}
        for key, cell in store.request_cells(start, end):
            row = errors.setdefault(key.pool, np.zeros(minutes))
            at = int((key.minute - start) // MINUTE)
            if key.status >= 500 and 0 <= at < minutes:
                row[at] += cell.n
        return cls(start, tuple((u.pool, u.replica) for u in cube.units), cube, errors)

    @cached_property
    def pools(self) -> tuple[str, ...]:
        """Pools that have replicas."""
        return tuple(sorted({p for p, _ in self.units}))

    def members(self, pool: str) -> NDArray[np.intp]:
        """Indices of a pool's replicas."""
        return np.asarray([i for i, (p, _) in enumerate(self.units) if p == pool], np.intp)

    def gauge(self, signal: str) -> F:
        """As scraped."""
        return self.cube.scalar(f"g:{signal}").astype(np.float64)

    def counter(self, signal: str) -> F:
        """Increments per cell."""
        return self.cube.scalar(f"c:{signal}").astype(np.float64)

    def buckets(self, signal: str) -> dict[tuple[str, str], tuple[F, F]]:
        """(pool, class) -> finite edges, increments ``[cells, buckets]`` summed over the pool's replicas."""
        out: dict[tuple[str, str], tuple[F, F]] = {}
        for key in self.cube.hist_keys(signal):
            counts = self.cube.counts(signal, key)
            for pool in self.pools:
                mine = counts[self.members(pool)].astype(np.float64)
                if not np.isnan(mine).all():
                    out[pool, key[0]] = (np.asarray(key[1]), np.nansum(mine, axis=0))
        return out


def minutely(cells: F) -> F:
    """The newest cell at each full minute: rules are evaluated once a minute."""
    return cells[..., PER_MINUTE - 1 :: PER_MINUTE]


def trailing_sum(cells: F, n: int) -> F:
    """Sum over the last ``n`` cells along the first axis, NaN counted as nothing."""
    total = np.cumsum(np.nan_to_num(cells), axis=0)
    out = total.copy()
    out[n:] -= total[:-n]
    return out


def histogram_quantile(q: float, edges: F, counts: F) -> F:
    """Prometheus' ``histogram_quantile`` for rows of bucket counts (overflow last): linear inside a bucket, NaN for no
    observation, the last finite edge where the quantile lies beyond it.

    >>> float(histogram_quantile(0.5, np.array([1.0, 2.0]), np.array([[2.0, 2.0, 0.0]]))[0])
    1.0
    """
    total = counts.sum(axis=1)
    cumulative = np.cumsum(counts, axis=1)
    rank = q * total
    at = (cumulative < rank[:, None] - 1e-12).sum(axis=1)
    inside = np.minimum(at, len(edges) - 1)
    rows = np.arange(len(counts))
    low = np.where(inside > 0, edges[np.maximum(inside - 1, 0)], 0.0)
    below = np.where(inside > 0, cumulative[rows, np.maximum(inside - 1, 0)], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (rank - below) / counts[rows, inside]
        value = low + (edges[inside] - low) * share
    value = np.where(at >= len(edges), edges[-1], value)
    return np.where(total > 0, value, np.nan)
