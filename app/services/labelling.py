"""What people say that an incident was, and how a back-test agrees with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.services.lifecycle import Acted, checked, perform
from app.services.people import Principal
from app.services.rates import exact_interval
from core.errors import ConfigError, InputError
from core.incidents import Incident, iso
from core.kinds import kind as known_kind
from core.lifecycle import FALSE_LABELS, LABELS, Act, Handling
from sql.store import Store

NEAR = 300.0
"""Two incidents are the same if they share a pool and come within so many seconds of each other."""


def label(
    store: Store,
    incident_id: str,
    by: Principal,
    *,
    label: str,
    kind: str = "",
    reason: str = "",
    at: float | None = None,
) -> Acted:
    """Say what it was: one of ``core.lifecycle.LABELS``, with ``cause_wrong`` the kind that it really was if that is known; ""
    takes the word back. The last word counts."""
    word = label.strip().lower().replace("-", "_").replace(" ", "_")
    words = checked(reason, "reason")
    if word and word not in LABELS:
        raise InputError(label, "is no label", f"use one of {', '.join(LABELS)}")
    if kind and word != "cause_wrong":
        raise InputError("kind", "goes with cause_wrong only", "leave it out")
    if kind:
        try:
            known_kind(kind)
        except ConfigError as error:
            raise InputError(kind, error.problem, error.fix) from None

    def decide(i: Incident, h: Handling) -> Act | None:
        if word == h.label and kind == h.true_kind and not words:
            return None
        if not word:
            return Act("unlabelled", words)
        return Act(word, words, {"kind": kind} if kind else {})

    return perform(store, incident_id, by, at, decide)


@dataclass(frozen=True, slots=True)
class Checked:
    """One labelled incident and what the back-test made of it: ``found`` is the incident that it raised there, None if none.

    ``agrees`` is None where the label does not say (the cause was wrong and nobody said which was right).
    """

    incident: Incident
    label: str
    true_kind: str
    found: Incident | None
    agrees: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """A back-test against the labels that people gave. ``precision``: of the labelled incidents that it raised (again), the
    share that people call real, with exact 95 % interval; ``right_kind``: of those with a known cause, those rightly named."""

    checked: tuple[Checked, ...]

    @property
    def raised(self) -> tuple[int, int]:
        """(real, raised) among the labelled incidents that the back-test raised."""
        mine = [c for c in self.checked if c.found is not None]
        return sum(c.label not in FALSE_LABELS for c in mine), len(mine)

    @property
    def missed(self) -> int:
        """Labelled real incidents that the back-test did not raise."""
        return sum(c.found is None and c.label not in FALSE_LABELS for c in self.checked)

    @property
    def right_kind(self) -> tuple[int, int]:
        """(right kind, known) among real ones that were raised and whose cause somebody knows."""
        mine = [
            c
            for c in self.checked
            if c.found is not None and c.label not in FALSE_LABELS and c.agrees is not None
        ]
        return sum(bool(c.agrees) for c in mine), len(mine)

    def as_json(self) -> dict[str, Any]:
        """Plain data; a share without anything counted is null."""
        out: dict[str, Any] = {"labelled": len(self.checked), "missed": self.missed}
        for name, (k, n) in (("precision", self.raised), ("kind_right", self.right_kind)):
            low, high = exact_interval(k, n) if n else (None, None)
            out[name] = {"k": k, "n": n, "share": k / n if n else None, "low": low, "high": high}
        out["incidents"] = [
            {
                "id": c.incident.id,
                "started_at": iso(c.incident.started_at),
                "kind": c.incident.kind,
                "label": c.label,
                "true_kind": c.true_kind or None,
                "found": None if c.found is None else {"id": c.found.id, "kind": c.found.kind},
                "agrees": c.agrees,
                "why": c.why,
            }
            for c in self.checked
        ]
        return out


def agreement(store: Store, found: Sequence[Incident], start: float, end: float) -> Agreement:
    """How incidents of a back-test of [start, end) agree with the labels of stored incidents that began in it."""
    stored = [i for i in store.incidents(start, end) if start <= i.started_at < end]
    stands = store.handlings([i.id for i in stored])
    out = []
    for i in stored:
        h = stands.get(i.id)
        if h is not None and h.label:
            out.append(_compared(i, h, _same(i, found)))
    return Agreement(tuple(out))


def _same(i: Incident, found: Sequence[Incident]) -> Incident | None:
    """The incident of the back-test that is the same: by id, else the one that overlaps it longest in one of its pools."""
    best: tuple[tuple[bool, bool, float], Incident] | None = None
    for f in found:
        overlap = min(i.ended_at or float("inf"), f.ended_at or float("inf")) - max(
            i.started_at, f.started_at
        )
        if f.id != i.id and (overlap < -NEAR or (i.pools and f.pools and not set(i.pools) & set(f.pools))):
            continue
        rank = (f.id == i.id, f.kind == i.kind, overlap)
        if best is None or rank > best[0]:
            best = (rank, f)
    return None if best is None else best[1]


def _compared(i: Incident, h: Handling, f: Incident | None) -> Checked:
    agrees: bool | None
    if h.label in FALSE_LABELS:
        agrees, why = (f is None), "not raised any more" if f is None else "raised again"
    elif f is None:
        agrees, why = False, "missed"
    elif h.label == "cause_right":
        agrees, why = f.kind == i.kind, f"seen as {f.kind}"
    elif h.true_kind:
        agrees, why = f.kind == h.true_kind, f"seen as {f.kind}, was {h.true_kind}"
    else:
        agrees = None if f.kind != i.kind else False
        why = f"seen as {f.kind}" + (
            ", the cause called wrong" if f.kind == i.kind else ", nobody said what it was"
        )
    return Checked(i, h.label, h.true_kind, f, agrees, why)
