"""Deleting what is too old, in small transactions that can be interrupted at any time and simply run again.

Age is counted from the newest data of the same source (frames: target's source; roll-ups: pool; requests: measurement
point; outputs: pool), so that an imported history does not vanish because a live fleet goes on. Frames around incidents
stay while the incident does: from an hour before its start until its end, in all pools that it names (all targets where
it names none).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from sqlalchemy import Connection, and_, delete, func, select, text
from sqlalchemy.sql import ColumnElement

from core.times import horizon
from sql.accumulate import HOUR, MINUTE, REPLICA
from sql.engine import Database
from sql.ids import to_ms
from sql.schema import (
    frames,
    incidents,
    outcomes,
    output_counts,
    outputs,
    request_hours,
    requests,
    rollups,
    scrape_failures,
    series,
    targets,
)

STEP_MS = 6 * 3600 * 1000
PIN_BEFORE_S = 3600.0


class Retention(Protocol):
    """How long each kind stays, in seconds, as ``core.config`` says it; ``max_bytes`` None for no limit."""

    @property
    def frames(self) -> float: ...
    @property
    def rollups_minute(self) -> float: ...
    @property
    def rollups_hour(self) -> float: ...
    @property
    def rollups_replica(self) -> float: ...
    @property
    def requests(self) -> float: ...
    @property
    def outputs(self) -> float: ...
    @property
    def max_bytes(self) -> int | None: ...


@dataclass(slots=True)
class RetentionResult:
    """Rows deleted of each kind."""

    frames: int = 0
    rollups: int = 0
    requests: int = 0
    outputs: int = 0


@dataclass(frozen=True, slots=True)
class _Pin:
    """Frames that stay: (first_ms, last_ms], of these pools (all if empty)."""

    first_ms: int
    last_ms: int
    pools: tuple[str, ...]


def apply(database: Database, keep: Retention) -> RetentionResult:
    """Apply ages, then the size limit."""
    done = RetentionResult()
    with database.read() as c:
        pins = _pins(c)
        cutoffs = _frame_cutoffs(c, keep.frames)
    for (source, pool), (ids, first, cutoff) in cutoffs.items():
        del source
        mine = [p for p in pins if not p.pools or pool in p.pools]
        done.frames += _delete_frames(database, ids, first, cutoff, mine)
    done.rollups = _delete_rollups(database, keep)
    done.requests = _delete_requests(database, keep.requests)
    done.outputs = _delete_outputs(database, keep.outputs)
    _delete_outcomes(database, keep.outputs)
    if keep.max_bytes is not None:
        done.frames += _shrink(database, keep.max_bytes, pins)
    _give_back(database)
    return done


def used_bytes(connection: Connection) -> int:
    """Bytes in use (SQLite: pages less free ones; PostgreSQL: the database's size)."""
    if connection.dialect.name == "sqlite":
        size, pages, free = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)
            for name in ("page_size", "page_count", "freelist_count")
        )
        return size * (pages - free)
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar() or 0)


def _pins(connection: Connection) -> list[_Pin]:
    c = incidents.c
    out = []
    for start, end, held, pools in connection.execute(
        select(c.started_at, c.ended_at, c.held_open_at, c.pools)
    ):
        last = (1 << 62) if end is None or held is not None else to_ms(end)
        out.append(_Pin(to_ms(start - PIN_BEFORE_S), last, tuple(orjson.loads(pools))))
    return out


def _spans(connection: Connection) -> list[tuple[int, str, str, int, int]]:
    """(target id, source, pool, first t1, last t1) of each target with frames."""
    c = frames.c
    query = (
        select(targets.c.id, targets.c.source, targets.c.pool, func.min(c.t1_ms), func.max(c.t1_ms))
        .join(targets, targets.c.id == c.target_id)
        .group_by(targets.c.id, targets.c.source, targets.c.pool)
    )
    return [tuple(r) for r in connection.execute(query)]


def _frame_cutoffs(connection: Connection, age: float) -> dict[tuple[str, str], tuple[list[int], int, int]]:
    """(source, pool) → (target ids, oldest t1, cutoff)."""
    spans = _spans(connection)
    newest: dict[str, int] = {}
    latest = to_ms(horizon())
    for _, source, _, _, last in spans:
        newest[source] = max(newest.get(source, 0), min(last, latest))
    out: dict[tuple[str, str], tuple[list[int], int, int]] = {}
    for target_id, source, pool, first, _ in spans:
        ids, oldest, cutoff = out.get((source, pool), ([], first, newest[source] - to_ms(age)))
        out[source, pool] = ([*ids, target_id], min(oldest, first), cutoff)
    return out


def _delete_frames(database: Database, ids: list[int], first: int, cutoff: int, pins: Iterable[_Pin]) -> int:
    """Frames (and failed scrapes) of ``ids`` with first <= t1 < cutoff outside the pins, six hours a transaction."""
    done = 0
    for low, high in _free_spans(first, cutoff, pins):
        for at in range(low, high, STEP_MS):
            stop = min(at + STEP_MS, high)
            for i in range(0, len(ids), 200):
                some = ids[i : i + 200]
                with database.write(lock=True) as c:
                    f, s = frames.c, scrape_failures.c
                    query = delete(frames).where(f.target_id.in_(some), f.t1_ms >= at, f.t1_ms < stop)
                    done += int(c.execute(query).rowcount)
                    c.execute(
                        delete(scrape_failures).where(s.target_id.in_(some), s.t_ms >= at, s.t_ms < stop)
                    )
    return done


def _free_spans(first: int, cutoff: int, pins: Iterable[_Pin]) -> list[tuple[int, int]]:
    """[first, cutoff) less the pins."""
    spans = [(first, cutoff)] if first < cutoff else []
    for pin in pins:
        cut = []
        for low, high in spans:
            if pin.first_ms > low:
                cut.append((low, min(high, pin.first_ms)))
            if pin.last_ms + 1 < high:
                cut.append((max(low, pin.last_ms + 1), high))
        spans = [(a, b) for a, b in cut if a < b]
    return spans


def _delete_rollups(database: Database, keep: Retention) -> int:
    r = rollups.c
    with database.read() as c:
        query = (
            select(series.c.pool, r.resolution, func.max(r.ts), func.min(r.ts))
            .join(series, series.c.id == r.series_id)
            .group_by(series.c.pool, r.resolution)
        )
        spans = c.execute(query).all()
    newest: dict[str, int] = {}
    for pool, _, last, _ in spans:
        newest[pool] = max(newest.get(pool, 0), min(last, int(horizon())))
    ages = {MINUTE: keep.rollups_minute, HOUR: keep.rollups_hour, REPLICA: keep.rollups_replica}
    done = 0
    for pool, resolution, _, first in spans:
        cutoff = int(newest[pool] - ages[resolution])
        if first >= cutoff:
            continue
        with database.read() as c:
            ids = list(c.execute(select(series.c.id).where(series.c.pool == pool)).scalars())
        for i in range(0, len(ids), 200):
            some = r.series_id.in_(ids[i : i + 200])
            with database.write(lock=True) as c:
                query_ = delete(rollups).where(some, r.resolution == resolution, r.ts < cutoff)
                done += int(c.execute(query_).rowcount)
    return done


def _delete_requests(database: Database, age: float) -> int:
    r = requests.c
    with database.read() as c:
        query = select(r.point, func.max(r.minute), func.min(r.minute)).group_by(r.point)
        spans = c.execute(query).all()
    h = request_hours.c
    for point, last, first in spans:
        until = int(min(last, horizon()) - age) // 3600 * 3600
        _by_steps(database, request_hours, h.hour, h.point == point, first // 3600 * 3600, until)
    return sum(
        _by_steps(database, requests, r.minute, r.point == point, first, int(min(last, horizon()) - age))
        for point, last, first in spans
    )


def _delete_outputs(database: Database, age: float) -> int:
    o, n = outputs.c, output_counts.c
    with database.read() as c:
        query = select(o.pool, func.max(o.ts), func.min(o.ts)).group_by(o.pool)
        spans = c.execute(query).all()
        firsts = {p: int(t) for p, t in c.execute(select(n.pool, func.min(n.bin)).group_by(n.pool))}
    for pool, last, _ in spans:
        # a bin goes when all that was admitted in it has: it may count a little longer than the rows are there
        until = int(min(last, horizon()) - age) - 300
        _by_steps(database, output_counts, n.bin, n.pool == pool, firsts.get(pool, until), until)
    return sum(
        _by_steps(database, outputs, o.ts, o.pool == pool, first, min(last, horizon()) - age)
        for pool, last, first in spans
    )


def _delete_outcomes(database: Database, age: float) -> None:
    """Outcomes stay as long as outputs do."""
    y = outcomes.c
    with database.read() as c:
        spans = c.execute(select(y.source, func.max(y.ts), func.min(y.ts)).group_by(y.source)).all()
    for source, last, first in spans:
        _by_steps(database, outcomes, y.ts, y.source == source, first, min(last, horizon()) - age)


def _by_steps(
    database: Database, table: Any, time: Any, which: ColumnElement[bool], first: float, cutoff: float
) -> int:
    done, at = 0, first
    while at < cutoff:
        stop = min(at + 86_400, cutoff)
        with database.write(lock=True) as c:
            done += int(c.execute(delete(table).where(and_(which, time >= at, time < stop))).rowcount)
        at = stop
    return done


def _shrink(database: Database, limit: int, pins: list[_Pin]) -> int:
    """Oldest frames first, until the data fit or only pinned frames are left. The newest hour always stays."""
    done = 0
    with database.read() as c:
        spans = _spans(c)
        used = used_bytes(c)
    if used <= limit or not spans:
        return 0
    first, last = min(s[3] for s in spans), max(s[4] for s in spans) - 3_600_000
    at = first
    while at < last:
        stop = min(at + STEP_MS, last)
        for pool in {s[2] for s in spans}:
            ids = [s[0] for s in spans if s[2] == pool]
            mine = [p for p in pins if not p.pools or pool in p.pools]
            done += _delete_frames(database, ids, at, stop, mine)
        at = stop
        _give_back(database)
        with database.read() as c:
            if used_bytes(c) <= limit:
                break
    return done


def _give_back(database: Database) -> None:
    """Return free pages to the file system (SQLite), or make room reusable (PostgreSQL)."""
    if not database.sqlite:
        with database.translated(), database.writer.connect() as plain:
            plain.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM (ANALYZE) frames")
        return
    with database.translated(), closing(database.writer.raw_connection()) as raw:
        driver = raw.driver_connection
        assert driver is not None
        # eight megabytes a transaction, so that collectors are not kept waiting
        while driver.execute("PRAGMA freelist_count").fetchone()[0] > 0:
            before = driver.execute("PRAGMA freelist_count").fetchone()[0]
            # one page a step, and only a script is stepped to its end
            driver.executescript("PRAGMA incremental_vacuum(2000)")
            if driver.execute("PRAGMA freelist_count").fetchone()[0] >= before:
                break
        driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
