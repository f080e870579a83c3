"""Whether somebody is to be told of an incident now, and if not, why not: a pure function for delivery, pages and API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.incidents import Incident
from core.lifecycle import UNTOUCHED, Handling
from core.silences import MuteWindow, Silence, labels_of

Rule = Literal["told", "merged", "silenced", "muted", "snoozed"]
SEVERITIES = ("info", "ticket", "page")
MORE_REPLICAS = 1.25
MORE_LATE, LEAST_LATE = 1.5, 0.01
"""Worse: a quarter more replicas; half as many late requests again, and at least one in a hundred more."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``notify`` False: nobody is told, by which ``rule``, ``why`` in words, until when (None: not known or for good).

    ``by`` is the id of the silence or mute window, or of the incident that this one was merged into.
    """

    notify: bool
    rule: Rule = "told"
    why: str = ""
    until: float | None = None
    by: str = ""


TOLD = Decision(True)


def notifiable(
    incident: Incident,
    at: float,
    *,
    handling: Handling = UNTOUCHED,
    silences: Iterable[Silence] = (),
    mutes: Iterable[MuteWindow] = (),
    tenants: Sequence[str] = (),
    into: Incident | None = None,
) -> Decision:
    """Whether to tell somebody of ``incident`` at ``at`` (Unix seconds).

    ``into`` is the incident that it was merged into, if it was: once that is over while this one goes on, this one is heard
    again. Whether it is acknowledged stands in ``handling``: that ends repeats and escalation, it does not hide anything.
    """
    if handling.merged_into and not (
        into is not None and into.state == "resolved" and incident.state != "resolved"
    ):
        return Decision(
            False, "merged", f"part of incident {handling.merged_into}", None, handling.merged_into
        )
    labels = labels_of(incident, tenants)
    found = [s for s in silences if s.covers(labels, at)]
    if found:
        s = max(found, key=lambda s: s.ends_at)
        return Decision(False, "silenced", f"silenced by {s.author}: {s.reason}", s.ends_at, s.id)
    for m in mutes:
        if m.covers(labels, at):
            why = f"muted {m.words()} by {m.author}: {m.reason}"
            return Decision(False, "muted", why, m.active_until(at), m.id)
    z = handling.snooze
    if z is not None and (z.until is None or at < z.until):
        change = worse(z.than, incident)
        if not change:
            why = f"snoozed by {z.by} until worse" + (f": {z.reason}" if z.reason else "")
            return Decision(False, "snoozed", why, z.until)
        return Decision(True, "told", f"worse than when {z.by} snoozed it: {change}")
    return TOLD


def extent(incident: Incident) -> dict[str, Any]:
    """How bad an incident is, in what can grow: kept with a snooze, compared by :func:`worse`."""
    harm = incident.detail.get("harm")
    harm = harm if isinstance(harm, Mapping) else {}
    return {
        "severity": incident.severity,
        "state": incident.state,
        "classes": sorted(incident.classes),
        "pools": sorted(incident.pools),
        "replicas": len(incident.replicas),
        "share_late": _number(harm.get("share_late")),
        "replicas_lost": _number(harm.get("replicas_lost")),
    }


def worse(than: Mapping[str, Any], incident: Incident) -> str:
    """In which way an incident is worse than an :func:`extent` of it; "" where it is not."""
    now = extent(incident)
    before = str(than.get("severity", "info"))
    if _rank(now["severity"]) > _rank(before):
        return f"severity {now['severity']}, was {before}"
    if than.get("state") == "announced" and now["state"] == "open":
        return "it was only announced, now it bites"
    for key, one in (("classes", "class"), ("pools", "pool")):
        known = than.get(key)
        new = [x for x in now[key] if x not in (known if isinstance(known, list | tuple) else ())]
        if new:
            return f"{one} {new[0]} is hurt too"
    n = _number(than.get("replicas")) or 0.0
    if now["replicas"] > n and now["replicas"] >= MORE_REPLICAS * n:
        return f"{now['replicas']} replicas, were {n:.0f}"
    lost, lost_then = now["replicas_lost"], _number(than.get("replicas_lost"))
    if lost is not None and lost > (lost_then or 0.0):
        return f"{lost:.0f} replicas lost, were {lost_then or 0:.0f}"
    late, late_then = now["share_late"], _number(than.get("share_late")) or 0.0
    if late is not None and late >= MORE_LATE * late_then and late - late_then >= LEAST_LATE:
        return f"{late * 100:.0f} % of requests late, were {late_then * 100:.0f} %"
    return ""


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
