"""What people do to incidents. Each act is written to the incident's log, which is never changed."""

from __future__ import annotations

from core.errors import InputError
from core.incidents import Incident
from detectors.accepted import Accepted, event
from sql.store import Store


def known_incident(store: Store, incident_id: str) -> Incident:
    """The incident of that id; InputError where there is none."""
    found = store.incident(incident_id)
    if found is None:
        raise InputError(
            incident_id,
            "no such incident",
            "take the id from `gustfront incidents` or from the page's address",
        )
    return found


def accept_new_normal(store: Store, incident_id: str, *, at: float, who: str, reason: str = "") -> Incident:
    """From ``at`` (Unix seconds) on, what the incident shows is normal: see :mod:`detectors.accepted`."""
    incident = known_incident(store, incident_id)
    store.add_events(
        [
            event(
                Accepted(
                    at,
                    min(incident.started_at, at),
                    pool,
                    incident.kind,
                    frozenset(incident.replicas),
                    incident.id,
                    who,
                    reason,
                )
            )
            for pool in incident.pools
        ]
    )
    store.log_incident(incident.id, at, "accepted", reason or "the new normal", who)
    return incident
