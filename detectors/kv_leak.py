"""KV leak: blocks are never given back, so the memory in use rises at the same load until nothing can be admitted.

Idea
    What is in use goes up and down with the requests that run. In a leak its *floor* rises from trough to trough while load,
    prompts and answers stay as they were, steadily (a step is something else: pinned blocks or one huge request), and only a
    restart cures.

Formula
    Per replica, on two scales (6 troughs of 2 minutes; 6 of 15 minutes), trough = lowest KV usage in a block::

        rise      last trough - first >= 0.10, >= 4 of the 5 steps upward and none downward by more than a fifth of the rise,
                  no step more than 60 % of it
        excess    KV usage now >= 0.10 above what the load explains (own normal x running x prompt and answer length, each over
                  its own normal where it grew), and z >= 5
        not load  running in the last block <= 1.25 x that of the first + 1 and <= 1.5 x own normal; prompt and answer
                  lengths <= 1.25 x own normal

    Or the end of it: for at least ten minutes running < 1 and KV usage >= 90 % (own normal < 60 %), while requests wait or,
    in at least three spells of work, came and went without the floor ever falling below 90 %.

    Once seen, it lasts until the excess is gone or the replica restarts, also on the plateau at 100 %.

    Not on replicas that only compute prompts (they hold what waits to be handed over). ``full in`` is the rest of the memory
    over the slope.

Signals
    kv_cache_usage_ratio, requests_running, requests_waiting, prefix_cache_queries_tokens_total, generation_tokens_total,
    ttft_seconds.

Look-alikes
    Reusable cache that stays when idle and yields at once to new load (its floor does not rise: vllm#46502), kv_eviction_storm
    (more sessions or longer contexts), stuck_requests (aborted requests hold memory: a step of fixed duration, or running
    rises too), loops that run to their limit (answers grow), prefill_decode_imbalance.

Source
    incidents.md B6: vllm#27073, vllm-ascend#8326, sglang#6778, dynamo#3730.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import MOVED, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.pd import roles
from detectors.tail import learn_tail
from detectors.window import Window, nanmean
from detectors.wording import names, number, percent, seconds

F = NDArray[np.float64]
B = NDArray[np.bool_]

_FLOORS = {
    "kv": 0.1,
    "running": 0.15,
    "waiting": 0.1,
    "prompt_length": 0.1,
    "output_length": 0.1,
    "transfer_bytes": 0.1,
    "ttft": 0.15,
}
SCALES = (120.0, 900.0)
TROUGHS = 6
RISE = 0.10
STUCK_S = 600.0


class KvLeak:
    """See the module's docstring."""

    kind = "kv_leak"
    needs = needs("running", "waiting", "kv", "queries", "generated")
    hists = (TTFT, f"{MOVED}:mean")

    def __init__(self, span_s: float = 240.0) -> None:
        self.span_s = span_s

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of memory in use, load and lengths, and the past of late requests."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool with replicas that leak."""
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(self.span_s // window.step)), *_FLOORS, "n")
        slope, first = np.full(len(window.units), np.nan), np.full(len(window.units), np.nan)
        leaks = np.zeros(len(window.units), bool)
        for block_s in SCALES:
            rising, per_s, low = _rising(window, normal, block_s)
            slope = np.where(rising & np.isnan(slope), per_s, slope)
            first = np.where(rising & np.isnan(first), low, first)
            leaks |= rising
        with np.errstate(invalid="ignore"):
            grown = np.fmax(normal.factor("running", m["running"], 0.5), 1.0)
            usual = ~(grown > 1.5)
            for length in ("prompt_length", "output_length", "transfer_bytes"):
                more = np.fmax(normal.factor(length, m[length]), 1.0)
                usual &= ~(more > 1.25)
                grown = grown * more
            excess = (m["kv"] - grown * normal.centre["kv"] >= RISE) & (normal.z("kv", m["kv"]) >= 5)
        leaks &= excess & usual
        leaks |= _choked(window, normal)
        leaks &= ~roles(window).prefill
        known = _still(window, state, excess)
        leaks |= known
        findings = []
        for pool, idx in window.pools.items():
            hit = idx[leaks[idx]]
            if len(hit):
                seen = idx[~np.isnan(m["kv"][idx])]
                findings.append(
                    self._finding(Case(window, pool, hit, seen, normal, m), baseline, slope[hit], first[hit])
                )
        pace = dict(state.get("leaking", {}))
        memory = {
            u.key: float(slope[i]) if slope[i] == slope[i] else pace.get(u.key)
            for i, u in enumerate(window.units)
            if leaks[i]
        }
        return Verdict(findings, {"leaking": memory} if memory else {})

    def _finding(self, case: Case, baseline: Json, slope: F, first: F) -> Finding:
        c, v = case.before, case.now
        per_hour = float(np.nanmax(slope)) * 3600 if not np.isnan(slope).all() else float("nan")
        left = (1 - v["kv"]) / per_hour * 60 if per_hour > 0 else float("nan")
        rate = (
            f"{percent(per_hour)} of the memory an hour" if per_hour == per_hour else "until nothing is free"
        )
        until = f"full in about {left:.0f} min at this pace" if left == left else "it is full"
        return case.finding(
            self.kind,
            title=f"KV leak on {names(case.replicas)}: usage {percent(c['kv'])} → {percent(v['kv'])} at the same load, {until}",
            cause=f"Blocks of {names(case.replicas)} are not given back: the lowest usage rises from trough to "
            f"trough ({rate}) while "
            f"{number(v['running'])} requests run (normal {number(c['running'])}) with prompts and answers as "
            f"long as ever; {until}. "
            "Only a restart gives them back.",
            links=[
                Link(
                    "KV in use rises at the same load",
                    "kv",
                    c["kv"] + max(0.05, 5 * 0.1 * c["kv"]),
                    show=percent,
                ),
                Link(
                    "requests queue", "waiting", c["waiting"] + 2.0, show=lambda x: f"{number(x)} per replica"
                ),
                Link("first tokens come later", "ttft", 1.5 * max(c["ttft"], 0.02), show=seconds),
            ],
            onset=None,
            strength=float(v["kv"] - c["kv"]) if v["kv"] == v["kv"] and c["kv"] == c["kv"] else 0.1,
            confidence=0.85 if len(case.peers) else 0.75,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="stuck_requests",
            with_p99=False,
            evidence=(
                Row("kv_cache_usage_ratio", "kv", "0..1"),
                Row("kv_cache_usage_ratio", unit="0..1, lowest of the first trough", now=_mean(first)),
                Row("kv_cache_usage_ratio", unit="of the memory per hour", now=per_hour, expected=0.0),
                Row("kv_cache_usage_ratio", unit="0..1, peers", now=case.peer("kv")),
                Row("requests_running", "running", "requests"),
                Row("prefix_cache_queries_tokens_total", "prompt_length", "prompt tokens per request"),
                Row("generation_tokens_total", "output_length", "tokens an answer"),
            ),
            ruled_out=(
                RuledOut(
                    "kv_eviction_storm",
                    "more sessions or longer contexts fill the memory",
                    f"running {number(c['running'])} → {number(v['running'])}, prompt {number(c['prompt_length'])} → "
                    f"{number(v['prompt_length'])} tokens",
                ),
                RuledOut(
                    "stuck_requests",
                    "stuck requests are counted as running, pinned blocks come as one step",
                    f"running {number(c['running'])} → {number(v['running'])}; the rise is spread over {TROUGHS} troughs",
                ),
                RuledOut(
                    "traffic_shift",
                    "longer answers hold memory for longer",
                    f"{number(c['output_length'])} → {number(v['output_length'])} tokens an answer",
                ),
            ),
            now=[
                f"Restart {names(case.replicas)} one at a time before the memory is full (drain first: their "
                "sessions lose their prefixes)",
            ],
            tomorrow=[
                "Report it to the engine's project with the version and what was special before it began "
                "(aborts, oversize prompts, "
                "a KV connector)",
                "Restart on a schedule shorter than the time to full until it is fixed",
            ],
            detail={"full_in_minutes": round(left, 1) if left == left else None},
        )


def _still(window: Window, state: Json, excess: B) -> B:
    """Replicas that leaked at the last tick, hold what they should have given back, and did not restart: a leak has no end."""
    known = state.get("leaking", {})
    mine = np.asarray([u.key in known for u in window.units], bool)
    return mine & excess & (window.since_restart(int(600 // window.step)) > 600)


def _rising(window: Window, normal: Normal, block_s: float) -> tuple[B, F, F]:
    """Replicas whose troughs rise steadily at the same load, the slope per second, and their first trough."""
    units, per = len(window.units), max(2, int(block_s // window.step))
    cells = per * TROUGHS
    none = np.zeros(units, bool), np.full(units, np.nan), np.full(units, np.nan)
    if window.stop - window.start < cells or not units:
        return none
    kv = window.value("kv", cells).reshape(units, TROUGHS, per)
    run = nanmean(window.value("running", cells).reshape(units, TROUGHS, per))
    restarted = (window.value("restart", cells) > 0).any(axis=1)
    known = (~np.isnan(kv)).sum(axis=2) >= max(1, per // 3)
    low = np.where(known, np.min(np.where(np.isnan(kv), np.inf, kv), axis=2), np.nan)
    steps = np.diff(low, axis=1)
    rise = low[:, -1] - low[:, 0]
    with np.errstate(invalid="ignore"):
        steady = (
            (rise >= RISE)
            & ((steps > 0).sum(axis=1) >= TROUGHS - 2)
            & (steps.min(axis=1) >= -0.2 * rise)
            & (steps.max(axis=1) <= 0.6 * rise)
        )
        same = ~(run[:, -1] > 1.25 * run[:, 0] + 1.0)
    return steady & same & ~restarted, rise / (block_s * (TROUGHS - 1)), low[:, 0]


def _choked(window: Window, normal: Normal) -> B:
    """Replicas that are full though nothing runs, and stay so whatever comes and goes."""
    short, long = int(STUCK_S // window.step), int(3600 // window.step)
    out = np.zeros(len(window.units), bool)
    if window.stop - window.start < short:
        return out
    kv, run = window.value("kv", long), window.value("running", long)
    lately = slice(-short, None)
    with np.errstate(invalid="ignore"):
        idle = run < 1
        full = np.where(np.isnan(kv), False, kv >= 0.9)
        usual = normal.centre["kv"] < 0.6
        waits = nanmean(window.value("waiting", short)) > 0.5
        here = np.where(np.isnan(kv[:, lately]), True, full[:, lately]).all(axis=1) & full[:, lately].any(
            axis=1
        )
        nothing = nanmean(run[:, lately]) < 1
        # Spells of work between idle spells, during which the floor never fell.
        begun = (~idle[:, 1:] & idle[:, :-1] & ~np.isnan(run[:, 1:])).sum(axis=1)
        never = np.where(np.isnan(kv), True, full).all(axis=1) & (kv.shape[1] >= long)
    return np.asarray(usual & here & nothing & (waits | (never & (begun >= 3))), bool)


def _mean(x: F) -> float:
    ok = x[~np.isnan(x)]
    return float(ok.mean()) if len(ok) else float("nan")
