"""Signs of life: the collector, the detector and the dispatcher leave the time in the database; a dead-man's switch goes on only
while all of them do, and whoever waits for it notices when it stops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collectors.selfmetrics import HEARTBEAT as COLLECT
from core.beats import DELIVER, DETECT
from sql.store import Store

PARTS = {"collect": COLLECT, "detect": DETECT, "deliver": DELIVER}
SILENT_S = 120.0


@dataclass(frozen=True, slots=True)
class Beat:
    """The last sign of life of a part: ``age`` in seconds, None where there never was one."""

    part: str
    age: float | None

    @property
    def alive(self) -> bool:
        """Heard of lately. A clock that was put back makes nobody dead."""
        return self.age is not None and self.age < SILENT_S


def beats(store: Store, now: float) -> list[Beat]:
    """All parts, in the order of the data's way."""
    return [Beat(part, age_of(store, cursor, now)) for part, cursor in PARTS.items()]


def age_of(store: Store, cursor: str, now: float) -> float | None:
    """Seconds since the time kept in a cursor; None where there is none."""
    return _age(store.get_cursor(cursor), now)


def _age(text: str | None, now: float) -> float | None:
    try:
        then = float(text or "")
    except ValueError:
        return None
    return max(0.0, now - then) if math.isfinite(then) else None


def silent(store: Store, now: float) -> str:
    """Which of collector and detector has stopped, in words; "" where both live."""
    dead = [b for b in beats(store, now) if b.part != "deliver" and not b.alive]
    return ", ".join(
        f"{b.part} {'was never heard of' if b.age is None else f'silent for {b.age:.0f} s'}" for b in dead
    )
