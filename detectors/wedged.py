"""Wedged: work waits, nothing progresses, and the process still answers.

Idea
    Idle is no work and no progress; a wedge is work and no progress. Health probes stay green, so only counters can tell.

Formula
    Over ``max(75 s, 5 scrapes, 3 x the usual time to first token)``, per replica: running + waiting > 0 in
    every scrape, the replica is
    scraped, and no live counter moved (generated tokens, prefilled tokens, prompt tokens, cache look-ups, finished requests,
    first tokens). SGLang's request counters move only at a finish, so its live ``realtime_tokens_total`` is
    used; where a replica exports
    no live counter at all the span is ten minutes.

Signals
    requests_running, requests_waiting, generation_tokens_total, realtime_tokens_total, prefix_cache_queries_tokens_total,
    prompt_tokens_total, request_success_total, ttft_seconds.

Look-alikes
    Idle (nothing runs), a long prefill (prefilled tokens rise), a slow survivor (tokens flow), missing scrapes (telemetry_fault).

Source
    incidents.md D1-D6: vllm#39863, vllm#2731, sglang#6624; D4 and D6 are not incidents.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.contract import Json, Verdict
from detectors.measures import TTFT, needs
from detectors.normal import Normal, learn
from detectors.window import Window, nansum
from detectors.wording import names, number

F = NDArray[np.float64]
LIVE = ("generated", "live_prefill", "live_decode", "queries", "prompt", "finished", f"{TTFT}:n")
# These move while a request is being worked on; the others only when one starts or ends.
CONTINUOUS = ("generated", "live_prefill", "live_decode")


class Wedged:
    """See the module's docstring."""

    kind = "wedged"
    needs = needs(
        "running",
        "waiting",
        "generated",
        "live_prefill",
        "live_decode",
        "queries",
        "prompt",
        "finished",
        "kv",
    )
    hists = (TTFT,)

    def __init__(self, least_s: float = 75.0, least_scrapes: int = 5) -> None:
        self.least_s = least_s
        self.least_scrapes = least_scrapes

    def fit(self, history: Window, as_of: float) -> Json:
        """The usual time to first token: how long a legal prefill may take."""
        return learn(history, as_of, {"ttft": 0.1, "running": 0.1, "waiting": 0.1})

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool with wedged replicas."""
        normal = Normal.of(baseline, window)
        depth = int(600 // window.step)
        scraped = ~np.isnan(window.value("span", depth))
        work = (
            np.nan_to_num(window.value("running", depth)) + np.nan_to_num(window.value("waiting", depth)) > 0
        )
        moved = np.zeros(scraped.shape, bool)
        live = np.zeros(len(window.units), bool)
        for name in LIVE:
            x = window.value(name, depth)
            moved |= np.nan_to_num(x) > 0
            if name in CONTINUOUS:
                live |= (~np.isnan(x)).any(axis=1)
        restarted = np.nan_to_num(window.value("restart", depth)) > 0
        stalled = scraped & work & ~moved & ~restarted
        # Length of the unbroken stall up to now; cells without a scrape neither break nor lengthen it.
        count, seconds = _trailing(stalled, scraped, window.step)
        usual = (
            np.nan_to_num(normal.centre["ttft"], nan=5.0)
            if "ttft" in normal.centre
            else np.full(len(count), 5.0)
        )
        need = np.where(live, np.maximum(self.least_s, 3 * usual), 600.0)
        hit = (seconds >= need - window.step) & (count >= self.least_scrapes)
        findings = []
        for pool, idx in window.pools.items():
            stuck = idx[hit[idx]]
            if len(stuck):
                findings.append(self._finding(window, pool, idx, stuck, seconds, live))
        return Verdict(findings, {})

    def _finding(
        self,
        window: Window,
        pool: str,
        idx: NDArray[np.intp],
        stuck: NDArray[np.intp],
        seconds: F,
        live: NDArray[np.bool_],
    ) -> Finding:
        replicas = tuple(sorted(window.units[i].replica for i in stuck))
        long = float(seconds[stuck].max())
        onset = window.end - long
        running, waiting = (nansum(window.value(n, 1)[stuck]) for n in ("running", "waiting"))
        r, w = float(np.nansum(running)), float(np.nansum(waiting))
        kv = window.value("kv", 4)[stuck]
        peers = np.setdiff1d(idx, stuck)
        tokens = float(np.nansum(window.value("generated", 4)[peers])) if len(peers) else 0.0
        flag = (
            ""
            if live[stuck].all()
            else " (no live token counter: vLLM exports one, SGLang needs --enable-metrics and ≥ 0.5.8)"
        )
        return Finding(
            kind=self.kind,
            scope=Scope(window.classes_of(stuck), (pool,), replicas),
            at=window.end,
            onset=onset,
            strength=float(np.log2(1 + long)),
            confidence=0.95 if len(peers) and tokens > 0 else 0.85,
            severity="page",
            runner_up="telemetry_fault",
            title=f"Engine wedged: {names(replicas)} has done nothing for {long:.0f} "
            f"s while {number(r)} requests run and {number(w)} wait",
            cause=f"{names(replicas)} answers scrapes, holds {number(r)} running and {number(w)} "
            f"waiting requests, and no counter of work has moved for {long:.0f} s.",
            evidence=(
                Evidence(
                    "generation_tokens_total",
                    names(replicas),
                    None,
                    0.0,
                    None,
                    onset,
                    "tokens in that time",
                    f"live counter{flag}",
                ),
                Evidence("requests_running", names(replicas), None, r, None, onset, "requests"),
                Evidence("requests_waiting", names(replicas), None, w, None, onset, "requests"),
                Evidence(
                    "generation_tokens_total",
                    "peers",
                    None,
                    tokens,
                    None,
                    window.end,
                    "tokens in the last minute",
                ),
            ),
            ruled_out=(
                RuledOut("idle", "running + waiting", f"{number(r + w)} requests are there"),
                RuledOut("long prefill", "prefilled and looked-up tokens", "none in that time"),
                RuledOut(
                    "telemetry_fault",
                    "scrapes arrive and gauges are exported",
                    f"{int((~np.isnan(window.value('span', 8)[stuck])).sum())} scrapes in two minutes",
                ),
            ),
            detail={
                "chain": [
                    {
                        "at": onset,
                        "what": "the last counter of work moved",
                        "value": f"KV {np.nanmean(kv) * 100:.0f} %"
                        if (~np.isnan(kv)).any()
                        else "KV unknown",
                    }
                ],
                "actions": {
                    "now": [
                        f"Take {names(replicas)} out of rotation and restart it (keep a py-spy dump first)",
                        "Retry its requests elsewhere: they will not finish",
                    ],
                    "tomorrow": [
                        "Liveness by progress (tokens with work waiting), not by /health",
                        "SGLang: --watchdog-timeout; vLLM: VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
                    ],
                },
                "harm": {"requests_stuck": round(r + w)},
            },
        )


def _trailing(
    stalled: NDArray[np.bool_], scraped: NDArray[np.bool_], step: float
) -> tuple[NDArray[np.int_], F]:
    """Scrapes and seconds of the unbroken stall at the end of each row."""
    broken = scraped & ~stalled
    width = stalled.shape[1]
    last = np.where(broken.any(axis=1), width - 1 - np.argmax(broken[:, ::-1], axis=1), -1)
    after = np.arange(width)[None, :] > last[:, None]
    mine = stalled & after
    count = mine.sum(axis=1)
    first = np.where(mine.any(axis=1), np.argmax(mine, axis=1), width)
    return count, (width - first) * step
