"""What every finding gets besides its detector's own words: what changed before it, whom it has hurt since it began, and how much
of the past its normal rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.incidents import Finding
from core.records import Event
from detectors.late import harm
from detectors.victims import Units, sessions_hurt, severity, units_of
from detectors.window import Window

BEFORE_S = 1800.0
AFTER_S = 60.0
MOST = 8


def changes_before(window: Window, f: Finding, onset: float) -> list[Event]:
    """Events (restarts, deploys, scaling, flags, notes) on the finding's pool and replicas in the half hour before its onset."""
    pools, replicas = set(f.scope.pools), set(f.scope.replicas)
    found = [
        e
        for e in window.events
        if onset - BEFORE_S <= e.ts <= min(onset + AFTER_S, window.end)
        and (not e.pool or e.pool in pools)
        and (not e.replica or e.replica in replicas)
    ]
    return sorted(found, key=lambda e: (e.ts, e.kind, e.replica))[-MOST:]


def enrich(window: Window, f: Finding, onset: float) -> Finding:
    """The finding with its lasting onset, the events before it in chain and detail, and the harm since then."""
    detail: dict[str, Any] = dict(f.detail)
    events = changes_before(window, f, onset)
    detail["changed"] = [
        {"at": e.ts, "kind": e.kind, "text": e.text, "pool": e.pool, "replica": e.replica} for e in events
    ]
    links = [{"at": e.ts, "what": _what(e), "value": e.text or e.replica or e.pool} for e in events]
    detail["chain"] = sorted([*links, *detail.get("chain", [])], key=lambda link: float(link["at"]))
    units = units_of(window, f)
    if _counts_late(detail.get("harm", {})) and f.scope.replicas and len(units):
        detail["harm"] = dict(harm(window, units, onset))
    detail["harm"] = {**detail.get("harm", {}), **sessions_hurt(window, f, onset)}
    detail["learnt_s"] = learnt(window, units, onset)
    urgency = severity(window, f, units, detail["harm"])
    return replace(f, onset=onset, at=min(f.at, window.end), severity=urgency, detail=detail)


def learnt(window: Window, units: Units, onset: float) -> float:
    """Seconds of usable history of some replicas before the onset, as the mean over them; 0 without any."""
    upto = max(0, window.usable.shape[1] - int((window.end - onset) // window.step))
    return round(float(window.usable[units, :upto].sum(axis=1).mean()) * window.step) if len(units) else 0.0


def _what(e: Event) -> str:
    who = e.replica or e.pool
    return f"{e.kind} of {who}" if who else e.kind


def _counts_late(known: Mapping[str, Any]) -> bool:
    return "requests_late" in known
