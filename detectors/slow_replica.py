"""Slow replica: one replica does the same work more slowly than its peers and than itself before.

Idea
    Decode steps take longer at more requests in the batch and more prefill beside them, so speed is only
    comparable at equal work.
    A fit over the pool's own past gives the step time expected for what a replica is doing now; each replica's
    usual deviation from
    it is learnt as well. A replica that leaves its own deviation while its peers keep theirs is slow.

Formula
    ``ratio`` of :mod:`detectors.pace`: time per token over the fit for this batch and prefill, over the own usual ratio::

        slow: ratio >= 1.2 and z >= 5 over two and over four minutes, or ratio >= 1.5 and z >= 8 over one and two;
              median ratio of the peers < 1.1, prefix hits and preemptions as usual, no restart in ten minutes
        with a GPU clock >= 10 % under its own normal and the peers' clocks as usual: ratio >= 1.1 and z >= 4 is enough,
              over one and two minutes

    Not where single stalls, not slower steps, make the mean longer (:mod:`detectors.stalls`), and not where a rank of the
    replica holds nearly all of its work (:mod:`detectors.replica_skew`). The cause is named from evidence: SM clock, power,
    uptime; else "not established".

Signals
    inter_token_latency_seconds, or requests_running over generation_tokens_total / realtime_tokens_total; requests_running,
    prefix-cache counters, gpu_sm_clock_hz, gpu_power_watts.

Look-alikes
    replica_skew (more load, same speed at that load), kv_eviction_storm (redone work), host_stall, warm_up, lock-step
    groups (EP, TP: peers move together, so clocks must speak).

Source
    incidents.md G1, A6: vllm#42484, pytorch#120787.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.pace import BLOCK_S, Pace, learn_pace
from detectors.placement import leaning_ranks
from detectors.stalls import HIST, learn_stalls, stalls
from detectors.stats import median, zeroed
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {
    "sm_clock": 0.01,
    "power": 0.05,
    "work": 0.1,
    "hit": 0.01,
    "running": 0.1,
    "itl": 0.03,
    "token_seconds": 0.05,
    "per_running": 0.1,
    "waiting": 0.1,
}


class SlowReplica:
    """See the module's docstring."""

    kind = "slow_replica"
    needs = needs(
        "running",
        "waiting",
        "hits",
        "queries",
        "finished",
        "generated",
        "live_decode",
        "preempted",
        "retracted",
        "sm_clock",
        "power",
        "kv",
    )
    hists = (TTFT, f"{QUEUE}:mean", HIST)

    def fit(self, history: Window, as_of: float) -> Json:
        """Fit of the step time per pool, each replica's usual ratio to it, and the normal of clocks and load."""
        return {
            **learn(history, as_of, _FLOORS, block_s=BLOCK_S),
            "pace": learn_pace(history),
            "stalls": learn_stalls(history),
            "tail": learn_tail(history, as_of),
        }

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a slow replica; several of one pool become one finding."""
        normal, pace = Normal.of(baseline, window), Pace.of(baseline["pace"], window)
        cells = int(BLOCK_S // window.step)
        quick, two, four = (pace.ratio(n) for n in (max(cells // 2, 1), cells, 2 * cells))
        m = now(window, cells, *_FLOORS, "preempted_per_finished")
        fast = now(window, max(cells // 2, 1), "sm_clock")
        with np.errstate(invalid="ignore", divide="ignore"):
            # A minute spreads 1.4 times as much as the two that the usual spread was learnt over.
            soon, late = np.fmin(quick, two), np.fmin(two, four)
            z_soon = np.fmin(pace.z(quick) / 1.4, pace.z(two))
            clock = fast["sm_clock"] / normal.centre["sm_clock"]
            same = (
                (window.since_restart(int(900 // window.step)) > 600)
                & ~(normal.factor("work", m["work"]) >= 2.0)
                & ~(m["preempted_per_finished"] >= 0.05)
                & (m["running"] >= 0.5)
                & pace.within_reach(m["running"])
            )
            slow = same & (
                ((late >= 1.2) & (pace.z(late) >= 5)) | ((soon >= 1.5) & (z_soon >= 8) & (two >= 1.2))
            )
            throttled = same & (clock <= 0.9) & (soon >= 1.1) & (z_soon >= 4)
        findings: list[Finding] = []
        if not (slow | throttled).any():
            return Verdict(findings, {})
        other = stalls(window, baseline["stalls"], normal).here
        for i in np.flatnonzero(slow & ~throttled):
            other[i] |= leaning_ranks(window, int(i)) is not None
        slow &= ~other
        for pool, idx in window.pools.items():
            hit = idx[(slow | throttled)[idx]]
            rest = np.setdiff1d(idx, hit)
            peers, peer_clock = median(two[rest]), median(clock[rest])
            # Without peers, or when they move too, only a clock that fell alone can speak.
            if not (len(hit) <= max(1, len(idx) // 3) and peers < 1.1):
                hit = hit[throttled[hit] & (peer_clock > 0.95 or not len(rest))]
            if len(hit):
                case = Case(window, pool, hit, idx, normal, {**m, "pace": np.fmax(two, quick)})
                findings.append(self._finding(case, baseline, mean(clock[hit]), peers, peer_clock))
        return Verdict(findings, {})

    def _finding(self, case: Case, baseline: Json, fell: float, peers: float, peer_clock: float) -> Finding:
        c, v = case.before, case.now
        how, throttle, name = v["pace"], fell <= 0.9, names(case.replicas)
        gap = "itl" if v["itl"] == v["itl"] else "token_seconds"
        why = (
            f"its GPU runs at {v['sm_clock'] / 1e6:.0f} MHz instead of {c['sm_clock'] / 1e6:.0f} MHz"
            if throttle
            else "the cause is not established: GPU clock unchanged"
            if fell == fell
            else "the cause is not established: no GPU clock is exported (dcgm-exporter)"
        )
        links = [
            Link("GPU clock falls", "sm_clock", 0.92 * c["sm_clock"], False, lambda x: f"{x / 1e6:.0f} MHz"),
            Link("gaps between tokens grow", gap, 1.15 * c[gap], show=seconds),
            Link("requests pile up on it", "running", 1.4 * max(c["running"], 1.0), show=number),
            Link("requests queue", "waiting", 2 + 2 * zeroed(c["waiting"]), show=number),
        ]
        signal = "inter_token_latency_seconds" if gap == "itl" else "generation_tokens_total"
        unit = "s (mean)" if gap == "itl" else "s per token of a running request"
        hot = "Check cooling and power limit of its host: nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE on"
        return case.finding(
            self.kind,
            title=f"Slow replica {name}: {times(how)} the time per token of the same work before",
            cause=f"{name} takes {times(how)} as long per token as it did at the same load, its peers do not; {why}.",
            links=links,
            onset=case.begun(links[:2]),
            strength=float(np.log2(max(how, 1.0))),
            confidence=0.95 if throttle else 0.8,
            severity="page" if case.hurts(baseline["tail"]) or how >= 1.5 else "ticket",
            runner_up="replica_skew" if not throttle else "",
            evidence=(
                Row(
                    signal,
                    gap,
                    unit,
                    f"{times(how)} of what this work takes",
                    expected=v[gap] / how if how else None,
                    scope=name,
                ),
                Row(
                    "gpu_sm_clock_hz",
                    "sm_clock",
                    "Hz",
                    f"peers at {percent(peer_clock)} of their normal",
                    scope=name,
                ),
                Row(
                    signal,
                    unit="× expected",
                    note=f"{len(case.peers)} replicas as control group",
                    now=peers,
                    before=1.0,
                    scope="peers",
                ),
                Row("requests_running", "running", "requests", scope=name),
                Row("gpu_power_watts", "power", "W", scope=name),
            ),
            ruled_out=(
                RuledOut(
                    "replica_skew",
                    "time per token at equal batch and prefill work (fit over the pool's past)",
                    f"{times(how)} after load is taken out",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "peers under the same traffic",
                    f"peers at ×{peers:.2f} of expected" if peers == peers else "no peers",
                    peers < 1.1,
                ),
                RuledOut(
                    "kv_eviction_storm",
                    "computed tokens per request and preemptions",
                    f"{number(c['work'])} → {number(v['work'])} tokens, "
                    f"{zeroed(v['preempted_per_finished']):.2g} preemptions per finished request",
                ),
                RuledOut("warm_up", "restart within ten minutes", "none"),
            ),
            now=(
                f"Drain {name} (take it out of the router), its peers can carry the rest",
                *([f"{hot} {name}"] if throttle else []),
            ),
            tomorrow=(
                "Export DCGM_FI_DEV_CLOCKS_EVENT_REASONS (not in dcgm-exporter's default list): it names the throttle reason",
                "Alert on clocks per host, weigh replicas by measured speed in the router",
            ),
        )
