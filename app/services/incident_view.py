"""One incident as a person needs it at three in the morning. Sentence, charts, heat and counts come from this one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.services.actions import Action, action_for
from app.services.harm import ClassHarm
from app.services.heat import HeatMap
from app.services.measures import MEASURES, Measure
from app.services.quality import QualityHarm
from app.services.replicas import Curve
from app.services.story import ChainLink, chain
from app.services.wording import capital, clock, count, listing, span, uncapital
from core.incidents import Incident, State
from core.kinds import KINDS
from core.records import Event

DEVIANT = 0.5
"""A replica is drawn into 'n of m replicas' when its score against its own normal is at least this."""


@dataclass(frozen=True, slots=True)
class Direction:
    """``word``: getting worse, steady, recovering, over. ``detail`` says by which number."""

    word: str
    detail: str = ""

    def text(self) -> str:
        """``getting worse: 3 of 5 replicas, was 1 at 15:44``."""
        return f"{self.word}: {self.detail}" if self.detail else self.word


@dataclass(frozen=True, slots=True)
class TrafficChange:
    """Requests per minute of a class: the hour before the onset, and the ten minutes up to now.

    ``what`` says what was counted: attempts at the gateway, or (where there is no log) first tokens in the incident's pools,
    which an overloaded engine gives late.
    """

    class_: str
    before: float
    now: float
    what: str

    def text(self) -> str:
        """``coding-agent: 31 → 52 requests a minute (+68 %)``."""
        share = round((self.now / self.before - 1) * 100) if self.before > 0 else None
        change = (
            "" if share is None else (f" ({share:+d}\u00a0%)".replace("-", "−") if share else " (unchanged)")
        )
        return f"{self.class_}: {count(self.before)} → {count(self.now)} {self.what} a minute{change}"


@dataclass(frozen=True, slots=True)
class EvidenceChart:
    """One measure: affected replicas against the control group. ``flat``: zero everywhere, nothing to draw."""

    measure: Measure
    affected: tuple[Curve, ...]
    control: tuple[Curve, ...]

    @property
    def flat(self) -> bool:
        return all(bool(np.all(np.nan_to_num(c.value) == 0)) for c in (*self.affected, *self.control))


@dataclass(frozen=True, slots=True)
class IncidentView:
    """Everything the Incident page shows, and the line of the Now page."""

    incident: Incident
    as_of: float
    sentence: str
    summary: str
    open_for: float
    direction: Direction
    affected: tuple[str, ...]
    control: tuple[str, ...]
    harm: tuple[ClassHarm, ...]
    changes: tuple[Event, ...]
    action: Action | None
    chain: tuple[ChainLink, ...]
    charts: tuple[EvidenceChart, ...]
    start: float
    end: float
    quality: QualityHarm | None = None
    traffic: tuple[TrafficChange, ...] = ()
    tenants: tuple[tuple[str, float], ...] = ()
    """(tenant, share of the late requests), largest first; empty where tenants are not known."""

    @property
    def kind_title(self) -> str:
        """The kind in words."""
        return kind_title(self.incident.kind)

    @property
    def missed(self) -> bool:
        """An objective of latency is missed as of now, and that is what the incident is about."""
        return self.quality is None and any(h.missed for h in self.harm)


def kind_title(kind: str) -> str:
    """The title of a kind; its id in words where the registry does not know it."""
    known = KINDS.get(kind)
    return known.title if known else kind.replace("_", " ").capitalize()


def as_seen(incident: Incident, as_of: float) -> Incident | None:
    """The incident as a person saw it at ``as_of``: nothing that was found later. None where nobody had been told yet."""
    announced, detected, diagnosed, ended = (
        t if t is not None and t <= as_of else None
        for t in (incident.announced_at, incident.detected_at, incident.diagnosed_at, incident.ended_at)
    )
    if announced is None and detected is None:
        return None
    # A warning has the severity of a ticket and so is detected as it is announced: what it still is, it also was.
    warned = incident.state == "announced" and announced is not None
    state: State = (
        "resolved" if ended is not None else "open" if detected is not None and not warned else "announced"
    )
    return replace(
        incident,
        state=state,
        announced_at=announced,
        detected_at=detected,
        diagnosed_at=diagnosed,
        ended_at=ended,
        evidence=tuple(e for e in incident.evidence if e.at is None or e.at <= as_of),
    )


def scope_text(incident: Incident) -> str:
    """Where, for the sentence: one replica by name, else pools, else classes."""
    if len(incident.replicas) == 1:
        return incident.replicas[0]
    return listing(incident.pools or incident.replicas or incident.classes, 2) or "the fleet"


def sentence(incident: Incident, harm: Sequence[ClassHarm], quality: QualityHarm | None = None) -> str:
    """What, where, who is hurt, objective."""
    head = f"{kind_title(incident.kind)} on {scope_text(incident)}"
    if incident.state == "announced":
        head = f"{head} announced"
    if quality is not None:
        return f"{head}: {quality.clause()}"
    if incident.state == "resolved":
        peaks = [h for h in harm if h.peak is not None]
        return f"{head}: {max(peaks, key=lambda h: h.late or 0).peak_clause()}" if peaks else head
    worst = next((h for h in harm if h.missed), harm[0] if harm else None)
    return f"{head}: {worst.clause()}" if worst is not None else head


def deviants(heat: HeatMap | None, affected: Sequence[str], at: float) -> int | None:
    """How many of the affected replicas are off their own normal at a time; None where that cannot be told."""
    if heat is None or not len(heat.t):
        return None
    i = int(np.searchsorted(heat.t, at + 1e-6, side="right")) - 1
    if i < 0:
        return None
    scores = [r.score[max(0, i - 2) : i + 1] for r in heat.rows if r.replica in affected]
    if not scores:
        return None
    return int(sum(bool(np.any(np.nan_to_num(s) >= DEVIANT)) for s in scores))


def direction(
    incident: Incident, as_of: float, heat: HeatMap | None, harm: Sequence[ClassHarm], pool_size: int
) -> Direction:
    """Worse, steady or recovering: first by the number of replicas that are off, then by the share of late requests."""
    if incident.ended_at is not None:
        return Direction("over", f"since {clock(incident.ended_at, relative_to=as_of)}")
    onset = incident.detected_at or incident.announced_at or incident.started_at
    now, then = deviants(heat, incident.replicas, as_of), deviants(heat, incident.replicas, onset)
    if now is not None and then is not None and now != then and as_of - onset > 120:
        of = f"{now} of {max(pool_size, now)} replicas, was {then} at {clock(onset, relative_to=as_of)}"
        return Direction("getting worse" if now > then else "recovering", of)
    moves = [h.trend for h in harm if h.trend]
    if moves:
        worst = max(moves, key=lambda t: abs(t[1]))
        return Direction(*worst_words(worst[0], worst[1], worst[2]))
    return Direction("steady", f"for {span(as_of - onset)}" if as_of > onset else "")


def worst_words(before: float, change: float, now: float) -> tuple[str, str]:
    """Words for a change of the share of late requests."""
    detail = f"late requests {before * 100:.0f} → {now * 100:.0f} %"
    if change > 0:
        return ("getting worse", detail)
    if change < 0:
        return ("recovering", detail)
    return ("steady", "")


def charts(incident: Incident, curves: Mapping[Measure, list[Curve]]) -> tuple[EvidenceChart, ...]:
    """Affected against control, for each measure that the replicas export."""
    out: list[EvidenceChart] = []
    for measure, rows in curves.items():
        mine = tuple(c for c in rows if c.replica in incident.replicas)
        rest = tuple(c for c in rows if c.replica not in incident.replicas)
        if any(np.isfinite(c.value).any() for c in (*mine, *rest)):
            out.append(EvidenceChart(measure, mine, rest))
    return tuple(out)


def build(
    incident: Incident,
    as_of: float,
    *,
    harm: Sequence[ClassHarm],
    heat: HeatMap | None,
    curves: dict[str, list[Curve]],
    events: Sequence[Event],
    pool_replicas: Sequence[str],
    start: float,
    end: float,
    tenants: Sequence[tuple[str, float]] = (),
    traffic: Sequence[TrafficChange] = (),
    quality: QualityHarm | None = None,
    more_charts: Mapping[Measure, list[Curve]] | None = None,
) -> IncidentView:
    """The view of an incident (already :func:`as_seen`) from its parts."""
    affected = incident.replicas
    control = tuple(r for r in pool_replicas if r not in affected)
    ranked = tuple(sorted(harm, key=lambda h: (-h.missed, -(h.late or 0.0))))
    onset = incident.detected_at or incident.announced_at or incident.started_at
    return IncidentView(
        incident=incident,
        as_of=as_of,
        sentence=sentence(incident, ranked, quality),
        summary=summary(incident, ranked, as_of, quality),
        open_for=max(0.0, (incident.ended_at or as_of) - onset),
        direction=direction(incident, as_of, heat, ranked, len(set(pool_replicas) | set(affected))),
        affected=affected,
        control=control,
        harm=ranked,
        changes=tuple(events),
        action=action_for(incident.kind),
        chain=chain(incident, () if quality is not None else ranked, events, as_of),
        charts=charts(incident, {**(more_charts or {}), **{MEASURES[m]: c for m, c in curves.items()}}),
        start=start,
        end=end,
        tenants=tuple(tenants),
        traffic=tuple(traffic),
        quality=quality,
    )


def summary(
    incident: Incident, harm: Sequence[ClassHarm], as_of: float, quality: QualityHarm | None = None
) -> str:
    """The line below the sentence: how many requests, since when, why, what was ruled out."""
    parts: list[str] = []
    late = [] if quality is not None else [h for h in harm if h.late is not None and h.late > 0]
    if late:
        so_far = "" if incident.state == "resolved" else " so far"
        parts.append(" and ".join(f"{h.late:,.0f} {h.class_} requests late" for h in late[:2]) + so_far + ".")
    if quality is not None and quality.now.n:
        parts.append(f"{quality.now.k:,} broken of {quality.now.n:,} sampled since.")
    if incident.cause:
        parts.append(capital(incident.cause).rstrip(".") + ".")
    times = []
    if incident.announced_at is not None:
        times.append(f"announced {clock(incident.announced_at, relative_to=as_of)}")
    since = [] if quality is not None else [h.missed_since for h in harm if h.missed_since is not None]
    if since:
        times.append(f"objective missed from {clock(min(since), relative_to=as_of)}")
    if times:
        text = ", ".join(times)
        parts.append(text[0].upper() + text[1:] + ".")
    excluded = [uncapital(kind_title(r.kind)) for r in incident.ruled_out if r.excluded]
    if excluded:
        parts.append(f"Ruled out: {listing(excluded, 4)}.")
    return " ".join(parts)
