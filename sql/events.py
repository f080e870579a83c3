"""Events (deploys, restarts, notes), input problems, and cursors of resumable imports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, case, select

from core.records import Event, Problem
from sql.bulk import to_json, upsert
from sql.ids import digest
from sql.schema import cursors, events, problems


def key_of(e: Event) -> str:
    """The id of an event: by the sender's own id of it (``data["delivery"]``) where there is one, else by what it says."""
    sent = e.data.get("delivery")
    if isinstance(sent, str) and sent:
        return digest("delivery", e.source, sent)
    return digest(f"{e.ts:.3f}", e.kind, e.pool, e.replica, e.source, e.text)


def add(connection: Connection, new: Iterable[Event]) -> int:
    """Insert events; one that is there already is left alone: same id at the sender, else same time, kind, place, source, text.

    Returns how many are new.
    """
    rows = {}
    for e in new:
        key = key_of(e)
        rows[key] = {
            "id": key,
            "ts": e.ts,
            "kind": e.kind,
            "text": e.text,
            "pool": e.pool,
            "replica": e.replica,
            "source": e.source,
            "data": to_json(e.data),
        }
    have = (
        set(connection.execute(select(events.c.id).where(events.c.id.in_(list(rows)))).scalars())
        if rows
        else set()
    )
    upsert(connection, events, [r for k, r in rows.items() if k not in have])
    return len(rows) - len(have)


def read(
    connection: Connection,
    start: float | None = None,
    end: float | None = None,
    *,
    kinds: Sequence[str] | None = None,
    pools: Sequence[str] | None = None,
) -> list[Event]:
    """Events with start <= ts < end by time. ``pools`` also keeps events that name no pool."""
    c = events.c
    query = select(events).order_by(c.ts, c.id)
    if start is not None:
        query = query.where(c.ts >= start)
    if end is not None:
        query = query.where(c.ts < end)
    if kinds is not None:
        query = query.where(c.kind.in_(list(kinds)))
    if pools is not None:
        query = query.where(c.pool.in_(["", *pools]))
    return [
        Event(r.ts, r.kind, r.text, r.pool, r.replica, r.source, orjson.loads(r.data))
        for r in connection.execute(query)
    ]


def _added(table: Any, excluded: Any) -> dict[str, Any]:
    newer = excluded.last_ts >= table.c.last_ts
    return {
        "count": table.c.count + excluded.count,
        "first_ts": case((excluded.first_ts < table.c.first_ts, excluded.first_ts), else_=table.c.first_ts),
        "last_ts": case((newer, excluded.last_ts), else_=table.c.last_ts),
        "message": case((newer, excluded.message), else_=table.c.message),
        "fix": case((newer, excluded.fix), else_=table.c.fix),
    }


def add_problems(connection: Connection, new: Iterable[Problem]) -> None:
    """Count problems: those of one (source, code, subject) are one row with first and last time and the newest message."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for p in new:
        row = rows.setdefault(
            (p.source, p.code, p.subject),
            {
                "source": p.source,
                "code": p.code,
                "subject": p.subject,
                "first_ts": p.ts,
                "last_ts": p.ts,
                "count": 0,
                "message": p.message,
                "fix": p.fix,
            },
        )
        row["count"] += p.count
        row["first_ts"] = min(row["first_ts"], p.ts)
        if p.ts >= row["last_ts"]:
            row.update(last_ts=p.ts, message=p.message, fix=p.fix)
    # a fixed order, so that two writers on PostgreSQL cannot wait for each other in a circle
    upsert(connection, problems, [rows[k] for k in sorted(rows)], update=_added)


def read_problems(
    connection: Connection, since: float | None = None, *, source: str | None = None
) -> list[tuple[Problem, float]]:
    """(problem with its last time and total count, first time), the latest first."""
    c = problems.c
    query = select(problems).order_by(c.last_ts.desc(), c.source, c.code, c.subject)
    if since is not None:
        query = query.where(c.last_ts >= since)
    if source is not None:
        query = query.where(c.source == source)
    return [
        (Problem(r.last_ts, r.source, r.code, r.subject, r.message, r.fix, r._mapping[c.count]), r.first_ts)
        for r in connection.execute(query)
    ]


def get_cursor(connection: Connection, name: str) -> str | None:
    """The stored position of an import or back-fill; None if it never ran."""
    value = connection.execute(select(cursors.c.value).where(cursors.c.name == name)).scalar()
    return None if value is None else str(value)


def set_cursor(connection: Connection, name: str, value: str) -> None:
    """Store a position."""
    upsert(connection, cursors, [{"name": name, "value": value}], update=("value",))
