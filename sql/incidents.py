"""Incidents, their append-only log, and what detectors remember."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import Connection, Select, func, insert, or_, select, update

from core.incidents import Evidence, Incident, RuledOut
from core.lifecycle import LogEntry
from sql.bulk import clean, to_json, upsert
from sql.paging import newest_first
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
    query = _narrowed(select(incidents).order_by(c.started_at, c.id), start, end, open_only, kinds)
    return [_incident(r) for r in connection.execute(query).mappings()]


def _narrowed(
    query: Select[Any],
    start: float | None,
    end: float | None,
    open_only: bool,
    kinds: Sequence[str] | None,
) -> Select[Any]:
    c = incidents.c
    if end is not None:
        query = query.where(c.started_at < end)
    if start is not None:
        query = query.where(or_(c.ended_at.is_(None), c.ended_at >= start, c.held_open_at.is_not(None)))
    if open_only:
        query = query.where(or_(c.state != "resolved", c.held_open_at.is_not(None)))
    if kinds is not None:
        query = query.where(c.kind.in_(list(kinds)))
    return query


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
    if row["held_open_at"] is not None and fields["state"] == "resolved":
        # A person says that it is not over: that outlives every update by a detector.
        fields |= {"state": "open", "ended_at": None}
    return Incident(**fields)


def hold_open(connection: Connection, incident_id: str, at: float | None) -> None:
    """A person's word that an incident is not over (since ``at``), or None: the detector's word counts again."""
    connection.execute(update(incidents).where(incidents.c.id == incident_id).values(held_open_at=at))


def log(
    connection: Connection,
    incident_id: str,
    ts: float,
    action: str,
    text: str = "",
    who: str = "",
    data: Mapping[str, Any] | None = None,
) -> int:
    """Append to an incident's log; the caller holds the write lock. Returns the entry's number.

    A detector that takes an incident up again or ends it has the last word over :func:`hold_open`.
    """
    c = incident_log.c
    last = connection.execute(select(func.max(c.seq)).where(c.incident_id == incident_id)).scalar()
    seq = int(last or 0) + 1
    row = {
        "incident_id": incident_id,
        "seq": seq,
        "ts": ts,
        "action": action,
        "text": clean(text),
        "who": clean(who),
        "data": to_json(dict(data or {})),
    }
    connection.execute(insert(incident_log), [row])
    if action in ("reopened", "resolved", "accepted", "resolved_by_hand"):
        hold_open(connection, incident_id, None)
    elif action == "reopened_by_hand":
        hold_open(connection, incident_id, ts)
    return seq


def read_log(connection: Connection, incident_id: str) -> list[LogEntry]:
    """The log in the order in which it was written."""
    return read_logs(connection, [incident_id]).get(incident_id, [])


def read_logs(connection: Connection, ids: Iterable[str]) -> dict[str, list[LogEntry]]:
    """The logs of several incidents, each in the order in which it was written; those without entries are left out."""
    c = incident_log.c
    out: dict[str, list[LogEntry]] = {}
    wanted = list(dict.fromkeys(ids))
    for at in range(0, len(wanted), 500):
        query = select(c.incident_id, c.seq, c.ts, c.action, c.text, c.who, c.data)
        rows = connection.execute(
            query.where(c.incident_id.in_(wanted[at : at + 500])).order_by(c.incident_id, c.seq)
        )
        for row in rows:
            entry = LogEntry(*row[:6], data=orjson.loads(row[6]))
            out.setdefault(entry.incident_id, []).append(entry)
    return out


def ids_like(connection: Connection, prefix: str, limit: int = 10) -> list[str]:
    """Ids that begin with ``prefix``, taken literally; at most ``limit``."""
    c = incidents.c.id
    query = select(c).where(c.startswith(prefix, autoescape=True)).order_by(c).limit(limit)
    # SQLite compares LIKE without regard to case
    return [i for i in connection.execute(query).scalars() if i.startswith(prefix)]


def page(
    connection: Connection,
    *,
    limit: int,
    before: tuple[float, str] | None = None,
    start: float | None = None,
    end: float | None = None,
    open_only: bool = False,
    kinds: Sequence[str] | None = None,
    severities: Sequence[str] | None = None,
) -> list[Incident]:
    """The newest first, after the one that began at ``before`` with that id; filters as in :func:`read`."""
    c = incidents.c
    query = newest_first(select(incidents), c.started_at, c.id, limit, before)
    query = _narrowed(query, start, end, open_only, kinds)
    if severities is not None:
        query = query.where(c.severity.in_(list(severities)))
    return [_incident(r) for r in connection.execute(query).mappings()]


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
