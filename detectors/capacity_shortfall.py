"""Capacity shortfall: more is asked than the pool can serve, and the queue grows on all of its replicas.

Idea
    Requests wait for a slot while everything else is as usual: nothing is computed twice, no replica is slow, work progresses.
    All replicas move together; a queue on one of them is skew or a slow replica, not shortage.

Formula
    Per replica, ``x0`` = own normal::

        long queue   over one minute waiting >= 3 + 4 x0, and it takes long: queue time >= 5 x0 and >= a tenth of the objective,
                     or waiting / first tokens per second (Little's law) >= half the objective and >= 5 x0
        short queue  over two minutes waiting >= 0.5 + 3 x0, queue time as above, and prefill itself as usual (< 2 x0)
        pool         at least 60 % of its replicas queue
        harm         late requests burn the error budget >= 6 times too fast (conditional binomial against the own past,
                     p < 1e-6); for a long queue also what waits now and will be late: waiting / first tokens per second
                     >= the objective

    Queue time is recorded when a request is through (vLLM: when it is finished), so what still waits must be counted as it waits.

    The owner: demand (first tokens/s + growth of the queue) >= 1.2 x0 -> traffic (limit or scale), with the tenant whose
    answered attempts grew, from the gateway's log; else replicas missing -> capacity; else service slower than usual.

Signals
    requests_waiting, requests_running, queue_time_seconds, ttft_seconds, request_success_total, kv_cache_usage_ratio,
    prefill_time_seconds, kv_transfer_time_seconds; gateway log by tenant.

Look-alikes
    kv_eviction_storm (work is redone), replica_skew and slow_replica (one replica), wedged (no progress), head_of_line (few
    long prompts), a benign surge (no queue).

Source
    incidents.md A1 and F4: dynamo#4425, vllm#8086.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.demand import Grown, grown
from detectors.late import strictest_objective
from detectors.measures import ITL, QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.parts import TTFT_HISTS, TTFT_MEASURES, ttft_rows
from detectors.stats import zeroed
from detectors.tail import learn_tail, pool_burn
from detectors.window import Window
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]

_FLOORS = {
    "waiting": 0.1,
    "running": 0.15,
    "arrivals": 0.1,
    "done": 0.1,
    "per_running": 0.1,
    "kv": 0.1,
    "hit": 0.01,
    "itl": 0.05,
    **dict.fromkeys(TTFT_MEASURES, 0.1),
}


class CapacityShortfall:
    """See the module's docstring."""

    kind = "capacity_shortfall"
    needs = needs("running", "waiting", "kv", "finished", "hits", "queries", "preempted", "retracted")
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean", *TTFT_HISTS)

    def __init__(self, span_s: float = 60.0, learn_s: float = 120.0, share: float = 0.6) -> None:
        self.span_s = span_s
        self.learn_s = learn_s
        self.share = share

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of load and queue, and the past of late requests."""
        out = learn(history, as_of, _FLOORS, block_s=self.learn_s)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that is short."""
        cells = max(1, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n", "finished", "preempted_per_finished", "wait_ahead")
        latest = now(window, max(1, cells // 2), "waiting")["waiting"]
        wide = now(window, max(1, int(self.learn_s // window.step)), "waiting", "queue", "prefill_seconds")
        goal = strictest_objective(window)
        with np.errstate(invalid="ignore"):
            usual = np.maximum(zeroed(normal.centre["queue"]), 0.01)
            waits = np.fmin(m["waiting"], latest) >= 3.0 + 4.0 * zeroed(normal.centre["waiting"])
            queued = (m["queue"] >= 5 * usual) & (m["queue"] >= 0.1 * goal)
            ahead = (m["wait_ahead"] >= 0.5 * goal) & ~(m["wait_ahead"] < 5 * usual)
            works = (m["finished"] > 0) | (m["n"] > 0)
            long = waits & (queued | ahead) & works
            short = (
                (wide["waiting"] >= 0.5 + 3.0 * zeroed(normal.centre["waiting"]))
                & (wide["queue"] >= np.maximum(5 * usual, 0.1 * goal))
                & (wide["prefill_seconds"] < 2 * np.maximum(normal.centre["prefill_seconds"], 0.02))
                & works
            )
            queueing = long | short
        findings = []
        for pool, idx in window.pools.items():
            seen = idx[~np.isnan(m["waiting"][idx])]
            hit = seen[queueing[seen]]
            if not len(seen) or len(hit) < max(1, int(np.ceil(self.share * len(seen)))):
                continue
            burn = pool_burn(window, baseline["tail"], int(self.learn_s // window.step), hit)
            if burn is None:
                # Nobody promised anything here; that first tokens take five times as long by waiting alone is a ticket.
                ttft = np.maximum(usual + zeroed(normal.centre["prefill_seconds"]), 0.2)
                if float(np.median(zeroed(wide["queue"] / ttft)[hit])) >= 5.0:
                    findings.append(self._finding(Case(window, pool, hit, seen, normal, m), False))
                continue
            late = burn.p <= 1e-6 and burn.burn >= 6.0 and burn.k >= 5
            will = float(np.median(np.where(long, m["wait_ahead"] / goal, 0.0)[hit]))
            if late or will >= 1.0:
                case = Case(window, pool, hit, seen, normal, m)
                urgent = will >= 2.0 or (late and burn.burn >= 14.4)
                findings.append(self._finding(case, urgent))
        return Verdict(findings, {})

    def _finding(self, case: Case, urgent: bool) -> Finding:
        c, v = case.before, case.now
        demand, factor = _demand(case)
        surge = factor >= 1.2
        whose = (
            next((g for g in grown(case.window, case.pool) if g.p < 1e-6 and g.share >= 0.3), None)
            if surge
            else None
        )
        owner = (
            f"demand is {times(factor)} of normal: a traffic limit or more replicas{_whose(whose)}"
            if surge
            else "demand is normal: fewer replicas or slower service than usual"
        )
        return case.finding(
            self.kind,
            title=f"Capacity shortfall on {case.pool}: {number(v['waiting'])} requests wait on each replica",
            cause=f"{number(v['waiting'])} requests wait on each of {names(case.replicas)}, {seconds(v['wait_ahead'])} of work "
            f"before the last of them; {owner}. Work progresses and nothing is computed twice.",
            links=_links(c),
            strength=float(np.log2(1 + max(v["waiting"], 0.0))),
            confidence=0.9 if surge else 0.7,
            severity="page" if urgent else "ticket",
            runner_up="kv_eviction_storm" if v["hit"] < c["hit"] - 0.1 else "retry_storm",
            evidence=(
                Row("requests_waiting", "waiting", "requests per replica"),
                Row(
                    "arrivals",
                    unit="requests/s per replica",
                    note="first tokens plus growth of the queue",
                    now=demand,
                    before=c["arrivals"],
                ),
                *([_row(whose)] if whose else []),
                Row("requests_running", "running", "requests per replica"),
                *ttft_rows(case),
                Row("request_success_total", "done", "finished/s per replica"),
                Row("kv_cache_usage_ratio", "kv", "0..1"),
            ),
            ruled_out=_ruled_out(case, c, v),
            now=(
                "Add replicas, or send part of the traffic to another pool",
                f"Limit {whose.who if whose else 'the tenant or class that grew'} at the gateway "
                "(503 with Retry-After, never 408)",
            ),
            tomorrow=(
                "Scale on queue time and waiting requests (an autoscaler on GPU "
                "utilisation sees nothing: it is 100 % either way)",
                "Check --max-num-seqs (vLLM) / --max-running-requests (SGLang): KV has room"
                if v["kv"] < 0.7
                else "KV is nearly full as well: more slots would not help",
            ),
            detail={
                "owner": "traffic" if surge else "capacity",
                "whose": whose.who if whose else "",
            },
        )


def _demand(case: Case) -> tuple[float, float]:
    """Requests per second and replica that are asked for now, and how many times the normal that is."""
    wait = case.window.value("waiting", 8)[case.units]
    known = wait.shape[1] == 8 and not np.isnan(wait).all(axis=0).any()
    growth = (
        float(np.nanmean(wait[:, -2:]) - np.nanmean(wait[:, :2])) / (6 * case.window.step) if known else 0.0
    )
    demand = case.now["arrivals"] + max(growth, 0.0)
    before = case.before["arrivals"]
    return demand, demand / before if before > 0 else float("nan")


def _whose(g: Grown | None) -> str:
    return (
        f" ({g.who} sends {_times(g)} of its usual, {percent(min(g.share, 1.0))} of the growth)" if g else ""
    )


def _times(g: Grown) -> str:
    return times(g.factor) if np.isfinite(g.factor) else "far more"


def _row(g: Grown) -> Row:
    return Row("gateway log", unit="answered attempts/min", note=g.who, now=g.now, before=g.before)


def _links(c: Mapping[str, float]) -> list[Link]:
    return [
        Link(
            "more requests arrive", "arrivals", 1.2 * c["arrivals"], show=lambda x: f"{x:.2g}/s per replica"
        ),
        Link("all slots fill", "running", 1.5 * max(c["running"], 1.0), show=number),
        Link("requests queue", "waiting", 3.0 + 4 * c["waiting"], show=number),
        Link("queueing makes the first token late", "queue", max(5 * c["queue"], 0.05), show=seconds),
    ]


def _ruled_out(case: Case, c: Mapping[str, float], v: Mapping[str, float]) -> tuple[RuledOut, ...]:
    return (
        RuledOut(
            "kv_eviction_storm",
            "redone work costs prefill time; preemptions",
            f"prefill {seconds(c['prefill_seconds'])} → {seconds(v['prefill_seconds'])}, "
            f"{v['preempted_per_finished']:.2g} preemptions per finished request, KV {percent(v['kv'])}",
        ),
        RuledOut(
            "replica_skew",
            "one replica queues while others idle",
            f"{len(case.units)} of {len(case.seen)} replicas queue",
        ),
        RuledOut(
            "wedged",
            "no progress while work waits",
            f"{v['done']:.2g} requests/s finish per replica (normal {c['done']:.2g})",
        ),
        RuledOut(
            "slow_replica",
            "decode step time at own normal",
            f"ITL {seconds(c['itl'])} → {seconds(v['itl'])} at {number(c['running'])} "
            f"→ {number(v['running'])} running, on all replicas",
        ),
    )
