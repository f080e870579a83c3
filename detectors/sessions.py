"""How much KV the active sessions would need, estimated from sampled outputs that carry session ids.

Sessions are not an engine metric. Where outputs are sampled with a session id, each session seen in the last
four minutes needs its
last context (prompt + output); sessions that were active but not sampled are added by Chao's estimator from those seen once and
twice. ``r`` = KV capacity ÷ need: a storm is near when it falls towards 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence
from detectors.stats import zeroed
from detectors.window import Window

ACTIVE_S = 240.0


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """Estimate for some replicas together: sessions, mean context, need and capacity in tokens."""

    seen: int
    sessions: float
    context: float
    capacity: float

    @property
    def r(self) -> float:
        """KV capacity over what the active sessions need."""
        need = self.sessions * self.context
        return self.capacity / need if need > 0 else float("inf")

    def text(self) -> str:
        """One sentence."""
        return (
            f"r = capacity ÷ (sessions × context) = {self.capacity:,.0f} ÷ "
            f"({self.sessions:,.0f} × {self.context:,.0f}) = {self.r:.2f}; "
            f"{self.seen} sessions were seen in the sample, the others are estimated."
        )

    def evidence(self, scope: str, at: float) -> Evidence:
        """As a line of evidence."""
        return Evidence(
            "kv_cache_capacity",
            scope,
            None,
            float(f"{self.r:.4g}"),
            1.0,
            at,
            "capacity ÷ (sessions × context)",
            f"{self.sessions:,.0f} sessions of {self.context:,.0f} tokens",
        )


def working_set(
    window: Window, units: NDArray[np.intp], capacity: float, at: float | None = None
) -> WorkingSet | None:
    """The working set of some replicas at a time (the window's end); None where sessions or capacity are not known.

    ``capacity`` is that of one replica, in tokens.
    """
    s = window.samples
    at = window.end if at is None else min(at, window.end)
    if not len(s) or not capacity > 0:
        return None
    lo, hi = s.since(at - ACTIVE_S), s.upto(at)
    mine = np.asarray([s.code(window.units[i].replica) for i in units])
    rows = np.arange(lo, hi)
    rows = rows[np.isin(s.replica[rows], mine) & (s.session[rows] != s.code(""))]
    tokens = zeroed(s.prompt_tokens[rows]) + zeroed(s.output_tokens[rows])
    # The last row of each session holds its context: read the rows backwards, so that "first" is the last.
    _, first, count = np.unique(s.session[rows][::-1], return_index=True, return_counts=True)
    if len(first) < 5:
        return None
    last = tokens[::-1][first]
    once, twice = int((count == 1).sum()), int((count == 2).sum())
    total = len(last) + once * (once - 1) / (2 * (twice + 1))
    return WorkingSet(len(last), total, float(last.mean()), capacity * len(units))


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual for a pool: ``r``, the tokens that the *seen* sessions need together, and the spread of their logarithm."""

    r: float
    need: float
    spread: float


def usual(window: Window, units: NDArray[np.intp], until: float, marks: int = 48) -> Usual | None:
    """Medians at marks of two and a half minutes before ``until``, without spans kept out of baselines; None under 8 of them."""
    memo = ("usual", units.tobytes(), until)
    if memo in window.memo:
        return window.memo[memo]  # type: ignore[no-any-return]
    capacity = mean_capacity(window, units)
    mine = {int(u) for u in units}
    found = []
    for k in range(marks):
        at = until - 150.0 * k
        if any(u in mine and a - ACTIVE_S <= at <= b for u, a, b in window.excluded):
            continue
        one = working_set(window, units, capacity, at)
        # Outputs without token counts say nothing of what their sessions need.
        if one is not None and one.seen * one.context > 0:
            found.append((one.r, one.seen * one.context))
    out = None
    if len(found) >= 8:
        r, need = np.asarray(found).T
        centre = float(np.median(need))
        out = Usual(float(np.median(r)), centre, 1.4826 * float(np.median(np.abs(np.log(need / centre)))))
    window.memo[memo] = out
    return out


def usual_r(window: Window, units: NDArray[np.intp], until: float) -> float | None:
    """The usual ``r`` of some replicas before ``until``; None where too little is known."""
    known = usual(window, units, until)
    return None if known is None else known.r


def mean_capacity(window: Window, units: NDArray[np.intp]) -> float:
    """Mean KV capacity of some replicas in tokens; NaN where it is not exported."""
    x = window.value("kv_capacity", 40)[units]
    x = x[~np.isnan(x)]
    return float(x.mean()) if len(x) else float("nan")


def moved_share(window: Window, units: NDArray[np.intp], until: float, span: float) -> float | None:
    """Share of the turns of a pool's sessions that ran on another replica than the turn before; None under 50 such turns."""
    s = window.samples
    until = min(until, window.end)
    rows = np.arange(s.since(until - span), s.upto(until))
    mine = np.asarray([s.code(window.units[i].replica) for i in units])
    rows = rows[np.isin(s.replica[rows], mine) & (s.session[rows] != s.code(""))]
    if len(rows) < 50:
        return None
    order = np.lexsort((s.admitted[rows], s.session[rows]))
    session, replica = s.session[rows][order], s.replica[rows][order]
    same = session[1:] == session[:-1]
    return float((replica[1:] != replica[:-1])[same].mean()) if same.sum() >= 50 else None
