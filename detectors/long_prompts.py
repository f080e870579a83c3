"""A few prompts far longer than this pool ever sees, among others that are as ever.

Per pool the lengths of finished prompts are learnt as shares beyond bucket edges. The *long* edge is the first one that at most
2 in 1,000 prompts of the past went beyond. Many longer prompts are another workload (sessions grew, classes mixed anew); few of
them beside unchanged others are visitors that hold everybody up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.chain import LOOKBACK, SMOOTH, crossing
from detectors.contract import Json
from detectors.normal import GAP_S
from detectors.stats import poisson_tail, zeroed
from detectors.window import Window, nansum

F = NDArray[np.float64]
PROMPTS = "request_prompt_tokens"
HIST = f"{PROMPTS}:marks"
SPAN_S = 180.0
RARE = 2e-3
FEW = 0.25
LEAST = 3
LEAST_PAST = 200
SHIFT = 0.08
"""How far the share beyond a lower edge may move while the other prompts still count as unchanged."""


@dataclass(frozen=True, slots=True)
class Visitors:
    """Long prompts of a pool: beyond ``edge`` tokens, ``k`` of ``n`` per replica ``[units of the pool]``, chance ``p`` of that.

    ``few``: they are rare and the other prompts are as long as ever. ``computed``: the pool computes at least half as
    many prompt tokens more than usual as they have (a long context that is found in the cache holds up nobody).
    """

    edge: float
    k: F
    n: F
    p: float
    expected: float
    few: bool
    computed: bool
    by_class: Mapping[str, F]

    def of(self, workload_class: str) -> F:
        """How many of them are of one class, per replica; all of them where lengths are not told by that class."""
        return self.by_class.get(workload_class, self.k)

    @property
    def here(self) -> bool:
        """Whether visitors there are: at least three, not by chance, computed, beside others that are as ever."""
        return self.few and self.computed and self.k.sum() >= LEAST and self.p < 1e-6

    @property
    def tokens(self) -> F:
        """Tokens that they surely had, per replica."""
        return self.k * self.edge


def learn_prompts(history: Window) -> Json:
    """Per pool: ``[edges, counts per bucket, [prompt tokens computed per second]]`` of the usable past, of the layout that most
    prompts were counted in; an empty last list where the cache counters are not exported."""
    gap = int(GAP_S // history.step)
    usable = history.usable[:, : max(0, history.usable.shape[1] - gap)]
    out: Json = {}
    for pool, idx in history.pools.items():
        totals = {
            e: np.where(usable[idx][:, :, None], c[:, : usable.shape[1]], np.nan)
            for e, c in _counts(history, idx, None).items()
        }
        best = {e: np.nansum(c, axis=(0, 1)) for e, c in totals.items()}
        if best:
            edges = max(best, key=lambda e: float(best[e].sum()))
            if edges and best[edges].sum() >= LEAST_PAST:
                rate = _rate(history, idx, usable)
                out[pool] = [list(edges), [float(x) for x in best[edges]], [rate] if rate == rate else []]
    return out


def visitors(
    window: Window, learnt: Mapping[str, list[list[float]]], pool: str, span_s: float = SPAN_S
) -> Visitors | None:
    """Long prompts of a pool in the last three minutes; None where lengths are not exported or not known well enough."""
    if pool not in learnt:
        return None
    idx = window.pools[pool]
    edges, past = tuple(learnt[pool][0]), np.asarray(learnt[pool][1])
    c = _counts(window, idx, max(1, int(span_s // window.step))).get(edges)
    if c is None:
        return None
    counts = np.nansum(c, axis=1)
    share = (_beyond(past) + 0.5) / (past.sum() + 1.0)
    rare = np.flatnonzero(share[1:] <= RARE) + 1
    if not len(rare):
        return None
    at = int(rare[0])
    k, n = counts[:, at:].sum(axis=1), counts.sum(axis=1)
    total = float(n.sum())
    expected = float(share[at]) * total
    p = float(poisson_tail(float(k.sum()), expected))
    rest = counts[:, :at].sum(axis=0)
    moved = (
        np.abs(_beyond(rest) / max(rest.sum(), 1.0) - _beyond(past[:at]) / max(past[:at].sum(), 1.0)).max()
        if rest.sum() > 0
        else 1.0
    )
    few = total > 0 and float(k.sum()) <= FEW * total and moved <= SHIFT + 2.0 / np.sqrt(max(total, 1.0))
    span = max(1, int(span_s // window.step))
    work = nansum(window.value("queries", span)[idx] - window.value("hits", span)[idx])
    usual = learnt[pool][2]
    more = float(np.nansum(work)) - usual[0] * span * window.step if usual else np.inf
    lower = np.asarray([0.0, *edges])
    computed = more >= 0.5 * float((counts[:, at:] * lower[at:]).sum())
    by_class = {
        key[0]: np.nansum(window.counts(PROMPTS, key, span)[idx][:, :, at:], axis=(1, 2))
        for key in window.hist_keys(PROMPTS)
        if key[1] == edges
    }
    return Visitors(edges[at - 1], k, n, p, expected, bool(few), computed, by_class)


def first_visit(window: Window, pool: str, edge: float, expected: float) -> float | None:
    """When two minutes first held four times as many of them as ``expected`` (per three minutes), Unix seconds."""
    idx = window.pools[pool]
    came = np.zeros(min(LOOKBACK, window.stop - window.start))
    for edges, c in _counts(window, idx, LOOKBACK).items():
        if edge in edges:
            came += np.nansum(c[:, :, edges.index(edge) + 1 :], axis=(0, 2))
    if len(came) < SMOOTH:
        return None
    sums = np.convolve(came, np.ones(SMOOTH), "valid")
    times = window.end - window.step * np.arange(len(sums) - 1, -1, -1, dtype=np.float64)
    return crossing(times, sums, max(0.5, 4.0 * expected * SMOOTH * window.step / SPAN_S))


def _rate(history: Window, idx: NDArray[np.intp], usable: NDArray[np.bool_]) -> float:
    """Prompt tokens that a pool computes per second in the usable past; NaN where unknown."""
    width = usable.shape[1]
    work = np.where(usable[idx], (history.value("queries") - history.value("hits"))[idx][:, :width], np.nan)
    known = ~np.isnan(work)
    # Per replica and cell, times the replicas: some of them may have been away for a while.
    return float(work[known].mean() * len(idx) / history.step) if known.any() else float("nan")


def _beyond(counts: F) -> F:
    """Counts in each bucket or a later one."""
    return counts[::-1].cumsum()[::-1]


def _counts(window: Window, idx: NDArray[np.intp], cells: int | None) -> dict[tuple[float, ...], F]:
    """Counts of all classes by bucket layout, ``[units of the pool, cells, buckets]``."""
    out: dict[tuple[float, ...], F] = {}
    for key in window.hist_keys(PROMPTS):
        c = window.counts(PROMPTS, key, cells)[idx]
        if not np.isnan(c).all():
            known = out.get(key[1])
            out[key[1]] = c if known is None else np.where(np.isnan(known), c, known + zeroed(c))
    return out
