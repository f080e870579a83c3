"""Deliveries: what one receiver is told of one incident (or event), as a row of the outbox. Pure; the rows are in
:mod:`sql.deliveries`.

A :class:`Face` is what a receiver can tell apart: phase, severity and kind. A delivery is due wherever the face that a receiver
was last told differs from the one that it should know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Action = Literal["open", "update", "resolve", "event", "test"]
State = Literal["pending", "sent", "parked"]
Phase = Literal["none", "announced", "open", "resolved"]
WARNED: Phase = "announced"


@dataclass(frozen=True, slots=True)
class Face:
    """What is told of an incident apart from words. ``phase`` ``none``: nothing was told."""

    phase: Phase = "none"
    severity: str = ""
    kind: str = ""

    @property
    def living(self) -> bool:
        """The receiver believes that something is wrong now."""
        return self.phase in ("announced", "open")

    def as_json(self) -> dict[str, str]:
        """Plain JSON types."""
        return {"phase": self.phase, "severity": self.severity, "kind": self.kind}


NOTHING_TOLD = Face()


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row of the outbox; times in Unix seconds.

    ``subject``: an incident's id, ``event:<id>`` or ``test:<id>``; ``seq`` counts from 1 for each (subject, receiver), and they
    are sent in that order. ``place`` names what may go out together. ``due_at``: when to try (again); ``set_at``: the clock when
    that was decided. ``reference``: what the receiver called it. ``error``: why it has not been sent. ``message``: what is said,
    as it was when the row was made.
    """

    id: str
    receiver: str
    subject: str
    seq: int
    action: Action
    state: State
    place: str
    made_at: float
    due_at: float
    set_at: float
    attempts: int = 0
    sent_at: float | None = None
    batch: str = ""
    reference: str = ""
    error: str = ""
    reason: str = ""
    face: Face = NOTHING_TOLD
    message: Mapping[str, Any] = field(default_factory=dict)

    def due(self, now: float) -> bool:
        """Whether it may be tried: its time has come, or the clock was put back since that was set."""
        return now >= self.due_at or now < self.set_at


@dataclass(frozen=True, slots=True)
class Tally:
    """How a receiver stands. ``oldest_pending``: when the oldest unsent row was made; ``last_error`` with its time, of rows that
    are unsent or parked; times None where there is none."""

    receiver: str
    pending: int = 0
    failing: int = 0
    parked: int = 0
    sent: int = 0
    oldest_pending: float | None = None
    last_sent: float | None = None
    last_error: str = ""
    last_error_at: float | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Who does a thing, until when; ``token`` grows with each change of holder."""

    name: str
    holder: str
    token: int
    taken_at: float
    until: float
