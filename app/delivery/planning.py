"""Which deliveries are missing: for each incident and receiver, the difference between what it was told and what it should know.

Pure, and the same whenever it is computed: a crash between an incident's change and its delivery loses nothing, because the
next pass sees the same difference. Receivers are told the latest; what came and went while nobody looked is told as both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.attention import Decision
from core.deliveries import NOTHING_TOLD, Action, Delivery, Face
from core.incidents import Incident

STALE_S = 7200.0
"""An incident that no detector has touched for so long is history that was imported: nobody is woken by it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One delivery to be made: what to do, and the face that the receiver then knows."""

    action: Action
    face: Face
    note: str = ""


def face_of(incident: Incident) -> Face:
    """What is to be known of an incident as it stands."""
    return Face(incident.state, incident.severity, incident.kind)


def told_at(rows: Iterable[Delivery]) -> float | None:
    """When somebody was first told of an incident since it last opened, from all its deliveries; None where nobody was."""
    since: float | None = None
    living: dict[str, bool] = {}
    for d in sorted(rows, key=lambda d: (d.made_at, d.seq)):
        if d.action == "open":
            if not any(living.values()):
                since = d.made_at
            living[d.receiver] = True
        elif d.action == "resolve":
            living[d.receiver] = False
    return since if any(living.values()) else None


def wanted(
    incident: Incident,
    told: Delivery | None,
    decision: Decision,
    *,
    routed: bool,
    fresh_since: float,
    seen_since: float,
    touched: float | None = None,
) -> list[Step]:
    """What one receiver must still be told of an incident.

    ``told``: the last delivery made for it. ``routed``: the receiver belongs to the incident by now. ``fresh_since``: an incident
    without evidence since then is not opened anew; ``touched`` is the time of the last evidence, or of a person's word.
    ``seen_since``: one that is over is told of only if it ended after that.
    """
    before = told.face if told is not None else NOTHING_TOLD
    now = face_of(incident)
    if now.phase == "resolved":
        if before.living:
            return [Step("resolve", now, "the early warning is over" if before.phase == "announced" else "")]
        ended = max(incident.ended_at or 0.0, incident.updated_at)
        missed = told is None and routed and decision.notify and ended >= seen_since
        if missed and (incident.detected_at or incident.announced_at) is not None:
            # It came and went while nobody could be told.
            return [
                Step("open", Face("open", now.severity, now.kind), "it is over already"),
                Step("resolve", now),
            ]
        return []
    if before.living:
        if decision.rule == "merged":
            return [Step("resolve", Face("resolved", now.severity, now.kind), decision.why)]
        if decision.notify and now != before:
            return [Step("update", now, decision.why)]
        return []
    if not routed or not decision.notify or (touched or incident.updated_at) < fresh_since:
        return []
    return [Step("open", now, decision.why)]
