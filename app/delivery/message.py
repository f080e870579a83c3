"""What is said of an incident, for whoever is on call: title, where, since when, cause, ruled out, first safe action, link.

A :class:`Message` is kept with its delivery as it was when the delivery was made. All its texts may hold labels from strangers:
each receiver escapes them in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from app.services.actions import action_for
from app.services.incident_view import kind_title
from app.services.story import told_actions
from app.services.wording import capital, instant, listing, percent, span
from core.config import Config
from core.deliveries import Action, Face
from core.incidents import Incident, iso
from core.lifecycle import UNTOUCHED, Handling
from core.records import Event

MAX_TEXT = 1500
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
HEADLINES = {"open": "", "update": "Changed: ", "resolve": "Over: ", "event": "", "test": "Test: "}


@dataclass(frozen=True, slots=True)
class Message:
    """Times in Unix seconds. ``type`` is incident, event or test; ``subject`` the incident's id or the event's.

    ``phase``: announced (an early warning: nothing bites yet), open, resolved. ``before``: what it was, for an update.
    ``note``: why this goes out, where that is not plain (escalation, merged, worse than when it was snoozed).
    """

    type: str
    subject: str
    action: Action
    title: str
    phase: str = "open"
    severity: str = "info"
    kind: str = ""
    kind_title: str = ""
    where: str = ""
    classes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    since: float | None = None
    detected_at: float | None = None
    ended_at: float | None = None
    cause: str = ""
    confidence: float | None = None
    runner_up: str = ""
    ruled_out: tuple[str, ...] = ()
    first: str = ""
    risk: str = ""
    avoid: str = ""
    owner: str = ""
    acknowledged_by: str = ""
    before: str = ""
    note: str = ""
    link: str = ""

    def as_row(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Message:
        """The inverse of :meth:`as_row`; fields of other releases are left out."""
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k in known
        }
        return cls(**values)

    @property
    def headline(self) -> str:
        """One line: ``Over: KV eviction storm on coder: …``."""
        return f"{HEADLINES[self.action]}{self.title}"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(label, text) in the order in which somebody needs them; nothing that is not known."""
        cause = self.cause
        if cause and self.confidence is not None:
            cause = f"{cause} ({percent(self.confidence, 0)} confident)"
        rows = [
            ("Why now", self.note),
            ("Changed", self.before),
            ("Severity", self.severity + (", an early warning" if self.phase == "announced" else "")),
            ("Where", self.where),
            ("Since", instant(self.since) if self.since is not None else ""),
            ("Until", self._until()),
            ("Cause", cause),
            ("Else it would be", self.runner_up),
            ("Ruled out", ", ".join(self.ruled_out)),
            ("First safe action", self.first if self.action != "resolve" else ""),
            ("Its risk", self.risk if self.action != "resolve" else ""),
            ("Avoid", self.avoid if self.action != "resolve" else ""),
            ("Owner", self.owner),
            ("Acknowledged by", self.acknowledged_by),
        ]
        if self.type != "incident":
            keep = ("Where", "Since", "Why now")
            rows = [(("At" if k == "Since" else k), v) for k, v in rows if k in keep]
        return [(k, v) for k, v in rows if v]

    def _until(self) -> str:
        if self.ended_at is None:
            return ""
        lasted = f", {span(self.ended_at - self.since)}" if self.since is not None else ""
        return f"{instant(self.ended_at)}{lasted}"

    def as_json(self) -> dict[str, Any]:
        """For machines: times ISO 8601, null where unknown."""
        row = asdict(self)
        for key in ("since", "detected_at", "ended_at"):
            row[key] = iso(row[key])
        return {"headline": self.headline, **row}


def clean(text: object, limit: int = MAX_TEXT) -> str:
    """One line without control characters and marks that reverse the direction, of at most ``limit`` characters."""
    line = _UNSEEN.sub(" ", str(text)).strip()
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def base_url(config: Config) -> str:
    """Where people reach the pages: the first of app.origins, else host and port."""
    if config.app.origins:
        return config.app.origins[0]
    host = config.app.host
    if host in ("0.0.0.0", "::"):
        host = config.app.hosts[0] if config.app.hosts else "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{config.app.port}"


def incident_link(config: Config, incident_id: str) -> str:
    """The stable address of an incident's page."""
    return f"{base_url(config)}/incident?{urlencode({'id': incident_id})}"


def _where(i: Incident) -> str:
    parts = []
    if i.pools:
        parts.append(("pool " if len(i.pools) == 1 else "pools ") + listing(i.pools))
    if i.replicas:
        parts.append(("replica " if len(i.replicas) == 1 else "replicas ") + listing(i.replicas))
    if i.classes:
        parts.append(("class " if len(i.classes) == 1 else "classes ") + listing(i.classes))
    return "; ".join(parts) or "the fleet"


def _change(before: Face, now: Face) -> str:
    out = []
    if before.phase == "announced" and now.phase == "open":
        out.append("it was only announced, now it bites")
    if before.severity and before.severity != now.severity:
        out.append(f"severity {before.severity} → {now.severity}")
    if before.kind and before.kind != now.kind:
        out.append(f"was seen as {kind_title(before.kind)}, is now {kind_title(now.kind)}")
    return "; ".join(out)


def of_incident(
    incident: Incident,
    action: Action,
    config: Config,
    *,
    before: Face | None = None,
    now: Face | None = None,
    handling: Handling = UNTOUCHED,
    team: str = "",
    note: str = "",
) -> Message:
    """What to say of an incident; ``before`` and ``now`` are the faces of an update."""
    i = incident
    known = action_for(i.kind)
    told = told_actions(i, "now")
    first = clean(known.now if known else told[0] if told else "")
    if known:
        first = f"{first.rstrip('.')} ({'needs a restart' if known.restart else 'no restart'})"
    excluded = [r.kind for r in i.ruled_out if r.excluded]
    resolved = action == "resolve"
    return Message(
        type="incident",
        subject=i.id,
        action=action,
        title=clean(i.title or kind_title(i.kind), 300),
        phase="resolved" if resolved else i.state,
        severity=i.severity,
        kind=i.kind,
        kind_title=kind_title(i.kind),
        where=clean(_where(i), 500),
        classes=tuple(clean(x, 200) for x in i.classes),
        pools=tuple(clean(x, 200) for x in i.pools),
        replicas=tuple(clean(x, 200) for x in i.replicas[:100]),
        since=i.started_at,
        detected_at=i.detected_at or i.announced_at,
        ended_at=i.ended_at if resolved else None,
        cause=clean(capital(i.cause)).rstrip("."),
        confidence=i.confidence if i.cause else None,
        runner_up=kind_title(i.runner_up) if i.runner_up and i.runner_up not in excluded else "",
        ruled_out=tuple(dict.fromkeys(kind_title(k) for k in excluded))[:8],
        first=first,
        risk=clean(known.risk) if known else "",
        avoid=clean(known.avoid) if known else "",
        owner=clean(handling.assignee or team, 100),
        acknowledged_by=clean(handling.acknowledged_by, 100),
        before=_change(before, now) if before is not None and now is not None else "",
        note=clean(note, 300),
        link=incident_link(config, i.id),
    )


def of_event(event: Event, subject: str, config: Config) -> Message:
    """What to say of a deploy or another event."""
    where = "; ".join(x for x in (event.pool and f"pool {event.pool}", event.replica) if x)
    return Message(
        type="event",
        subject=subject,
        action="event",
        title=clean(f"{capital(event.kind)}: {event.text}" if event.text else capital(event.kind), 300),
        kind=clean(event.kind, 60),
        kind_title=clean(capital(event.kind), 60),
        where=clean(where, 300),
        pools=(clean(event.pool, 200),) if event.pool else (),
        since=event.ts,
        link=base_url(config),
    )


def of_test(subject: str, at: float, who: str, config: Config) -> Message:
    """A message that only shows that a receiver can be reached."""
    return Message(
        type="test",
        subject=subject,
        action="test",
        title="Gustfront reaches this receiver",
        phase="resolved",
        since=at,
        note=clean(f"sent by {who} to see whether this receiver works; nothing is wrong", 200),
        link=base_url(config),
    )
