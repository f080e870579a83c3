"""Prefill and decode out of balance: decode has no memory left, so computed prompts cannot be handed over and prefill idles.

Idea
    Users wait for their first token although the prefill pool has time: its queue is empty, its results wait for room. The
    cause is on the other side: decode replicas are full of answers in progress. Only both sides together tell it from a shortage
    of prefill (there the prefill queue grows and decode idles: ``capacity_shortfall`` of the prefill pool) and from a slow link.

Formula
    Over two or four minutes, per decode replica, against its own normal: KV usage >= 90 % (normal below 75 %),
    output tokens per second >= 1.1 x (it works: pinned memory and wedges do not) and running >= 1.7 x; first tokens come
    >= 2 x later (their wait for room counts as TTFT there), or transfers wait >= 2 x per gigabyte. On at least half of the
    pool. And on the prefill replicas that feed it: fewer than one request waits on average and
    prefill without queue <= 1.5 x own normal.

Signals
    kv_cache_usage_ratio, requests_running, requests_waiting, generation_tokens_total, ttft_seconds, queue_time_seconds,
    kv_transfer_time_seconds.

Look-alikes
    kv_transfer_slow (room is there, the link is slow), capacity_shortfall of the prefill pool (it queues), kv_eviction_storm
    (one pool does both), stuck_requests (memory is held, few tokens flow), wedged.

Source
    incidents.md F1, F4: sglang#6351, vllm#22454, dynamo#4425.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import QUEUE, TRANSFER, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.pd import feeders, roles
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]
Units = NDArray[np.intp]

_FLOORS = {
    "kv": 0.1,
    "running": 0.15,
    "waiting": 0.1,
    "generated": 0.1,
    "output_length": 0.1,
    "ttft": 0.15,
    "prefill_seconds": 0.15,
    "transfer_seconds": 0.1,
}
FULL, USUALLY = 0.9, 0.75


class PrefillDecodeImbalance:
    """See the module's docstring."""

    kind = "prefill_decode_imbalance"
    needs = needs("running", "waiting", "kv", "generated")
    hists = (TTFT, f"{QUEUE}:mean", f"{TRANSFER}:mean", "kv_transfer_bytes:mean")

    def __init__(self, span_s: float = 240.0) -> None:
        self.span_s = span_s

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of both sides and the past of late requests."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a decode pool that is full while the prefill pool before it idles."""
        cells = max(2, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n")
        full = _full(window, normal, m) | _full(window, normal, now(window, cells // 2, *_FLOORS))
        findings = []
        for pool, idx in window.pools.items():
            hit, seen = idx[full[idx]], idx[~np.isnan(m["kv"][idx])]
            if not len(hit) or 2 * len(hit) < len(seen):
                continue
            before = feeders(window, hit)
            if len(before) and _idle(normal, m, before):
                findings.append(self._finding(Case(window, pool, hit, seen, normal, m), baseline, before))
        return Verdict(findings, {})

    def _finding(self, case: Case, baseline: Json, senders: Units) -> Finding:
        c, v = case.before, case.now
        waits = mean(case.present["waiting"][senders])
        computes = mean(case.present["prefill_seconds"][senders])
        usual = mean(case.normal.centre["prefill_seconds"][senders])
        pools = sorted({case.window.units[i].pool for i in senders})
        longer = v["output_length"] / max(c["output_length"], 1e-9)
        why = (
            f"Answers got longer ({number(c['output_length'])} → {number(v['output_length'])} tokens)."
            if longer >= 1.3
            else "More requests decode at once."
        )
        return case.finding(
            self.kind,
            title=f"{case.pool} is full ({percent(v['kv'])} of KV) while prefill idles: first token {seconds(c['ttft'])} → "
            f"{seconds(v['ttft'])}",
            cause=f"{names(case.replicas)} have no memory for new answers, so prompts that {names(pools)} has "
            "computed wait to be handed "
            f"over; there {number(waits)} requests wait and prefill takes {seconds(computes)} (normal {seconds(usual)}). {why}",
            links=[
                Link("more requests run at once", "running", 1.5 * max(c["running"], 0.5), show=number),
                Link("KV cache of the decode side fills", "kv", max(1.5 * c["kv"], 0.5), show=percent),
                Link("first tokens come later", "ttft", 2 * max(c["ttft"], 0.02), show=seconds),
            ],
            strength=float(np.log2(max(case.factor("ttft", 0.02), 1.0))),
            confidence=0.85,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="kv_transfer_slow",
            evidence=(
                Row("kv_cache_usage_ratio", "kv", "0..1"),
                Row("requests_running", "running", "requests"),
                Row("generation_tokens_total", "generated", "tokens/s"),
                Row("generation_tokens_total", "output_length", "tokens an answer"),
                Row("ttft_seconds", "ttft", "s (mean), with the wait for room"),
                Row("requests_waiting", unit="requests", now=waits, scope=names(pools), note="prefill side"),
                Row(
                    "ttft_seconds",
                    unit="s without queue",
                    now=computes,
                    before=usual,
                    scope=names(pools),
                    note="prefill side",
                ),
            ),
            ruled_out=(
                RuledOut(
                    "kv_transfer_slow",
                    "the link is slow though there is room",
                    f"KV of the receivers {percent(v['kv'])}",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "a shortage of prefill shows as a queue there",
                    f"{number(waits)} requests wait before prefill, which takes {times(computes / max(usual, 1e-3))} its normal",
                ),
                RuledOut(
                    "stuck_requests",
                    "pinned memory yields no tokens",
                    f"{number(c['generated'])} → {number(v['generated'])} output tokens/s",
                ),
            ),
            now=[
                "Move replicas from prefill to decode, or add decode replicas",
                "Cap max_tokens or the rate of the class whose answers got longer",
            ],
            tomorrow=[
                "Scale decode on KV usage and prefill on its queue, not both on one number",
                "More KV per decode replica (vLLM --kv-cache-dtype fp8, --gpu-memory-utilization; SGLang --mem-fraction-static)",
            ],
        )


def _full(window: Window, normal: Normal, m: dict[str, F]) -> NDArray[np.bool_]:
    """Decode replicas that are full, work, and let hand-overs wait."""
    with np.errstate(invalid="ignore"):
        later = (normal.factor("ttft", m["ttft"], 0.02) >= 2) | (
            normal.factor("transfer_seconds", m["transfer_seconds"], 0.01) >= 2
        )
        return np.asarray(
            roles(window).decode
            & (m["kv"] >= FULL)
            & (normal.centre["kv"] < USUALLY)
            & (normal.factor("running", m["running"], 0.5) >= 1.7)
            & (normal.factor("generated", m["generated"]) >= 1.1)
            & later,
            bool,
        )


def _idle(normal: Normal, m: dict[str, F], senders: Units) -> bool:
    """Whether the prefill side has time: hardly anything waits there and prefill takes its usual time."""
    with np.errstate(invalid="ignore"):
        pace = mean(normal.factor("prefill_seconds", m["prefill_seconds"], 0.02)[senders])
    waits = mean(m["waiting"][senders])
    return waits < 1.0 and not pace > 1.5
