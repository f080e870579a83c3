"""Adapter thrash: more LoRA adapters are asked for than fit, so they are loaded and dropped in turn.

Idea
    A request whose adapter is not on the GPU waits until it has been loaded, and the load holds up the batch. Slots and
    memory are free meanwhile, demand and prompts are as ever, and yet first tokens come late: that is the signature. Engines
    export how many adapters are in use, not how often they are swapped, so the thrash is inferred from what it does.

Formula
    Over four minutes, per replica with adapters in use (as many as it ever had, at least two), against its own normal:
    prefill without queue >= 2 x and z >= 5 at computed tokens per request <= 1.4 x; it grew at least 1.5 times as much as
    the time per engine output (a slow engine slows both alike); demand <= 1.25 x; KV usage < 70 %; clocks >= 90 % where
    they are exported. On at least half of the pool's replicas, no restart in ten minutes, no release in the half hour before
    the onset.

Signals
    lora_info, ttft_seconds, queue_time_seconds, inter_token_latency_seconds, prefix_cache_queries_tokens_total,
    prefix_cache_hit_tokens_total, requests_running, requests_waiting, kv_cache_usage_ratio, gpu_sm_clock_hz.

Look-alikes
    capacity_shortfall (demand up, or slots full), throughput_regression (first and further tokens slow down alike, after a
    release), slow_replica (one replica, clocks), kv_eviction_storm (memory full, tokens computed again), offload_thrash (a
    second KV tier).

Source
    Behaviour of max_loras in vLLM and of the LoRA pool in SGLang (engine documentation); no public time series of a case is
    known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.chain import Link
from detectors.changes import releases, untouched
from detectors.contract import Json, Verdict
from detectors.measures import ITL, QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.tail import learn_tail
from detectors.window import Window, nansum
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]

_FLOORS = {
    "prefill_seconds": 0.15,
    "itl": 0.1,
    "work": 0.1,
    "arrivals": 0.1,
    "running": 0.15,
    "waiting": 0.1,
    "kv": 0.1,
    "sm_clock": 0.02,
    "adapters": 0.1,
}
CHANGED_S = 1800.0


class LoraThrash:
    """See the module's docstring."""

    kind = "lora_thrash"
    needs = needs("running", "waiting", "kv", "hits", "queries", "adapters", "sm_clock")
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean")

    def __init__(self, span_s: float = 240.0, least_requests: int = 8) -> None:
        self.span_s = span_s
        self.least_requests = least_requests

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of pace and load, and the most adapters that each replica had in use."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s, min_requests=self.least_requests)
        out["tail"] = learn_tail(history, as_of)
        x = history.value("adapters")
        most = np.max(np.where(np.isnan(x), 0.0, x), axis=1, initial=0.0)
        out["most"] = most.tolist()
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose adapters thrash."""
        cells = max(2, int(self.span_s // window.step))
        if np.isnan(nansum(window.value("adapters", cells))).all():
            return Verdict()
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n")
        known = dict(zip(baseline.get("units", []), baseline.get("most", []), strict=True))
        most = np.asarray([known.get(u.key, 0.0) for u in window.units])
        with np.errstate(invalid="ignore", divide="ignore"):
            prefill = normal.factor("prefill_seconds", m["prefill_seconds"], 0.02)
            steps = np.fmax(normal.factor("itl", m["itl"]), 1.0)
            thrash = (
                (m["n"] >= self.least_requests)
                & (m["adapters"] >= np.maximum(2.0, 0.9 * most))
                & (prefill >= 2.0)
                & (normal.z("prefill_seconds", m["prefill_seconds"]) >= 5)
                & ~(normal.factor("work", m["work"]) > 1.4)
                & ~(prefill < 1.5 * steps)
                & ~(normal.factor("arrivals", m["arrivals"]) > 1.25)
                & ~(m["kv"] >= 0.7)
                & ~(normal.factor("sm_clock", m["sm_clock"]) < 0.9)
                & untouched(window, 600.0)
            )
        findings = []
        for pool, idx in window.pools.items():
            hit, seen = idx[thrash[idx]], idx[m["n"][idx] > 0]
            if not len(hit) or 2 * len(hit) < len(seen):
                continue
            case = Case(window, pool, hit, seen, normal, m)
            f = self._finding(case, baseline)
            if not releases(window, pool, f.onset - CHANGED_S, f.onset + 60.0):
                findings.append(f)
        return Verdict(findings, {})

    def _finding(self, case: Case, baseline: Json) -> Finding:
        c, v = case.before, case.now
        pace = times(case.factor("prefill_seconds", 0.02))
        return case.finding(
            self.kind,
            title=f"LoRA adapters thrash on {case.pool}: prefill {seconds(c['prefill_seconds'])} → "
            f"{seconds(v['prefill_seconds'])}",
            cause=f"All {number(v['adapters'])} adapter slots of {names(case.replicas)} are in use and prefill takes {pace} its "
            f"normal at the same prompts and demand, with {percent(1 - v['kv'])} of the KV free and "
            f"{number(v['waiting'])} requests "
            "waiting: requests wait for adapters to be loaded. (Swaps themselves are not exported; this is inferred.)",
            links=[
                Link(
                    "first tokens wait for an adapter",
                    "prefill_seconds",
                    1.5 * max(c["prefill_seconds"], 0.02),
                    show=seconds,
                ),
                Link("loads hold up the batch", "itl", 1.15 * c["itl"], show=seconds),
                Link(
                    "requests queue", "waiting", c["waiting"] + 1.0, show=lambda x: f"{number(x)} per replica"
                ),
            ],
            strength=float(np.log2(max(case.factor("prefill_seconds", 0.02), 1.0))),
            confidence=0.7,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="capacity_shortfall",
            evidence=(
                Row("lora_info", "adapters", "adapters in use"),
                Row("ttft_seconds", "prefill_seconds", "s without queue (mean)"),
                Row("inter_token_latency_seconds", "itl", "s (mean)"),
                Row("prefix_cache_queries_tokens_total", "work", "tokens computed per request"),
                Row("requests_waiting", "waiting", "requests"),
                Row("kv_cache_usage_ratio", "kv", "0..1"),
            ),
            ruled_out=(
                RuledOut(
                    "capacity_shortfall",
                    "demand is up when capacity is short",
                    f"first tokens per second {number(c['arrivals'])} → {number(v['arrivals'])} on each replica",
                ),
                RuledOut(
                    "kv_eviction_storm",
                    "memory is full and tokens are computed again",
                    f"KV {percent(c['kv'])} → {percent(v['kv'])}, computed tokens per request {number(c['work'])} "
                    f"→ {number(v['work'])}",
                ),
                RuledOut(
                    "throughput_regression",
                    "a slow engine slows first and further tokens alike, after a release",
                    f"prefill {pace}, time per output {times(case.factor('itl'))}; no release in half an hour",
                ),
            ),
            now=[
                "Pin adapters to replicas: route by adapter, so that each replica serves few of them",
                "Raise --max-loras (vLLM) or --max-loras-per-batch (SGLang) where memory allows",
            ],
            tomorrow=[
                "Merge or retire adapters that are rarely asked for; keep more of them in host memory (vLLM --max-cpu-loras)",
                "Watch the number of distinct adapters asked for in five minutes against the slots",
            ],
        )
