"""From findings to incidents: the state machine, folding of symptoms into causes, and one incident for many replicas.

``announced -> open -> resolved``; a finding must hold for some ticks before anybody hears of it, an incident ends at its *last
evidence* once it has been quiet for a while, and one that comes back soon is the same incident. :func:`step` is a pure function
of (state, findings, now): live detection and a back-test run the same one.

Folding, for findings that share a pool and a replica with a living incident of their group:

==============================  ==================================================================================
same kind                       joins; its replicas are added
stronger kind (lower number)    the incident takes that kind once it has lasted a quarter as long: ``diagnosed_at``
                                moves, ``detected_at`` stays
weaker kind, or a symptom       becomes a symptom of the incident (``detail["symptoms"]``), opens nothing
==============================  ==================================================================================

Quality does not fold into latency, data faults and information absorb nothing: they are groups of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from core.incidents import Evidence, Finding, Incident, RuledOut
from core.kinds import KINDS

RANK = {"info": 0, "ticket": 1, "page": 2}
TICK = 15.0
TAKEOVER = 0.25
"""Share of the ticks of the present diagnosis that a stronger one must have been seen for before it takes over."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Hysteresis of one kind. Seconds: a finding must have held ``confirm`` (``confirm_warning`` for an early warning) before
    anybody hears of it, the incident is over after ``quiet`` without one, and the same again within ``reopen`` is a relapse."""

    confirm: float = 15.0
    confirm_warning: float = 30.0
    quiet: float = 300.0
    reopen: float = 900.0


POLICIES = {
    "degraded_generations": Policy(confirm=0.0, quiet=1800.0, reopen=3600.0),
    "spec_decode_collapse": Policy(confirm=60.0, quiet=900.0, reopen=1800.0),
    "kv_leak": Policy(confirm=60.0, quiet=600.0),
    "offload_thrash": Policy(confirm=30.0, quiet=600.0),
    "lora_thrash": Policy(confirm=30.0, quiet=600.0),
    "kv_transfer_slow": Policy(confirm=30.0),
    "prefill_decode_imbalance": Policy(confirm=45.0),
    "telemetry_fault": Policy(confirm=30.0, quiet=180.0),
    "tail_latency_spike": Policy(confirm=30.0, quiet=300.0),
    "slow_replica": Policy(confirm=30.0, quiet=300.0),
    "stuck_requests": Policy(confirm=30.0),
    "wedged": Policy(confirm=0.0, quiet=120.0),
    "traffic_shift": Policy(confirm=60.0, quiet=600.0),
    "slo_burn": Policy(confirm=30.0, quiet=600.0),
    "warm_up": Policy(confirm=0.0, quiet=60.0, reopen=60.0),
}
_DEFAULT = Policy()
POOL_WIDE = frozenset({"capacity_lost", "gateway_fault", "retry_storm"})
"""Causes whose effects reach replicas that they do not name: the rest carries what was lost or is asked at the pool's door."""


def policy(kind: str) -> Policy:
    """The hysteresis of a kind."""
    return POLICIES.get(kind, _DEFAULT)


@dataclass
class Tracked:
    """An incident with what the state machine remembers about it.

    ``seen`` maps each kind to (ticks, last evidence); ``bitten`` lists the kinds that were more than a warning.
    """

    incident: Incident
    group: str
    best: float = 0.0
    seen: dict[str, list[float]] = field(default_factory=dict)
    replica_ticks: dict[str, int] = field(default_factory=dict)
    bitten: list[str] = field(default_factory=list)


@dataclass
class Pending:
    """A finding that has not held long enough yet: when it was first and last seen in a row."""

    first: float
    last: float


@dataclass
class Tracker:
    """The memory of the state machine; :meth:`to_json` and :meth:`from_json` are inverse."""

    tracked: dict[str, Tracked] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only."""
        return {
            "tracked": {k: asdict(v) for k, v in self.tracked.items()},
            "pending": {k: [p.first, p.last] for k, p in self.pending.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tracker:
        """The inverse of :meth:`to_json`."""
        tracked = {}
        for key, row in data.get("tracked", {}).items():
            row = dict(row)
            row["incident"] = _incident(row["incident"])
            tracked[key] = Tracked(**row)
        return cls(tracked, {k: Pending(a, b) for k, (a, b) in data.get("pending", {}).items()})


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to an incident at a tick: ``announced``, ``opened``, ``diagnosed``, ``updated``,
    ``reopened``, ``resolved``."""

    action: str
    incident: Incident
    text: str = ""


def group_of(kind: str) -> str:
    """Incidents fold only within a group: ``service``, ``quality``, or a kind of its own (data faults, information)."""
    k = KINDS[kind]
    if k.quality:
        return "quality"
    if k.severity == "info":
        return kind
    return "service"


def step(tracker: Tracker, findings: Iterable[Finding], now: float) -> tuple[Tracker, list[Change]]:
    """The next state and what changed, from all findings of one tick. The given state is not altered."""
    t = deepcopy(tracker)
    changes: list[Change] = []
    touched: set[str] = set()
    order = sorted(findings, key=lambda f: (f.announced, KINDS[f.kind].precedence, f.scope.pools, f.kind))
    for f in order:
        if not _held(t, f, now):
            continue
        home = _home(t, f, now)
        if home is None:
            if KINDS[f.kind].symptom and _near(t, f, now):
                continue
            changes.append(_open(t, f, now, touched))
        else:
            touched.add(home.incident.id)
            changes.extend(_join(home, f, now))
    for tr in t.tracked.values():
        changes.extend(_close(tr, now, tr.incident.id in touched))
    t.pending = {k: p for k, p in t.pending.items() if now - p.last <= 4 * TICK}
    t.tracked = {
        k: v
        for k, v in t.tracked.items()
        if v.incident.state != "resolved" or now - (v.incident.ended_at or now) < 7200
    }
    return t, [Change(c.action, deepcopy(c.incident), c.text) for c in changes]


def _held(t: Tracker, f: Finding, now: float) -> bool:
    """Whether a finding has been there long enough, without a hole of more than two ticks."""
    key = f"{f.kind}|{'early' if f.announced else 'now'}|{','.join(f.scope.pools)}"
    p = t.pending.get(key)
    if p is None or now - p.last > 2.5 * TICK:
        p = t.pending[key] = Pending(now, now)
    p.last = now
    need = policy(f.kind).confirm_warning if f.announced else policy(f.kind).confirm
    return now - p.first >= need - 1e-9


def _overlap(i: Incident, f: Finding) -> bool:
    if not set(i.pools) & set(f.scope.pools):
        return False
    if min(i.kind, f.kind, key=lambda k: KINDS[k].precedence) in POOL_WIDE:
        return True
    return not i.replicas or not f.scope.replicas or bool(set(i.replicas) & set(f.scope.replicas))


def _alive(tr: Tracked, now: float) -> bool:
    i = tr.incident
    return i.state != "resolved" or now - (i.ended_at or now) <= policy(i.kind).reopen


def _home(t: Tracker, f: Finding, now: float) -> Tracked | None:
    """The incident that a finding belongs to: same kind in the same pool first, else the strongest that shares a replica."""
    group = group_of(f.kind)
    near = [
        tr
        for tr in t.tracked.values()
        if tr.group == group and _alive(tr, now) and set(tr.incident.pools) & set(f.scope.pools)
    ]
    same = [tr for tr in near if f.kind in (tr.incident.kind, *tr.seen)]
    if KINDS[f.kind].quality or group not in ("service", "quality"):
        near = same
    else:
        near = same or [tr for tr in near if _overlap(tr.incident, f)]
    if not near:
        return None
    return min(
        near,
        key=lambda tr: (
            tr.incident.state == "resolved",
            tr.incident.kind != f.kind,
            KINDS[tr.incident.kind].precedence,
            tr.incident.started_at,
        ),
    )


def _near(t: Tracker, f: Finding, now: float) -> bool:
    """A symptom opens nothing beside a living incident of its pool, even on other replicas."""
    return any(
        tr.group == group_of(f.kind)
        and tr.incident.state != "resolved"
        and bool(set(tr.incident.pools) & set(f.scope.pools))
        for tr in t.tracked.values()
    )


def _open(t: Tracker, f: Finding, now: float, touched: set[str]) -> Change:
    text = f"{group_of(f.kind)}|{f.kind}|{','.join(f.scope.pools)}|{','.join(f.scope.replicas)}|{now:.0f}"
    ident = blake2b(text.encode(), digest_size=6).hexdigest()
    i = Incident(
        id=ident,
        kind=f.kind,
        severity=f.severity,
        state="announced" if f.announced else "open",
        title=f.title,
        started_at=f.onset,
        diagnosed_at=now,
        pools=f.scope.pools,
    )
    tr = t.tracked[ident] = Tracked(i, group_of(f.kind))
    touched.add(ident)
    _take(tr, f, now)
    return Change("announced" if f.announced else "opened", i, f.title)


def _join(tr: Tracked, f: Finding, now: float) -> list[Change]:
    """Let a finding act on its incident."""
    i, out = tr.incident, []
    if i.state == "resolved":
        i.state, i.ended_at = "announced" if f.announced else "open", None
        out.append(Change("reopened", i, f.title))
    if f.kind != i.kind and _takes_over(tr, f):
        before, i.kind, i.diagnosed_at, tr.best = i.kind, f.kind, now, -1.0
        out.append(Change("diagnosed", i, f"{KINDS[before].title} is now seen as {KINDS[f.kind].title}"))
    if i.state == "announced" and not f.announced:
        i.state = "open"
        out.append(Change("opened", i, f.title))
    _take(tr, f, now)
    return out


def _takes_over(tr: Tracked, f: Finding) -> bool:
    """Whether a finding of another kind renames the incident: a stronger cause, or the only one that is left standing."""
    mine, theirs = KINDS[tr.incident.kind], KINDS[f.kind]
    if theirs.symptom:
        return False
    if theirs.precedence < mine.precedence:
        if f.announced and tr.incident.state != "announced":
            # An early warning of a stronger cause does not rename what is already biting.
            return False
        # A diagnosis that has stood for long is not overturned by a flicker in its wake.
        stood = 0.0 if mine.symptom else tr.seen.get(mine.id, [0.0])[0]
        return tr.seen.get(f.kind, [0.0])[0] + 1 >= min(TAKEOVER * stood, 40.0)
    if f.announced:
        return False
    ticks, last = tr.seen.get(mine.id, [0.0, 0.0])
    silent = f.at - last
    only_warned = mine.id not in tr.bitten
    return silent > (60.0 if only_warned else 300.0) and tr.seen.get(f.kind, [0.0])[0] > 2 * ticks


def _take(tr: Tracked, f: Finding, now: float) -> None:
    """Copy what a finding says into its incident."""
    i = tr.incident
    i.updated_at = now
    ticks, _ = tr.seen.get(f.kind, [0.0, 0.0])
    tr.seen[f.kind] = [ticks + 1, f.at]
    if not f.announced and f.kind not in tr.bitten:
        tr.bitten.append(f.kind)
    if RANK[f.severity] > RANK[i.severity]:
        i.severity = f.severity
    if f.announced and i.announced_at is None:
        i.announced_at = now
    if RANK[f.severity] >= 1 and i.detected_at is None:
        i.detected_at = now
    if f.kind != i.kind:
        symptoms = i.detail.setdefault("symptoms", {})
        symptoms[f.kind] = f.title
        return
    i.started_at = min(i.started_at, f.onset)
    i.classes = tuple(sorted({*i.classes, *f.scope.classes}))
    i.pools = tuple(sorted({*i.pools, *f.scope.pools}))
    i.ranks = tuple(sorted({*i.ranks, *f.scope.ranks}))
    if KINDS[f.kind].quality:
        # The quality detector looks at the whole episode at each tick: its latest answer replaces earlier ones.
        i.replicas = f.scope.replicas
        i.load_correlated = f.load_correlated
    else:
        for r in f.scope.replicas:
            tr.replica_ticks[r] = tr.replica_ticks.get(r, 0) + 1
        most = max(tr.replica_ticks.values(), default=0)
        i.replicas = tuple(sorted(r for r, n in tr.replica_ticks.items() if n >= min(3, most)))
        if f.load_correlated is not None:
            i.load_correlated = f.load_correlated
    if f.strength >= tr.best or KINDS[f.kind].quality:
        tr.best = f.strength
        i.title, i.cause, i.runner_up = f.title, f.cause, f.runner_up
        i.confidence = max(f.confidence, i.confidence if not i.evidence else 0.0)
        i.evidence, i.ruled_out = f.evidence, f.ruled_out
        keep = {k: v for k, v in i.detail.items() if k == "symptoms"}
        i.detail = {**deepcopy(dict(f.detail)), **keep}
    elif "harm" in f.detail:
        i.detail["harm"] = deepcopy(f.detail["harm"])


def _close(tr: Tracked, now: float, touched: bool) -> list[Change]:
    i = tr.incident
    if touched or i.state == "resolved":
        return []
    last = max((v[1] for v in tr.seen.values()), default=i.started_at)
    if now - last < policy(i.kind).quiet:
        return []
    warned_only = i.state == "announced"
    i.state, i.ended_at, i.updated_at = "resolved", last, now
    return [
        Change("resolved", i, "the warning faded: nothing bit" if warned_only else "no evidence any more")
    ]


def _incident(row: dict[str, Any]) -> Incident:
    row = dict(row)
    for key in ("classes", "pools", "replicas", "ranks"):
        row[key] = tuple(row[key])
    row["evidence"] = tuple(Evidence(**e) for e in row["evidence"])
    row["ruled_out"] = tuple(RuledOut(**e) for e in row["ruled_out"])
    return Incident(**row)
