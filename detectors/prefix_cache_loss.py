"""Prefix cache lost: hits are gone although nothing pressed on the memory.

Idea
    In an eviction storm pressure comes first and hits follow. Here hits go first: the router sends sessions
    elsewhere, the prompt begins
    with something new, the engine or a release switched the cache off. More requests run afterwards, because each takes longer.

Formula
    Over four minutes, per replica, against its own normal: prefix hits down (z <= -5, at least 15 points and
    the miss share x1.5), found tokens per second <= x0.75,
    computed tokens per request >= x1.6, no restart in ten minutes. On most replicas that lost them the loss
    began before demand or the length of prompts had reached x1.25 or running requests and KV usage x1.7, and prefill takes
    x1.5 and at least a tenth of the objective. At least half of the pool, or a single
    replica whose peers kept their hits.

    Or never: not one hit of 50,000 tokens in half an hour nor before, on traffic known to share prefixes (``prefix_never``).

    Which: sessions change replica between turns more often than before (routing); one replica alone (its
    engine); a release or restart
    just before (release); otherwise what the prompts begin with (salt, system prompt).

Signals
    prefix_cache_queries_tokens_total, prefix_cache_hit_tokens_total, requests_running, ttft_seconds,
    queue_time_seconds; sampled outputs
    with session ids.

Look-alikes
    kv_eviction_storm (pressure first), warm_up (after a restart), a mix shift (classes that share no
    prefixes), a cache that never hit.

Source
    incidents.md B4: vllm#42948, vllm#48435, vllm#36084, vllm#51198.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.chain import Link, follow
from detectors.changes import releases
from detectors.contract import Json, Verdict
from detectors.late import strictest_objective
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.order import Order, pressure_first, watch
from detectors.prefix_never import never_hits, tell_never
from detectors.sessions import moved_share
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent, seconds

F = NDArray[np.float64]

_FLOORS = {
    "hit": 0.01,
    "miss": 0.1,
    "work": 0.1,
    "prefill_seconds": 0.15,
    "running": 0.15,
    "kv": 0.1,
    "arrivals": 0.1,
    "waiting": 0.1,
    "prompt_length": 0.1,
    "found": 0.1,
}


class PrefixCacheLoss:
    """See the module's docstring."""

    kind = "prefix_cache_loss"
    needs = needs("running", "waiting", "kv", "hits", "queries", "finished", "generated")
    hists = (TTFT, f"{QUEUE}:mean", "kv_transfer_time_seconds:mean")

    def __init__(self, span_s: float = 240.0, least_requests: int = 8) -> None:
        self.span_s = span_s
        self.least_requests = least_requests

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of hits and load, the past of late requests, and how often sessions change replica."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s, min_requests=self.least_requests)
        out["tail"] = learn_tail(history, as_of)
        out["moved"] = {
            p: moved_share(history, idx, as_of - 600.0, 1800.0) for p, idx in history.pools.items()
        }
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that lost its hits."""
        cells = max(2, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n")
        order = Order.of(state, window)
        watch(order, window, normal)
        with np.errstate(invalid="ignore", divide="ignore"):
            lost = (
                (m["n"] >= self.least_requests)
                & (window.since_restart(int(1200 // window.step)) > 600)
                & (normal.z("hit", m["hit"]) <= -5)
                & (normal.centre["hit"] - m["hit"] >= 0.15)
                & (normal.factor("miss", m["miss"]) >= 1.5)
                & (normal.factor("work", m["work"]) >= 1.6)
                # Newcomers that share nothing dilute the share; those who hit still do.
                & (normal.factor("found", m["found"]) <= 0.75)
                & (normal.factor("prefill_seconds", m["prefill_seconds"]) >= 1.5)
                & (m["prefill_seconds"] >= 0.1 * strictest_objective(window))
                & ~np.isnan(order.lost)
                & ~pressure_first(order, window)
            )
        findings = []
        never = never_hits(window)
        for pool, idx in window.pools.items():
            hit = idx[lost[idx]]
            seen = idx[~np.isnan(m["hit"][idx])]
            alone = len(hit) == 1 and len(seen) > 1
            if len(hit) and (alone or 2 * len(hit) >= len(seen)):
                findings.append(self._finding(window, baseline, normal, m, pool, seen, hit))
                continue
            silent = idx[never[idx]]
            if len(silent) and (f := tell_never(window, pool, silent, seen, normal, m)) is not None:
                findings.append(f)
        return Verdict(findings, order.to_json(window))

    def _finding(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        seen: NDArray[np.intp],
        hit: NDArray[np.intp],
    ) -> Finding:
        case = Case(window, pool, hit, seen, normal, m)
        c, v = case.before, case.now
        links = [
            Link("prefix hits fall", "hit", c["hit"] - 0.1, False, percent),
            Link(
                "prompt tokens are computed again",
                "work",
                1.6 * c["work"],
                show=lambda x: f"{number(x)} tokens a request",
            ),
            Link(
                "prefill takes longer", "prefill_seconds", 1.5 * max(c["prefill_seconds"], 0.02), show=seconds
            ),
            Link("more requests run at once", "running", 1.5 * max(c["running"], 1.0), show=number),
        ]
        chain = follow(window, hit, links)
        onset = max(min((e["at"] for e in chain), default=window.end - self.span_s), window.end - 3600)
        before = (baseline.get("moved") or {}).get(pool)
        moved = moved_share(window, seen, window.end, 600.0)
        which, why = _which(window, pool, case.replicas, seen, hit, onset, before, moved)
        computed = "tokens computed per request"
        return case.finding(
            self.kind,
            title=f"Prefix cache lost on {pool}: hits {percent(c['hit'])} → {percent(v['hit'])}",
            cause=f"Hits went before anything pressed on memory, so {number(v['work'])} prompt tokens a request are computed "
            f"instead of {number(c['work'])}. {why}",
            links=links,
            onset=onset,
            strength=float(np.log2(max(v["work"] / max(c["work"], 1e-9), 1.0))),
            confidence=0.85 if which != "prompt" else 0.75,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="kv_eviction_storm",
            evidence=(
                Row("prefix_cache_hit_tokens_total", "hit", "share"),
                Row("prefix_cache_queries_tokens_total", "work", computed),
                Row("ttft_seconds", "prefill_seconds", "s without queue (mean)"),
                Row("requests_running", "running", "requests"),
                Row("sampled outputs", unit="share of turns on another replica", now=moved, before=before),
            ),
            ruled_out=(
                RuledOut(
                    "kv_eviction_storm",
                    "pressure comes first in a storm",
                    f"hits fell first; KV {percent(c['kv'])} → {percent(v['kv'])}, "
                    f"running {number(c['running'])} → {number(v['running'])}",
                ),
                RuledOut("warm_up", "a cold cache follows a restart", "no restart within ten minutes"),
                RuledOut(
                    "traffic_shift",
                    "prompt tokens per request",
                    f"{number(c['work'] / max(c['miss'], 1e-9))} → {number(v['work'] / max(v['miss'], 1e-9))}",
                ),
            ),
            now=_ACTIONS[which]["now"],
            tomorrow=_ACTIONS[which]["tomorrow"],
            detail={"which": which},
        )


_ACTIONS = {
    "routing": {
        "now": ["Bring back session or prefix affinity in the router (its last change is the first suspect)"],
        "tomorrow": ["Alert on the share of turns that land on another replica"],
    },
    "engine": {
        "now": ["Restart the replica, or drain it: its peers keep their hits"],
        "tomorrow": [
            "Check --enable-prefix-caching (vLLM) / --disable-radix-cache (SGLang) of this replica against its peers"
        ],
    },
    "release": {
        "now": ["Roll back what was released just before"],
        "tomorrow": [
            "Test with three prompts that share a prefix: hits must rise (vLLM prefix_cache_hits_total)"
        ],
    },
    "prompt": {
        "now": [
            "Look at the first tokens of the prompts of the class: a time stamp, an id or a new system prompt in front"
        ],
        "tomorrow": [
            "Put what changes behind what stays; with cache_salt one salt per tenant, not per request"
        ],
    },
}


def _which(
    window: Window,
    pool: str,
    replicas: tuple[str, ...],
    seen: NDArray[np.intp],
    hit: NDArray[np.intp],
    onset: float,
    before: float | None,
    moved: float | None,
) -> tuple[str, str]:
    """Which of the four causes fits, and the sentence that says why."""
    if before is not None and moved is not None and moved >= before + 0.2:
        return (
            "routing",
            f"Sessions change replica at {percent(moved)} of their turns (before: {percent(before)}): routing.",
        )
    released = releases(window, pool, onset - 1800, onset + 60)
    if released:
        return (
            "release",
            f"{released[-1].kind.capitalize()} at pool {pool} just before: {released[-1].text or 'no text'}.",
        )
    if len(hit) == 1 and len(seen) > 1:
        return "engine", f"Only {names(replicas)} lost them, its peers did not: its engine or flags."
    return (
        "prompt",
        "All replicas lost them at once and sessions stay where they were: what the prompts begin with changed.",
    )
