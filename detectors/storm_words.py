"""What is said of an eviction storm: sentence, chain, evidence, look-alikes and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut, Scope
from detectors.case import Case, Row
from detectors.chain import Link
from detectors.late import harm
from detectors.normal import Normal
from detectors.order import Order
from detectors.storm_signs import Signs
from detectors.storm_warning import NEEDED, Room
from detectors.window import Window
from detectors.wording import names, number, percent, seconds, times

KIND = "kv_eviction_storm"
Units = NDArray[np.intp]


def tell(window: Window, normal: Normal, signs: Signs, order: Order, pool: str, idx: Units) -> Finding | None:
    """The finding for a pool (``idx`` its replicas), or None where none of them storms or is about to."""
    biting, all_ = idx[signs.biting[idx]], idx[(signs.biting | signs.warned)[idx]]
    if not len(all_):
        return None
    units = biting if len(biting) else all_
    announced = not len(biting)
    case = Case(window, pool, units, idx, normal, signs.now)
    room = signs.rooms.get(pool)
    pre = bool(signs.by_preemption[units].mean() >= 0.5)
    ratio, ratio0 = float(np.nanmean(signs.ratio[units])), float(np.nanmean(signs.ratio0[units]))
    c, v = case.before, case.now
    building = (
        announced
        and not pre
        and room is not None
        and bool(signs.outgrown[units].any())
        and v["hit"] > c["hit"] - 0.1
    )
    control = [window.units[i].replica for i in np.setdiff1d(idx, all_)]
    links = _links(c, pre, ratio0)
    onset = _onset(order, case, links)
    several = len(case.replicas) >= 2
    redone = max(ratio / max(ratio0, 1e-3), 1.0) if pre else max(v["work"] / max(c["work"], 1e-9), 1.0)
    found = case.finding(
        KIND,
        title=_title(case, announced),
        cause=_cause(case, room if building else None, pre, ratio, ratio0),
        links=links,
        onset=onset,
        scope=Scope(window.classes_of(all_), (pool,), tuple(sorted(window.units[i].replica for i in all_))),
        strength=float(np.log2(redone)) + (0.0 if announced else 10.0),
        confidence=0.6 if announced else min(0.95, 0.8 + 0.1 * several + 0.05 * bool(control)),
        severity="ticket" if announced else "page",
        announced=announced,
        runner_up="capacity_shortfall",
        with_p99=False,
        evidence=_rows(pre, ratio, ratio0),
        ruled_out=_ruled_out(case, pre),
        now=_NOW,
        tomorrow=_tomorrow(pre, room),
        detail={
            "control": control,
            "harm": dict(harm(window, all_, onset)),
            "redone": "preemptions per finished request" if pre else "computed prompt tokens per request",
            "early_warning": room.text() if room is not None else NEEDED,
            "room": None
            if room is None
            else {"r": round(room.r, 3), "usual": round(room.usual, 3), "source": room.source},
        },
    )
    return (
        replace(found, evidence=(*found.evidence, room.evidence(pool, onset))) if room is not None else found
    )


def _onset(order: Order, case: Case, links: list[Link]) -> float:
    """Since when the replicas are pressed or miss prefixes, as the memory of both dates it; else the first link that gave way."""
    since = np.stack([order.crowded, order.surging, order.growing, order.lost])[:, case.units]
    first = np.min(np.where(np.isnan(since), np.inf, since), axis=0)
    dated = float(np.median(first)) if np.isfinite(first).mean() > 0.5 else float("inf")
    end = case.window.end
    if not np.isfinite(dated):
        begun = case.begun(links)
        dated = end if begun is None else begun
    return max(dated, end - 3600)


def _links(c: Mapping[str, float], pre: bool, ratio0: float) -> list[Link]:
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
        return links
    return [
        *links,
        Link(
            "prompts get longer",
            "prompt_length",
            1.3 * c["prompt_length"],
            show=lambda x: f"{number(x)} tokens",
        ),
        Link("prefix hits fall", "hit", c["hit"] - max(0.05, (1 - c["hit"]) * 0.5), False, percent),
        Link(
            "prompt tokens are computed again",
            "work",
            1.6 * c["work"],
            show=lambda x: f"{number(x)} tokens a request",
        ),
        Link("prefill takes longer", "prefill_seconds", 2 * max(c["prefill_seconds"], 0.02), show=seconds),
    ]


def _title(case: Case, announced: bool) -> str:
    where = case.pool or "the fleet"
    if announced:
        return f"KV eviction storm building on {where}: the cache is losing the sessions in flight"
    said = case.p99()
    if not said:
        return f"KV eviction storm on {where}"
    o = case.window.context.objective(said.split(" TTFT ")[0])
    goal = f", objective {seconds(o.threshold)}" if o else ""
    return f"KV eviction storm on {where}: {said}{goal}"


def _cause(case: Case, building: Room | None, pre: bool, ratio: float, ratio0: float) -> str:
    c, v, who = case.before, case.now, names(case.replicas)
    if building is not None:
        longer = v["prompt_length"] / max(c["prompt_length"], 1e-9)
        why = (
            f"prompts are {times(longer)} as long as usual"
            if longer >= 1.25
            else f"{number(v['running'])} requests run on each (normal {number(c['running'])})"
        )
        return (
            f"Active sessions are outgrowing the KV cache of {who}: room for {building.r:.2f} times what they need, usually "
            f"{building.usual:.2f}; {why}. Prefix hits are still at {percent(v['hit'])}."
        )
    if pre:
        return (
            f"The KV cache of {who} is full: {ratio:.2f} running requests are thrown out per finished one "
            f"(normal {ratio0:.3f}) and are computed again."
        )
    held = "hold" if len(case.replicas) > 1 else "holds"
    return (
        f"More sessions are in flight than the KV cache of {who} {held}: prefix hits fell from {percent(c['hit'])} to "
        f"{percent(v['hit'])}, so {number(v['work'])} prompt tokens a request are computed instead of {number(c['work'])}."
    )


def _rows(pre: bool, ratio: float, ratio0: float) -> tuple[Row, ...]:
    redone = (
        (Row("preemptions_total", unit="per finished request", now=ratio, before=ratio0),)
        if pre
        else (
            Row("prefix_cache_hit_tokens_total", "hit", "share of prompt tokens"),
            Row(
                "prefix_cache_queries_tokens_total",
                "work",
                "tokens computed per request",
                "prompt tokens not found in the cache",
            ),
        )
    )
    return (
        *redone,
        Row("requests_running", "running", "requests", "mean of the affected replicas"),
        Row("kv_cache_usage_ratio", "kv", "0..1"),
        Row("request_success_total", "per_running", "finished/s per running request", "progress"),
        Row("requests_waiting", "waiting", "requests"),
        Row("ttft_seconds", "prefill_seconds", "s", "TTFT minus queue: what the prefill itself costs"),
        Row("prefix_cache_queries_tokens_total", "prompt_length", "prompt tokens per request"),
    )


def _ruled_out(case: Case, pre: bool) -> tuple[RuledOut, ...]:
    c, v, window = case.before, case.now, case.window
    back = float(np.min(window.since_restart(240)[case.units]))
    since = "no restart in the last hour" if np.isinf(back) else f"last restart {back / 60:.0f} min ago"
    coverage = float((~np.isnan(window.value("span", 40)[case.units])).mean())
    share = 1 - v["prefill_seconds"] / v["ttft"] if v.get("ttft") else float("nan")
    shortfall = (
        RuledOut(
            "capacity_shortfall",
            "nothing is thrown out of the batch when only slots are short",
            f"KV {percent(v['kv'])} full and requests preempted",
        )
        if pre
        else RuledOut(
            "capacity_shortfall",
            "prefill itself (TTFT minus queue) stays at its normal when requests only wait for a slot",
            f"prefill {seconds(c['prefill_seconds'])} → {seconds(v['prefill_seconds'])} "
            f"({times(v['prefill_seconds'] / max(c['prefill_seconds'], 0.02))}); queue is {percent(share)} of TTFT",
        )
    )
    return (
        shortfall,
        RuledOut("warm_up", "a cold cache follows a restart", since),
        RuledOut(
            "prefix_cache_loss",
            "hits vanish without pressure when routing, prompt or release broke the cache",
            f"running requests {number(c['running'])} → {number(v['running'])}, KV usage {percent(c['kv'])} → "
            f"{percent(v['kv'])}, "
            f"prompts {number(c['prompt_length'])} → {number(v['prompt_length'])} tokens",
        ),
        RuledOut(
            "telemetry_fault",
            "scrapes missing or impossible",
            f"{percent(coverage)} of scrapes arrived in ten minutes",
        ),
    )


_NOW = (
    "Admit less: lower --max-num-seqs (vLLM) / --max-running-requests (SGLang) on the affected replicas, or cap requests per "
    "tenant at the gateway",
    "Move sessions to replicas with room, or add a replica (new sessions only: moving a session costs one full prefill)",
)


def _tomorrow(pre: bool, room: Room | None) -> list[str]:
    out = [
        "More KV: --gpu-memory-utilization up, --kv-cache-dtype fp8, or fewer weights per GPU (vLLM); "
        "--mem-fraction-static (SGLang)",
        "A second tier for evicted prefixes: KV offload to host memory (vLLM --kv-transfer-config, SGLang "
        "--enable-hierarchical-cache)",
        "Scale on sessions × context against KV capacity, not on GPU utilisation",
    ]
    if not pre:
        out.append(
            "Route by session (prefix-aware routing) so that a session returns to the replica that holds its prefix"
        )
    if room is None:
        out.append("Sample outputs with session ids, so that the storm is seen coming")
    return out
