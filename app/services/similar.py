"""Incidents of the past that were like this one, why they are called alike, and what ended them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.services.wording import clock, instant, listing, span
from core.incidents import Incident, iso
from core.lifecycle import LABEL_WORDS, LogEntry, fold
from core.records import Event
from sql.store import Store, TargetRow

LOOK_BACK = 400 * 86400.0
LEAST = 4.0
NEAR_END = 1800.0
"""An event so many seconds before the end may have ended it; up to two minutes after it is a matter of scrapes."""
AFTER_END = 120.0


@dataclass(frozen=True, slots=True)
class Similar:
    """One earlier incident: ``score`` (more is more alike), ``why`` in words, ``ended_by`` what ended it, as far as is known."""

    incident: Incident
    score: float
    why: tuple[str, ...]
    ended_by: str
    label: str = ""

    def when(self) -> str:
        """``2026-09-14 15:44 UTC on coder, 20 min``."""
        i = self.incident
        lasted = span(i.ended_at - i.started_at) if i.ended_at is not None else "still open"
        return f"{instant(i.started_at)} on {listing(list(i.pools), 2) or 'the fleet'}, {lasted}"

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        i = self.incident
        return {
            "id": i.id,
            "kind": i.kind,
            "title": i.title,
            "started_at": iso(i.started_at),
            "ended_at": iso(i.ended_at),
            "score": round(self.score, 2),
            "why": list(self.why),
            "ended_by": self.ended_by,
            "label": self.label or None,
        }


def similar(store: Store, incident: Incident, *, limit: int = 5) -> tuple[Similar, ...]:
    """Earlier incidents of the 400 days before, the most alike first.

    Same kind 4, kind that was the runner-up 1.5, same pool 2, same replicas up to 2, same class 1, same release 2; what scores
    less than 4 is left out. Among equals the latest is first.
    """
    past = [
        i
        for i in store.incidents(incident.started_at - LOOK_BACK, incident.started_at)
        if i.id != incident.id and i.started_at < incident.started_at and i.severity != "info"
    ]
    rows = store.targets() if past else []
    mine = releases(rows, incident)
    scored = []
    for i in past:
        score, why = alike(incident, i, mine, releases(rows, i))
        if score >= LEAST:
            scored.append((score, why, i))
    scored.sort(key=lambda x: (-x[0], -x[2].started_at, x[2].id))
    best = scored[:limit]
    logs = store.incident_logs([i.id for _, _, i in best])
    out = []
    for score, why, i in best:
        log = logs.get(i.id, [])
        events = (
            []
            if i.ended_at is None
            else store.events(i.ended_at - NEAR_END, i.ended_at + AFTER_END, pools=list(i.pools) or None)
        )
        out.append(Similar(i, score, why, ended_by(i, log, events), LABEL_WORDS.get(fold(log).label, "")))
    return tuple(out)


def alike(
    a: Incident, b: Incident, releases_a: frozenset[str], releases_b: frozenset[str]
) -> tuple[float, tuple[str, ...]]:
    """How alike two incidents are, and in what."""
    score, why = 0.0, []
    if a.kind == b.kind:
        score += 4
        why.append("same kind")
    elif b.kind == a.runner_up or a.kind == b.runner_up:
        score += 1.5
        why.append("its kind was the runner-up")
    pools = sorted(set(a.pools) & set(b.pools))
    if pools:
        score += 2
        why.append(f"same pool {listing(pools, 2)}")
    both = sorted(set(a.replicas) & set(b.replicas))
    if both:
        score += 2 * len(both) / len(set(a.replicas) | set(b.replicas))
        why.append(f"same replicas {listing(both, 3)}" if len(both) > 1 else f"same replica {both[0]}")
    classes = sorted(set(a.classes) & set(b.classes))
    if classes:
        score += 1
        why.append(f"same class {listing(classes, 2)}")
    shared = sorted(releases_a & releases_b)
    if shared:
        score += 2
        why.append(f"same release {listing(shared, 2)}")
    return score, tuple(why)


def releases(rows: Sequence[TargetRow], incident: Incident) -> frozenset[str]:
    """Releases that ran in an incident's pools when it began."""
    return frozenset(
        r.target.release
        for r in rows
        if r.target.release
        and (not incident.pools or r.target.pool in incident.pools)
        and r.first_seen <= incident.started_at <= r.last_seen
    )


def ended_by(incident: Incident, log: Sequence[LogEntry], events: Sequence[Event]) -> str:
    """What ended an incident: what a person wrote, else the last event shortly before its end, else that nothing is recorded."""
    if incident.ended_at is None:
        return "still open"
    said = next((e for e in reversed(log) if e.action in _SAYS and e.text and e.who), None)
    if said is not None:
        what = {"note": "noted", "accepted": "accepted as normal", "resolved_by_hand": "resolved"}[
            said.action
        ]
        return f"{said.who} {what}: {said.text}"
    near = [e for e in events if not incident.replicas or not e.replica or e.replica in incident.replicas]
    if near:
        e = max(near, key=lambda e: (e.ts, e.kind))
        words = " ".join(filter(None, (e.kind, e.text or e.replica or e.pool)))
        before = incident.ended_at - e.ts
        gap = f"{span(before)} before its end" if before > 0 else "at its end"
        return f"{words} at {clock(e.ts, relative_to=incident.ended_at)}, {gap}"
    return "nothing recorded near its end"


_SAYS = frozenset({"note", "accepted", "resolved_by_hand"})
