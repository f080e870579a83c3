"""Exclusions, versions of objectives and months: append-only, so that what was reported once stays as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, distinct, func, select, true, update

from sql.bulk import to_json, upsert
from sql.ids import digest
from sql.schema import exclusions, outputs, slo_months, slo_versions


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Time that does not count, [start, end) in Unix seconds: maintenance, a load test. Empty ``class_``, ``pool``, ``slo``: all.

    It is never deleted: one that was withdrawn says by whom and when, and no longer holds.
    """

    start: float
    end: float
    author: str
    reason: str
    class_: str = ""
    pool: str = ""
    slo: str = ""
    made_at: float = 0.0
    withdrawn_by: str = ""
    withdrawn_at: float | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class SloVersion:
    """What an objective meant from ``since`` on."""

    slo: str
    version: str
    since: float
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SloMonth:
    """An objective's month (``2026-09``): ``seq`` 0 as it was frozen, later ones restatements with their reason."""

    slo: str
    month: str
    seq: int
    version: str
    made_at: float
    reason: str
    data: Mapping[str, Any]


def add_exclusion(connection: Connection, e: Exclusion) -> str:
    """Keep one; returns its id. The same one twice is one."""
    key = digest(f"{e.start:.3f}", f"{e.end:.3f}", e.author, e.reason, e.class_, e.pool, e.slo)
    row = {
        "id": key,
        "made_at": e.made_at,
        "author": e.author,
        "reason": e.reason,
        "start_ts": e.start,
        "end_ts": e.end,
        "class_": e.class_,
        "pool": e.pool,
        "slo": e.slo,
    }
    upsert(connection, exclusions, [row])
    return key


def withdraw_exclusion(connection: Connection, key: str, who: str, when: float) -> bool:
    """Whether there was one in force to be withdrawn."""
    x = exclusions.c
    done = connection.execute(
        update(exclusions)
        .where(x.id == key, x.withdrawn_at.is_(None))
        .values({x.withdrawn_by: who, x.withdrawn_at: when})
    )
    return bool(done.rowcount)


def read_exclusions(
    connection: Connection, start: float | None, end: float | None, *, withdrawn: bool = False
) -> list[Exclusion]:
    """Those that touch [start, end), by start."""
    x = exclusions.c
    query = select(exclusions).order_by(x.start_ts, x.id)
    if start is not None:
        query = query.where(x.end_ts > start)
    if end is not None:
        query = query.where(x.start_ts < end)
    if not withdrawn:
        query = query.where(x.withdrawn_at.is_(None))
    return [
        Exclusion(
            r[x.start_ts],
            r[x.end_ts],
            r[x.author],
            r[x.reason],
            r[x.class_],
            r[x.pool],
            r[x.slo],
            r[x.made_at],
            r[x.withdrawn_by],
            r[x.withdrawn_at],
            r[x.id],
        )
        for r in connection.execute(query).mappings()
    ]


def add_version(
    connection: Connection, slo: str, version: str, since: float, definition: Mapping[str, Any]
) -> bool:
    """Keep what a version means, unless it is known; whether it was new. A version never changes."""
    v = slo_versions.c
    known = connection.execute(select(func.count()).where(v.slo == slo, v.version == version)).scalar_one()
    if known:
        return False
    row = {"slo": slo, "version": version, "since": since, "definition": to_json(definition)}
    upsert(connection, slo_versions, [row])
    return True


def read_versions(connection: Connection, slo: str | None = None) -> list[SloVersion]:
    """All versions, of one objective where it is named, the oldest first."""
    v = slo_versions.c
    query = select(slo_versions).order_by(v.since, v.slo)
    if slo is not None:
        query = query.where(v.slo == slo)
    return [
        SloVersion(r.slo, r.version, r.since, json.loads(r.definition)) for r in connection.execute(query)
    ]


def add_month(
    connection: Connection,
    slo: str,
    month: str,
    version: str,
    made_at: float,
    data: Mapping[str, Any],
    reason: str = "",
) -> SloMonth:
    """Freeze a month (seq 0) or restate it (the next seq); nothing that is there is touched."""
    m = slo_months.c
    last = connection.execute(
        select(func.max(m.seq)).where(m.slo == slo, m.month == month)
    ).scalar_one_or_none()
    one = SloMonth(slo, month, 0 if last is None else last + 1, version, made_at, reason, data)
    row = {
        "slo": slo,
        "month": month,
        "seq": one.seq,
        "version": version,
        "made_at": made_at,
        "reason": reason,
        "data": to_json(data),
    }
    upsert(connection, slo_months, [row])
    return one


def read_months(connection: Connection, slo: str | None = None, month: str | None = None) -> list[SloMonth]:
    """Months by objective, month and seq."""
    m = slo_months.c
    query = select(slo_months).order_by(m.slo, m.month, m.seq)
    for column, value in ((m.slo, slo), (m.month, month)):
        if value is not None:
            query = query.where(column == value)
    return [
        SloMonth(r.slo, r.month, r.seq, r.version, r.made_at, r.reason, json.loads(r.data))
        for r in connection.execute(query)
    ]


def sessions(connection: Connection, start: float, end: float, class_: str) -> tuple[int, list[list[bool]]]:
    """(sessions in the random sample that finished a turn in [start, end), turns in order of those with a degraded one: bad?)."""
    o = outputs.c
    mine = (o.ts >= start, o.ts < end, o.class_ == class_, o.session != "", o.random.is_(true()))
    n = connection.execute(select(func.count(distinct(o.session))).where(*mine)).scalar_one()
    bad = select(o.session).where(*mine, o.verdict == "hard").distinct()
    found = connection.execute(
        select(o.session, o.verdict).where(*mine, o.session.in_(bad)).order_by(o.session, o.ts, o.id)
    )
    turns: dict[str, list[bool]] = {}
    for session, verdict in found:
        turns.setdefault(session, []).append(verdict == "hard")
    return int(n), list(turns.values())
