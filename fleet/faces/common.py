"""What faces share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fleet.faces.page import Page
from fleet.model import (
    Attempt,
    EngineState,
    EventRecord,
    FaultSpec,
    FleetSpec,
    GatewayState,
    Observations,
    ReplicaState,
)


class Fleet(Protocol):
    """What of a simulation the faces, logs and the demonstration need: a FleetView whose parts are only read."""

    now: float

    @property
    def spec(self) -> FleetSpec:
        """What was wanted."""

    @property
    def replicas(self) -> list[ReplicaState]:
        """Those that exist now."""

    @property
    def gateway(self) -> GatewayState:
        """The gateway's counts."""

    @property
    def events(self) -> list[EventRecord]:
        """What operators did so far."""

    def run(self, until: float) -> None:
        """Advance to ``until``."""

    def inject(self, fault: FaultSpec) -> None:
        """A fault from its start on, or from now if that is past."""

    def drain_attempts(self) -> list[Attempt]:
        """Gateway attempts that ended since the last call."""

    def truth(self) -> dict[str, Any]:
        """What was wrong so far."""


class Face(Protocol):
    """One process as its exporter shows it."""

    page: Page

    def observe(self, engine: EngineState, seen: Observations) -> None:
        """Take in what happened in one engine since the last call."""

    def refresh(self, replica: ReplicaState, now: float) -> None:
        """Bring counters and gauges to the replica's state."""


def version_of(text: str) -> tuple[int, ...]:
    """``0.11.0`` as (0, 11, 0); what is no number counts as 0."""
    return tuple(int(p) if p.isdigit() else 0 for p in text.lstrip("v").split("."))


def statuses(http: Mapping[int, float]) -> dict[str, float]:
    """Answers by class of status: ``2xx``, ``4xx``, ..."""
    out: dict[str, float] = {}
    for status, n in http.items():
        name = f"{status // 100}xx"
        out[name] = out.get(name, 0.0) + n
    return out


class Split:
    """Whole numbers divided over positions with falling shares, so that the parts add up and never fall."""

    def __init__(self, parts: int) -> None:
        self.parts = [0] * parts
        self._total = 0

    def to(self, total: int, ratio: float) -> list[int]:
        """The parts of ``total``; what came since the last call is divided as 1 : ratio : ratio² ..."""
        new = total - self._total
        if new > 0:
            weights = [ratio**i for i in range(len(self.parts))]
            whole = sum(weights)
            given = [int(new * w / whole) for w in weights[1:]]
            for i, n in enumerate([new - sum(given), *given]):
                self.parts[i] += n
            self._total = total
        return self.parts
