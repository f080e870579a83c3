"""Tail latency spike: far more requests miss the objective than ever before, and no cause is established.

Idea
    The last resort. Users are hurt and none of the causes that Gustfront knows explains it. It says so, and what it looked at.

Formula
    Per pool and class, late ``k`` of ``n`` by the bucket edge at the objective, over two pairs of spans: the last two minutes and
    the last one, or the last five and the last two. In both spans of a pair the error budget burns at least 6 times too fast;
    in the longer one ``k >= 8`` and the conditional binomial against the own past with the measured over-dispersion gives
    ``p < 1e-6``. A restarted replica stays out for ten minutes.

Signals
    ttft_seconds; for the parts of it queue_time_seconds, prefill_time_seconds, kv_transfer_time_seconds.

Look-alikes
    Every kind above it: they absorb it. A mix shift (each class has its own objective and past). Few requests: ``k`` guards.

Source
    detection.md 2.3 (exceedance against KS and ratios of p99s), SRE workbook burn rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut, Scope
from detectors.case import Case, Row
from detectors.chain import LOOKBACK, SMOOTH, Link, crossing
from detectors.contract import Json, Verdict
from detectors.late import late_cells
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.parts import TTFT_HISTS, TTFT_MEASURES, ttft_rows
from detectors.stats import binomial_tail, zeroed
from detectors.tail import Tail, learn_tail, tails
from detectors.window import Window
from detectors.wording import names, percent, seconds, times

_FLOORS = {
    "running": 0.1,
    "waiting": 0.1,
    "arrivals": 0.1,
    "hit": 0.01,
    **dict.fromkeys(TTFT_MEASURES, 0.1),
}
SPANS_S = ((120.0, 60.0), (300.0, 120.0))
LEAST_BURN = 6.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Late requests of some replicas for one objective over a span: ``k`` of ``n``, chance ``p``, pace of the budget ``burn``."""

    tail: Tail
    units: NDArray[np.intp]
    k: float
    n: float
    p: float
    burn: float


def seen(t: Tail, units: NDArray[np.intp]) -> Seen:
    """The tail of one objective, of some replicas together."""
    k, n = float(t.k[units].sum()), float(t.n[units].sum())
    p = float(binomial_tail(k, n, t.K[units].sum(), t.N[units].sum(), float(t.phi[units].max())))
    return Seen(t, units, k, n, p, k / max(n, 1.0) / t.objective.budget)


class TailLatencySpike:
    """See the module's docstring."""

    kind = "tail_latency_spike"
    needs = needs("running", "waiting", "hits", "queries", "kv")
    hists = (TTFT, f"{QUEUE}:mean", *TTFT_HISTS)

    def __init__(self, least_late: int = 8) -> None:
        self.least_late = least_late

    def fit(self, history: Window, as_of: float) -> Json:
        """Late and total per replica and objective, over-dispersion, and the normal that the evidence is compared with."""
        out = learn(history, as_of, _FLOORS)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool and class that is beyond its objective and its past."""
        steady = window.since_restart(int(1200 // window.step)) > 600
        found: dict[tuple[str, str], tuple[Seen, float]] = {}
        for spans in SPANS_S:
            slow, fast = (tails(window, baseline["tail"], max(1, int(s // window.step))) for s in spans)
            for a, b in zip(slow, fast, strict=True):
                for pool, idx in window.pools.items():
                    idx = idx[steady[idx] & (a.n[idx] > 0)]
                    if not len(idx):
                        continue
                    long, quick = seen(a, idx), seen(b, idx)
                    if (
                        long.k >= self.least_late
                        and min(long.burn, quick.burn) >= LEAST_BURN
                        and long.p < 1e-6
                    ):
                        found.setdefault((pool, a.objective.name), (long, spans[0]))
        if not found:
            return Verdict()
        normal = Normal.of(baseline, window)
        return Verdict([self._finding(window, normal, p, x, s) for (p, _), (x, s) in found.items()])

    def _finding(self, window: Window, normal: Normal, pool: str, x: Seen, span: float) -> Finding:
        t, idx = x.tail, x.units
        share = t.k[idx] / np.maximum(t.n[idx], 1)
        worst = idx[(t.p[idx] < 1e-3) & (share >= LEAST_BURN * t.objective.budget)]
        worst = worst if len(worst) else idx[np.argsort(-t.k[idx], kind="stable")[:1]]
        m = now(window, max(1, int(span // window.step)), *_FLOORS)
        case = Case(window, pool, worst, window.pools[pool], normal, m)
        c, v = case.before, case.now
        cls, goal = t.objective.workload_class, t.objective.threshold
        past = float(t.K[idx].sum() / max(t.N[idx].sum(), 1))
        others = [window.units[i].replica for i in case.peers]
        links = (
            Link("first tokens come later", "ttft", goal, show=seconds),
            Link("requests queue", "waiting", 2 + 2 * zeroed(c["waiting"]), show=lambda y: f"{y:.0f}"),
            Link(
                "prefill takes longer",
                "prefill_seconds",
                2 * max(zeroed(c["prefill_seconds"]), 0.05),
                show=seconds,
            ),
        )
        begun = _since(window, t, idx)
        onset = begun if begun is not None and begun > window.end - 1800 else window.end - span
        return case.finding(
            self.kind,
            scope=Scope((cls,), (pool,), case.replicas),
            title=f"{cls} answers on {pool} start late, cause not established: "
            f"{percent(x.k / x.n)} beyond {seconds(goal)}",
            cause=f"{percent(x.k / x.n)} of the {cls} requests on {pool} came later than "
            f"{seconds(t.edge)} (before: {percent(past)}); no known cause fits.",
            links=links,
            onset=onset,
            strength=float(np.log2(max(x.burn, 1.0))),
            confidence=0.5,
            severity="page" if x.burn >= 14.4 else "ticket",
            evidence=(
                Row(
                    "ttft_seconds",
                    unit=f"share later than {seconds(t.edge)}",
                    note=f"{x.k:.0f} of {x.n:.0f}, p = {x.p:.1g}",
                    now=x.k / x.n,
                    before=past,
                    expected=t.objective.budget,
                ),
                *ttft_rows(case),
                Row("requests_running", "running", "requests"),
                Row("requests_waiting", "waiting", "requests"),
            ),
            ruled_out=(
                RuledOut(
                    "chance",
                    "conditional binomial against the own past, over-dispersion measured",
                    f"p = {x.p:.1g}, {x.k:.0f} of {x.n:.0f} late",
                ),
                RuledOut(
                    "kv_eviction_storm",
                    "prefix hits against own normal",
                    f"{percent(c['hit'])} → {percent(v['hit'])}",
                    not v["hit"] < c["hit"] - 0.1,
                ),
                RuledOut(
                    "capacity_shortfall",
                    "waiting requests per replica",
                    f"{c['waiting']:.1f} → {v['waiting']:.1f}",
                    not v["waiting"] > 3,
                ),
                RuledOut(
                    "warm_up", "replicas within ten minutes of a restart are left out", "steady replicas only"
                ),
            ),
            now=(
                f"Look at {names(case.replicas)} first"
                + (f"; {names(others)} are the control group" if others else ""),
                "Compare queue and prefill parts above: they say where the time goes",
            ),
            tomorrow=(
                "Export what is missing (Data health lists the flags), so that the next one has a cause",
            ),
            detail={"burn": times(x.burn)},
        )


def _since(window: Window, t: Tail, idx: NDArray[np.intp]) -> float | None:
    """When the late share of two minutes began to burn the budget three times too fast; None where it always did."""
    late = late_cells(window, t.objective, LOOKBACK)
    if late is None or late.late.shape[1] < SMOOTH:
        return None
    k, n = np.nansum(late.late[idx], axis=0), np.nansum(late.total[idx], axis=0)
    kernel = np.ones(SMOOTH)
    share = np.convolve(k, kernel, "valid") / np.maximum(np.convolve(n, kernel, "valid"), 1.0)
    times = window.end - window.step * np.arange(len(share) - 1, -1, -1, dtype=np.float64)
    return crossing(times, share, 3 * t.objective.budget)
