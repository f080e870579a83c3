"""Single steps that took far too long, among steps that are as quick as ever.

A stalled step gives every request of the batch one long gap. The *stall* edge is the first kept bucket edge beyond ten usual gaps
and a quarter of a second, that at most 2 gaps in 10,000 of the past went beyond. What lies beyond it, over the batch, is a number
of stalls; what the sum of all gaps exceeds the usual by, over the gaps beyond, is how long one lasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Json
from detectors.measures import ITL, now
from detectors.normal import GAP_S, Normal
from detectors.stats import poisson_tail, zeroed
from detectors.window import Window, nansum

F = NDArray[np.float64]
B = NDArray[np.bool_]
HIST = f"{ITL}:marks"
SPAN_S = 180.0
RARE = 2e-4
LEAST_STALLS = 4.0
LEAST_EDGE_S = 0.25


@dataclass(frozen=True)
class Stalls:
    """Arrays ``[units]``: ``edge`` in seconds, gaps beyond it ``k`` of ``n``, ``stalls`` (k over the batch), chance ``p`` against
    the own past, mean gap of the others ``body`` over its normal, and the mean length of a stall ``seconds``."""

    edge: F
    k: F
    n: F
    stalls: F
    p: F
    body: F
    seconds: F
    usual: F

    @property
    def here(self) -> B:
        """Replicas with at least four stalls in three minutes, not by chance, whose other steps are as quick as ever."""
        with np.errstate(invalid="ignore"):
            return (
                (self.stalls >= LEAST_STALLS)
                & (self.p < 1e-6)
                & (self.k >= 10 * self.usual * self.n)
                & (self.k <= 0.05 * self.n)
                & (self.body <= 1.2)
            )


def learn_stalls(history: Window) -> Json:
    """Per replica the counts of each kept bucket over the usable past, by layout: ``[[edges, [[...] per unit]], ...]``."""
    gap = int(GAP_S // history.step)
    usable = history.usable[:, : max(0, history.usable.shape[1] - gap)]
    out = []
    for edges, c in _counts(history, None).items():
        past = nansum(np.where(usable[:, :, None], c[:, : usable.shape[1]], np.nan).transpose(0, 2, 1))
        out.append([list(edges), [[float(x) for x in row] for row in zeroed(past)]])
    return {"units": [u.key for u in history.units], "layouts": out}


def stalls(window: Window, learnt: Json, normal: Normal, span_s: float = SPAN_S) -> Stalls:
    """Stalls of each replica over the last three minutes; ``normal`` must hold ``itl`` and ``running``."""
    units = len(window.units)
    cells = max(1, int(span_s // window.step))
    edge, k, n, usual = (np.full(units, np.nan) for _ in range(4))
    inner = np.zeros(units)
    known = _counts(window, cells)
    at = {u: i for i, u in enumerate(learnt.get("units", []))}
    order = [at.get(u.key, -1) for u in window.units]
    least = np.fmax(10 * normal.centre["itl"], LEAST_EDGE_S)
    for edges, rows in learnt.get("layouts", []):
        counts = known.get(tuple(edges))
        if counts is None or not edges:
            continue
        total = nansum(counts.transpose(0, 2, 1))
        past = np.asarray(rows, np.float64).reshape(-1, len(edges) + 1)
        for i in range(units):
            if order[i] < 0 or np.isnan(total[i]).any() or np.isnan(least[i]) or past[order[i]].sum() < 1000:
                continue
            share = (_beyond(past[order[i]])[1:] + 0.5) / (past[order[i]].sum() + 1.0)
            rare = np.flatnonzero((share <= RARE) & (np.asarray(edges) >= least[i] * (1 - 1e-9)))
            if len(rare):
                j = int(rare[0])
                edge[i], usual[i] = edges[j], share[j]
                k[i], n[i] = total[i, j + 1 :].sum(), total[i].sum()
                mids = np.sqrt(np.asarray(edges[j:]) * np.asarray([*edges[j + 1 :], edges[-1]]))
                inner[i] = float((total[i, j + 1 :] * mids).sum())
    m = now(window, cells, "running")
    batch = np.maximum(zeroed(m["running"]), 1.0)
    sums = nansum(window.value(f"{ITL}:sum", cells))
    with np.errstate(invalid="ignore", divide="ignore"):
        body = np.maximum(sums - inner, 0.0) / np.maximum(n - k, 1.0) / normal.centre["itl"]
        # Gaps of one stall come together, one a request: as counts they are over-dispersed by the batch.
        p = poisson_tail(zeroed(k), zeroed(usual * n), batch)
        length = np.maximum(sums - n * normal.centre["itl"], 0.0) / np.maximum(k, 1.0)
    return Stalls(edge, k, n, k / batch, p, body, length, usual)


def _beyond(counts: F) -> F:
    return counts[::-1].cumsum()[::-1]


def _counts(window: Window, cells: int | None) -> dict[tuple[float, ...], F]:
    """Counts of all classes by bucket layout, ``[units, cells, buckets]``."""
    out: dict[tuple[float, ...], F] = {}
    for key in window.hist_keys(ITL):
        c = window.counts(ITL, key, cells)
        known = out.get(key[1])
        out[key[1]] = c if known is None else np.where(np.isnan(known), c, known + zeroed(c))
    return out
