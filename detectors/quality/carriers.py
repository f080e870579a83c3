"""Which part of a fleet carries a raised rate: a set of replicas, or a change that came before it."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, log

import numpy as np
from numpy.typing import NDArray

from detectors.quality.evalues import ALARM, share_value
from detectors.samples import Samples
from detectors.window import Window

I = NDArray[np.intp]  # noqa: E741
F = NDArray[np.float64]
CHANGES = ("deploy", "restart", "release", "version", "scale")
CHANGE_S = 900.0
"""A rate that steps up within a quarter of an hour after a change is put down to it (incidents.md C11)."""
BEFORE_S = 3600.0
WORTH_NAMING = log(3.0)
"""A part of the replicas is named from three times the likelihood of all on; below that chance sorts them."""


def carriers_of(s: Samples, rows: I, p0: float) -> tuple[tuple[str, ...], float, dict[str, tuple[int, int]]]:
    """The replicas that carry a raised rate, how much likelier (log) that is than 'all of them', (bad, n) of each replica.

    A set of ``m`` out of ``r`` replicas pays for the ``r choose m`` sets of that size that one could have named.
    """
    table: dict[str, tuple[int, int]] = {}
    for code in np.unique(s.replica[rows]):
        at = rows[s.replica[rows] == code]
        table[s.names[code]] = (int(s.bad[at].sum()), len(at))
    order = sorted(table, key=lambda r: (-table[r][0] / max(table[r][1], 1), r))
    scores = []
    for m in range(1, len(order) + 1):
        k = sum(table[r][0] for r in order[:m])
        n = sum(table[r][1] for r in order[:m])
        rest_k = sum(table[r][0] for r in order[m:])
        rest_n = sum(table[r][1] for r in order[m:])
        p = max(k / max(n, 1), p0)
        likely = k * log(p) - n * p + rest_k * log(p0) - rest_n * p0
        scores.append(likely - log(comb(len(order), m)))
    best = max(range(len(scores)), key=lambda i: (scores[i], i))
    if scores[best] - scores[-1] < WORTH_NAMING:
        best = len(order) - 1
    return tuple(sorted(order[: best + 1])), scores[best] - scores[-1], table


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A step in the rate at a change: (bad, outputs) after and before it, and the e-value of the step."""

    kind: str
    what: str
    at: float
    after: tuple[int, int]
    before: tuple[int, int]
    evidence: float

    def sentence(self) -> str:
        """``it began with the deploy r2 at ...: 31 of 3,100 after, 1 of 4,000 before``."""
        what = f"{self.kind} {self.what}".strip()
        return (
            f"it began with {what}: {self.after[0]} of {self.after[1]:,} on changed replicas, "
            f"{self.before[0]} of {self.before[1]:,} before"
        )


def step_at_change(window: Window, pool: str, onset: float) -> ChangeStep | None:
    """The change after which each replica's rate stepped up, if the onset lies within :data:`CHANGE_S` after it.

    Outputs after their own replica's change against those before it, within class: a rolling release is compared replica
    by replica. None without a change, or where the step is not beyond chance (e-value 100).
    """
    s = window.samples
    near = [
        e
        for e in window.events
        if e.kind in CHANGES and onset - CHANGE_S <= e.ts <= onset + 120.0 and (not e.pool or e.pool == pool)
    ]
    if not near:
        return None
    mine = {u.replica for u in window.units if u.pool == pool}
    since: dict[str, float] = {}
    for e in near:
        for replica in [e.replica.rsplit(":", 1)[0]] if e.replica else mine:
            since[replica] = max(since.get(replica, 0.0), e.ts)
    first = min(e.ts for e in near)
    rows = np.arange(s.since(first - BEFORE_S), s.upto(window.end))
    rows = rows[(s.pool[rows] == s.code(pool)) & ~s.aside[rows]]
    if not len(rows):
        return None
    edge = np.full(len(s.names), np.inf)
    for replica, at in since.items():
        if s.code(replica) >= 0:
            edge[s.code(replica)] = at
    after = s.admitted[rows] >= edge[s.replica[rows]]
    k, K, q = [], [], []
    for c in np.unique(s.workload_class[rows]):
        at_c = s.workload_class[rows] == c
        k.append(float(s.bad[rows[at_c & after]].sum()))
        K.append(float(s.bad[rows[at_c]].sum()))
        q.append(float((at_c & after).sum() / at_c.sum()))
    found = share_value(np.asarray(k), np.asarray(K), np.asarray(q))
    total = (int(s.bad[rows[after]].sum()), int(after.sum()))
    rest = (int(s.bad[rows[~after]].sum()), int((~after).sum()))
    if found < ALARM or not rest[1] or len([r for r in since if r in mine]) < 1:
        return None
    named = max(near, key=lambda e: (e.kind in ("deploy", "release", "version"), -e.ts))
    return ChangeStep(named.kind, named.text[:60], first, total, rest, found)
