"""The chain of an incident in order of time, and what its detector says to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.services.harm import ClassHarm
from app.services.wording import quantity
from core.incidents import Evidence, Incident
from core.records import Event


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One step of the cause chain."""

    at: float | None
    what: str
    detail: str


def evidence_text(e: Evidence) -> str:
    """``96 → 0 %`` in the unit of the signal."""
    before = quantity(e.before, e.unit) if e.before is not None else None
    now = quantity(e.now, e.unit) if e.now is not None else None
    if before is not None and now is not None:
        return f"{before} → {now}"
    if now is not None:
        return now + (f" (expected {quantity(e.expected, e.unit)})" if e.expected is not None else "")
    return e.note


def signal_title(signal: str) -> str:
    """A signal id in words."""
    words = signal.removesuffix("_total").removesuffix("_seconds").replace("_", " ")
    return words.replace("ttft", "TTFT").replace("kv ", "KV ").replace("itl", "ITL")


def chain(
    incident: Incident, harm: Sequence[ClassHarm], events: Sequence[Event], as_of: float
) -> tuple[ChainLink, ...]:
    """The story in order of time: changes, evidence, the warning, the objective; at most eight steps."""
    told = told_chain(incident, as_of)
    links: list[ChainLink] = list(told)
    links += [
        ChainLink(e.ts, e.kind, e.text or e.replica or e.pool)
        for e in events[-2:]
        if e.ts <= as_of and not told
    ]
    for e in () if told else incident.evidence:
        detail = evidence_text(e)
        links.append(ChainLink(e.at, signal_title(e.signal), f"{detail} · {e.scope}" if e.scope else detail))
    links += [
        ChainLink(h.missed_since, f"{h.class_} misses its objective", f"now {h.now_text()}")
        for h in harm
        if h.missed_since is not None
    ]
    timed = sorted((x for x in links if x.at is not None), key=lambda x: x.at or 0.0)
    untimed = [x for x in links if x.at is None]
    return tuple((timed + untimed)[:8])


def told_chain(incident: Incident, as_of: float) -> list[ChainLink]:
    """The steps that the detector itself recorded: ``detail["chain"] = [{at, what, value}]``."""
    steps = incident.detail.get("chain")
    out: list[ChainLink] = []
    for step in steps if isinstance(steps, list) else ():
        at = step.get("at") if isinstance(step, dict) else None
        if isinstance(at, (int, float)) and at <= as_of:
            out.append(ChainLink(float(at), str(step.get("what", "")), str(step.get("value", ""))))
    return out


def told_actions(incident: Incident, when: str) -> tuple[str, ...]:
    """What the detector advises: ``detail["actions"] = {"now": [...], "tomorrow": [...]}``."""
    actions = incident.detail.get("actions")
    steps = actions.get(when) if isinstance(actions, dict) else None
    return tuple(str(s) for s in steps) if isinstance(steps, list) else ()
