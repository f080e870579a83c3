"""Capacity shortfall: more is asked than the pool can serve, and the queue grows on all of its replicas.

Idea
    Requests wait for a slot while everything else is as usual: nothing is computed twice, no replica is slow, work progresses.
    All replicas move together; a queue on one of them is skew or a slow replica, not shortage.

Formula
    Over the last two minutes, per replica, ``x0`` = own normal::

        queueing   waiting >= 3 + 4 x0 (mean) and queue time >= 5 x0 and >= a tenth of the objective
        demand     first tokens/s + growth of the queue per second
        pool       at least 60 % of its replicas queue, and late requests burn the error budget >= 6 times too fast
                   (conditional binomial against the own past, p < 1e-6)

    The owner: demand >= 1.2 x0 -> traffic (limit or scale); else replicas missing -> capacity; else service slower than usual.

Signals
    requests_waiting, requests_running, queue_time_seconds, ttft_seconds, request_success_total, kv_cache_usage_ratio.

Look-alikes
    kv_eviction_storm (work is redone), replica_skew and slow_replica (one replica), wedged (no progress), a
    benign surge (no queue).

Source
    incidents.md A1 and F4: dynamo#4425, vllm#8086.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.chain import Link, follow
from detectors.contract import Json, Verdict
from detectors.late import harm
from detectors.measures import ITL, QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.tail import learn_tail, p99_text, pool_burn
from detectors.window import Window
from detectors.wording import names, number, percent, rounded, seconds, times

F = NDArray[np.float64]

_FLOORS = {
    "waiting": 0.1,
    "running": 0.15,
    "queue": 0.1,
    "arrivals": 0.1,
    "done": 0.1,
    "prefill_seconds": 0.15,
    "per_running": 0.1,
    "kv": 0.1,
    "hit": 0.01,
    "itl": 0.05,
}


class CapacityShortfall:
    """See the module's docstring."""

    kind = "capacity_shortfall"
    needs = needs("running", "waiting", "kv", "finished", "hits", "queries", "preempted", "retracted")
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean")

    def __init__(self, span_s: float = 120.0, share: float = 0.6) -> None:
        self.span_s = span_s
        self.share = share

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of load and queue, and the past of late requests."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that is short."""
        cells = max(1, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n", "ttft", "finished", "preempted_per_finished")
        fast = now(window, max(1, cells // 2), "waiting")
        with np.errstate(invalid="ignore"):
            waits = np.fmin(m["waiting"], fast["waiting"]) >= 3.0 + 4.0 * np.nan_to_num(
                normal.centre["waiting"]
            )
            slow = (m["queue"] >= 5 * np.maximum(np.nan_to_num(normal.centre["queue"]), 0.01)) | np.isnan(
                m["queue"]
            )
            works = (m["finished"] > 0) | (m["n"] > 0)
            queueing = waits & slow & works
        findings = []
        for pool, idx in window.pools.items():
            seen = idx[~np.isnan(m["waiting"][idx])]
            hit = seen[queueing[seen]]
            if not len(seen) or len(hit) < max(1, int(np.ceil(self.share * len(seen)))):
                continue
            burn = pool_burn(window, baseline["tail"], cells, hit)
            if burn is None or burn.p > 1e-6 or burn.burn < 6.0 or burn.k < 5:
                continue
            findings.append(self._finding(window, normal, m, pool, seen, hit, burn.burn))
        return Verdict(findings, {})

    def _finding(
        self,
        window: Window,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        seen: NDArray[np.intp],
        hit: NDArray[np.intp],
        burn: float,
    ) -> Finding:
        def mean(x: F) -> float:
            y = x[hit]
            return float(np.nanmean(y)) if (~np.isnan(y)).any() else float("nan")

        c, v = {k: mean(x) for k, x in normal.centre.items()}, {k: mean(x) for k, x in m.items()}
        wait = window.value("waiting", 8)[hit]
        growth = (
            float(np.nanmean(wait[:, -2:]) - np.nanmean(wait[:, :2])) / (6 * window.step)
            if wait.shape[1] == 8 and not np.isnan(wait).all(axis=0).any()
            else 0.0
        )
        demand = v["arrivals"] + max(growth, 0.0)
        factor = demand / c["arrivals"] if c["arrivals"] > 0 else float("nan")
        classes = window.classes_of(hit)
        links = [
            Link(
                "more requests arrive",
                "arrivals",
                1.2 * c["arrivals"],
                show=lambda x: f"{x:.2g}/s per replica",
            ),
            Link("all slots fill", "running", 1.5 * max(c["running"], 1.0), show=number),
            Link("requests queue", "waiting", 3.0 + 4 * c["waiting"], show=number),
            Link("queueing makes the first token late", "queue", max(5 * c["queue"], 0.05), show=seconds),
        ]
        chain = follow(window, hit, links)
        onset = max(min((e["at"] for e in chain), default=window.end), window.end - 3600)
        hurt = dict(harm(window, hit, onset))
        p99 = next(((k, t) for k in classes if (t := p99_text(window, hit, k, 20, TTFT))), None)
        replicas = tuple(sorted(window.units[i].replica for i in hit))
        surge = factor >= 1.2
        owner = (
            f"demand is {times(factor)} of normal: a traffic limit or more replicas"
            if surge
            else "demand is normal: fewer replicas or slower service than usual"
        )
        goal = window.context.objective(p99[0]) if p99 else None
        title = f"Capacity shortfall on {pool}" + (
            f": {p99[0]} TTFT p99 {p99[1].split(' (')[0]}"
            + (f", objective {seconds(goal.threshold)}" if goal else "")
            if p99
            else ""
        )

        def row(signal: str, key: str, unit: str, note: str = "") -> Evidence:
            return Evidence(
                signal, pool, rounded(c.get(key)), rounded(v.get(key)), rounded(c.get(key)), onset, unit, note
            )

        evidence = (
            row("requests_waiting", "waiting", "requests per replica"),
            Evidence(
                "arrivals",
                pool,
                rounded(c["arrivals"]),
                rounded(demand),
                rounded(c["arrivals"]),
                onset,
                "requests/s per replica",
                "first tokens plus growth of the queue",
            ),
            row("requests_running", "running", "requests per replica"),
            row("queue_time_seconds", "queue", "s (mean)"),
            row("request_success_total", "done", "finished/s per replica"),
            row("kv_cache_usage_ratio", "kv", "0..1"),
        )
        ruled_out = (
            RuledOut(
                "kv_eviction_storm",
                "redone work costs prefill time; preemptions",
                f"prefill {seconds(c['prefill_seconds'])} → {seconds(v['prefill_seconds'])}, "
                f"{v['preempted_per_finished']:.2g} preemptions per finished request, KV {percent(v['kv'])}",
            ),
            RuledOut(
                "replica_skew",
                "one replica queues while others idle",
                f"{len(hit)} of {len(seen)} replicas queue",
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
        return Finding(
            kind=self.kind,
            scope=Scope(classes, (pool,), replicas),
            at=window.end,
            onset=onset,
            strength=float(np.log2(1 + max(v["waiting"], 0.0))),
            confidence=0.9 if surge else 0.7,
            severity="page" if burn >= 14.4 else "ticket",
            runner_up="kv_eviction_storm" if v["hit"] < c["hit"] - 0.1 else "retry_storm",
            title=title,
            cause=f"{number(v['waiting'])} requests wait on each of {names(replicas)}; "
            f"{owner}. Work progresses and nothing is computed twice.",
            evidence=tuple(e for e in evidence if e.now is not None),
            ruled_out=ruled_out,
            detail={
                "chain": chain,
                "owner": "traffic" if surge else "capacity",
                "actions": {
                    "now": [
                        "Add replicas, or send part of the traffic to another pool",
                        "Limit the tenant or class that grew at the gateway (503 with Retry-After, never 408)",
                    ],
                    "tomorrow": [
                        "Scale on queue time and waiting requests (an autoscaler on GPU "
                        "utilisation sees nothing: it is 100 % either way)",
                        "Check --max-num-seqs (vLLM) / --max-running-requests (SGLang): KV has room"
                        if v["kv"] < 0.7
                        else "KV is nearly full as well: more slots would not help",
                    ],
                },
                "harm": hurt,
            },
        )
