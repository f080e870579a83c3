"""Incidents, their append-only log, and what detectors remember."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, func, insert, or_, select

from core.incidents import Evidence, Incident, RuledOut
from sql.bulk import to_json, upsert
from sql.schema import baselines, detector_state, incident_log, incidents

_PLAIN = (
    "id",
    "kind",
    "severity",
    "state",
    "title",
    "started_at",
    "detected_at",
    "announced_at",
    "diagnosed_at",
    "ended_at",
    "updated_at",
    "load_correlated",
    "cause",
    "confidence",
    "runner_up",
)
_LISTS = ("classes", "pools", "replicas", "ranks")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of an incident's log; ``seq`` counts from 1."""

    incident_id: str
    seq: int
    ts: float
    action: str
    text: str
    who: str


def save(connection: Connection, incident: Incident) -> None:
    """Insert or replace an incident."""
    row: dict[str, Any] = {n: getattr(incident, n) for n in _PLAIN}
    for n in _LISTS:
        row[n] = to_json(list(getattr(incident, n)))
    row["evidence"] = to_json([asdict(e) for e in incident.evidence])
    row["ruled_out"] = to_json([asdict(r) for r in incident.ruled_out])
    row["detail"] = to_json(incident.detail)
    upsert(connection, incidents, [row], update=tuple(k for k in row if k != "id"))


def read(
    connection: Connection,
    start: float | None = None,
    end: float | None = None,
    *,
    open_only: bool = False,
    kinds: Sequence[str] | None = None,
) -> list[Incident]:
    """Incidents that touch [start, end): begun before ``end`` and not ended before ``start``; the earliest first."""
    c = incidents.c
    query = select(incidents).order_by(c.started_at, c.id)
    if end is not None:
        query = query.where(c.started_at < end)
    if start is not None:
        query = query.where(or_(c.ended_at.is_(None), c.ended_at >= start))
    if open_only:
        query = query.where(c.state != "resolved")
    if kinds is not None:
        query = query.where(c.kind.in_(list(kinds)))
    return [_incident(r) for r in connection.execute(query).mappings()]


def get(connection: Connection, incident_id: str) -> Incident | None:
    """One incident, None if there is none of this id."""
    query = select(incidents).where(incidents.c.id == incident_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else _incident(row)


def _incident(row: Any) -> Incident:
    fields: dict[str, Any] = {n: row[n] for n in _PLAIN}
    fields |= {n: tuple(orjson.loads(row[n])) for n in _LISTS}
    fields["evidence"] = tuple(Evidence(**e) for e in orjson.loads(row["evidence"]))
    fields["ruled_out"] = tuple(RuledOut(**r) for r in orjson.loads(row["ruled_out"]))
    fields["detail"] = orjson.loads(row["detail"])
    return Incident(**fields)


def log(
    connection: Connection, incident_id: str, ts: float, action: str, text: str = "", who: str = ""
) -> int:
    """Append to an incident's log; the caller holds the write lock. Returns the entry's number."""
    c = incident_log.c
    last = connection.execute(select(func.max(c.seq)).where(c.incident_id == incident_id)).scalar()
    seq = int(last or 0) + 1
    row = {"incident_id": incident_id, "seq": seq, "ts": ts, "action": action, "text": text, "who": who}
    connection.execute(insert(incident_log), [row])
    return seq


def read_log(connection: Connection, incident_id: str) -> list[LogEntry]:
    """The log in the order in which it was written."""
    c = incident_log.c
    query = select(c.incident_id, c.seq, c.ts, c.action, c.text, c.who)
    rows = connection.execute(query.where(c.incident_id == incident_id).order_by(c.seq))
    return [LogEntry(*row) for row in rows]


def save_baseline(connection: Connection, detector: str, scope: str, as_of: float, blob: bytes) -> None:
    """Store what a detector had learnt as of a time."""
    row = {"detector": detector, "scope": scope, "as_of": as_of, "data": blob}
    upsert(connection, baselines, [row], update=("data",))


def baseline(connection: Connection, detector: str, scope: str, as_of: float) -> bytes | None:
    """The newest baseline not newer than ``as_of``; None if there is none."""
    c = baselines.c
    query = (
        select(c.data)
        .where(c.detector == detector, c.scope == scope, c.as_of <= as_of)
        .order_by(c.as_of.desc())
        .limit(1)
    )
    data = connection.execute(query).scalar()
    return None if data is None else bytes(data)


def save_state(connection: Connection, detector: str, blob: bytes) -> None:
    """Store a detector's state."""
    upsert(connection, detector_state, [{"detector": detector, "data": blob}], update=("data",))


def load_state(connection: Connection, detector: str) -> bytes | None:
    """A detector's state; None if it never ran."""
    query = select(detector_state.c.data).where(detector_state.c.detector == detector)
    data = connection.execute(query).scalar()
    return None if data is None else bytes(data)
