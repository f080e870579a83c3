"""Warming up: a process started a short while ago, its caches are cold and its first requests slow. For information.

Idea
    After a start the first prefill compiles, and no prefix is cached. That passes by itself; it explains slow requests of one
    replica, wakes nobody and absorbs nothing.

Formula
    A start (or a first scrape of a new replica in a pool that was there before) within ten minutes, at least one first token, and
    mean time to first token >= 2 x normal, or prefix hits 20 points below normal, over the last two minutes.

Signals
    process starts, ttft_seconds, prefix_cache_hit_tokens_total, prefix_cache_queries_tokens_total.

Look-alikes
    kv_eviction_storm and prefix_cache_loss (no start), capacity_lost (three starts in half an hour), a slow replica that stays
    slow after ten minutes: then it is no warm-up any more.

Source
    incidents.md A7: vllm#39790 (1,537 ms, then 58 ms), azrtydxb/Fastllm-proxy#22 (0 hits of 57 after a restart).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.measures import TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.window import Window
from detectors.wording import names, percent, seconds

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {"ttft": 0.15, "hit": 0.01, "running": 0.15}
WARM_S, SLOWER, COLDER = 600.0, 2.0, 0.2


class WarmUp:
    """See the module's docstring."""

    kind = "warm_up"
    needs = needs("running", "hits", "queries")
    hists = (TTFT,)

    def fit(self, history: Window, as_of: float) -> Json:
        """Normal time to first token and prefix hits."""
        return learn(history, as_of, _FLOORS, block_s=120.0)

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool."""
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n")
        age = _age(window)
        with np.errstate(invalid="ignore"):
            slow = normal.factor("ttft", m["ttft"], 1e-3) >= SLOWER
            cold = normal.centre["hit"] - m["hit"] >= COLDER
            hit = (age <= WARM_S) & (m["n"] >= 1) & (slow | cold)
        findings = [
            self._finding(window, normal, m, pool, idx, idx[hit[idx]], age)
            for pool, idx in window.pools.items()
            if hit[idx].any()
        ]
        return Verdict(findings, {})

    def _finding(
        self, window: Window, normal: Normal, m: dict[str, F], pool: str, idx: Units, hit: Units, age: F
    ) -> Finding:
        case = Case(window, pool, hit, idx, normal, m)
        c, v = case.before, case.now
        onset = window.end - float(age[hit].max())
        return case.finding(
            self.kind,
            title=f"{names(case.replicas)} warms up: first token after {seconds(v['ttft'])} (normal {seconds(c['ttft'])})",
            cause=f"{names(case.replicas)} started {seconds(float(age[hit].max()))} ago: its caches are cold, prefix hits "
            f"{percent(c['hit'])} → {percent(v['hit'])}.",
            onset=onset,
            confidence=0.9,
            severity="info",
            runner_up="slow_replica",
            with_p99=False,
            evidence=(
                Row("ttft_seconds", "ttft", "s (mean)"),
                Row("prefix_cache_hit_tokens_total", "hit", "share"),
                Row("process_start_time_seconds", unit="s since the start", now=float(age[hit].max())),
            ),
            ruled_out=(
                RuledOut(
                    "prefix_cache_loss",
                    "a start explains a cold cache",
                    f"{seconds(float(age[hit].max()))} ago",
                ),
                RuledOut("capacity_lost", "three starts in half an hour", "fewer"),
                RuledOut("slow_replica", "still slow ten minutes after the start", "not yet ten minutes"),
            ),
            now=["Nothing: it passes. Send it less until its caches are warm, if the router can"],
            tomorrow=["Warm it with a few prompts before it takes traffic; ramp traffic up after a start"],
            detail={"chain": [{"at": onset, "what": "started", "value": names(case.replicas)}], "harm": {}},
        )


def _age(window: Window) -> F:
    """Seconds since each replica's last start, or since its first scrape where its pool is older than itself; inf for others."""
    out = window.since_restart(min(int(WARM_S // window.step) + 1, window.stop - window.start))
    scraped = ~np.isnan(window.value("span"))
    width = scraped.shape[1]
    first = np.where(scraped.any(axis=1), np.argmax(scraped, axis=1), width)
    for idx in window.pools.values():
        young = idx[(first[idx] > first[idx].min() + int(WARM_S // window.step)) & (first[idx] < width)]
        out[young] = np.minimum(out[young], (width - first[young]) * window.step)
    return out
