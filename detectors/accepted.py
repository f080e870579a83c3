"""A person says: this is how it is now. What was found at a place is no longer wrong there, and its normal is learnt anew.

``gustfront incidents accept`` writes an event of kind ``new_normal`` for each pool of the incident. From then on

- the incident is over, and findings of its kind at that place are not heard for an hour, while the new normal is learnt;
- cells of that place from before the incident teach no baseline any more, and those since it began do.

The event is part of the history, so a back-test decides as the live run did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.incidents import Finding
from core.records import Event
from detectors.incidents import Change, Tracker

KIND = "new_normal"
RELEARN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """``kind`` at ``pool`` (on ``replicas``, all where empty) has been normal since ``since``; said at ``at`` by ``who``."""

    at: float
    since: float
    pool: str
    kind: str
    replicas: frozenset[str] = frozenset()
    incident: str = ""
    who: str = ""
    reason: str = ""

    def covers(self, pool: str, replica: str) -> bool:
        """Whether a replica is meant."""
        return pool == self.pool and (not self.replicas or replica in self.replicas)

    def mutes(self, f: Finding, now: float) -> bool:
        """Whether a finding is what was accepted, while the new normal is not learnt yet."""
        if f.kind != self.kind or self.pool not in f.scope.pools or not self.at <= now < self.at + RELEARN_S:
            return False
        return not self.replicas or set(f.scope.replicas) <= self.replicas


def event(accepted: Accepted) -> Event:
    """The event that keeps it."""
    return Event(
        accepted.at,
        KIND,
        accepted.reason,
        pool=accepted.pool,
        source=accepted.who or "user",
        data={
            "kind": accepted.kind,
            "since": accepted.since,
            "replicas": sorted(accepted.replicas),
            "incident": accepted.incident,
        },
    )


def accepted(events: Iterable[Event], now: float) -> list[Accepted]:
    """What had been accepted by ``now``; events without the fields needed are passed over."""
    out = []
    for e in events:
        if e.kind != KIND or e.ts > now or not isinstance(e.data.get("kind"), str):
            continue
        since = e.data.get("since")
        replicas = e.data.get("replicas")
        out.append(
            Accepted(
                e.ts,
                float(since) if isinstance(since, int | float) else e.ts,
                e.pool,
                e.data["kind"],
                frozenset(str(r) for r in replicas) if isinstance(replicas, list) else frozenset(),
                str(e.data.get("incident", "")),
                e.source,
                e.text,
            )
        )
    return out


def close(tracker: Tracker, known: Sequence[Accepted], now: float) -> list[Change]:
    """End the open incidents that were accepted; the tracker is changed in place."""
    out = []
    for a in known:
        tr = tracker.tracked.get(a.incident)
        if tr is None or tr.incident.state == "resolved" or tr.incident.started_at > a.at:
            continue
        i = tr.incident
        i.state, i.ended_at, i.updated_at = "resolved", a.at, now
        why = f": {a.reason}" if a.reason else ""
        out.append(Change("accepted", i, f"accepted as the new normal by {a.who or 'user'}{why}"))
    return out
