"""Gateway request cells: counts and fine buckets per minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from sqlalchemy import Connection, Table, func, select

from core.frames import IntArray
from core.requests import RequestCell, RequestCount, RequestKey
from sql import request_hours
from sql.bulk import upsert
from sql.ids import edges_id
from sql.request_hours import combine
from sql.schema import request_hours as hours_table
from sql.schema import requests
from sql.series import SeriesCache, store_edges


def _key(k: RequestKey, edges: int) -> dict[str, Any]:
    return {
        "minute": k.minute,
        "point": k.point,
        "class_": k.class_,
        "tenant": k.tenant,
        "model": k.model,
        "pool": k.pool,
        "band": k.band,
        "status": k.status,
        "release": k.release,
        "edges_id": edges,
    }


def _sparse(counts: IntArray) -> str:
    at = np.flatnonzero(counts)
    return orjson.dumps({str(i): int(counts[i]) for i in at.tolist()}).decode()


def _dense(text: str, edges: tuple[float, ...]) -> IntArray:
    counts = np.zeros(len(edges) + 1, np.int64)
    for i, n in orjson.loads(text).items():
        counts[int(i)] = n
    return counts


def add(connection: Connection, cells: Mapping[RequestKey, RequestCell]) -> None:
    """Add cells to what is stored; the caller holds the write lock."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    store_edges(connection, {c.edges for c in cells.values()})
    for k, c in cells.items():
        key = _key(k, edges_id(c.edges))
        rows[tuple(key.values())] = key | {
            "n": c.n,
            "prompt_tokens": c.prompt_tokens,
            "output_tokens": c.output_tokens,
            "ttft_sum": c.ttft_sum,
            "duration_sum": c.duration_sum,
            "ttft": _sparse(c.ttft[1]),
            "age": _sparse(c.age[1]),
            "duration": _sparse(c.duration[1]),
            "tpot": None if c.tpot is None else _sparse(c.tpot[1]),
            "joint": orjson.dumps(c.joint).decode(),
        }
    if not rows:
        return
    request_hours.add(connection, rows.values())
    names = list(next(iter(rows.values())))
    keys = names[:10]
    minutes = [k.minute for k in cells]
    stored = select(*[requests.c[n] for n in names]).where(
        requests.c.minute.between(min(minutes), max(minutes))
    )
    for old in connection.execute(stored):
        row = rows.get(tuple(old[:10]))
        if row is not None:
            combine(row, dict(zip(names, old, strict=True)))
    upsert(connection, requests, list(rows.values()), update=tuple(n for n in names if n not in keys))


def read(
    connection: Connection,
    cache: SeriesCache,
    start: float,
    end: float,
    *,
    classes: Sequence[str] | None = None,
    pools: Sequence[str] | None = None,
    points: Sequence[str] | None = None,
    hourly: bool = False,
) -> list[tuple[RequestKey, RequestCell]]:
    """Cells whose minute starts in [start, end), by minute and key. One key appears twice where its bucket edges changed.

    ``hourly``: one cell for each hour that starts in [start, end); its key's minute is the start of the hour.
    """
    table: Table = hours_table if hourly else requests
    c = table.c
    time = c.hour if hourly else c.minute
    query = select(table).where(time >= int(-(-start // 1)), time < int(-(-end // 1)))
    for column, allowed in ((c.class_, classes), (c.pool, pools), (c.point, points)):
        if allowed is not None:
            query = query.where(column.in_(list(allowed)))
    rows = connection.execute(query).mappings().all()
    bounds = cache.edges(connection, {r[c.edges_id] for r in rows})
    out = []
    for r in rows:
        edges = bounds[r[c.edges_id]]
        key = RequestKey(
            r[time],
            r[c.point],
            r[c.class_],
            r[c.tenant],
            r[c.model],
            r[c.pool],
            r[c.band],
            r[c.status],
            r[c.release],
        )
        cell = RequestCell(
            r[c.n],
            r[c.prompt_tokens],
            r[c.output_tokens],
            (edges, _dense(r[c.ttft], edges)),
            (edges, _dense(r[c.age], edges)),
            (edges, _dense(r[c.duration], edges)),
            r[c.ttft_sum],
            r[c.duration_sum],
            None if r[c.tpot] is None else (edges, _dense(r[c.tpot], edges)),
            {k: (good, unknown) for k, (good, unknown) in orjson.loads(r[c.joint]).items()},
        )
        out.append((key, cell))
    out.sort(key=lambda p: (p[0], p[1].edges))
    return out


def minutes(
    connection: Connection, start: float, end: float, *, classes: Sequence[str] | None = None
) -> list[tuple[str, str, int]]:
    """(class, point, minute) of every minute in [start, end) in which an attempt of the class ended: read from the index."""
    c = requests.c
    query = (
        select(c.class_, c.point, c.minute)
        .distinct()
        .where(c.minute >= int(-(-start // 1)), c.minute < int(-(-end // 1)))
    )
    if classes is not None:
        query = query.where(c.class_.in_(list(classes)))
    return [(r[0], r[1], r[2]) for r in connection.execute(query)]


def newest(connection: Connection) -> float | None:
    """End of the newest minute with attempts; None without any."""
    last = connection.execute(select(func.max(requests.c.minute))).scalar_one_or_none()
    return None if last is None else float(last) + 60.0


def counts(connection: Connection, cache: SeriesCache, start: float, end: float) -> list[RequestCount]:
    """Attempts of the minutes that start in [start, end), without model, band and release, whose rows are not joined."""
    c = requests.c
    query = select(
        c.minute,
        c.point,
        c.class_,
        c.tenant,
        c.pool,
        c.status,
        c.n,
        c.prompt_tokens,
        c.output_tokens,
        c.ttft_sum,
        c.duration_sum,
        c.edges_id,
        c.ttft,
    ).where(c.minute >= int(-(-start // 1)), c.minute < int(-(-end // 1)))
    rows = connection.execute(query).all()
    bounds = cache.edges(connection, {r[11] for r in rows})
    return [
        RequestCount._make([*r[:11], bounds[r[11]], {int(b): n for b, n in orjson.loads(r[12]).items()}])
        for r in rows
    ]
