"""Reading frames back, and what is known of scrapes that succeeded and failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from sqlalchemy import Connection, func, select

from core.frames import FloatArray, Frame
from core.packing import unpack
from core.times import horizon
from sql.engine import Database
from sql.ids import to_ms
from sql.increments import BoolArray
from sql.layouts import LayoutCache
from sql.schema import frames, scrape_failures, targets

STRIDE_MS = 600_000
"""Frames are read ten minutes at a time: the answer is ordered by time over all targets, and memory stays small."""


def chosen(
    connection: Connection, target_ids: Sequence[int] | None, pools: Sequence[str] | None
) -> list[int]:
    """Ids of the targets named, or of all."""
    query = select(targets.c.id)
    if target_ids is not None:
        query = query.where(targets.c.id.in_(list(target_ids)))
    if pools is not None:
        query = query.where(targets.c.pool.in_(list(pools)))
    return sorted(connection.execute(query).scalars())


def read(
    database: Database,
    cache: LayoutCache,
    start: float,
    end: float,
    *,
    target_ids: Sequence[int] | None = None,
    pools: Sequence[str] | None = None,
) -> Iterator[Frame]:
    """Frames with start <= t1 < end, ordered by (t1, target).

    Between two strides no connection is held: a slow reader of a long history neither keeps a snapshot alive (SQLite's log
    would grow meanwhile) nor a place in the pool.
    """
    c = frames.c
    with database.read() as connection:
        ids = chosen(connection, target_ids, pools)
        within = (c.target_id.in_(ids), c.t1_ms >= to_ms(start), c.t1_ms < to_ms(end))
        low, high = connection.execute(select(func.min(c.t1_ms), func.max(c.t1_ms)).where(*within)).one()
    if low is None:
        return
    for at in range(low, high + 1, STRIDE_MS):
        query = (
            select(c.t1_ms, c.target_id, c.span_ms, c.layout_id, c.reset, c.data)
            .where(c.target_id.in_(ids), c.t1_ms >= at, c.t1_ms < min(at + STRIDE_MS, high + 1))
            .order_by(c.t1_ms, c.target_id)
        )
        with database.read() as connection:
            rows = connection.execute(query).all()
            cache.load(connection, {r[3] for r in rows})
        for t1_ms, target_id, span_ms, layout_id, reset, data in rows:
            layout = cache.get(layout_id)
            gauges, counts, sums = unpack(layout, data)
            t0, t1 = (t1_ms - span_ms) / 1000, t1_ms / 1000
            yield Frame(target_id, t0, t1, layout, gauges, counts, sums, bool(reset))


def uptime(
    connection: Connection,
    start: float,
    end: float,
    *,
    target_ids: Sequence[int] | None = None,
    pools: Sequence[str] | None = None,
) -> Mapping[int, tuple[FloatArray, BoolArray]]:
    """For each target with scrapes in [start, end): times float64[n], ascending, and whether the scrape was good.

    Good scrapes are the frames (the first reading of a target has none), bad ones the ``scrape_failures``. What is in neither
    was not scraped, or could not be written.
    """
    ids = chosen(connection, target_ids, pools)
    parts: dict[int, tuple[list[int], list[int]]] = {}
    for i, (table, time) in enumerate(((frames, frames.c.t1_ms), (scrape_failures, scrape_failures.c.t_ms))):
        for first in range(0, len(ids), 500):
            query = select(table.c.target_id, time).where(
                table.c.target_id.in_(ids[first : first + 500]), time >= to_ms(start), time < to_ms(end)
            )
            for target_id, t in connection.execute(query):
                parts.setdefault(target_id, ([], []))[i].append(t)
    out: dict[int, tuple[FloatArray, BoolArray]] = {}
    for target_id, (good, bad) in sorted(parts.items()):
        t = np.array(good + bad, np.float64) / 1000
        up = np.arange(len(t)) < len(good)
        order = np.argsort(t, kind="stable")
        out[target_id] = (t[order], up[order])
    return out


def oldest(connection: Connection) -> float | None:
    """t1 of the oldest frame."""
    return _extreme(connection, "asc")


def newest(connection: Connection) -> float | None:
    """t1 of the newest frame; what a wrong clock once dated into the future does not count."""
    return _extreme(connection, "desc")


def _extreme(connection: Connection, direction: str) -> float | None:
    # one index step a target; min() over the whole table would read the index from end to end
    at = frames.c.t1_ms.asc() if direction == "asc" else frames.c.t1_ms.desc()
    inner = (
        select(frames.c.t1_ms)
        .where(frames.c.target_id == targets.c.id, frames.c.t1_ms <= to_ms(horizon()))
        .order_by(at)
        .limit(1)
        .correlate(targets)
        .scalar_subquery()
    )
    pick = func.min if direction == "asc" else func.max
    each = select(inner.label("t")).select_from(targets).subquery()
    value = connection.execute(select(pick(each.c.t))).scalar()
    return None if value is None else value / 1000
