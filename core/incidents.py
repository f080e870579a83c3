"""Findings (what one detector sees at one tick) and incidents (what a person is told), with their exchange form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Severity = Literal["info", "ticket", "page"]
State = Literal["announced", "open", "resolved"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that speaks for a finding: ``before`` and ``now`` in the signal's unit, ``expected`` under no fault."""

    signal: str
    scope: str
    before: float | None
    now: float | None
    expected: float | None = None
    at: float | None = None
    unit: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A look-alike, the test that separates it, and the result with its number."""

    kind: str
    test: str
    result: str
    excluded: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """Where: empty tuples mean 'not restricted'. ``replicas`` are explicit names without port."""

    classes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one detector asserts at one tick. ``strength`` is comparable within a kind; ``confidence`` is 0..1.

    ``announced`` marks an early warning: the fault has not bitten yet. ``detail`` holds what the sentence needs.
    """

    kind: str
    scope: Scope
    at: float
    onset: float
    strength: float
    confidence: float
    severity: Severity = "page"
    announced: bool = False
    runner_up: str = ""
    title: str = ""
    cause: str = ""
    load_correlated: bool | None = None
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Incident:
    """One root cause at one place and time. Times are Unix seconds, None where it has not happened.

    ``started_at`` estimated onset; ``announced_at`` first early warning; ``detected_at`` first tick at ticket severity or above
    under any kind; ``diagnosed_at`` first tick with the final kind; ``ended_at`` last evidence, None while open.
    """

    id: str
    kind: str
    severity: Severity
    state: State
    title: str
    started_at: float
    detected_at: float | None = None
    announced_at: float | None = None
    diagnosed_at: float | None = None
    ended_at: float | None = None
    classes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    load_correlated: bool | None = None
    cause: str = ""
    confidence: float = 0.0
    runner_up: str = ""
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)
    updated_at: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The exchange form: times as ISO 8601 in UTC, null where unknown."""
        row = asdict(self)
        for key in ("started_at", "detected_at", "announced_at", "diagnosed_at", "ended_at", "updated_at"):
            row[key] = iso(row[key])
        for item in row["evidence"]:
            item["at"] = iso(item["at"])
        return row


def iso(t: float | None) -> str | None:
    """Unix seconds as ISO 8601 with ``Z``, whole seconds where they are whole."""
    if t is None:
        return None
    text = datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds" if t % 1 else "seconds")
    return text.replace("+00:00", "Z")
