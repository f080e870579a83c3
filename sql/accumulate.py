"""Roll-up deltas of one batch of frames, summed in memory before the database is touched.

Frames of one pool and layout are stacked and summed per minute, per hour and (for the signals marked so) per replica and five
minutes. What comes out are :class:`Block` s: rows of (series, resolution, ts) with what is to be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.frames import FloatArray, IntArray, Layout, Target
from sql.increments import Increments
from sql.series import Item, SeriesCache, items

MINUTE, REPLICA, HOUR = 60, 300, 3600


@dataclass(frozen=True, slots=True)
class Block:
    """R rows to be added: ``series`` int64[R] ids, ``ts`` int64[R] in seconds, ``n`` int64[R], ``total`` and ``max_``
    float64[R], ``counts`` int64[R, B] (B = 0 without buckets)."""

    series: IntArray
    resolution: int
    ts: IntArray
    n: IntArray
    total: FloatArray
    max_: FloatArray
    counts: IntArray


@dataclass(slots=True)
class _Group:
    """``replicas`` has one name a frame."""

    layout: Layout
    parts: list[Increments] = field(default_factory=list)
    replicas: list[str] = field(default_factory=list)


class Deltas:
    """Collects the inserted frames of a batch."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str, str], _Group] = {}

    def add(self, target: Target, frames: Increments) -> None:
        """Add frames that are inserted in this transaction."""
        key = (target.cluster, target.pool, target.model, frames.layout.id)
        group = self._groups.setdefault(key, _Group(frames.layout))
        group.parts.append(frames)
        group.replicas.extend([target.replica] * len(frames.t1_ms))

    def add_each(self, targets: Sequence[Target], frames: Increments) -> None:
        """As :meth:`add`, each frame of a target of its own."""
        places: dict[tuple[str, str, str], list[int]] = {}
        for i, t in enumerate(targets):
            places.setdefault((t.cluster, t.pool, t.model), []).append(i)
        for (cluster, pool, model), at in places.items():
            group = self._groups.setdefault((cluster, pool, model, frames.layout.id), _Group(frames.layout))
            group.parts.append(frames if len(at) == len(targets) else frames.only(np.array(at)))
            group.replicas.extend(targets[i].replica for i in at)

    def blocks(self, cache: SeriesCache) -> Iterable[Block]:
        """All rows, several of which may have the same key. New series are left pending in ``cache``."""
        for (cluster, pool, model, _), group in self._groups.items():
            if items(group.layout):
                yield from _group_blocks(group, cluster, pool, model, cache)


def _group_blocks(group: _Group, cluster: str, pool: str, model: str, cache: SeriesCache) -> Iterable[Block]:
    layout, parts = group.layout, group.parts
    wanted = items(layout)
    seconds = np.concatenate([p.t1_ms for p in parts]) // 1000
    gauges = np.concatenate([p.gauges for p in parts])
    counts = np.concatenate([p.counts for p in parts])
    sums = np.concatenate([p.sums for p in parts])
    names = sorted(set(group.replicas))
    where = {name: i for i, name in enumerate(names)}
    unit = np.array([where[r] for r in group.replicas], np.int64)

    pool_rows = _Rows.reduce(seconds // MINUTE * MINUTE, np.zeros_like(unit), gauges, counts, sums)
    hour_rows = pool_rows.coarser(HOUR)
    ids = cache.ids(layout, cluster, pool, model, "")[None]
    for i, item in enumerate(wanted):
        if item.pooled:
            yield from pool_rows.block(item, ids[:, i], MINUTE)
            yield from hour_rows.block(item, ids[:, i], HOUR)
    if any(item.local for item in wanted):
        rows = _Rows.reduce(seconds // REPLICA * REPLICA, unit, gauges, counts, sums)
        ids = np.stack([cache.ids(layout, cluster, pool, model, name) for name in names])
        for i, item in enumerate(wanted):
            if item.local:
                yield from rows.block(item, ids[:, i], REPLICA)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Sums per (unit, ts): ``*_n`` say how many frames had a value."""

    ts: IntArray
    unit: IntArray
    gauges: FloatArray
    gauges_n: IntArray
    gauges_max: FloatArray
    counts: IntArray
    counts_n: IntArray
    sums: FloatArray
    sums_n: IntArray

    @classmethod
    def reduce(
        cls, ts: IntArray, unit: IntArray, gauges: FloatArray, counts: IntArray, sums: FloatArray
    ) -> _Rows:
        return cls(
            ts,
            unit,
            np.where(np.isnan(gauges), 0.0, gauges),
            (~np.isnan(gauges)).astype(np.int64),
            gauges,
            np.maximum(counts, 0),
            (counts >= 0).astype(np.int64),
            np.where(np.isnan(sums), 0.0, sums),
            (~np.isnan(sums)).astype(np.int64),
        )._grouped()

    def coarser(self, step: int) -> _Rows:
        return _Rows(
            self.ts // step * step,
            self.unit,
            self.gauges,
            self.gauges_n,
            self.gauges_max,
            self.counts,
            self.counts_n,
            self.sums,
            self.sums_n,
        )._grouped()

    def _grouped(self) -> _Rows:
        order = np.lexsort((self.ts, self.unit))
        ts, unit = self.ts[order], self.unit[order]
        new = np.ones(len(ts), bool)
        new[1:] = (ts[1:] != ts[:-1]) | (unit[1:] != unit[:-1])
        at = np.flatnonzero(new)
        return _Rows(
            ts[at],
            unit[at],
            np.add.reduceat(self.gauges[order], at),
            np.add.reduceat(self.gauges_n[order], at),
            np.fmax.reduceat(self.gauges_max[order], at),
            np.add.reduceat(self.counts[order], at),
            np.add.reduceat(self.counts_n[order], at),
            np.add.reduceat(self.sums[order], at),
            np.add.reduceat(self.sums_n[order], at),
        )

    def block(self, item: Item, ids: IntArray, resolution: int) -> Iterable[Block]:
        """Rows of one column, ``ids`` by unit; none if it had no value at all."""
        g, c, s = item.slots
        nothing = np.zeros((len(self.ts), 0), np.int64)
        nan = np.full(len(self.ts), np.nan)
        match item.column.kind:
            case "gauge":
                seen, n, total = self.gauges_n[:, g.start], self.gauges_n[:, g.start], self.gauges[:, g.start]
                maximum, counts = self.gauges_max[:, g.start], nothing
            case "counter":
                seen, n = self.counts_n[:, c.start], self.counts[:, c.start]
                total, maximum, counts = n.astype(np.float64), nan, nothing
            case "sum":
                seen, n, total = self.sums_n[:, s.start], self.sums_n[:, s.start], self.sums[:, s.start]
                maximum, counts = nan, nothing
            case _:
                counts = self.counts[:, c]
                seen, n = self.counts_n[:, c].max(axis=1), counts.sum(axis=1)
                total, maximum = self.sums[:, s.start], nan
        has = seen > 0
        if has.any():
            yield Block(
                ids[self.unit[has]], resolution, self.ts[has], n[has], total[has], maximum[has], counts[has]
            )
