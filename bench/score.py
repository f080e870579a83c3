"""Incidents against the truth of a labelled history: recall, right kinds and places, false alarms, delays.

Rules. Severity ``info`` does not count. An incident belongs to a true one if it names its pool or one of its replicas, was
detected between two minutes before the fault began and ten minutes after fault and impact were over, and did not end
before the fault began. A true incident takes one: of the right kind first (``kind`` or one of ``accept``), then the best
overlap of replicas, then the earliest. Others of the right kind are duplicates; all that is left is a false alarm. Right:
right kind, and replicas with a Jaccard overlap of at least a half. Delay: from the first impact on latency (from the
fault's start where texts or drafts are the matter) to detection; negative means announced.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from core.times import parse_time

EARLY, LATE, OVERLAP = 120.0, 600.0, 0.5
TEXTUAL = frozenset({"degraded_generations", "spec_decode_collapse"})
Found = Mapping[str, Any]
Truth = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One true incident and what was said of it. ``load``: whether the load verdict was right (None: none is due);
    ``kind_right``: the kind alone; ``confidence``: how sure what was said was, where it says so."""

    scenario: str
    kind: str
    said: str = ""
    right: bool = False
    delay: float | None = None
    overlap: float = 0.0
    load: bool | None = None
    kind_right: bool = False
    confidence: float | None = None


class FalseAlarm(NamedTuple):
    """An incident that nothing true explains."""

    scenario: str
    kind: str
    at: str
    pools: str
    confidence: float | None


@dataclass(slots=True)
class Score:
    """Of one or many histories; ``+=`` adds another."""

    rows: list[Row] = field(default_factory=list)
    false: list[FalseAlarm] = field(default_factory=list)
    duplicates: int = 0
    replica_hours: float = 0.0

    def __iadd__(self, other: Score) -> Score:
        self.rows += other.rows
        self.false += other.false
        self.duplicates += other.duplicates
        self.replica_hours += other.replica_hours
        return self

    def summary(self) -> dict[str, float | None]:
        """Shares and medians; None where there is nothing to take them of."""
        n = len(self.rows)
        right = sum(r.right for r in self.rows)
        delays = [r.delay for r in self.rows if r.right and r.delay is not None]
        loads = [r.load for r in self.rows if r.load is not None]
        return {
            "incidents": n,
            "recall": sum(bool(r.said) for r in self.rows) / n if n else None,
            "right": right / n if n else None,
            "precision": right / (right + len(self.false)) if right + len(self.false) else None,
            "false_alarms": len(self.false),
            "false_alarms_per_replica_week": len(self.false) / self.replica_hours * 168
            if self.replica_hours
            else None,
            "duplicates": self.duplicates,
            "median_delay_s": statistics.median_low(delays) if delays else None,
            "load_verdicts_right": sum(loads) / len(loads) if loads else None,
        }


def _seconds(t: object) -> float | None:
    if t is None or isinstance(t, (int, float)):
        return None if t is None else float(t)
    return parse_time(str(t))


def _names(replicas: object) -> set[str]:
    return {str(n).partition(":")[0] for n in (replicas if isinstance(replicas, (list, tuple)) else ())}


def overlap(found: Found, true: Truth) -> float:
    """Jaccard overlap of replicas."""
    got, want = _names(found.get("replicas")), _names(true["replicas"])
    return len(got & want) / len(got | want) if got | want else 0.0


def _is_right(found: Found, true: Truth) -> bool:
    return found["kind"] == true["kind"] or found["kind"] in true.get("accept", ())


def _belongs(found: Found, true: Truth) -> bool:
    place = true["pool"] in (found.get("pools") or ()) or _names(found.get("replicas")) & _names(
        true["replicas"]
    )
    impact = true.get("ttft_impact") or (0.0, 0.0)
    at = _seconds(found["detected_at"])
    end = _seconds(found.get("ended_at"))
    assert at is not None
    return (
        bool(place)
        and true["start"] - EARLY <= at <= max(true["end"], impact[1]) + LATE
        and (end is None or end >= true["start"])
    )


def score(truth: Truth, incidents: Sequence[Found]) -> Score:
    """Of one history: ``truth`` as in truth.json, ``incidents`` as ``gustfront backtest --json`` prints them."""
    found = sorted(
        (i for i in incidents if i.get("severity") != "info"), key=lambda i: _seconds(i["detected_at"]) or 0.0
    )
    out = Score(replica_hours=(truth["end"] - truth["start"]) / 3600 * truth.get("replicas", 11))
    left = list(range(len(found)))
    for true in sorted(truth["incidents"], key=lambda t: float(t["start"])):
        mine = [k for k in left if _belongs(found[k], true)]
        mine.sort(
            key=lambda k: (
                not _is_right(found[k], true),
                -overlap(found[k], true),
                _seconds(found[k]["detected_at"]) or 0.0,
            )
        )
        if not mine:
            out.rows.append(Row(truth["scenario"], true["kind"]))
            continue
        best = found[mine[0]]
        impact = true.get("ttft_impact")
        bite = impact[0] if impact and true["kind"] not in TEXTUAL else true["start"]
        fits = overlap(best, true)
        load = None
        if true["kind"] == "degraded_generations":
            load = best.get("load_correlated") == true["load_correlated"]
        out.rows.append(
            Row(
                truth["scenario"],
                true["kind"],
                best["kind"],
                _is_right(best, true) and fits >= OVERLAP,
                (_seconds(best["detected_at"]) or 0.0) - bite,
                fits,
                load,
                _is_right(best, true),
                best.get("confidence"),
            )
        )
        twins = [k for k in mine[1:] if _is_right(found[k], true)]
        out.duplicates += len(twins)
        left = [k for k in left if k != mine[0] and k not in twins]
    out.false += [
        FalseAlarm(
            truth["scenario"],
            found[k]["kind"],
            str(found[k]["detected_at"]),
            ", ".join(found[k].get("pools") or ()),
            found[k].get("confidence"),
        )
        for k in left
    ]
    return out
