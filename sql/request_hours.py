"""Gateway cells by the hour: what a month is counted from. Kept by the same transaction that adds the minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from sqlalchemy import Connection, func, select

from sql.bulk import upsert
from sql.schema import request_hours, requests

HOUR, DAY = 3600, 86400
KEYS = ("point", "class_", "tenant", "model", "pool", "band", "status", "release", "edges_id")
SUMS = ("n", "prompt_tokens", "output_tokens", "ttft_sum", "duration_sum")
HISTS = ("ttft", "age", "duration")
COUNTS = (*SUMS, *HISTS, "tpot", "joint")


def add_sparse(a: str, b: str) -> str:
    """Two ``{bucket: count}`` added."""
    if a == "{}":
        return b
    total = orjson.loads(a)
    for i, n in orjson.loads(b).items():
        total[i] = total.get(i, 0) + n
    return orjson.dumps(dict(sorted(total.items(), key=lambda p: int(p[0])))).decode()


def add_joint(a: str, b: str) -> str:
    """Two ``{name: [good, unknown]}`` added; a name that one of them does not count is counted in neither."""
    one, other = orjson.loads(a), orjson.loads(b)
    both = {k: [x + y for x, y in zip(v, other[k], strict=True)] for k, v in one.items() if k in other}
    return orjson.dumps(both).decode()


def combine(row: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add ``more`` to ``row`` in place; both map :data:`COUNTS`."""
    for name in SUMS:
        row[name] += more[name]
    for name in HISTS:
        row[name] = add_sparse(row[name], more[name])
    missing = row["tpot"] is None or more["tpot"] is None
    row["tpot"] = None if missing else add_sparse(row["tpot"], more["tpot"])
    row["joint"] = add_joint(row["joint"], more["joint"])


def by_hour(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows of minutes added up per hour and key."""
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for r in rows:
        hour = r["minute"] // HOUR * HOUR
        key = (hour, *(r[k] for k in KEYS))
        known = out.get(key)
        if known is None:
            out[key] = {"hour": hour, **{k: r[k] for k in (*KEYS, *COUNTS)}}
        else:
            combine(known, r)
    return out


def add(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows of minutes (only what is new, not what is stored already) to the hours; the caller holds the write lock."""
    new = by_hour(rows)
    if not new:
        return
    h = request_hours.c
    hours = [key[0] for key in new]
    names = ("hour", *KEYS, *COUNTS)
    query = select(*[h[n] for n in names]).where(h.hour.between(min(hours), max(hours)))
    for old in connection.execute(query):
        row = new.get(tuple(old[: 1 + len(KEYS)]))
        if row is not None:
            combine(row, dict(zip(names, old, strict=True)))
    upsert(connection, request_hours, list(new.values()), update=COUNTS)


def fill(connection: Connection) -> None:
    """All hours from all minutes: once, when the table is made."""
    m = requests.c
    first, last = connection.execute(select(func.min(m.minute), func.max(m.minute))).one()
    if first is None:
        return
    names = ("minute", *KEYS, *COUNTS)
    for day in range(first // DAY * DAY, last + 1, DAY):
        found = connection.execute(
            select(*[m[n] for n in names]).where(m.minute >= day, m.minute < day + DAY)
        )
        rows = by_hour(dict(zip(names, row, strict=True)) for row in found)
        upsert(connection, request_hours, list(rows.values()), update=COUNTS)
