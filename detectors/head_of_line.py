"""Head-of-line blocking: a few requests that take very long to prepare hold up the many short ones behind them.

Idea
    A prompt of 100,000 tokens is prefilled in hundreds of steps. While it is, every request of the same engine waits longer
    for its first token and for each next one, whatever its own length. The long requests themselves are as slow as they must
    be, so only the *other* requests, against their own past, show the harm. Compiling a grammar holds up its queue in the
    same way.

Formula
    Over three minutes, per pool::

        visitors  at least 3 prompts beyond an edge that at most 2 in 1,000 of the past went beyond (Poisson tail p < 1e-6),
        at most
                  a quarter of all, the share of the others beyond every lower edge as ever, and tokens computed beyond the usual
        or        requests that wait for a grammar: mean >= 2 and >= 5 times usual, half of all that wait
        harm      late requests without the visitors burn the budget >= 6 times too fast, >= 5 of them, conditional binomial
                  p < 1e-6, on the same pool

    Replicas: those that had a visitor or are late beyond their own past.

Signals
    request_prompt_tokens, ttft_seconds, prefix-cache counters, inter_token_latency_seconds, requests_waiting_by_reason (SGLang's
    grammar queue); gateway log by tenant.

Look-alikes
    capacity_shortfall (more of the usual requests), kv_eviction_storm (the giant prompts push out prefixes and fill KV, yet
    what is computed is their own), traffic_shift (all prompts grow), slow_replica (one replica).

Source
    incidents.md A2: vllm#10235, vllm#21495, sglang#22831.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.chain import Link
from detectors.contract import Json, Need, Verdict
from detectors.demand import heaviest
from detectors.long_prompts import HIST, PROMPTS, Visitors, first_visit, learn_prompts, visitors
from detectors.measures import ITL, QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.parts import TTFT_HISTS, TTFT_MEASURES, ttft_rows
from detectors.stats import binomial_tail, zeroed
from detectors.tail import Tail, learn_tail, tails
from detectors.window import Window, nanmean
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]
SPAN_S = 180.0
LEAST_BURN = 6.0
LEAST_LATE = 5
GRAMMAR = Need("grammar", "requests_waiting_by_reason", where=("reason", ("grammar",)))
_FLOORS = {
    "running": 0.1,
    "waiting": 0.1,
    "arrivals": 0.1,
    "compute": 0.1,
    "work": 0.1,
    "hit": 0.01,
    "itl": 0.05,
    "kv": 0.1,
    **dict.fromkeys(TTFT_MEASURES, 0.1),
}


class HeadOfLine:
    """See the module's docstring."""

    kind = "head_of_line"
    needs = (*needs("running", "waiting", "kv", "hits", "queries"), GRAMMAR)
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean", HIST, *TTFT_HISTS)

    def fit(self, history: Window, as_of: float) -> Json:
        """Usual prompt lengths and grammar queue per pool, the past of late requests, and the normal of load."""
        quiet = history.usable
        grammar = np.where(quiet, history.value("grammar"), np.nan)
        return {
            **learn(history, as_of, _FLOORS, block_s=SPAN_S),
            "prompts": learn_prompts(history),
            "grammar": {p: _number(nanmean(grammar[idx].ravel())) for p, idx in history.pools.items()},
            "tail": learn_tail(history, as_of),
        }

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose short requests are held up."""
        cells = max(1, int(SPAN_S // window.step))
        late = tails(window, baseline["tail"], cells)
        findings = []
        for pool, idx in window.pools.items():
            guests = visitors(window, baseline["prompts"], pool)
            if guests is not None and guests.here:
                worst = _harmed(late, idx, guests)
                which = "prompts"
            elif _grammar(window, idx, baseline["grammar"].get(pool), cells):
                worst, guests, which = _harmed(late, idx, None), None, "grammar"
            else:
                continue
            if worst is not None:
                normal = Normal.of(baseline, window)
                m = now(window, cells, *_FLOORS, "preempted_per_finished")
                hit = worst[1] if guests is None else np.union1d(worst[1], idx[guests.k > 0])
                case = Case(window, pool, hit, idx, normal, m)
                findings.append(self._finding(case, worst[0], guests, which))
        return Verdict(findings, {})

    def _finding(self, case: Case, late: Tail, guests: Visitors | None, which: str) -> Finding:
        window, c, v = case.window, case.before, case.now
        k, n = float(late.k[case.units].sum()), float(late.n[case.units].sum())
        share = k / max(n, 1.0)
        if guests is not None:
            count = float(guests.k.sum())
            who = heaviest(window, case.pool)
            whose = f", sent by {who.who} ({number(who.tokens)} tokens a request)" if who else ""
            what = f"{count:.0f} prompts of more than {number(guests.edge)} tokens"
            cause = (
                f"{what} came to {case.pool} in three minutes{whose}; the {guests.n.sum() - count:.0f} others are as short as "
                f"ever and wait behind them."
            )
            first = Row(
                PROMPTS,
                unit=f"prompts beyond {number(guests.edge)} tokens in 3 min",
                now=count,
                before=guests.expected,
                note=f"p = {guests.p:.1g}",
            )
        else:
            what = "compiling grammars"
            queued = float(np.nanmean(window.value("grammar", 8)[case.units]))
            cause = f"{number(queued)} requests wait on each of {names(case.replicas)} until their grammar is compiled."
            first = Row("requests_waiting_by_reason", unit="requests, reason grammar", now=queued)
        links = (
            Link(
                "more prompt tokens are computed",
                "compute",
                1.5 * c["compute"],
                show=lambda x: f"{number(x)}/s",
            ),
            Link("gaps between tokens grow", "itl", 1.3 * c["itl"], show=seconds),
            Link("requests queue", "waiting", 2 + 2 * zeroed(c["waiting"]), show=number),
            Link("first tokens come later", "ttft", late.objective.threshold, show=seconds),
        )
        return case.finding(
            self.kind,
            title=f"Head-of-line blocking on {case.pool}: {what} hold up {late.objective.workload_class}",
            cause=cause,
            links=links,
            onset=first_visit(window, case.pool, guests.edge, guests.expected)
            if guests is not None
            else None,
            strength=float(np.log2(max(share / late.objective.budget, 1.0))),
            confidence=0.9 if guests is not None else 0.75,
            severity="page" if share >= 14.4 * late.objective.budget else "ticket",
            runner_up="capacity_shortfall",
            evidence=(
                first,
                Row(
                    "ttft_seconds",
                    unit=f"share later than {seconds(late.edge)}",
                    now=share,
                    before=float(late.K[case.units].sum() / max(late.N[case.units].sum(), 1.0)),
                    expected=late.objective.budget,
                    note=f"{k:.0f} of {n:.0f}",
                ),
                Row("prefix_cache_queries_tokens_total", "compute", "prompt tokens computed/s per replica"),
                *ttft_rows(case),
                Row("inter_token_latency_seconds", "itl", "s (mean)"),
            ),
            ruled_out=(
                RuledOut(
                    "capacity_shortfall",
                    "first tokens per second at their normal",
                    f"{c['arrivals']:.2g} → {v['arrivals']:.2g} per second and replica ({times(case.factor('arrivals'))})",
                ),
                RuledOut(
                    "kv_eviction_storm",
                    "what is computed more is the long prompts' own",
                    f"{number(guests.tokens.sum() / SPAN_S)} tokens/s of them at least, computed "
                    f"{number(v['compute'] * len(case.seen))}/s instead of {number(c['compute'] * len(case.seen))}/s"
                    if guests is not None
                    else f"hits {percent(c['hit'])} → {percent(v['hit'])}",
                ),
                RuledOut(
                    "slow_replica",
                    "several replicas at once",
                    f"{len(case.units)} of {len(case.seen)} replicas",
                    len(case.units) > 1,
                ),
            ),
            now=(
                "Send the long requests to a pool or replica of their own (a limit of prompt tokens at the router)",
                "Lower the prefill tokens of a step: --max-num-batched-tokens (vLLM), --chunked-prefill-size (SGLang)"
                if guests is not None
                else "Limit requests with new grammars, or let them compile once before traffic",
            ),
            tomorrow=(
                "Limit long prefills at a time: vLLM --max-long-partial-prefills, --long-prefill-token-threshold",
                "Separate prefill and decode where long prompts are part of the business",
            ),
            detail={"which": which},
        )


def _harmed(
    late: list[Tail], idx: NDArray[np.intp], guests: Visitors | None
) -> tuple[Tail, NDArray[np.intp]] | None:
    """The objective that burns fastest without the visitors, and the replicas on which it does; None where none does."""
    best: tuple[float, Tail, NDArray[np.intp]] | None = None
    for t in late:
        theirs = guests.of(t.objective.workload_class) if guests is not None else np.zeros(len(idx))
        k, n = np.maximum(t.k[idx] - theirs, 0.0), np.maximum(t.n[idx] - theirs, 0.0)
        if n.sum() <= 0 or k.sum() < LEAST_LATE:
            continue
        burn = float(k.sum() / n.sum() / t.objective.budget)
        p = binomial_tail(k.sum(), n.sum(), t.K[idx].sum(), t.N[idx].sum(), float(t.phi[idx].max()))
        own = idx[(k / np.maximum(n, 1.0) >= LEAST_BURN * t.objective.budget) & (k >= 2)]
        if burn >= LEAST_BURN and p < 1e-6 and len(own) and (best is None or burn > best[0]):
            best = (burn, t, own)
    return None if best is None else best[1:]


def _grammar(window: Window, idx: NDArray[np.intp], usual: float | None, cells: int) -> bool:
    queued, waiting = (
        nanmean(window.value("grammar", cells)[idx]),
        nanmean(window.value("waiting", cells)[idx]),
    )
    if np.isnan(queued).all():
        return False
    mean = float(np.nanmean(queued))
    rest = float(np.nansum(waiting)) / max(int((~np.isnan(queued)).sum()), 1)
    return mean >= 2.0 and mean >= 5.0 * (usual or 0.0) and mean >= 0.5 * rest


def _number(x: F) -> float | None:
    return None if np.isnan(x) else float(x)
