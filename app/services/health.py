"""What was found and what is missing: targets, signals with the flag that exports them, problems of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.services import fleet
from app.services.view import View
from collectors.dictionary import Dictionary, load_dictionary
from core.records import Problem
from core.signals import SIGNALS
from sql.store import Store

LATENCIES = (
    "ttft_seconds",
    "inter_token_latency_seconds",
    "request_latency_seconds",
    "queue_time_seconds",
)
SATURATED_SHARE = 0.001
LOOK = 120.0
"""Signals of a target are those of its frames in the last two minutes before ``as_of``, else of its last frames."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that a component can export and a target does not: ``flag`` turns it on (empty: none is known)."""

    signal: str
    flag: str


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """One target. ``seen``: it delivered within :data:`LOOK` before ``as_of``; ``up`` None where nothing says so."""

    pool: str
    replica: str
    address: str
    components: tuple[str, ...]
    version: str
    model: str
    source: str
    last_seen: float
    seen: bool
    up: bool | None
    found: tuple[str, ...]
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class SignalHealth:
    """One signal of one component over all its targets: found on ``found`` of ``of``."""

    component: str
    signal: str
    meaning: str
    found: int
    of: int
    flag: str


@dataclass(frozen=True, slots=True)
class ProblemRow:
    """One input problem, counted; ``since`` its first time."""

    problem: Problem
    since: float


@dataclass(frozen=True, slots=True)
class Saturated:
    """A histogram of which a share lies above its last finite edge: percentiles in there are only known to be more than it."""

    signal: str
    class_: str
    pool: str
    edge: float
    share: float
    n: int


@dataclass(frozen=True, slots=True)
class DataHealth:
    """The page."""

    coverage: fleet.Coverage
    targets: tuple[TargetHealth, ...]
    signals: tuple[SignalHealth, ...]
    problems: tuple[ProblemRow, ...]
    saturated: tuple[Saturated, ...]


def data_health(store: Store, view: View) -> DataHealth:
    """Everything on the page, as of the view's time."""
    rows = fleet.known_at(list(store.targets()), view)
    found = signals_found(store, rows, view)
    dictionary = load_dictionary()
    targets = tuple(target_health(r, found.get(r.id, frozenset()), dictionary, view) for r in rows)
    problems = [ProblemRow(p, since) for p, since in store.problem_history() if since <= view.as_of]
    return DataHealth(
        fleet.coverage(store, view),
        targets,
        signal_table(targets, dictionary),
        tuple(problems),
        saturated(store, view),
    )


def saturated(store: Store, view: View) -> tuple[Saturated, ...]:
    """Latency histograms with more than one in a thousand observations of the last hour above the last edge, worst first."""
    end = float(int(view.as_of // 60) * 60)
    out: list[Saturated] = []
    for signal in LATENCIES:
        for (class_, pool, _, model, edges), (_, counts, _) in store.rollup_matrix(
            signal, end - 3600, end, step=60
        ).items():
            if not edges or not view.has(class_=class_, pool=pool, model=model):
                continue
            total = counts.clip(min=0).sum(axis=0)
            n, above = int(total.sum()), int(total[-1])
            if n and above / n > SATURATED_SHARE:
                out.append(Saturated(signal, class_, pool, edges[-1], above / n, n))
    return tuple(sorted(out, key=lambda s: -s.share))


def signals_found(store: Store, rows: Sequence[Any], view: View) -> dict[int, frozenset[str]]:
    """Canonical signals per target id."""
    out: dict[int, set[str]] = {}
    layouts: dict[str, frozenset[str]] = {}
    for frame in store.frames(view.as_of - LOOK, view.as_of + 1e-3, target_ids=[r.id for r in rows]):
        key = frame.layout.id
        if key not in layouts:
            layouts[key] = frozenset(base(c.signal) for c in frame.layout.columns)
        out.setdefault(frame.target_id, set()).update(layouts[key])
    return {k: frozenset(v) for k, v in out.items()}


def base(signal: str) -> str:
    """The canonical signal of a stored form (``ttft_seconds_mean`` → ``ttft_seconds``)."""
    known = SIGNALS.get(signal)
    return known.base if known is not None else signal


def exportable(dictionary: Dictionary, components: Sequence[str]) -> Mapping[str, str]:
    """Every signal that one of the components can export → the flag that turns it on."""
    out: dict[str, str] = {}
    for name in components:
        if name not in dictionary.components:
            continue
        for entry in dictionary.entries(name):
            if entry.source.trust == "never":
                continue
            if not out.get(entry.signal):
                out[entry.signal] = entry.source.flag
    return out


def target_health(row: Any, found: frozenset[str], dictionary: Dictionary, view: View) -> TargetHealth:
    """One target's line."""
    t = row.target
    can = exportable(dictionary, t.components)
    missing = tuple(Missing(s, flag) for s, flag in sorted(can.items()) if s not in found)
    seen = bool(found)
    current = row.last_seen <= view.as_of + LOOK
    return TargetHealth(
        pool=t.pool,
        replica=t.replica or t.address,
        address=t.address,
        components=t.components,
        version=t.version,
        model=t.model,
        source=t.source,
        last_seen=min(row.last_seen, view.as_of),
        seen=seen,
        up=True if seen else (row.up if current else None),
        found=tuple(sorted(found)),
        missing=missing if found else (),
    )


def signal_table(targets: Sequence[TargetHealth], dictionary: Dictionary) -> tuple[SignalHealth, ...]:
    """Signals by component, the missing ones first."""
    groups: dict[str, list[TargetHealth]] = {}
    for t in targets:
        if t.components and t.found:
            groups.setdefault(t.components[0], []).append(t)
    out: list[SignalHealth] = []
    for component, members in sorted(groups.items()):
        can = dict(exportable(dictionary, members[0].components))
        for s in {s for m in members for s in m.found}:
            can.setdefault(s, "")
        for signal in sorted(can):
            found = sum(signal in m.found for m in members)
            meaning = SIGNALS[signal].meaning if signal in SIGNALS else ""
            out.append(SignalHealth(component, signal, meaning, found, len(members), can[signal]))
    return tuple(sorted(out, key=lambda s: (s.component, s.found == s.of, s.signal)))
