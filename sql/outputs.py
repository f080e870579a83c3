"""Sampled outputs, one row a request, inserted once; and their end: thinning and erasing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, delete, or_, select

from core.records import OutputRecord
from sql import output_counts, ratings
from sql.bulk import clean, to_json, upsert
from sql.schema import outcomes, outputs

_PLAIN = (
    "id",
    "ts",
    "admitted",
    "pool",
    "replica",
    "model",
    "release",
    "tenant",
    "session",
    "turn",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "ttft_s",
    "e2e_s",
    "queue_s",
    "accept_length",
    "finish_reason",
    "verdict",
    "text",
    "random",
    "weight",
    "structured",
    "language",
    "cache_source",
    "source",
)


def add(connection: Connection, records: Iterable[OutputRecord]) -> int:
    """Insert records whose id is new; returns how many. A stored record is never changed."""
    rows: dict[str, dict[str, Any]] = {}
    for r in records:
        row = {name: getattr(r, name) for name in _PLAIN}
        row["class_"] = r.workload_class
        row["rules"] = to_json(r.rules)
        row["features"] = to_json(r.features)
        row["id"] = clean(r.id)
        rows.setdefault(row["id"], row)
    ids = list(rows)
    have: set[str] = set()
    for i in range(0, len(ids), 500):
        query = select(outputs.c.id).where(outputs.c.id.in_(ids[i : i + 500]))
        have.update(connection.execute(query).scalars())
    new = [row for key, row in rows.items() if key not in have]
    upsert(connection, outputs, new)
    output_counts.add(connection, new)
    return len(new)


Turn = tuple[float, float, str, str, str, int | None, int | None, int | None]
"""(ts, admitted, pool, replica, session, prompt tokens, output tokens, cached tokens)"""


def read(
    connection: Connection,
    start: float,
    end: float,
    *,
    pools: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    verdicts: Sequence[str] | None = None,
) -> list[OutputRecord]:
    """Records with start <= ts < end, by (ts, id)."""
    c = outputs.c
    query = select(*[c[n] for n in _PLAIN], c.class_, c.rules, c.features).where(c.ts >= start, c.ts < end)
    for column, allowed in ((c.pool, pools), (c.class_, classes), (c.verdict, verdicts)):
        if allowed is not None:
            query = query.where(column.in_(list(allowed)))
    out = []
    for row in connection.execute(query.order_by(c.ts, c.id)):
        plain = dict(zip(_PLAIN, row, strict=False))
        class_, rules, features = row[len(_PLAIN) :]
        out.append(
            OutputRecord(
                **plain, workload_class=class_, rules=orjson.loads(rules), features=orjson.loads(features)
            )
        )
    return out


def turns(connection: Connection, start: float, end: float, pools: Sequence[str]) -> list[Turn]:
    """(ts, admitted, pool, replica, session, prompt, output, cached tokens) with start <= ts < end, by ts: a fifth of the time of
    whole records."""
    c = outputs.c
    columns = (
        c.ts,
        c.admitted,
        c.pool,
        c.replica,
        c.session,
        c.prompt_tokens,
        c.output_tokens,
        c.cached_tokens,
    )
    query = select(*columns).where(c.ts >= start, c.ts < end, c.pool.in_(list(pools))).order_by(c.ts, c.id)
    return [tuple(row) for row in connection.execute(query)]


def erase(
    connection: Connection, *, tenant: str = "", session: str = "", ids: Sequence[str] = ()
) -> tuple[int, int]:
    """Delete the outputs of a tenant, a session or requests, and the outcomes of those; returns (outputs, outcomes).

    Names are as stored (pseudonyms). An empty name erases nothing.
    """
    o, y = outputs.c, outcomes.c
    which: list[ColumnElement[bool]] = [o.id.in_(list(ids))] if ids else []
    which += [o.tenant == tenant] if tenant else []
    which += [o.session == session] if session else []
    if not which:
        return 0, 0
    found = connection.execute(select(o.id, o.session, o.admitted).where(or_(*which))).all()
    requests = sorted({str(r[0]) for r in found} | set(ids))
    # a tenant's sessions are its own: outcomes that name only the session go as well
    sessions = sorted({str(r[1]) for r in found if r[1] and tenant} | ({session} if session else set()))
    gone = 0
    for column, values in ((y.request, requests), (y.session, sessions)):
        for i in range(0, len(values), 500):
            gone += int(connection.execute(delete(outcomes).where(column.in_(values[i : i + 500]))).rowcount)
    done = int(connection.execute(delete(outputs).where(or_(*which))).rowcount)
    ratings.forget(connection, requests)
    output_counts.recount(connection, [int(r[2] // output_counts.BIN * output_counts.BIN) for r in found])
    return done, gone
