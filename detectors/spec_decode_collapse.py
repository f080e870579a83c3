"""Speculative decoding collapsed: drafts are rejected, so decoding is slower; the texts are clean.

Idea
    Verification by the target model keeps the text right whatever the draft proposes. When drafts are rejected, each step yields
    one token instead of several: the time per token rises and nothing else changes. An absolute acceptance does not carry over
    between models and draft lengths, so the measure is the ratio to the same deployment's own past.

Formula
    Over four minutes, per replica, against its own normal: acceptance (accepted over drafted tokens; where no counters are, the
    engine's mean accepted length without the bonus token) at most 0.6 of it and z <= -5, over at least 200 drafts. Bad answers
    of the pool in the last half hour are no more than its learnt rate explains (Poisson tail >= 0.001); more of them are
    ``degraded_generations``, which reads the same acceptance per answer.

Signals
    spec_accepted_tokens_total, spec_draft_tokens_total, spec_drafts_total or spec_accept_length, time_per_output_token_seconds;
    sampled outputs.

Look-alikes
    degraded_generations (texts are broken, acceptance of the broken answers is off, that of the others is not), slow_replica
    (steps take longer, acceptance as ever), throughput_regression (steps take longer on all replicas), a change of traffic
    (other text drafts worse, but not by 40 % on all replicas at once), a quiet night (too few drafts say nothing).

Source
    incidents.md C6 and limit 2: sglang#28895, sglang#30321.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import ITL, TPOT, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stats import poisson_tail
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]

_FLOORS = {
    "acceptance": 0.05,
    "tpot": 0.1,
    "itl": 0.1,
    "running": 0.15,
    "generated": 0.1,
    "prefill_seconds": 0.15,
}
SHARE = 0.6
LEAST_DRAFTS = 200
TEXTS_S = 1800.0
USUAL_BAD = 1e-3


class SpecDecodeCollapse:
    """See the module's docstring."""

    kind = "spec_decode_collapse"
    needs = needs(
        "running", "generated", "spec_accepted", "spec_drafted", "spec_drafts", "spec_length", "sm_clock"
    )
    hists = (TTFT, f"{TPOT}:mean", f"{ITL}:mean", "queue_time_seconds:mean")

    def __init__(self, span_s: float = 240.0) -> None:
        self.span_s = span_s

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of acceptance and pace, the past of late requests, and the rate of bad answers per pool."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s)
        out["tail"] = learn_tail(history, as_of)
        out["bad"] = {pool: list(_bad(history, pool, 0.0, as_of - 600.0)) for pool in history.pools}
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose drafts are rejected while its texts are clean."""
        cells = max(2, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "drafts", "n", "sm_clock")
        with np.errstate(invalid="ignore"):
            # Where only a gauge is exported the number of drafts is unknown; then first tokens must speak for it.
            enough = np.where(np.isnan(m["drafts"]), m["n"] >= 20, m["drafts"] >= LEAST_DRAFTS)
            low = (
                enough.astype(bool)
                & (normal.factor("acceptance", m["acceptance"]) <= SHARE)
                & (normal.z("acceptance", m["acceptance"]) <= -5)
            )
        findings = []
        for pool, idx in window.pools.items():
            hit, seen = idx[low[idx]], idx[~np.isnan(m["acceptance"][idx])]
            if not len(hit):
                continue
            bad, answers = _bad(window, pool, window.end - TEXTS_S, window.end)
            known = (baseline.get("bad") or {}).get(pool, [0, 0])
            rate = max((known[0] + 1.0) / (known[1] + 1.0 / USUAL_BAD), 1e-6)
            if bad >= 3 and float(poisson_tail(bad, rate * answers)) < 1e-3:
                continue
            case = Case(window, pool, hit, seen, normal, m)
            findings.append(self._finding(case, baseline, (bad, answers), rate))
        return Verdict(findings, {})

    def _finding(self, case: Case, baseline: Json, texts: tuple[int, int], rate: float) -> Finding:
        c, v = case.before, case.now
        pace = "tpot" if v["tpot"] == v["tpot"] else "itl"
        who = names(case.replicas)
        bad, answers = texts
        clean = (
            f"{bad} of {answers} sampled answers of the last half hour are broken (usual {percent(rate)})"
            if answers
            else "no answers are sampled: texts were not looked at"
        )
        return case.finding(
            self.kind,
            title=f"Speculative decoding collapsed on {case.pool}: acceptance {number(c['acceptance'])} → "
            f"{number(v['acceptance'])}, time per token {times(case.factor(pace))}",
            cause=f"Drafts are rejected on {who}: {number(v['acceptance'])} of what is drafted is accepted "
            f"(normal {number(c['acceptance'])}), so a token takes {seconds(v[pace])} instead of "
            f"{seconds(c[pace])}. Texts: {clean}.",
            links=[
                Link(
                    "drafts are rejected", "acceptance", SHARE * c["acceptance"], False, lambda x: f"{x:.2f}"
                ),
                Link("a token takes longer", pace, 1.3 * c[pace], show=seconds),
                Link("more requests run at once", "running", 1.5 * max(c["running"], 1.0), show=number),
            ],
            strength=float(np.log2(max(c["acceptance"] / max(v["acceptance"], 1e-3), 1.0))),
            confidence=0.9 if answers >= 100 else 0.7,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="degraded_generations" if not answers else "throughput_regression",
            with_p99=False,
            evidence=(
                Row("spec_accepted_tokens_total", "acceptance", "accepted of drafted (or per draft)"),
                Row("time_per_output_token_seconds", "tpot", "s (mean)"),
                Row("inter_token_latency_seconds", "itl", "s per engine output (mean)"),
                Row("requests_running", "running", "requests"),
                Row("generation_tokens_total", "generated", "tokens/s"),
                Row(
                    "sampled outputs",
                    unit="broken answers in 30 min",
                    now=float(bad),
                    expected=rate * answers,
                ),
            ),
            ruled_out=(
                RuledOut(
                    "degraded_generations",
                    "broken answers against this pool's own rate",
                    clean,
                    bool(answers),
                ),
                RuledOut(
                    "slow_replica",
                    "steps take longer when a replica is slow",
                    f"time per engine output {seconds(c['itl'])} → {seconds(v['itl'])}, acceptance {number(c['acceptance'])} → "
                    f"{number(v['acceptance'])}",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "requests wait before their first token",
                    f"prefill {seconds(c['prefill_seconds'])} → {seconds(v['prefill_seconds'])}",
                ),
            ),
            now=[
                "Turn speculation off or restart with the last good draft model: at this acceptance drafting "
                "costs more than it gives "
                "(vLLM --speculative-config, SGLang --speculative-algorithm)"
            ],
            tomorrow=[
                "Check that draft and target model belong together (version, tokenizer, quantisation) and that "
                "the draft's KV survives "
                "offload and preemption",
                "Sample answers with their acceptance, so that a broken draft is told from broken texts",
            ],
        )


def _bad(window: Window, pool: str, since: float, until: float) -> tuple[int, int]:
    """Broken answers of a pool and all its sampled answers that finished in a span."""
    s = window.samples
    if not len(s):
        return 0, 0
    rows = slice(s.since(since), s.upto(min(until, window.end)))
    mine = s.pool[rows] == s.code(pool)
    return int((s.bad[rows] & mine).sum()), int(mine.sum())
