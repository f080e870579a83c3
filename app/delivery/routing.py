"""Who is to be told of an incident, by now: routes and teams, with those who are told because nobody acknowledged. Pure.

Every route that matches applies. Contacts of the owning team are told one after the other. Only a page is escalated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.services.wording import span
from core.classes import Matcher, parse_matchers
from core.config import Config
from core.config_delivery import RouteConfig
from core.incidents import Incident
from core.lifecycle import Handling
from core.silences import labels_of
from core.teams import Team, due_contacts, owner_of, teams_of

RANK = {"info": 0, "ticket": 1, "page": 2}
GROUP_WAIT = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """A receiver that is to be told: after ``group_wait`` seconds for company; ``reason`` for lists, ``note`` for the message."""

    receiver: str
    group_wait: float = GROUP_WAIT
    reason: str = ""
    note: str = ""


@dataclass(frozen=True)
class Route:
    """A route with its matchers read."""

    config: RouteConfig
    match: tuple[tuple[Matcher, ...], ...]
    name: str

    def matches(self, incident: Incident) -> bool:
        """Whether it is severe enough and an alternative holds for one of its pools, classes, ..."""
        if RANK[incident.severity] < RANK[self.config.min_severity]:
            return False
        if not self.match:
            return True
        labels = labels_of(incident)
        return any(
            all(any(m.matches({m.label: v}) for v in labels.get(m.label) or ("",)) for m in one)
            for one in self.match
        )


@dataclass(frozen=True)
class Routing:
    """Routes and teams of a configuration."""

    routes: tuple[Route, ...]
    teams: tuple[Team, ...]
    receivers: frozenset[str]

    @classmethod
    def of(cls, config: Config) -> Routing:
        """Without routes, every receiver is told of tickets and pages, save those that a team names as its contacts."""
        names = [r.name for r in config.receivers]
        teams = teams_of(config.teams)
        contacts = {c for t in teams for c in t.contacts}
        configured: Sequence[RouteConfig] = config.routes
        if not configured:
            rest = [n for n in names if n not in contacts]
            configured = [RouteConfig(receivers=rest)] if rest else []
        routes = tuple(
            Route(r, tuple(parse_matchers(m, "routes") for m in r.match), r.name or f"route {i + 1}")
            for i, r in enumerate(configured)
        )
        return cls(routes, teams, frozenset(names))

    @property
    def escalates(self) -> bool:
        """Whether anybody is ever told later than the others."""
        return any(r.config.escalate_to for r in self.routes) or any(len(t.contacts) > 1 for t in self.teams)

    def team(self, incident: Incident) -> str:
        """The owning team; "" where nobody is named."""
        owner = owner_of(incident, self.teams)
        return owner.name if owner else ""

    def targets(
        self, incident: Incident, handling: Handling, told_at: float | None, at: float
    ) -> list[Target]:
        """Who should have been told by ``at``; ``told_at``: when the first receiver was told of it, None where nobody was.

        Each receiver once, the earliest reason first.
        """
        out: dict[str, Target] = {}

        def tell(target: Target) -> None:
            if target.receiver in self.receivers:
                out.setdefault(target.receiver, target)

        owner = owner_of(incident, self.teams)
        for route in self.routes:
            if route.matches(incident):
                for name in route.config.receivers:
                    tell(Target(name, route.config.group_wait, route.name))
        if owner is not None and owner.contacts and RANK[incident.severity] >= RANK["ticket"]:
            tell(Target(owner.contacts[0], GROUP_WAIT, f"team {owner.name}"))
        if incident.severity != "page" or incident.state == "resolved" or told_at is None:
            return list(out.values())
        for route in self.routes:
            if route.config.escalate_to and route.matches(incident):
                # The first place stands for those who were told at once.
                ladder = Team(route.name, (), ("", *route.config.escalate_to), route.config.escalate_after)
                self._climb(ladder, told_at, handling, at, tell)
        if owner is not None:
            self._climb(owner, told_at, handling, at, tell)
        return list(out.values())

    @staticmethod
    def _climb(
        ladder: Team, told_at: float, handling: Handling, at: float, tell: Callable[[Target], None]
    ) -> None:
        for step, name in enumerate(due_contacts(ladder, told_at, handling, at)[1:], start=1):
            waited = span(step * ladder.escalate_after).replace("\u00a0", " ")
            note = f"nobody has acknowledged this for {waited}"
            tell(Target(name, 0.0, f"{ladder.name}, escalated", note))
