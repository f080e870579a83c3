"""Roll-ups read back, as rows or as arrays. What their numbers mean is said in :mod:`sql.rollups`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from sqlalchemy import Connection, and_, select
from sqlalchemy.sql import ColumnElement

from core.errors import ConfigError
from core.frames import FloatArray, IntArray, Kind
from sql.accumulate import HOUR, MINUTE, REPLICA
from sql.rollups import MatrixKey, parse_counts
from sql.schema import rollups, series
from sql.series import SeriesCache

_Raw = tuple[int, int, int, float, float | None, str | None]
"""(series, ts, n, total, max, counts)"""


@dataclass(frozen=True, slots=True)
class RollupRow:
    """One stored roll-up. ``ts`` is the start of its span of ``resolution`` seconds; ``labels`` the column's further labels."""

    ts: int
    resolution: int
    class_: str
    cluster: str
    pool: str
    unit: str
    model: str
    signal: str
    kind: Kind
    labels: tuple[tuple[str, str], ...]
    edges: tuple[float, ...]
    counts: IntArray
    n: int
    total: float
    max_: float | None

    @property
    def mean(self) -> float | None:
        """Mean observation or value; None where there was none."""
        return self.total / self.n if self.n else None


def _matching(
    signal: str,
    *,
    resolution: int,
    classes: Sequence[str] | None,
    pools: Sequence[str] | None,
    clusters: Sequence[str] | None,
    models: Sequence[str] | None,
    per_unit: bool,
) -> ColumnElement[bool]:
    if resolution not in (MINUTE, REPLICA, HOUR):
        raise ConfigError("resolution", "must be 60, 300 or 3600 seconds", "one of the three", resolution)
    tests: list[ColumnElement[bool]] = [series.c.signal == signal]
    tests.append(series.c.unit != "" if per_unit else series.c.unit == "")
    for column, allowed in (
        (series.c.class_, classes),
        (series.c.pool, pools),
        (series.c.cluster, clusters),
        (series.c.model, models),
    ):
        if allowed is not None:
            tests.append(column.in_(list(allowed)))
    return and_(*tests)


def read_rows(
    connection: Connection,
    cache: SeriesCache,
    signal: str,
    start: float,
    end: float,
    *,
    resolution: int = MINUTE,
    classes: Sequence[str] | None = None,
    pools: Sequence[str] | None = None,
    clusters: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    per_unit: bool = False,
) -> list[RollupRow]:
    """Rows with start <= ts < end, ordered by time and key. ``per_unit`` rows exist at resolution 300."""
    resolution = REPLICA if per_unit else resolution
    test = _matching(
        signal,
        resolution=resolution,
        classes=classes,
        pools=pools,
        clusters=clusters,
        models=models,
        per_unit=per_unit,
    )
    found = {s.id: s for s in connection.execute(select(series).where(test))}
    bounds = cache.edges(connection, {s.edges_id for s in found.values()})
    out: list[RollupRow] = []
    for row in _range(connection, list(found), resolution, start, end):
        s = found[row[0]]
        counts = np.array(orjson.loads(row[5]) if row[5] else (), np.int64)
        labels = tuple(sorted(orjson.loads(s.labels).items()))
        out.append(
            RollupRow(
                row[1],
                resolution,
                s.class_,
                s.cluster,
                s.pool,
                s.unit,
                s.model,
                signal,
                s.kind,
                labels,
                bounds[s.edges_id],
                counts,
                row[2],
                row[3],
                row[4],
            )
        )
    out.sort(key=lambda r: (r.ts, r.class_, r.pool, r.unit, r.model, r.labels, r.edges))
    return out


def read_matrix(
    connection: Connection,
    cache: SeriesCache,
    signal: str,
    start: float,
    end: float,
    step: int = MINUTE,
    *,
    classes: Sequence[str] | None = None,
    pools: Sequence[str] | None = None,
    clusters: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    per_unit: bool = False,
) -> dict[MatrixKey, tuple[IntArray, IntArray, FloatArray]]:
    """(ts int64[T], counts int64[T, B], sums float64[T]) for each (class, pool, unit, model, edges), T ascending.

    Times without data are absent (not exported), a row of zeros is no traffic. Signals without buckets have B = 1 with ``n``.
    Clusters and further labels are summed over unless named: ``labels={"reason": "abort"}`` keeps what has that value.
    ``step`` is a multiple of 60 seconds (of 300 with ``per_unit``); whole hours read the hourly rows.
    """
    base = REPLICA if per_unit else HOUR if step % HOUR == 0 and start % HOUR == 0 else MINUTE
    if step <= 0 or step % base:
        raise ConfigError("step", f"must be a multiple of {base} seconds", f"{base}", step)
    test = _matching(
        signal,
        resolution=base,
        classes=classes,
        pools=pools,
        clusters=clusters,
        models=models,
        per_unit=per_unit,
    )
    wanted = (labels or {}).items()
    found = [
        s for s in connection.execute(select(series).where(test)) if wanted <= orjson.loads(s.labels).items()
    ]
    bounds = cache.edges(connection, {s.edges_id for s in found})
    keys: dict[MatrixKey, list[int]] = {}
    for s in found:
        keys.setdefault((s.class_, s.pool, s.unit, s.model, bounds[s.edges_id]), []).append(s.id)
    rows = _range(connection, [s.id for s in found], base, start, end)
    by_series: dict[int, list[_Raw]] = {}
    for row in rows:
        by_series.setdefault(row[0], []).append(row)
    out: dict[MatrixKey, tuple[IntArray, IntArray, FloatArray]] = {}
    for key in sorted(keys):
        mine = [row for i in keys[key] for row in by_series.get(i, ())]
        if not mine:
            continue
        _, t, n, total, _, texts = zip(*mine, strict=True)
        width = len(key[4]) + 1
        counts = parse_counts(texts, width) if key[4] else np.array(n, np.int64)[:, None]
        ts = np.array(t, np.int64) // step * step
        out[key] = _by_time(ts, counts, np.array(total, np.float64))
    return out


def _by_time(ts: IntArray, counts: IntArray, sums: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    if (ts[1:] > ts[:-1]).all():
        return ts, counts, sums
    order = np.argsort(ts, kind="stable")
    ts = ts[order]
    at = np.flatnonzero(np.concatenate(([True], ts[1:] != ts[:-1])))
    return ts[at], np.add.reduceat(counts[order], at), np.add.reduceat(sums[order], at)


def _range(
    connection: Connection, ids: Sequence[int], resolution: int, start: float, end: float
) -> list[_Raw]:
    """(series, ts, n, total, max, counts) with start <= ts < end, ordered by series and time."""
    c = rollups.c
    # whole seconds: PostgreSQL would compare bigint with a float without the index
    first, stop = math.ceil(start), math.ceil(end)
    out: list[_Raw] = []
    for i in range(0, len(ids), 500):
        query = (
            select(c.series_id, c.ts, c.n, c.total, c.max_, c.counts)
            .where(c.series_id.in_(ids[i : i + 500]), c.resolution == resolution, c.ts >= first, c.ts < stop)
            .order_by(c.series_id, c.ts)
        )
        out.extend(connection.execute(query))
    return out
