"""Every mechanism by name: ``mechanism(sim, active, now) -> undo | None``. It acts at once; ``undo(now)`` ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet import (
    mechanism_demand,
    mechanism_engine,
    mechanism_fleet,
    mechanism_memory,
    mechanism_quality,
)

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

Undo = Callable[[float], None] | None
Mechanism = Callable[["Simulation", "Active", float], Undo]

MECHANISMS: dict[str, Mechanism] = {
    **mechanism_demand.MECHANISMS,
    **mechanism_engine.MECHANISMS,
    **mechanism_fleet.MECHANISMS,
    **mechanism_memory.MECHANISMS,
    **mechanism_quality.MECHANISMS,
}
