"""Targets and the units they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection, and_, bindparam, case, func, or_, select, update

from core.frames import Target
from core.times import horizon
from sql.bulk import many, upsert
from sql.ids import number, to_ms
from sql.schema import targets, units


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A stored target. Times are Unix seconds; ``up`` is whether its last scrape was good."""

    id: int
    target: Target
    first_seen: float
    last_seen: float
    up: bool
    process_start: float | None


@dataclass(slots=True)
class Seen:
    """What one batch learnt about a target: its attributes from the newest good reading, ``up`` from the newest of all."""

    target: Target
    first_ms: int
    last_ms: int
    up: bool
    start: float | None


def target_id(target: Target) -> int:
    """The id under which a target is stored, from its key."""
    return number(*target.key)


_LATEST = (
    "source",
    "job",
    "components",
    "version",
    "model",
    "role",
    "release",
    "gpu_host",
    "labels",
)


def _newer_wins(table: Any, excluded: Any) -> Mapping[str, Any]:
    """Attributes of the newest good reading (a failed scrape knows none); first and last seen only widen."""
    newer = excluded.last_seen_ms >= table.c.last_seen_ms
    out = {k: case((and_(newer, excluded.up), excluded[k]), else_=table.c[k]) for k in _LATEST}
    out["up"] = case((newer, excluded.up), else_=table.c.up)
    known = func.coalesce(excluded.process_start, table.c.process_start)
    out["process_start"] = case((newer, known), else_=table.c.process_start)
    out["last_seen_ms"] = case((newer, excluded.last_seen_ms), else_=table.c.last_seen_ms)
    older = excluded.first_seen_ms < table.c.first_seen_ms
    out["first_seen_ms"] = case((older, excluded.first_seen_ms), else_=table.c.first_seen_ms)
    return out


_SET_RIGHT = (
    update(targets)
    .where(targets.c.id == bindparam("of"), targets.c.last_seen_ms > bindparam("horizon"))
    .values(last_seen_ms=bindparam("never"))
)
"""For what was written under a clock that ran ahead: the next reading is the newest."""

_TOUCH = (
    update(targets)
    .where(
        targets.c.id == bindparam("of"),
        or_(targets.c.last_seen_ms <= bindparam("last"), targets.c.last_seen_ms > bindparam("horizon")),
    )
    .values(
        last_seen_ms=bindparam("at"),
        up=bindparam("good"),
        process_start=func.coalesce(bindparam("start"), targets.c.process_start),
    )
)


class TargetCache:
    """What was last written of each target, so that an ordinary scrape touches three columns and not twenty."""

    def __init__(self) -> None:
        self._written: dict[int, Seen] = {}

    def save(self, connection: Connection, seen: Mapping[int, Seen]) -> None:
        """Insert or update targets and their units."""
        latest = to_ms(horizon())
        touched: list[tuple[int, Seen]] = []
        changed: list[tuple[int, Seen]] = []
        for i, s in seen.items():
            old = self._written.get(i)
            same = old is not None and old.first_ms <= s.first_ms and (not s.up or old.target == s.target)
            (touched if same else changed).append((i, s))
        many(
            connection,
            _TOUCH,
            [
                {
                    "of": i,
                    "last": s.last_ms,
                    "horizon": latest,
                    "at": s.last_ms,
                    "good": s.up,
                    "start": s.start,
                }
                for i, s in touched
            ],
        )
        many(connection, _SET_RIGHT, [{"of": i, "horizon": latest, "never": 0} for i, _ in changed])
        _save(connection, changed)

    def committed(self, seen: Mapping[int, Seen]) -> None:
        """Remember what is written for good."""
        for i, s in seen.items():
            if s.up:
                old = self._written.get(i)
                first = s.first_ms if old is None else min(old.first_ms, s.first_ms)
                self._written[i] = replace(s, first_ms=first)


def _save(connection: Connection, seen: Sequence[tuple[int, Seen]]) -> None:
    rows, unit_rows = [], {}
    for i, s in seen:
        t = s.target
        unit = number("unit", t.cluster, t.pool, t.replica, t.rank)
        unit_rows[unit] = {
            "id": unit,
            "cluster": t.cluster,
            "pool": t.pool,
            "replica": t.replica,
            "rank": t.rank,
        }
        rows.append(
            {
                "id": i,
                "unit_id": unit,
                "address": t.address,
                "cluster": t.cluster,
                "pool": t.pool,
                "replica": t.replica,
                "rank": t.rank,
                "source": t.source,
                "job": t.job,
                "components": orjson.dumps(list(t.components)).decode(),
                "version": t.version,
                "model": t.model,
                "role": t.role,
                "release": t.release,
                "gpu_host": t.gpu_host,
                "labels": orjson.dumps(dict(t.labels), option=orjson.OPT_SORT_KEYS).decode(),
                "first_seen_ms": s.first_ms,
                "last_seen_ms": s.last_ms,
                "up": s.up,
                "process_start": s.start,
            }
        )
    upsert(connection, units, list(unit_rows.values()))
    upsert(connection, targets, rows, update=_newer_wins)


def read(connection: Connection) -> list[TargetRow]:
    """All targets, by cluster, pool, replica, rank and address."""
    c = targets.c
    out = []
    for r in connection.execute(select(targets).order_by(c.cluster, c.pool, c.replica, c.rank, c.address)):
        target = Target(
            address=r.address,
            pool=r.pool,
            replica=r.replica,
            cluster=r.cluster,
            rank=r.rank,
            source=r.source,
            job=r.job,
            components=tuple(orjson.loads(r.components)),
            version=r.version,
            model=r.model,
            role=r.role,
            release=r.release,
            gpu_host=r.gpu_host,
            labels=orjson.loads(r.labels),
        )
        out.append(
            TargetRow(
                r.id, target, r.first_seen_ms / 1000, r.last_seen_ms / 1000, bool(r.up), r.process_start
            )
        )
    return out
