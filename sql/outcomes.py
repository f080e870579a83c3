"""What became of answers: one row an outcome, inserted once, joined to outputs by request or by session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, select

from core.records import Outcome
from sql.bulk import clean, upsert
from sql.schema import outcomes

_COLUMNS = ("id", "ts", "kind", "ok", "request", "session", "value", "source")


def add(connection: Connection, records: Iterable[Outcome]) -> int:
    """Insert outcomes whose id is new; returns how many. A stored one is never changed."""
    rows = {clean(r.id): {**{n: getattr(r, n) for n in _COLUMNS}, "id": clean(r.id)} for r in records}
    ids = list(rows)
    have: set[str] = set()
    for i in range(0, len(ids), 500):
        query = select(outcomes.c.id).where(outcomes.c.id.in_(ids[i : i + 500]))
        have.update(connection.execute(query).scalars())
    new = [row for key, row in rows.items() if key not in have]
    upsert(connection, outcomes, new)
    return len(new)


def read(
    connection: Connection, start: float, end: float, *, kinds: Sequence[str] | None = None
) -> list[Outcome]:
    """Outcomes with start <= ts < end, by (ts, id)."""
    c = outcomes.c
    query = select(*[c[n] for n in _COLUMNS]).where(c.ts >= start, c.ts < end)
    if kinds is not None:
        query = query.where(c.kind.in_(list(kinds)))
    return [
        Outcome(**dict(zip(_COLUMNS, row, strict=True)))
        for row in connection.execute(query.order_by(c.ts, c.id))
    ]
