"""From measures to a finding: what every detector writes down in the same way, written once.

A detector decides *that* some replicas show its kind; a :class:`Case` then holds the means of their measures before and now,
dates the links of the cause chain, and fills scope, onset, harm, control group and evidence of the finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope, Severity
from detectors.chain import Link, follow
from detectors.contract import Json
from detectors.late import harm
from detectors.measures import TTFT
from detectors.normal import Normal
from detectors.tail import Burn, p99_text, pool_burn
from detectors.window import Window
from detectors.wording import rounded

F = NDArray[np.float64]
Units = NDArray[np.intp]
LOOKBACK_S = 3600.0
P99_CELLS = 20
BURN_S = 300.0


@dataclass(frozen=True)
class Row:
    """One line of evidence: the signal that carries it, the measure it is read from, unit and note.

    ``now`` and ``before`` replace the measure where the number is not one of the shared measures.
    """

    signal: str
    measure: str = ""
    unit: str = ""
    note: str = ""
    now: float | None = None
    before: float | None = None
    expected: float | None = None
    scope: str = ""


@dataclass(frozen=True)
class Case:
    """Some replicas (``units``) of a pool at a tick, with their normal and present; ``seen`` are all of the pool with data."""

    window: Window
    pool: str
    units: Units
    seen: Units
    normal: Normal
    present: Mapping[str, F]

    @cached_property
    def before(self) -> Mapping[str, float]:
        """Each measure's normal, as the mean over the replicas; NaN where none is known."""
        return {k: mean(v[self.units]) for k, v in self.normal.centre.items()}

    @cached_property
    def now(self) -> Mapping[str, float]:
        """Each measure now, as the mean over the replicas; NaN where none is known."""
        return {k: mean(v[self.units]) for k, v in self.present.items()}

    @cached_property
    def replicas(self) -> tuple[str, ...]:
        """Their names, sorted."""
        return tuple(sorted(self.window.units[i].replica for i in self.units))

    @cached_property
    def peers(self) -> Units:
        """The other replicas of the pool: the control group."""
        return np.setdiff1d(self.seen, self.units)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Workload classes they serve."""
        return self.window.classes_of(self.units)

    def factor(self, measure: str, least: float = 1e-9) -> float:
        """How many times its normal a measure is now; NaN where either is unknown."""
        return self.now[measure] / max(self.before[measure], least)

    def peer(self, measure: str) -> float:
        """A measure now, as the mean over the control group; NaN without one."""
        return mean(self.present[measure][self.peers])

    def p99(self, signal: str = TTFT) -> str:
        """``chat TTFT p99 4.1 s`` of the first class that has enough requests, or an empty text."""
        name = "TTFT" if signal == TTFT else signal
        for k in self.classes:
            text = p99_text(self.window, self.units, k, P99_CELLS, signal)
            if text and "not enough" not in text:
                return f"{k} {name} p99 {text.split(' (')[0]}"
        return ""

    def burn(self, tail: Json) -> Burn | None:
        """The objective that burns fastest here over five minutes; ``tail`` as :func:`detectors.tail.learn_tail` gives it."""
        return pool_burn(self.window, tail, int(BURN_S // self.window.step), self.units)

    def hurts(self, tail: Json) -> bool:
        """Whether late requests burn a budget at least six times too fast, beyond chance against the own past."""
        b = self.burn(tail)
        return b is not None and b.burn >= 6 and b.k >= 5 and b.p < 1e-6

    def begun(self, links: Sequence[Link]) -> float | None:
        """When the first of some links gave way (Unix seconds): the onset, where only these date the fault; None if none did."""
        return min((e["at"] for e in follow(self.window, self.units, links)), default=None)

    def finding(
        self,
        kind: str,
        *,
        title: str,
        cause: str,
        links: Sequence[Link] = (),
        evidence: Iterable[Row] = (),
        ruled_out: Sequence[RuledOut] = (),
        now: Sequence[str] = (),
        tomorrow: Sequence[str] = (),
        severity: Severity = "page",
        strength: float = 1.0,
        confidence: float = 0.8,
        runner_up: str = "",
        announced: bool = False,
        onset: float | None = None,
        with_p99: bool = True,
        ranks: tuple[str, ...] = (),
        scope: Scope | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Finding:
        """The finding. ``onset`` (Unix seconds) is the first link of the chain where it is not given; ``now`` and
        ``tomorrow`` are what to do; the title gets the p99 of the class it hurts; ``scope`` where it is narrower than
        the replicas and their classes."""
        chain = follow(self.window, self.units, links)
        first = onset if onset is not None else min((e["at"] for e in chain), default=self.window.end)
        first = max(first, self.window.end - LOOKBACK_S)
        p99 = self.p99() if with_p99 else ""
        return Finding(
            kind=kind,
            scope=scope or Scope(self.classes, (self.pool,), self.replicas, ranks),
            at=self.window.end,
            onset=first,
            strength=float(strength),
            confidence=confidence,
            severity=severity,
            announced=announced,
            runner_up=runner_up,
            title=f"{title}; {p99}" if p99 else title,
            cause=cause,
            evidence=tuple(e for r in evidence if (e := self._evidence(r, first)).now is not None),
            ruled_out=tuple(ruled_out),
            detail={
                "chain": chain,
                "control": [self.window.units[i].replica for i in self.peers],
                "actions": {"now": list(now), "tomorrow": list(tomorrow)},
                "harm": dict(harm(self.window, self.units, first)),
                **(detail or {}),
            },
        )

    def _evidence(self, r: Row, at: float) -> Evidence:
        now, before = r.now, r.before
        if r.measure:
            now = self.now[r.measure] if now is None else now
            before = self.before.get(r.measure) if before is None else before
        expected = before if r.expected is None else r.expected
        return Evidence(
            r.signal,
            r.scope or self.pool,
            rounded(before),
            rounded(now),
            rounded(expected),
            at,
            r.unit,
            r.note,
        )


def mean(x: F) -> float:
    """Mean of the known values; NaN where none is."""
    ok = x[~np.isnan(x)]
    return float(ok.mean()) if len(ok) else float("nan")
