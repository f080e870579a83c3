"""Incidents with how they stand, as plain data: the same for REST, command line and assistants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.services import attention
from app.services.api_views import clean
from core.config import Config
from core.incidents import Incident, iso
from core.lifecycle import LogEntry
from core.silences import MuteWindow, Silence
from sql.store import Store


def many(store: Store, config: Config, incidents: Sequence[Incident], *, at: float) -> list[dict[str, Any]]:
    """The exchange form with ``handling`` (see :meth:`app.services.attention.Standing.as_json`) of each."""
    stands = attention.load(store, config, incidents, at)
    return [{**clean(i.as_json()), "handling": clean(stands.standing(i).as_json())} for i in incidents]


def one(store: Store, config: Config, incident: Incident, *, at: float) -> dict[str, Any]:
    """One incident with ``handling`` and ``log``."""
    (found,) = many(store, config, [incident], at=at)
    return {**found, "log": log_json(store.incident_log(incident.id))}


def log_json(entries: Sequence[LogEntry]) -> list[dict[str, Any]]:
    """A log; ``data`` is what programs read of an entry."""
    return [
        {
            "seq": e.seq,
            "at": iso(e.ts),
            "action": e.action,
            "text": e.text,
            "who": e.who,
            "data": clean(dict(e.data)),
        }
        for e in entries
    ]


def silence_json(s: Silence, at: float) -> dict[str, Any]:
    """A silence; ``state`` at ``at`` is pending, active, expired or withdrawn."""
    return {
        "id": s.id,
        "state": s.state(at),
        "matchers": s.matchers,
        "starts_at": iso(s.starts_at),
        "ends_at": iso(s.ends_at),
        "author": s.author,
        "reason": s.reason,
        "made_at": iso(s.made_at),
        "withdrawn_by": s.withdrawn_by or None,
        "withdrawn_at": iso(s.withdrawn_at),
    }


def mute_json(m: MuteWindow, at: float) -> dict[str, Any]:
    """A mute window; ``active`` at ``at``, and until when."""
    return {
        "id": m.id,
        "active": m.active(at),
        "until": iso(m.active_until(at)),
        "matchers": m.matchers,
        "days": list(m.days),
        "start": m.start,
        "end": m.end,
        "zone": m.zone,
        "author": m.author,
        "reason": m.reason,
        "made_at": iso(m.made_at),
        "withdrawn_by": m.withdrawn_by or None,
        "withdrawn_at": iso(m.withdrawn_at),
    }
