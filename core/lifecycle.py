"""What people have done to an incident, told from its append-only log alone.

Detectors rewrite an incident's row at every tick; nothing that a person said stands in that row, so nothing of it can be lost.
:func:`fold` reads the log in the order in which it was written (``seq``), which is the order in which it holds:

- acknowledged until resolved, or until somebody takes it back; a relapse (``reopened``) needs a new acknowledgement;
- snoozed until worse (:func:`core.attention.worse`), until an hour that was named, or until woken; a relapse does not wake it;
- merged until split; the last label holds; an assignment holds until the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LABELS = ("cause_right", "cause_wrong", "false_alarm", "not_an_incident")
"""Verdicts of people. The first two say that there was an incident; the last two that there was none."""
FALSE_LABELS = ("false_alarm", "not_an_incident")
LABEL_WORDS = {
    "cause_right": "cause right",
    "cause_wrong": "cause wrong",
    "false_alarm": "false alarm",
    "not_an_incident": "not an incident",
}

PEOPLE = frozenset(
    {
        "acknowledged", "unacknowledged", "assigned", "note", "snoozed", "woken", "reopened_by_hand", "resolved_by_hand",
        "merged", "absorbed", "split", "split_off", "accepted", "unlabelled", *LABELS,
    }
)  # fmt: skip
"""Actions in the log that are a person's; the others are a detector's."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of an incident's log; ``seq`` counts from 1, ``ts`` is Unix seconds. ``data`` is what a program reads of it."""

    incident_id: str
    seq: int
    ts: float
    action: str
    text: str
    who: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Act:
    """An entry to be written."""

    action: str
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not to be heard of until it is worse than ``than`` (see :func:`core.attention.extent`), or until ``until``."""

    by: str
    at: float
    than: Mapping[str, Any]
    until: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Handling:
    """How an incident stands with people. Times are Unix seconds.

    ``merged_into``: id of the incident that it is a part of, "" where it stands for itself; ``absorbed``: ids of its own parts.
    ``open_again_at``: a person says that it is not over. ``label``: one of :data:`LABELS` or "", with who said it.
    ``true_kind``: what it really was, where somebody said so with ``cause_wrong``.
    """

    acknowledged_by: str = ""
    acknowledged_at: float | None = None
    unacknowledged_at: float | None = None
    assignee: str = ""
    snooze: Snooze | None = None
    merged_into: str = ""
    absorbed: tuple[str, ...] = ()
    open_again_at: float | None = None
    label: str = ""
    label_by: str = ""
    true_kind: str = ""
    notes: int = 0
    resolution: str = ""

    @property
    def acknowledged(self) -> bool:
        """Somebody has taken notice since it last opened."""
        return self.acknowledged_at is not None


UNTOUCHED = Handling()


def fold(log: Iterable[LogEntry]) -> Handling:
    """How an incident stands, from its log in order; entries of actions unknown to this release change nothing."""
    h = UNTOUCHED
    for e in log:
        h = _after(h, e)
    return h


def _after(h: Handling, e: LogEntry) -> Handling:
    match e.action:
        case "acknowledged":
            h = replace(h, acknowledged_by=e.who, acknowledged_at=e.ts, unacknowledged_at=None)
        case "unacknowledged":
            h = replace(h, acknowledged_by="", acknowledged_at=None, unacknowledged_at=e.ts)
        case "resolved" | "resolved_by_hand" | "accepted":
            h = replace(
                h, acknowledged_by="", acknowledged_at=None, unacknowledged_at=None, open_again_at=None
            )
            if e.action != "resolved" and e.text:
                h = replace(h, resolution=e.text)
        case "reopened":
            h = replace(
                h, acknowledged_by="", acknowledged_at=None, unacknowledged_at=None, open_again_at=None
            )
        case "reopened_by_hand":
            h = replace(h, open_again_at=e.ts, acknowledged_by="", acknowledged_at=None)
        case "assigned":
            h = replace(h, assignee=str(e.data.get("to", "")))
        case "snoozed":
            h = replace(h, snooze=_snooze(e))
        case "woken":
            h = replace(h, snooze=None)
        case "merged":
            h = replace(h, merged_into=str(e.data.get("into", "")))
        case "split":
            h = replace(h, merged_into="")
        case "absorbed":
            part = str(e.data.get("incident", ""))
            h = replace(h, absorbed=tuple(sorted({*h.absorbed, part} - {""})))
        case "split_off":
            h = replace(h, absorbed=tuple(x for x in h.absorbed if x != e.data.get("incident")))
        case "note":
            h = replace(h, notes=h.notes + 1, resolution=e.text)
        case "unlabelled":
            h = replace(h, label="", label_by="", true_kind="")
        case label if label in LABELS:
            h = replace(h, label=label, label_by=e.who, true_kind=str(e.data.get("kind", "")))
    return h


def _snooze(e: LogEntry) -> Snooze:
    than, until = e.data.get("than"), e.data.get("until")
    return Snooze(
        e.who,
        e.ts,
        than if isinstance(than, Mapping) else {},
        float(until) if isinstance(until, int | float) else None,
        e.text,
    )


def shown_to_people(log: Iterable[LogEntry], as_of: float) -> tuple[LogEntry, ...]:
    """Entries that a page may show as of a time: of detectors only what had happened, of people all that they ever said."""
    return tuple(e for e in log if e.action in PEOPLE or e.ts <= as_of)
