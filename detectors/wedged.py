"""Wedged: work waits, nothing progresses, and the process still answers.

Idea
    Idle is no work and no progress; a wedge is work and no progress. Health probes stay green, so only counters can tell.

Formula
    Over ``max(60 s, 4 scrapes, 3 x the usual time to first token)``, per replica: running + waiting > 0 in every scrape, the
    replica is scraped (also in the last half minute), and no live counter moved (generated tokens, prefilled tokens, prompt
    tokens, cache look-ups, finished requests, first tokens). SGLang's request counters move only at a finish, so its live
    ``realtime_tokens_total`` is used; where a replica exports no live counter at all the span is ten minutes.

Signals
    requests_running, requests_waiting, generation_tokens_total, realtime_tokens_total, prefix_cache_queries_tokens_total,
    prompt_tokens_total, request_success_total, ttft_seconds.

Look-alikes
    Slots that zombies had filled while work still went on (stuck_requests), idle (nothing runs), a long
    prefill (prefilled tokens rise), a slow survivor (tokens flow), missing scrapes (telemetry_fault).

Source
    incidents.md D1-D6: vllm#39863, vllm#2731, sglang#6624; D4 and D6 are not incidents.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.believable import still_answering
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.ledger import HISTS, NEEDS, learn_ledger, ledger, usual_of
from detectors.measures import TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stats import zeroed
from detectors.window import Window, nansum
from detectors.wording import names, number

F = NDArray[np.float64]
LIVE = ("generated", "live_prefill", "live_decode", "queries", "prompt", "finished", f"{TTFT}:n")
# These move while a request is being worked on; the others only when one starts or ends.
CONTINUOUS = ("generated", "live_prefill", "live_decode")
DEPTH_S = 900.0
LATEST_S = 30.0
_MEASURES = ("ttft", "running", "waiting", "kv")


class Wedged:
    """See the module's docstring."""

    kind = "wedged"
    needs = (
        *needs(
            "running",
            "waiting",
            "generated",
            "live_prefill",
            "live_decode",
            "queries",
            "prompt",
            "finished",
            "kv",
        ),
        *NEEDS,
    )
    hists = (TTFT, *HISTS)

    def __init__(self, least_s: float = 60.0, least_scrapes: int = 4) -> None:
        self.least_s = least_s
        self.least_scrapes = least_scrapes

    def fit(self, history: Window, as_of: float) -> Json:
        """The usual time to first token: how long a legal prefill may take."""
        out = learn(history, as_of, dict.fromkeys(_MEASURES, 0.1))
        out["ledger"] = learn_ledger(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool with wedged replicas."""
        normal = Normal.of(baseline, window)
        depth = int(DEPTH_S // window.step)
        scraped = ~np.isnan(window.value("span", depth))
        work = zeroed(window.value("running", depth)) + zeroed(window.value("waiting", depth)) > 0
        moved = np.zeros(scraped.shape, bool)
        live = np.zeros(len(window.units), bool)
        for name in LIVE:
            x = window.value(name, depth)
            moved |= zeroed(x) > 0
            if name in CONTINUOUS:
                live |= (~np.isnan(x)).any(axis=1)
        restarted = zeroed(window.value("restart", depth)) > 0
        stalled = scraped & work & ~moved & ~restarted
        # Length of the unbroken stall up to now; cells without a scrape neither break nor lengthen it.
        count, long = _trailing(stalled, scraped, window.step)
        usual = zeroed(normal.centre["ttft"], 5.0)
        need = np.where(live, np.maximum(self.least_s, 3 * usual), 600.0)
        # A process that no longer answers is down, whatever it did before.
        answers = scraped[:, -max(1, int(LATEST_S // window.step)) :].any(axis=1)
        hit = (long >= need - 1e-9) & (count >= self.least_scrapes) & answers
        # Numbers that stand still while answers go out are a fault of the telemetry.
        hit &= ~still_answering(window, np.where(hit, long, 0.0))
        # Slots that zombies had filled while work still went on are no wedge: stuck_requests says so, as long as it lasts.
        known = state.get("filled", ())
        filled = np.asarray([u.key in known for u in window.units], bool) & (long > 0)
        if (fresh := hit & ~filled).any():
            ago = np.where(fresh, long // window.step, 0).astype(np.intp)
            before = ledger(window, usual_of(baseline.get("ledger", {}), window), ago)
            filled |= fresh & before.unaccounted & before.progress
        hit &= ~filled
        findings = []
        for pool, idx in window.pools.items():
            stuck = idx[hit[idx]]
            if len(stuck):
                case = Case(window, pool, stuck, idx, normal, now(window, 4, *_MEASURES))
                findings.append(self._finding(case, float(long[stuck].max()), bool(live[stuck].all())))
        keys = [u.key for u, full in zip(window.units, filled, strict=True) if full]
        return Verdict(findings, {"filled": keys} if keys else {})

    def _finding(self, case: Case, long: float, live: bool) -> Finding:
        window, v = case.window, case.now
        who, onset = names(case.replicas), window.end - long
        r = float(np.nansum(case.present["running"][case.units]))
        w = float(np.nansum(case.present["waiting"][case.units]))
        tokens = float(np.nansum(nansum(window.value("generated", 4)[case.peers])))
        scrapes = int((~np.isnan(window.value("span", 8)[case.units])).sum())
        flag = (
            ""
            if live
            else " (no live token counter: vLLM exports one, SGLang needs --enable-metrics and ≥ 0.5.8)"
        )
        full = f"KV {v['kv'] * 100:.0f} %" if v["kv"] == v["kv"] else "KV unknown"
        return case.finding(
            self.kind,
            title=f"Engine wedged: {who} has done nothing for {long:.0f} s while {number(r)} requests run and {number(w)} wait",
            cause=f"{who} answers scrapes, holds {number(r)} running and {number(w)} waiting requests, and no counter of work "
            f"has moved for {long:.0f} s.",
            onset=onset,
            strength=float(np.log2(1 + long)),
            confidence=0.95 if tokens > 0 else 0.85,
            runner_up="telemetry_fault",
            with_p99=False,
            evidence=(
                Row(
                    "generation_tokens_total", unit="tokens in that time", note=f"live counter{flag}", now=0.0
                ),
                Row("requests_running", unit="requests", now=r, scope=who),
                Row("requests_waiting", unit="requests", now=w, scope=who),
                Row("kv_cache_usage_ratio", "kv", "0..1", scope=who),
                Row("generation_tokens_total", unit="tokens in the last minute", now=tokens, scope="peers"),
            ),
            ruled_out=(
                RuledOut("idle", "running + waiting", f"{number(r + w)} requests are there"),
                RuledOut("long prefill", "prefilled and looked-up tokens", "none in that time"),
                RuledOut(
                    "telemetry_fault",
                    "scrapes arrive and gauges are exported",
                    f"{scrapes} scrapes in two minutes",
                ),
            ),
            now=(
                f"Take {who} out of rotation and restart it (keep a py-spy dump first)",
                "Retry its requests elsewhere: they will not finish",
            ),
            tomorrow=(
                "Liveness by progress (tokens with work waiting), not by /health",
                "SGLang: --watchdog-timeout; vLLM: VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
            ),
            detail={
                "chain": [{"at": onset, "what": "the last counter of work moved", "value": full}],
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
