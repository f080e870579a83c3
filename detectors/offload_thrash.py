"""Offload thrash: a second KV tier (host memory, disk, a store) costs more than it gives back, or gives nothing back at all.

Idea
    Two faults of one part. *Slow*: prefixes are found as ever, so nothing is computed again, and yet the first token takes
    several times as long: they are found in a tier that is slow to load from. *Inert*: blocks are written out and none is
    ever read back. A labelled counter that never appeared means "never happened", not "unknown".

Formula
    There is a tier: its counters are exported, or it is inferred where sessions need more KV than the GPU has (usual
    r = capacity ÷ (sessions × context) <= 0.75) and still hit r + 25 points or more.

    slow    over four minutes, against the own normal: prefill without queue >= 2.5 x and z >= 5, at computed tokens per
            request <= 1.4 x and hits not down by 5 points; it grew at least 1.5 times as much as the time per engine output;
            demand <= 1.25 x; on at least half of the pool; no restart in ten minutes, no release in the half hour before the
            onset
    inert   over thirty minutes: at least 50,000 tokens looked up in the tier and under 1 % of them found; where look-ups of
            the tier are not exported, written out throughout, as many looked up on the device, and nothing read back

Signals
    host_kv_offload, external_prefix_cache; ttft_seconds, queue_time_seconds, inter_token_latency_seconds,
    prefix_cache_queries_tokens_total, prefix_cache_hit_tokens_total, kv_cache_capacity; sampled outputs with session ids.

Look-alikes
    prefix_cache_loss and kv_eviction_storm (hits fell, tokens are computed again), throughput_regression (first and further
    tokens slow down alike, after a release), lora_thrash (adapters), capacity_shortfall (demand), a tier that is still filling.

Source
    incidents.md B5: lmc#4847, lmc#970, sglang#33713, sglang#17193, dynamo#6353, vllm-ascend#10574.
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
from detectors.pd import roles
from detectors.sessions import usual_r
from detectors.stats import zeroed
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]
B = NDArray[np.bool_]

_FLOORS = {
    "prefill_seconds": 0.15,
    "itl": 0.1,
    "hit": 0.01,
    "work": 0.1,
    "arrivals": 0.1,
    "running": 0.15,
    "waiting": 0.1,
    "kv": 0.1,
}
_TIER = ("tier_loaded", "tier_stored", "tier_queries", "tier_hits", "store_read", "store_written")
INERT_S = 1800.0
LOOKED_UP = 50_000
CHANGED_S = 1800.0
EXPORTED = "The tier is exported by the engine."


class OffloadThrash:
    """See the module's docstring."""

    kind = "offload_thrash"
    needs = needs("running", "waiting", "kv", "kv_capacity", "hits", "queries", "generated", *_TIER)
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean", "kv_transfer_time_seconds:mean")

    def __init__(self, span_s: float = 240.0, least_requests: int = 8) -> None:
        self.span_s = span_s
        self.least_requests = least_requests

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of pace and hits, and how the sessions usually fit the GPUs' memory."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s, min_requests=self.least_requests)
        out["tail"] = learn_tail(history, as_of)
        out["r"] = {p: usual_r(history, idx, as_of - 600.0) for p, idx in history.pools.items()}
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose second tier is slow or inert."""
        cells = max(2, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n")
        slow, inert = self._slow(window, normal, m), _inert(window)
        findings = []
        for pool, idx in window.pools.items():
            seen = idx[m["n"][idx] > 0]
            why = _tier(window, baseline, normal, pool, idx)
            hit = idx[slow[idx]]
            if why and len(hit) and 2 * len(hit) >= len(seen):
                f = self._thrash(Case(window, pool, hit, seen, normal, m), baseline, why)
                if not releases(window, pool, f.onset - CHANGED_S, f.onset + 60.0):
                    findings.append(f)
                    continue
            still = idx[inert[idx]]
            if len(still):
                findings.append(self._inert_finding(Case(window, pool, still, seen, normal, m)))
        return Verdict(findings, {})

    def _slow(self, window: Window, normal: Normal, m: dict[str, F]) -> B:
        with np.errstate(invalid="ignore", divide="ignore"):
            prefill = normal.factor("prefill_seconds", m["prefill_seconds"], 0.02)
            steps = np.fmax(normal.factor("itl", m["itl"]), 1.0)
            return (
                (m["n"] >= self.least_requests)
                & (prefill >= 2.5)
                & (normal.z("prefill_seconds", m["prefill_seconds"]) >= 5)
                & (normal.factor("work", m["work"]) <= 1.4)
                & (m["hit"] >= normal.centre["hit"] - 0.05)
                & ~(prefill < 1.5 * steps)
                & ~(normal.factor("arrivals", m["arrivals"]) > 1.25)
                & untouched(window, 600.0)
            )

    def _thrash(self, case: Case, baseline: Json, why: str) -> Finding:
        c, v = case.before, case.now
        pace = times(case.factor("prefill_seconds", 0.02))
        return case.finding(
            self.kind,
            title=f"KV offload thrashes on {case.pool}: hits stay at {percent(v['hit'])}, prefill "
            f"{seconds(c['prefill_seconds'])} → "
            f"{seconds(v['prefill_seconds'])}",
            cause=f"Prefixes are found as ever on {names(case.replicas)} and no more is computed "
            f"({number(v['work'])} tokens a request, "
            f"normal {number(c['work'])}), yet the first token takes {pace} its normal: loading from the second "
            f"KV tier is slow. {why}",
            links=[
                Link(
                    "first tokens wait for loads",
                    "prefill_seconds",
                    1.5 * max(c["prefill_seconds"], 0.02),
                    show=seconds,
                ),
                Link("copies hold up the batch", "itl", 1.15 * c["itl"], show=seconds),
                Link("more requests run at once", "running", 1.5 * max(c["running"], 1.0), show=number),
                Link(
                    "requests queue", "waiting", c["waiting"] + 1.0, show=lambda x: f"{number(x)} per replica"
                ),
            ],
            strength=float(np.log2(max(case.factor("prefill_seconds", 0.02), 1.0))),
            confidence=0.8 if why == EXPORTED else 0.65,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="throughput_regression",
            evidence=(
                Row("ttft_seconds", "prefill_seconds", "s without queue (mean)"),
                Row("prefix_cache_hit_tokens_total", "hit", "share of prompt tokens"),
                Row("prefix_cache_queries_tokens_total", "work", "tokens computed per request"),
                Row("inter_token_latency_seconds", "itl", "s (mean)"),
                Row("requests_running", "running", "requests"),
            ),
            ruled_out=(
                RuledOut(
                    "kv_eviction_storm",
                    "evicted prefixes are computed again",
                    f"hits {percent(c['hit'])} → {percent(v['hit'])}, computed tokens {number(c['work'])} → {number(v['work'])}",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "demand is up when capacity is short",
                    f"first tokens per second {number(c['arrivals'])} → {number(v['arrivals'])} on each replica",
                ),
                RuledOut(
                    "throughput_regression",
                    "a slow engine slows first and further tokens alike, after a release",
                    f"prefill {pace}, time per output {times(case.factor('itl'))}; no release in half an hour",
                ),
            ),
            now=[
                "Turn the tier off on one replica and compare: computing again may be quicker than loading (vLLM "
                "--kv-offloading-size 0, SGLang without --enable-hierarchical-cache)"
            ],
            tomorrow=_TOMORROW,
            detail={"which": "slow", "tier": why},
        )

    def _inert_finding(self, case: Case) -> Finding:
        w, cells = case.window, int(INERT_S // case.window.step)

        def total(*names_: str) -> float | None:
            x = np.concatenate([w.total(n, cells)[case.units] for n in names_])
            return float(np.nansum(x)) if not np.isnan(x).all() else None

        written = total("tier_stored", "store_written")
        asked, found = total("tier_queries"), total("tier_hits", "store_read")
        loaded = total("tier_loaded")
        words = (
            f"{number(found or 0.0)} of {number(asked)} tokens found"
            if asked
            else "nothing was ever read back"
        )
        return case.finding(
            self.kind,
            title=f"KV offload on {case.pool} gives nothing back: {words} in {INERT_S / 60:.0f} min",
            cause=f"The second KV tier of {names(case.replicas)} is written to and not read: {words}. It costs "
            "copies, memory and "
            "bandwidth and saves no prefill. A counter that never appeared counts as 0: it never happened.",
            onset=case.window.end - INERT_S,
            strength=1.0,
            confidence=0.8,
            severity="ticket",
            runner_up="prefix_cache_loss",
            with_p99=False,
            evidence=(
                Row("host_kv_offload", unit="written out in 30 min, as exported", now=written),
                Row("host_kv_offload", unit="loaded back in 30 min, as exported", now=loaded or 0.0),
                Row("external_prefix_cache", unit="tokens found in 30 min", now=found or 0.0),
                Row("external_prefix_cache", unit="tokens looked up in 30 min", now=asked),
                Row("prefix_cache_hit_tokens_total", "hit", "share, on the device"),
            ),
            ruled_out=(
                RuledOut(
                    "prefix_cache_loss",
                    "hits on the device",
                    f"{percent(case.before['hit'])} → {percent(case.now['hit'])}",
                ),
                RuledOut(
                    "warm_up",
                    "a tier that is still filling",
                    "no restart in thirty minutes",
                ),
                RuledOut(
                    "telemetry_fault",
                    "a counter that is not exported",
                    "writes are counted, so the tier does report",
                ),
            ),
            now=[
                "Nothing is burning: turn the tier off at the next restart, or find out why reads miss (key, "
                "page size, salt, version)"
            ],
            tomorrow=_TOMORROW,
            detail={"which": "inert"},
        )


_TOMORROW = [
    "Keep a ledger per tier: written out, found, loaded back; a tier under 1 % found does not pay",
    "Measure the load path: PCIe or NUMA placement, pinned memory, transfer size (SGLang --hicache-io-backend, "
    "LMCache chunk size)",
]


def _inert(window: Window) -> B:
    """Replicas whose tier gave back next to nothing in the last half hour, though it was asked or written to."""
    cells = int(INERT_S // window.step)
    out = np.zeros(len(window.units), bool)
    if window.stop - window.start < cells or not len(out):
        return out
    with np.errstate(invalid="ignore"):
        written = np.fmax(
            zeroed(window.value("tier_stored", cells)),
            zeroed(window.value("store_written", cells)),
        )
        always = (written[:, : cells // 3 * 3].reshape(len(out), 3, -1).sum(axis=2) > 0).all(axis=1)
        asked = window.total("tier_queries", cells)
        found = zeroed(window.total("tier_hits", cells)) + zeroed(window.total("store_read", cells))
        loaded = zeroed(window.total("tier_loaded", cells))
        told = (asked >= LOOKED_UP) & (found < 0.01 * asked)
        silent = (
            np.isnan(asked)
            & always
            & (window.total("queries", cells) >= LOOKED_UP)
            & (found == 0)
            & (loaded == 0)
        )
    # A replica that only computes prompts asks its connector and finds nothing there by design.
    still = (told | silent) & ~roles(window).prefill
    return np.asarray(still & untouched(window, INERT_S), bool)


def _tier(window: Window, baseline: Json, normal: Normal, pool: str, idx: NDArray[np.intp]) -> str:
    """How a second tier is known, as a sentence; empty where there is none."""
    known = [n for n in _TIER if not np.isnan(window.value(n, 240)[idx]).all()]
    if known:
        return EXPORTED
    r = (baseline.get("r") or {}).get(pool)
    x = normal.centre["hit"][idx] if "hit" in normal.centre else np.zeros(0)
    hit = float(np.nanmean(x)) if len(x) and not np.isnan(x).all() else float("nan")
    if r is None or r > 0.75 or not hit >= r + 0.25:
        return ""
    return (
        f"The tier itself is not exported; it is inferred: active sessions usually need {1 / max(r, 1e-3):.1f} "
        "times the KV of the "
        f"GPUs and still found {percent(hit)} of their prompts."
    )
