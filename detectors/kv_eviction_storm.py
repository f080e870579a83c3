"""KV eviction storm: the cache is too small for the sessions in flight, and evicted blocks are computed again.

Idea
    The signature is *work done twice*: throughput is lost although every GPU is busy. One number never proves it (a high KV usage
    is healthy, a cold cache after a restart is not a storm), so three things must hold together against the replica's own normal.

Formula
    Over the last four minutes, per replica, ``x0`` = own normal (median of earlier blocks), ``z`` in robust standard deviations::

        recompute   prefix hits fell  (z <= -5 and computed tokens per request >= 2 x0)
                    or preemptions per finished request rose  (Poisson tail < 1e-6 against the own rate, >= 5 in 100, KV >= 85 %)
        cost        prefill itself takes longer: TTFT minus queue >= 2 x0   (hits fell)
                    KV is full                                              (preemptions)
        progress    completions per running request <= 0.7 x0
        pressure    running requests >= 1.7 x0, and not later than the hits went (else it is prefix_cache_loss)

    Early warning (ticket, same incident): the same signs at lower levels before requests are late.

Signals
    prefix_cache_hit_tokens_total, prefix_cache_queries_tokens_total, preemptions_total / retractions, ttft_seconds,
    queue_time_seconds, request_success_total, requests_running, kv_cache_usage_ratio, kv_cache_capacity.

Look-alikes
    capacity_shortfall (requests wait for a slot, prefill itself stays quick), prefix_cache_loss (hits gone without pressure),
    warm_up (hits gone after a restart), tight but healthy cache (high usage, nothing redone).

Source
    incidents.md B1-B3 and the cases it cites: vllm#21793, sglang#31230, sglang#26248.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.chain import Link, follow
from detectors.contract import Json, Verdict
from detectors.late import harm, strictest_objective
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.order import Order, new_sessions, pressure_first, watch
from detectors.sessions import WorkingSet, mean_capacity, usual_r, working_set
from detectors.stats import poisson_tail
from detectors.tail import p99_text
from detectors.window import Window, nansum
from detectors.wording import names, number, percent, rounded, seconds, times

F = NDArray[np.float64]
B = NDArray[np.bool_]

_MEASURES = (
    "hit",
    "miss",
    "work",
    "prefill_seconds",
    "per_running",
    "running",
    "kv",
    "arrivals",
    "done",
    "waiting",
)
_FLOORS = {
    "hit": 0.01,
    "miss": 0.1,
    "work": 0.1,
    "prefill_seconds": 0.15,
    "per_running": 0.1,
    "running": 0.15,
    "kv": 0.1,
    "arrivals": 0.1,
    "done": 0.1,
    "waiting": 0.1,
    "evicted": 0.1,
}


@dataclass(frozen=True)
class _Signs:
    """What each replica shows: arrays ``[units]``."""

    biting: B
    warned: B
    by_preemption: B
    now: dict[str, F]
    ratio: F
    ratio0: F
    p: F


class KvEvictionStorm:
    """See the module's docstring."""

    kind = "kv_eviction_storm"
    needs = needs(
        "running",
        "waiting",
        "kv",
        "kv_capacity",
        "hits",
        "queries",
        "preempted",
        "retracted",
        "finished",
        "evicted",
    )
    hists = (TTFT, f"{QUEUE}:mean")

    def __init__(self, span_s: float = 240.0, least_requests: int = 8) -> None:
        self.span_s = span_s
        self.least_requests = least_requests

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of every measure, and the plain rate of preemptions per finished request."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s, min_requests=self.least_requests)
        usable = history.usable.copy()
        usable[:, max(0, usable.shape[1] - int(600 // history.step)) :] = False
        pre = np.fmax(history.value("preempted"), history.value("retracted"))
        out["preempted"] = np.nan_to_num(nansum(np.where(usable, pre, np.nan))).tolist()
        out["r"] = {p: usual_r(history, idx, as_of - 600.0) for p, idx in history.pools.items()}
        out["finished"] = np.nan_to_num(nansum(np.where(usable, history.value("finished"), np.nan))).tolist()
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that storms or is about to."""
        normal = Normal.of(baseline, window)
        order = Order.of(state, window)
        watch(order, window, normal)
        signs = self._signs(window, baseline, normal, pressure_first(order, window), ~new_sessions(order))
        findings = []
        for pool, idx in window.pools.items():
            biting, warned = idx[signs.biting[idx]], idx[(signs.biting | signs.warned)[idx]]
            if len(warned):
                findings.append(self._finding(window, baseline, normal, signs, pool, idx, biting, warned))
        return Verdict(findings, order.to_json(window))

    # ------------------------------------------------------------------ deciding

    def _signs(self, window: Window, baseline: Json, normal: Normal, pressed: B, lasting: B) -> _Signs:
        cells = max(2, int(self.span_s // window.step))
        m = now(window, cells, *_MEASURES, "n", "preempted", "finished", "ttft", "queue")
        fast = now(window, cells // 2, *_MEASURES, "n", "preempted", "finished", "queue")
        steady = window.since_restart(int(900 // window.step)) > 600
        strictest = strictest_objective(window)
        slots = _slot_bound(window, int(120 // window.step))
        bite, warn = np.zeros((2, len(window.units)), bool)
        with np.errstate(invalid="ignore", divide="ignore"):
            # Half the span is twice as quick and needs more: a block half as long spreads 1.4 times as much.
            for x, wider in ((m, 1.0), (fast, 1.5)):
                z = {k: normal.z(k, x[k]) / wider for k in ("hit",)}
                work, kv = normal.factor("work", x["work"]), normal.factor("kv", x["kv"])
                progress = normal.factor("per_running", x["per_running"])
                running = x["running"] / np.maximum(normal.centre["running"], 1.0)
                prefill = x["prefill_seconds"] / np.maximum(normal.centre["prefill_seconds"], 0.02)
                # Redone work must cost time that matters: a fifth of the strictest objective that the replica serves.
                matter = x["prefill_seconds"] / strictest
                # Without a queue metric waiting looks like prefill: then memory in use must speak.
                told_apart = ~np.isnan(x["queue"]) | (x["kv"] >= 0.35)
                ok = steady & pressed & told_apart & (x["n"] >= self.least_requests)
                ok &= ~(slots & (prefill < 4.0))
                bite |= (
                    ok
                    & (z["hit"] <= -5)
                    & (work >= 2.0)
                    & (prefill >= 2.0)
                    & (matter >= 0.2)
                    & (progress <= 0.7)
                    & (running >= 1.7)
                )
                warn |= (
                    ok
                    & lasting
                    & (z["hit"] <= -4)
                    & (work >= 1.6)
                    & (prefill >= 1.6)
                    & (matter >= 0.1)
                    & (running >= 2.0)
                    & (kv >= 2.0)
                    # A wave of load costs hits and speed for some minutes; it is no storm
                    # while nobody waits and memory has room.
                    & ~(x["kv"] < 0.25)
                    & (x["waiting"] >= 0.5 + 2 * np.nan_to_num(normal.centre["waiting"]))
                    & (progress <= 0.8)
                )
            warn |= self._sessions_outgrow(window, baseline, normal, m) & steady & ~slots
            known = _aligned(baseline, window)
            mean0 = (known[0] + 0.5) / np.maximum(known[1] + 100.0, 1.0)
            ratio = fast["preempted"] / np.maximum(fast["finished"], 1.0)
            expected = mean0 * np.maximum(np.nan_to_num(fast["finished"]), 1.0)
            p = poisson_tail(np.nan_to_num(fast["preempted"]), expected, 3.0)
            busy = fast["running"] / np.maximum(normal.centre["running"], 1.0)
            progress = np.fmin(
                normal.factor("per_running", m["per_running"]),
                normal.factor("per_running", fast["per_running"]),
            )
            bite_pre = (
                (p < 1e-6)
                & (ratio >= np.maximum(0.05, 5 * mean0))
                & ~(fast["kv"] < 0.85)
                & (progress <= 0.75)
                & (busy >= 1.5)
                & steady
            )
            warn_pre = (
                (p < 1e-3)
                & (ratio >= 3 * mean0)
                & (fast["kv"] >= np.maximum(0.6, 1.5 * normal.centre["kv"]))
                & (busy >= 1.5)
                & steady
            )
        return _Signs(bite | bite_pre, warn | warn_pre, bite_pre | (warn_pre & ~bite), m, ratio, mean0, p)

    @staticmethod
    def _sessions_outgrow(window: Window, baseline: Json, normal: Normal, m: dict[str, F]) -> B:
        """Replicas of pools whose sessions are about to outgrow the cache: r has fallen by more than a third, towards 1.

        Only where the sessions fit with room before (``r`` usually over 1.5) and the cache did not recycle all the time (no
        evictions in the normal, where they are exported): elsewhere prefixes come and go anyway, and r says nothing.
        """
        out = np.zeros(len(window.units), bool)
        for pool, idx in window.pools.items():
            usual = (baseline.get("r") or {}).get(pool)
            recycles = np.nan_to_num(normal.centre["evicted"][idx]).sum() > 0
            if usual is None or usual < 1.5 or recycles:
                continue
            busy = m["running"][idx] / np.maximum(normal.centre["running"][idx], 1.0)
            full = m["kv"][idx] / normal.centre["kv"][idx]
            if np.isnan(busy).all() or float(np.nanmean(busy)) < 2.0:
                continue
            sessions = working_set(window, idx, mean_capacity(window, idx))
            if sessions is not None and sessions.r <= 1.25 and sessions.r <= 0.65 * usual:
                out[idx] = (busy >= 1.8) & (full >= 1.8)
        return out

    # ------------------------------------------------------------------ saying

    def _finding(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        signs: _Signs,
        pool: str,
        idx: NDArray[np.intp],
        biting: NDArray[np.intp],
        warned: NDArray[np.intp],
    ) -> Finding:
        announced = not len(biting)
        hit_units = biting if len(biting) else warned
        replicas = tuple(sorted(window.units[i].replica for i in warned))
        classes = window.classes_of(warned)
        pre = bool(signs.by_preemption[hit_units].mean() >= 0.5)
        c = {
            k: float(np.nanmean(v[hit_units])) if (~np.isnan(v[hit_units])).any() else float("nan")
            for k, v in normal.centre.items()
        }
        v = {
            k: float(np.nanmean(x[hit_units])) if (~np.isnan(x[hit_units])).any() else float("nan")
            for k, x in signs.now.items()
        }
        ratio, ratio0 = float(np.nanmean(signs.ratio[hit_units])), float(np.nanmean(signs.ratio0[hit_units]))
        links = [
            Link(
                "more requests run at once",
                "running",
                1.5 * max(c["running"], 1.0),
                show=lambda x: f"{number(x)} per replica",
            ),
            Link("KV cache fills", "kv", max(1.5 * c["kv"], 0.05), show=percent),
            Link("requests queue", "waiting", c["waiting"] + 2.0, show=lambda x: f"{number(x)} per replica"),
            Link(
                "each running request completes more slowly",
                "per_running",
                0.7 * c["per_running"],
                False,
                lambda x: f"{x:.3g}/s",
            ),
        ]
        if pre:
            links.append(
                Link(
                    "running requests are thrown out of the batch",
                    "preempted_per_finished",
                    max(0.02, 3 * ratio0),
                    show=lambda x: f"{x:.2f} per finished request",
                )
            )
        else:
            links += [
                Link("prefix hits fall", "hit", c["hit"] - max(0.05, (1 - c["hit"]) * 0.5), False, percent),
                Link(
                    "prompt tokens are computed again",
                    "work",
                    1.6 * c["work"],
                    show=lambda x: f"{number(x)} tokens a request",
                ),
                Link(
                    "prefill takes longer",
                    "prefill_seconds",
                    2 * max(c["prefill_seconds"], 0.02),
                    show=seconds,
                ),
            ]
        chain = follow(window, hit_units, links)
        onset = min((e["at"] for e in chain), default=window.end)
        onset = max(onset, window.end - 3600)
        hurt = dict(harm(window, warned, onset))
        sessions = working_set(
            window,
            hit_units,
            mean_capacity(window, hit_units),
        )
        unit = "preemptions per finished request" if pre else "computed prompt tokens per request"
        evidence = self._evidence(pool, v, c, ratio, ratio0, pre, onset)
        if sessions is not None:
            evidence += (sessions.evidence(pool, onset),)
        strength = float(
            np.log2(max(ratio / max(ratio0, 1e-3), 1.0))
            if pre
            else np.log2(max(v["work"] / max(c["work"], 1e-9), 1.0))
        )
        control = [window.units[i].replica for i in idx if i not in set(warned.tolist())]
        p99 = [(k, p99_text(window, warned, k, 20, TTFT)) for k in classes]
        held = "hold" if len(replicas) > 1 else "holds"
        usual = (baseline.get("r") or {}).get(pool)
        building = (
            announced and not pre and sessions is not None and usual is not None and v["hit"] > c["hit"] - 0.1
        )
        cause = (
            f"Active sessions are outgrowing the KV cache of {names(replicas)}: room for {sessions.r:.2f} times what they need, "
            f"usually {usual:.2f}; {number(v['running'])} requests run on each (normal {number(c['running'])}). "
            f"Prefix hits are still at {percent(v['hit'])}."
            if building and sessions is not None and usual is not None
            else f"The KV cache of {names(replicas)} is full: {ratio:.2f} running requests are thrown out per finished one "
            f"(normal {ratio0:.3f}) and are computed again."
            if pre
            else f"More sessions are in flight than the KV cache of {names(replicas)} "
            f"{held}: prefix hits fell from {percent(c['hit'])} to "
            f"{percent(v['hit'])}, so {number(v['work'])} prompt tokens a request are computed instead of {number(c['work'])}."
        )
        return Finding(
            kind=self.kind,
            scope=Scope(classes, (pool,), replicas),
            at=window.end,
            onset=onset,
            strength=strength + (0.0 if announced else 10.0),
            confidence=0.6
            if announced
            else min(
                0.95, 0.75 + 0.05 * (len(chain) >= 4) + 0.1 * (len(hit_units) >= 2) + 0.05 * bool(control)
            ),
            severity="ticket" if announced else "page",
            announced=announced,
            runner_up="capacity_shortfall",
            title=_title(window, pool, classes, p99, announced, hurt),
            cause=cause,
            evidence=evidence,
            ruled_out=self._ruled_out(window, v, c, hit_units, pre),
            detail={
                "chain": chain,
                "actions": _actions(pre, sessions),
                "harm": hurt,
                "control": control,
                "redone": unit,
                "early_warning": sessions.text()
                if sessions
                else "No early warning from sessions: neither session ids in sampled "
                "outputs nor the KV capacity are known. Prefix-hit trend and KV usage are used instead.",
            },
        )

    @staticmethod
    def _evidence(
        pool: str, v: dict[str, float], c: dict[str, float], ratio: float, ratio0: float, pre: bool, at: float
    ) -> tuple[Evidence, ...]:
        def row(signal: str, key: str, unit: str, note: str = "") -> Evidence:
            return Evidence(
                signal, pool, rounded(c.get(key)), rounded(v.get(key)), rounded(c.get(key)), at, unit, note
            )

        rows = [
            row("requests_running", "running", "requests", "mean of the affected replicas"),
            row("kv_cache_usage_ratio", "kv", "0..1"),
            row("request_success_total", "per_running", "finished/s per running request", "progress"),
            row("requests_waiting", "waiting", "requests"),
            row("ttft_seconds", "prefill_seconds", "s", "TTFT minus queue: what the prefill itself costs"),
        ]
        if pre:
            rows.insert(
                0,
                Evidence(
                    "preemptions_total",
                    pool,
                    rounded(ratio0),
                    rounded(ratio),
                    rounded(ratio0),
                    at,
                    "per finished request",
                ),
            )
        else:
            rows.insert(
                0,
                row(
                    "prefix_cache_queries_tokens_total",
                    "work",
                    "tokens computed per request",
                    "prompt tokens not found in the cache",
                ),
            )
            rows.insert(0, row("prefix_cache_hit_tokens_total", "hit", "share of prompt tokens"))
        return tuple(r for r in rows if r.now is not None)

    @staticmethod
    def _ruled_out(
        window: Window, v: dict[str, float], c: dict[str, float], units: NDArray[np.intp], pre: bool
    ) -> tuple[RuledOut, ...]:
        back = float(np.min(window.since_restart(240)[units]))
        since = "no restart in the last hour" if np.isinf(back) else f"last restart {back / 60:.0f} min ago"
        coverage = float((~np.isnan(window.value("span", 40)[units])).mean())
        share = 1 - v["prefill_seconds"] / v["ttft"] if v.get("ttft") else float("nan")
        return (
            RuledOut(
                "capacity_shortfall",
                "prefill itself (TTFT minus queue) stays at its normal when requests only wait for a slot"
                if not pre
                else "nothing is thrown out of the batch when only slots are short",
                f"prefill {seconds(c['prefill_seconds'])} → {seconds(v['prefill_seconds'])} "
                f"({times(v['prefill_seconds'] / max(c['prefill_seconds'], 0.02))}); queue is {percent(share)} of TTFT"
                if not pre
                else f"KV {percent(v['kv'])} full and requests preempted",
            ),
            RuledOut("warm_up", "a cold cache follows a restart", since),
            RuledOut(
                "prefix_cache_loss",
                "hits vanish without pressure when routing, prompt or release broke the cache",
                f"running requests {number(c['running'])} → {number(v['running'])}, "
                f"KV usage {percent(c['kv'])} → {percent(v['kv'])}",
            ),
            RuledOut(
                "telemetry_fault",
                "scrapes missing or impossible",
                f"{percent(coverage)} of scrapes arrived in ten minutes",
            ),
        )


def _slot_bound(window: Window, cells: int) -> B:
    """Replicas whose requests wait for a slot: running sits flat at a ceiling, something always waits, and KV has room."""
    run, wait, kv = window.value("running", cells), window.value("waiting", cells), window.mean("kv", cells)
    with np.errstate(invalid="ignore"):
        top, low = _extreme(run, -np.inf, np.max), _extreme(run, np.inf, np.min)
        return (
            (top - low <= np.maximum(1.0, 0.06 * top)) & (_extreme(wait, np.inf, np.min) > 0) & ~(kv >= 0.85)
        )


def _extreme(x: F, fill: float, op: Callable[..., Any]) -> F:
    return np.asarray(op(np.where(np.isnan(x), fill, x), axis=1), np.float64)


def _aligned(baseline: Json, window: Window) -> tuple[F, F]:
    at = {k: i for i, k in enumerate(baseline.get("units", []))}
    pre, fin = baseline.get("preempted", []), baseline.get("finished", [])
    a, b = np.zeros(len(window.units)), np.zeros(len(window.units))
    for i, u in enumerate(window.units):
        j = at.get(u.key)
        if j is not None:
            a[i], b[i] = pre[j], fin[j]
    return a, b


def _title(
    window: Window,
    pool: str,
    classes: tuple[str, ...],
    p99: list[tuple[str, str]],
    announced: bool,
    hurt: dict[str, float],
) -> str:
    where = pool or "the fleet"
    said = next(((k, t) for k, t in p99 if t), None)
    if announced:
        return f"KV eviction storm building on {where}: the cache is losing the sessions in flight"
    if said is None:
        return f"KV eviction storm on {where}"
    o = window.context.objective(said[0])
    goal = f", objective {seconds(o.threshold)}" if o else ""
    return f"KV eviction storm on {where}: {said[0]} TTFT p99 {said[1].split(' (')[0]}{goal}"


def _actions(pre: bool, sessions: WorkingSet | None) -> dict[str, list[str]]:
    first = (
        "Admit less: lower --max-num-seqs (vLLM) / --max-running-requests (SGLang) on "
        "the affected replicas, or cap requests per tenant at the gateway"
    )
    spread = "Move sessions to replicas with room, or add a replica (new sessions only: moving a session costs one full prefill)"
    tomorrow = [
        "More KV: --gpu-memory-utilization up, --kv-cache-dtype fp8, or fewer "
        "weights per GPU (vLLM); --mem-fraction-static (SGLang)",
        "A second tier for evicted prefixes: KV offload to host memory (vLLM "
        "--kv-transfer-config, SGLang --enable-hierarchical-cache)",
        "Scale on sessions × context against KV capacity, not on GPU utilisation",
    ]
    if not pre:
        tomorrow.append(
            "Route by session (prefix-aware routing) so that a session returns to the replica that holds its prefix"
        )
    if sessions is None:
        tomorrow.append("Sample outputs with session ids, so that the storm is seen coming")
    return {"now": [first, spread], "tomorrow": tomorrow}
