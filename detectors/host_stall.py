"""Host stalls: single steps stop for a second or more, while all others are as quick as ever.

Idea
    Garbage collection, a busy CPU or a blocked front end stops the engine between two steps. Users see single stutters;
    means and p95 hardly move, there is no queue and nothing in the cache. So the gaps far beyond any usual one are counted.

Formula
    Over three minutes, per replica (:mod:`detectors.stalls`): gaps beyond an edge that at most 2 in 10,000 of the past went
    beyond (at least ten usual gaps and 0.25 s), divided by the batch: ``stalls >= 4``; quasi-Poisson tail against the own
    past, with the batch as dispersion, ``p < 1e-6``; at most 5 % of all gaps; the mean of the other gaps at most 1.2 times
    its normal; prompt tokens computed per second and per request < 1.5 times normal and no preemptions; at most half of the pool.

    Stalls that last longer than they did point at something that grows with uptime (a heap), and a restart cures them for a
    while.

Signals
    inter_token_latency_seconds, requests_running, prefix-cache counters, preemptions_total.

Look-alikes
    slow_replica (all steps slower), head_of_line (long prefills stretch many steps), kv_eviction_storm (preemption stops single
    requests), kv_transfer_slow.

Source
    incidents.md A5: vllm#48229, vllm#33575, vllm#14902.
"""

from __future__ import annotations

import numpy as np

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import ITL, QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stalls import HIST, SPAN_S, Stalls, learn_stalls, stalls
from detectors.stats import zeroed
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, seconds, times

_FLOORS = {"itl": 0.05, "running": 0.1, "waiting": 0.1, "compute": 0.1, "work": 0.1, "sm_clock": 0.01}
GROWS = 1.25


class HostStall:
    """See the module's docstring."""

    kind = "host_stall"
    needs = needs("running", "waiting", "hits", "queries", "finished", "preempted", "retracted", "sm_clock")
    hists = (TTFT, f"{QUEUE}:mean", HIST)

    def fit(self, history: Window, as_of: float) -> Json:
        """How many gaps went beyond each edge, and the normal of steps and load."""
        return {
            **learn(history, as_of, _FLOORS, block_s=120.0),
            "stalls": learn_stalls(history),
            "tail": learn_tail(history, as_of),
        }

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool with stalling replicas."""
        normal = Normal.of(baseline, window)
        found = stalls(window, baseline["stalls"], normal)
        here = found.here & (window.since_restart(int(900 // window.step)) > 600)
        if not here.any():
            return Verdict()
        m = now(window, max(1, int(SPAN_S // window.step)), *_FLOORS, "preempted_per_finished")
        with np.errstate(invalid="ignore"):
            more = np.fmax(normal.factor("compute", m["compute"]), normal.factor("work", m["work"]))
            here &= ~(more >= 1.5) & ~(m["preempted_per_finished"] >= 0.05)
        findings = []
        for pool, idx in window.pools.items():
            hit = idx[here[idx]]
            if len(hit) and len(hit) <= max(1, len(idx) // 2):
                case = Case(window, pool, hit, idx, normal, m)
                findings.append(self._finding(case, baseline, found))
        return Verdict(findings, {})

    def _finding(self, case: Case, baseline: Json, found: Stalls) -> Finding:
        who, c, v = names(case.replicas), case.before, case.now
        many = mean(found.stalls[case.units]) * 60.0 / SPAN_S
        long, edge = mean(found.seconds[case.units]), float(np.nanmax(found.edge[case.units]))
        earlier = _earlier(case, baseline)
        grows = earlier == earlier and long >= GROWS * earlier
        trend = f" They last longer than ten minutes ago ({seconds(earlier)})." if grows else ""
        peers = found.k[case.peers]
        return case.finding(
            self.kind,
            title=f"Host stalls on {who}: a step stops for {seconds(long)}, {number(many)} times a minute",
            cause=f"{number(many)} steps a minute of {who} take {seconds(long)}, all others {seconds(v['itl'])} on average as "
            f"before; nothing queues for it and no prefill explains it: the host or the front end stops the engine.{trend}",
            links=(
                Link("gaps between tokens grow on average", "itl", 1.02 * c["itl"], show=seconds),
                Link("requests queue", "waiting", 2 + 2 * zeroed(c["waiting"]), show=number),
            ),
            onset=case.window.end - SPAN_S,
            strength=float(np.log2(1.0 + many * long)),
            confidence=0.85,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="slow_replica",
            evidence=(
                Row(
                    ITL,
                    unit=f"gaps beyond {seconds(edge)} in 3 min",
                    now=float(found.k[case.units].sum()),
                    before=float((found.usual * found.n)[case.units].sum()),
                    note=f"of {number(float(found.n[case.units].sum()))}, p = {float(found.p[case.units].max()):.1g}",
                    scope=who,
                ),
                Row(
                    ITL,
                    unit="s (one stall)",
                    now=long,
                    before=earlier,
                    scope=who,
                    note="before: ten minutes ago",
                ),
                Row(
                    ITL,
                    unit="× normal",
                    now=mean(found.body[case.units]),
                    before=1.0,
                    note="mean of all other gaps",
                    scope=who,
                ),
                Row(
                    ITL,
                    unit=f"gaps beyond {seconds(edge)} in 3 min",
                    now=mean(peers) if len(peers) else None,
                    scope="peers",
                ),
                Row("requests_running", "running", "requests", scope=who),
                Row("gpu_sm_clock_hz", "sm_clock", "Hz", scope=who),
            ),
            ruled_out=(
                RuledOut(
                    "slow_replica",
                    "mean of the gaps that are no stalls",
                    f"{times(mean(found.body[case.units]))} of its normal",
                ),
                RuledOut(
                    "head_of_line",
                    "prompt tokens computed per second",
                    f"{number(c['compute'])} → {number(v['compute'])}",
                ),
                RuledOut(
                    "kv_eviction_storm",
                    "preemptions per finished request",
                    f"{zeroed(v['preempted_per_finished']):.2g}",
                ),
            ),
            now=(
                f"Look at CPU, memory and other processes on the host of {who} (top, vmstat 1, py-spy dump)",
                f"Restart {who}: stalls of a growing heap go away for a while"
                if grows
                else f"Drain {who} if users complain",
            ),
            tomorrow=(
                "Give the engine CPUs of its own; freeze or tune Python's garbage collector (gc.freeze)",
                "Alert on the share of gaps beyond a second, not on p95",
            ),
            detail={"grows": grows},
        )


def _earlier(case: Case, baseline: Json) -> float:
    """How long a stall was ten minutes ago, in seconds; NaN where there was none."""
    before = case.window.upto(case.window.stop - int(600 // case.window.step))
    if before.stop <= before.start:
        return float("nan")
    then = stalls(before, baseline["stalls"], case.normal)
    return mean(np.where(then.stalls >= 1.0, then.seconds, np.nan)[case.units])
