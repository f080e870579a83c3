"""How incidents stand right now with people: who has them, who answers, whether anybody is told, and why not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.services.wording import clock
from core.attention import Decision, notifiable
from core.config import Config
from core.incidents import Incident, iso
from core.lifecycle import UNTOUCHED, Handling
from core.silences import MuteWindow, Silence
from core.teams import Team, owner_of, teams_of
from sql.store import Store


@dataclass(frozen=True, slots=True)
class Standing:
    """One incident: its ``handling``, the ``decision`` whether to tell somebody, the ``team`` that answers for it."""

    handling: Handling
    decision: Decision
    team: str = ""

    @property
    def owner(self) -> str:
        """Whoever it was assigned to, else who acknowledged it, else the team."""
        return self.handling.assignee or self.handling.acknowledged_by or self.team

    def words(self, at: float) -> list[str]:
        """Short words for chips: ``acknowledged by mara 03:12``, ``silenced until 05:00``, ``owner inference``."""
        h, d = self.handling, self.decision
        out = []
        if h.acknowledged:
            out.append(f"acknowledged by {h.acknowledged_by} {clock(h.acknowledged_at, relative_to=at)}")
        if not d.notify:
            until = f" until {clock(d.until, relative_to=at)}" if d.until is not None else ""
            out.append({"merged": d.why, "snoozed": "snoozed until worse"}.get(d.rule, f"{d.rule}{until}"))
        if h.assignee:
            out.append(f"assigned to {h.assignee}")
        elif self.team:
            out.append(f"team {self.team}")
        return out

    def as_json(self) -> dict[str, Any]:
        """For REST, command line and assistants; times ISO 8601."""
        h, d = self.handling, self.decision
        return {
            "acknowledged_by": h.acknowledged_by or None,
            "acknowledged_at": iso(h.acknowledged_at),
            "assignee": h.assignee or None,
            "team": self.team or None,
            "label": h.label or None,
            "true_kind": h.true_kind or None,
            "merged_into": h.merged_into or None,
            "merged": list(h.absorbed),
            "reopened_at": iso(h.open_again_at),
            "snoozed": None
            if h.snooze is None
            else {"by": h.snooze.by, "at": iso(h.snooze.at), "until": iso(h.snooze.until)},
            "notes": h.notes,
            "told": d.notify,
            "not_told_by": None if d.notify else d.rule,
            "why": d.why or None,
            "until": iso(d.until),
        }


@dataclass(frozen=True)
class Attention:
    """What is known about the incidents of :func:`load` at one time."""

    at: float
    handlings: Mapping[str, Handling] = field(default_factory=dict)
    wholes: Mapping[str, Incident] = field(default_factory=dict)
    silences: tuple[Silence, ...] = ()
    mutes: tuple[MuteWindow, ...] = ()
    teams: tuple[Team, ...] = ()

    def handling(self, incident: Incident) -> Handling:
        """What people did to it."""
        return self.handlings.get(incident.id, UNTOUCHED)

    def notifiable(self, incident: Incident, at: float | None = None) -> Decision:
        """Whether somebody is to be told of it, and why not."""
        h = self.handling(incident)
        return notifiable(
            incident,
            self.at if at is None else at,
            handling=h,
            silences=self.silences,
            mutes=self.mutes,
            into=self.wholes.get(h.merged_into),
        )

    def team(self, incident: Incident) -> Team | None:
        """The team that answers for it."""
        return owner_of(incident, self.teams)

    def standing(self, incident: Incident) -> Standing:
        """All of it."""
        team = self.team(incident)
        return Standing(self.handling(incident), self.notifiable(incident), team.name if team else "")


def load(store: Store, config: Config, incidents: Iterable[Incident], at: float | None = None) -> Attention:
    """Read what concerns some incidents at ``at`` (Unix seconds; now)."""
    now = time.time() if at is None else at
    handlings = store.handlings([i.id for i in incidents])
    wholes = {h.merged_into for h in handlings.values() if h.merged_into}
    found = {i: whole for i in wholes if (whole := store.incident(i)) is not None}
    return Attention(
        now,
        handlings,
        found,
        tuple(store.silences(ending_after=now)),
        tuple(store.mutes()),
        teams_of(config.teams),
    )
