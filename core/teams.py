"""Who answers for an incident: teams by matchers, and whom to tell next while nobody acknowledges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.classes import Matcher, parse_matchers
from core.config_teams import TeamConfig
from core.incidents import Incident
from core.lifecycle import Handling


@dataclass(frozen=True)
class Team:
    """A team: alternatives of matchers over ``pool``, ``class``, ``kind`` and ``severity``; ``contacts`` in the order in which
    they are told, the next one after ``escalate_after`` seconds without an acknowledgement."""

    name: str
    match: tuple[tuple[Matcher, ...], ...]
    contacts: tuple[str, ...] = ()
    escalate_after: float = 900.0


def teams_of(configured: Iterable[TeamConfig]) -> tuple[Team, ...]:
    """The teams of a configuration."""
    return tuple(
        Team(
            t.name,
            tuple(parse_matchers(m, "teams") for m in t.match),
            tuple(t.contacts),
            t.escalate_after,
        )
        for t in configured
    )


def owner_of(incident: Incident, teams: Sequence[Team]) -> Team | None:
    """The first team that one of the incident's pools and classes belongs to; None where nobody is named."""
    places = [
        {"pool": pool, "class": class_, "kind": incident.kind, "severity": incident.severity}
        for pool in incident.pools or ("",)
        for class_ in incident.classes or ("",)
    ]
    for team in teams:
        if any(all(m.matches(place) for m in one) for one in team.match for place in places):
            return team
    return None


def due_contacts(team: Team, told_at: float, handling: Handling, at: float) -> tuple[str, ...]:
    """Contacts that should have been told by ``at`` of an incident that the first one was told of at ``told_at``.

    Every ``escalate_after`` without an acknowledgement one more; an acknowledgement stops it where it stands, and taking it back
    starts the clock anew. The last contact is told once: there is nobody above.
    """
    if not team.contacts:
        return ()
    since = max(told_at, handling.unacknowledged_at or told_at)
    until = at if handling.acknowledged_at is None else min(at, handling.acknowledged_at)
    steps = max(0, int((until - since) // team.escalate_after)) if team.escalate_after > 0 else 0
    return team.contacts[: 1 + steps]
