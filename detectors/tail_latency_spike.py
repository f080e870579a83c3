"""Tail latency spike: far more requests miss the objective than ever before, and no cause is established.

Idea
    The last resort. Users are hurt and none of the causes that Gustfront knows explains it. It says so, and what it looked at.

Formula
    Over five minutes and over the last two, per pool and class: late ``k`` of ``n`` by the bucket edge at the objective;
    conditional binomial against the own past with the measured over-dispersion, ``p < 1e-6``; the error budget burns at least
    6 times too fast in both spans; ``k >= 8``. A restarted replica stays out for ten minutes.

Signals
    ttft_seconds.

Look-alikes
    Every kind above it: they absorb it. A mix shift (each class has its own objective and past). Few requests: ``k`` guards.

Source
    detection.md 2.3 (exceedance against KS and ratios of p99s), SRE workbook burn rates.
"""

from __future__ import annotations

import numpy as np

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.chain import Link, follow
from detectors.contract import Json, Verdict
from detectors.late import harm
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stats import binomial_tail
from detectors.tail import Tail, learn_tail, p99_text, tails
from detectors.window import Window
from detectors.wording import names, percent, rounded, seconds, times

_FLOORS = {"queue": 0.1, "prefill_seconds": 0.1, "running": 0.1, "waiting": 0.1, "arrivals": 0.1, "hit": 0.01}


class TailLatencySpike:
    """See the module's docstring."""

    kind = "tail_latency_spike"
    needs = needs("running", "waiting", "hits", "queries", "kv")
    hists = (TTFT, f"{QUEUE}:mean")

    def __init__(self, span_s: float = 300.0, least_late: int = 8) -> None:
        self.span_s = span_s
        self.least_late = least_late

    def fit(self, history: Window, as_of: float) -> Json:
        """Late and total per replica and objective, over-dispersion, and the normal that the evidence is compared with."""
        out = learn(history, as_of, _FLOORS)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool and class that is beyond its objective and its past."""
        cells = max(1, int(self.span_s // window.step))
        steady = window.since_restart(int(1200 // window.step)) > 600
        slow = tails(window, baseline["tail"], cells)
        fast = tails(window, baseline["tail"], max(1, int(120 // window.step)))
        normal: Normal | None = None
        findings = []
        for a, b in zip(slow, fast, strict=True):
            for pool, idx in window.pools.items():
                idx = idx[steady[idx] & (a.n[idx] > 0)]
                if not len(idx):
                    continue
                k, n = float(a.k[idx].sum()), float(a.n[idx].sum())
                burn = k / n / a.objective.budget
                quick = float(b.k[idx].sum()) / max(float(b.n[idx].sum()), 1.0) / a.objective.budget
                if k < self.least_late or burn < 6 or quick < 6:
                    continue
                p = float(binomial_tail(k, n, a.K[idx].sum(), a.N[idx].sum(), float(a.phi[idx].max())))
                if p >= 1e-6:
                    continue
                normal = normal or Normal.of(baseline, window)
                findings.append(self._finding(window, normal, pool, idx, a, k, n, p, burn))
        return Verdict(findings, {})

    def _finding(
        self,
        window: Window,
        normal: Normal,
        pool: str,
        idx: np.ndarray,
        a: Tail,
        k: float,
        n: float,
        p: float,
        burn: float,
    ) -> Finding:
        cls, goal = a.objective.workload_class, a.objective.threshold
        share = a.k[idx] / np.maximum(a.n[idx], 1)
        worst = idx[(a.p[idx] < 1e-3) & (share >= 6 * a.objective.budget)]
        worst = worst if len(worst) else idx[np.argsort(-a.k[idx], kind="stable")[:1]]
        replicas = tuple(sorted(window.units[i].replica for i in worst))
        cells = max(1, int(self.span_s // window.step))
        m = now(window, cells, *_FLOORS)
        text = p99_text(window, worst, cls, cells, TTFT)

        def mean(x: np.ndarray) -> float:
            y = x[worst]
            return float(np.nanmean(y)) if (~np.isnan(y)).any() else float("nan")

        c, v = {key: mean(x) for key, x in normal.centre.items()}, {key: mean(x) for key, x in m.items()}
        links = [
            Link("first tokens come later", "ttft", goal, show=seconds),
            Link("requests queue", "waiting", 2 + 2 * np.nan_to_num(c["waiting"]), show=lambda x: f"{x:.0f}"),
            Link(
                "prefill takes longer",
                "prefill_seconds",
                2 * max(np.nan_to_num(c["prefill_seconds"]), 0.05),
                show=seconds,
            ),
        ]
        chain = follow(window, worst, links)
        onset = max(min((e["at"] for e in chain), default=window.end - self.span_s), window.end - 1800)
        past = float(a.K[idx].sum() / max(a.N[idx].sum(), 1))
        others = [window.units[i].replica for i in window.pools[pool] if i not in set(worst.tolist())]

        def row(signal: str, key: str, unit: str) -> Evidence:
            return Evidence(
                signal,
                names(replicas),
                rounded(c.get(key)),
                rounded(v.get(key)),
                rounded(c.get(key)),
                onset,
                unit,
            )

        evidence = (
            Evidence(
                "ttft_seconds",
                pool,
                rounded(past),
                rounded(k / n),
                a.objective.budget,
                onset,
                f"share later than {seconds(a.edge)}",
                f"{k:.0f} of {n:.0f}, p = {p:.1g}",
            ),
            row("queue_time_seconds", "queue", "s (mean)"),
            row("ttft_seconds", "prefill_seconds", "s without queue (mean)"),
            row("requests_running", "running", "requests"),
            row("requests_waiting", "waiting", "requests"),
        )
        return Finding(
            kind=self.kind,
            scope=Scope((cls,), (pool,), replicas),
            at=window.end,
            onset=onset,
            strength=float(np.log2(max(burn, 1.0))),
            confidence=0.5,
            severity="page" if burn >= 14.4 else "ticket",
            title=f"{cls} answers on {pool} start late, cause not established: TTFT p99 "
            f"{text.split(' (')[0] or 'unknown'}, objective {seconds(goal)}",
            cause=f"{percent(k / n)} of the {cls} requests on {pool} came later than "
            f"{seconds(a.edge)} (before: {percent(past)}); no known cause fits.",
            evidence=tuple(e for e in evidence if e.now is not None),
            ruled_out=(
                RuledOut(
                    "chance",
                    "conditional binomial against the own past, over-dispersion measured",
                    f"p = {p:.1g}, {k:.0f} of {n:.0f} late",
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
            detail={
                "chain": chain,
                "actions": {
                    "now": [
                        f"Look at {names(replicas)} first"
                        + (f"; {names(others)} are the control group" if others else ""),
                        "Compare queue and prefill parts above: they say where the time goes",
                    ],
                    "tomorrow": [
                        "Export what is missing (Data health lists the flags), so that the next one has a cause"
                    ],
                },
                "harm": dict(harm(window, worst, onset)),
                "burn": times(burn),
            },
        )
