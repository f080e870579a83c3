"""Stuck requests: some will never finish and hold slots or KV blocks, while the engine works on for the others.

Idea
    An error rate of 0 is no proof: a zombie neither fails nor finishes. The ledger finds it: what runs, less what finished and
    left requests account for. Memory can be held without a slot (blocks pinned for a transfer that was aborted), one request can
    be thrown out and taken in for ever, and one that never ends can block a queue.

Formula
    Per replica::

        zombies   over five minutes, running - seconds of finished requests / span - left/s x seconds of a request
                  >= max(2, half of what runs, own normal + 5 spreads), work being done when it began; where KV is transferred,
                  running / completions must also be ten times a request's usual seconds
        pinned    KV >= own normal + 0.3, flat within 0.03 for a minute, at running <= 0.3 x normal, within ten minutes after
                  at least five aborts in two minutes
        livelock  preemptions in five minutes >= 10 x (finished + running + waiting), and >= 100
        runaway   1 or 2 run, tokens flow in every minute, nothing finishes and nothing new starts for max(10 min, 10 x a
                  request's mean seconds): blocked (a queue waits, five minutes are enough) or not

Signals
    requests_running, inference_time_seconds (or request_latency_seconds), http_responses_total, aborted_total,
    kv_cache_usage_ratio, preemptions_total, generation_tokens_total, kv_transfer_time_seconds.

Look-alikes
    wedged (nothing moves at all and nothing was stuck before), kv_leak (no slots, no aborts, for ever), long requests (they
    finish), kv_transfer_slow (transfers take their time), more load, users who stop answers.

Source
    incidents.md A9, B7, B8, C5 (slot), D5: Entrpi/ds4#3, sglang#8352, vllm#29906, vllm#52530, vllm#30599, vllm#31353.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.answers import engines
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.ledger import HISTS, NEEDS, Ledger, learn_ledger, ledger, usual_of
from detectors.measures import TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stats import zeroed
from detectors.tail import learn_tail
from detectors.window import Window, nanmean, nansum
from detectors.wording import names, number, percent, seconds

F = NDArray[np.float64]
Flags = NDArray[np.bool_]
Units = NDArray[np.intp]
_FLOORS = {"running": 0.15, "waiting": 0.1, "kv": 0.1, "arrivals": 0.1, "done": 0.1, "ttft": 0.15}
KV_UP, FLAT, IDLE, BURST, AFTER_S = 0.3, 0.03, 0.3, 5.0, 600.0
PER_REQUEST, LEAST_PREEMPTED = 10.0, 100.0
RUNAWAY_S, BLOCKED_S, TIMES = 600.0, 300.0, 10.0
WHICH = ("zombies", "pinned", "livelock", "runaway")


@dataclass(frozen=True)
class Seen:
    """What shows per replica, by which of :data:`WHICH`, and the numbers to say it with."""

    by: dict[str, Flags]
    books: Ledger
    preempted: F
    left: F


class StuckRequests:
    """See the module's docstring."""

    kind = "stuck_requests"
    needs = tuple(dict.fromkeys((*NEEDS, *needs("waiting", "kv", "preempted", "retracted"))))
    hists = (TTFT, *HISTS)

    def fit(self, history: Window, as_of: float) -> Json:
        """Normal of load and memory, of the ledger, and the past of late requests."""
        out = learn(history, as_of, _FLOORS, block_s=120.0)
        out["ledger"] = learn_ledger(history, as_of)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool; the state remembers since when requests are stuck, and when a burst of aborts was."""
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n", "finished")
        known: Json = state.get("units", {})
        seen, memory = _look(window, baseline, normal, m, known)
        findings = []
        for pool, idx in window.pools.items():
            hit = np.asarray([i for i in idx if "which" in memory.get(window.units[i].key, {})], np.intp)
            if len(hit):
                findings.append(self._finding(window, baseline, normal, m, pool, idx, hit, seen, memory))
        return Verdict(findings, {"units": memory} if memory else {})

    def _finding(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        hit: Units,
        seen: Seen,
        memory: Json,
    ) -> Finding:
        case = Case(window, pool, hit, idx, normal, m)
        c, v = case.before, case.now
        rows = [memory[window.units[i].key] for i in hit]
        which = max(WHICH, key=lambda w: sum(r["which"] == w for r in rows))
        onset = min(float(r["since"]) for r in rows)
        held = float(np.nansum(np.maximum(seen.books.gap[hit], 0.0)))
        running = float(np.nansum(seen.books.running[hit]))
        title, cause = _say(which, case, held, running, seen, hit)
        hurt = case.hurts(baseline["tail"]) or v["waiting"] >= 3 + 4 * zeroed(c["waiting"])
        return case.finding(
            self.kind,
            title=title,
            cause=cause,
            onset=onset,
            strength=float(np.log2(1 + max(held, 1.0))),
            confidence=0.9 if which == "zombies" else 0.8,
            severity="page" if hurt else "ticket",
            runner_up="wedged"
            if which in ("zombies", "runaway")
            else "kv_eviction_storm"
            if which == "livelock"
            else "kv_leak",
            evidence=(
                Row(
                    "inference_time_seconds",
                    unit="running requests that nothing accounts for",
                    now=held if which == "zombies" else None,
                    before=float(np.nansum(usual_of(baseline["ledger"], window, "centre")[hit])),
                    note=f"of {number(running)} that run",
                ),
                Row("requests_running", "running", "requests per replica"),
                Row("requests_waiting", "waiting", "requests per replica"),
                Row("kv_cache_usage_ratio", "kv", "0..1"),
                Row("request_success_total", "done", "finished/s per replica"),
                Row(
                    "aborted_total",
                    unit="clients that left in two minutes",
                    now=float(np.nansum(seen.left[hit])),
                ),
                Row(
                    "preemptions_total",
                    unit="in five minutes",
                    now=float(np.nansum(seen.preempted[hit])) if which == "livelock" else None,
                ),
            ),
            ruled_out=(
                RuledOut(
                    "wedged",
                    "nothing moves at all",
                    f"{v['done']:.2g} requests/s finish"
                    if v["done"] > 0
                    else "requests were stuck before work stopped"
                    if which != "runaway"
                    else "tokens flow",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "arrivals against own normal",
                    f"{c['arrivals']:.2g} → {v['arrivals']:.2g} first tokens/s per replica",
                ),
                RuledOut(
                    "kv_leak",
                    "a leak grows without aborts and is never given back",
                    f"{number(float(np.nansum(seen.left[hit])))} clients left in two minutes",
                ),
                RuledOut(
                    "long requests",
                    "they finish, and their seconds are in the ledger",
                    f"{seconds(float(np.nanmean(seen.books.mean_s[hit])))} a finished request"
                    if not np.isnan(seen.books.mean_s[hit]).all()
                    else "none finish",
                ),
            ),
            now=_NOW[which](names(case.replicas)),
            tomorrow=_TOMORROW[which],
            detail={
                "which": which,
                "chain": [{"at": onset, "what": _FIRST[which], "value": title}],
                "harm": {"requests_stuck": round(held) if which == "zombies" else len(hit)},
            },
        )


def _look(
    window: Window, baseline: Json, normal: Normal, m: dict[str, F], known: Json
) -> tuple[Seen, dict[str, Json]]:
    """What shows now, and the memory of each replica: ``since`` and ``which`` of what is stuck, ``burst`` of the last aborts."""
    books = ledger(window, usual_of(baseline["ledger"], window))
    centre, spread = (usual_of(baseline["ledger"], window, k) for k in ("centre", "spread"))
    five, two = int(300 // window.step), max(2, int(120 // window.step))
    preempted = np.fmax(nansum(window.value("preempted", five)), nansum(window.value("retracted", five)))
    left = nansum(_left(window, two))
    running, waiting = nanmean(window.value("running", five)), nanmean(window.value("waiting", five))
    finished = nansum(window.value("finished", five))
    kv = window.value("kv", 4)
    with np.errstate(invalid="ignore"):
        beyond = books.unaccounted & (books.gap >= zeroed(centre) + 5 * zeroed(spread, 0.2))
        flat = (kv.max(axis=1) - kv.min(axis=1) <= FLAT) if kv.shape[1] == 4 else np.zeros(len(kv), bool)
        high = nanmean(kv) >= normal.centre["kv"] + KV_UP
        idle = nanmean(window.value("running", 4)) <= IDLE * np.maximum(normal.centre["running"], 1.0)
        livelock = (preempted >= LEAST_PREEMPTED) & (
            preempted >= PER_REQUEST * (zeroed(finished) + zeroed(running) + zeroed(waiting))
        )
    burst = left >= BURST
    runaway = _runaway(window, usual_of(baseline["ledger"], window))
    by = {"zombies": beyond, "pinned": flat & high & idle, "livelock": livelock, "runaway": runaway}
    memory: dict[str, Json] = {}
    for i, u in enumerate(window.units):
        old = known.get(u.key, {})
        row: Json = {}
        if burst[i]:
            row["burst"] = window.end
        elif window.end - old.get("burst", -np.inf) <= AFTER_S:
            row["burst"] = old["burst"]
        which = _which(i, by, books, row, old)
        if which:
            row["which"] = which
            row["since"] = old["since"] if "since" in old else window.end - _began(which)
        if row:
            memory[u.key] = row
    return Seen(by, books, preempted, left), memory


def _which(i: int, by: dict[str, Flags], books: Ledger, row: Json, old: Json) -> str:
    """Which of them holds now; zombies must have begun while work was finished, pinned blocks after a burst of aborts."""
    if by["zombies"][i] and ((books.progress[i] and books.stuck[i]) or old.get("which") == "zombies"):
        return "zombies"
    if by["pinned"][i] and ("burst" in row or old.get("which") == "pinned"):
        return "pinned"
    return next((w for w in ("livelock", "runaway") if by[w][i]), "")


def _began(which: str) -> float:
    """How long before it can be seen it must have begun, in seconds."""
    return {"zombies": 120.0, "pinned": 60.0, "livelock": 60.0, "runaway": BLOCKED_S}[which]


def _left(window: Window, cells: int) -> F:
    return engines(window, cells, each=True).left


def _runaway(window: Window, usual_s: F) -> Flags:
    """One or two requests that run on and on: tokens in every minute, nothing finishes, nothing new begins."""
    long = np.fmax(RUNAWAY_S, TIMES * zeroed(usual_s))
    most = int(min(3600.0, float(long.max(initial=RUNAWAY_S))) // window.step)
    cells = min(most, window.stop - window.start)
    running, waiting = window.value("running", cells), window.value("waiting", cells)
    made = np.fmax(window.value("generated", cells), window.value("live_decode", cells))
    begun = zeroed(window.value(f"{TTFT}:n", cells)) + zeroed(window.value("finished", cells))
    known = ~np.isnan(running) & ~np.isnan(made)
    fits = known & (running >= 1) & (running <= 2) & (made > 0) & (begun == 0)
    blocked = fits & (waiting >= 1)
    scraped = ~np.isnan(window.value("span", cells))

    def run(x: Flags) -> F:
        broken = scraped & ~x
        last = np.where(broken.any(axis=1), cells - 1 - np.argmax(broken[:, ::-1], axis=1), -1)
        first = np.argmax(x & (np.arange(cells)[None, :] > last[:, None]), axis=1)
        any_ = (x & (np.arange(cells)[None, :] > last[:, None])).any(axis=1)
        return np.where(any_, (cells - first) * window.step, 0.0)

    if not cells:
        return np.zeros(len(window.units), bool)
    out: Flags = (run(fits) >= np.minimum(long, 3600.0)) | (run(blocked) >= BLOCKED_S)
    return out


_FIRST = {
    "zombies": "requests stay that neither finish nor leave",
    "pinned": "KV blocks stay after their requests are gone",
    "livelock": "the same requests are thrown out and taken in again",
    "runaway": "a request goes on without an end",
}
_NOW = {
    "zombies": lambda who: [
        f"Drain and restart {who}: a zombie gives nothing back",
        "Until then send new requests to its peers",
    ],
    "pinned": lambda who: [
        f"Keep retries away from {who} and its peers: each pins the next instance; blocks come back at the connector's time-out",
        "Restart the replica if it cannot wait",
    ],
    "livelock": lambda who: [
        f"Abort the longest request of {who} (its context does not fit), or restart the replica"
    ],
    "runaway": lambda who: [
        f"Abort the oldest request of {who}: it blocks a slot and, where others wait, the queue"
    ],
}
_TOMORROW = {
    "zombies": [
        "Check that an abort reaches the engine (gateway, router, front end): started = finished + aborted + running must close",
        "Give requests a deadline at the engine",
    ],
    "pinned": ["Shorten the KV connector's abort time-out", "Tell prefill of an abort (vllm#29906)"],
    "livelock": [
        "Refuse requests whose context cannot fit: max model length below the KV capacity of one replica"
    ],
    "runaway": [
        "Cap max_tokens per class",
        "Stop on repetition; a request time-out at the gateway that also aborts",
    ],
}


def _say(which: str, case: Case, held: float, running: float, seen: Seen, hit: Units) -> tuple[str, str]:
    who, v, c = names(case.replicas), case.now, case.before
    if which == "zombies":
        return (
            f"Stuck requests on {who}: {number(held)} of {number(running)} running requests never finish",
            f"{number(running)} requests run on {who}, and those that finish account for {number(running - held)}: "
            f"{number(held)} hold slots and KV ({percent(c['kv'])} → {percent(v['kv'])}) without an end. "
            + (
                f"{number(gone)} clients left in two minutes. "
                if (gone := float(np.nansum(seen.left[hit])))
                else ""
            )
            + "Nothing fails, so no error rate shows it.",
        )
    if which == "pinned":
        return (
            f"KV pinned on {who}: {percent(v['kv'])} in use while {number(v['running'])} run",
            f"After a burst of aborts {percent(v['kv'])} of the KV of {who} stays in use (normal {percent(c['kv'])}) although "
            "nearly nothing runs: blocks are kept for transfers that nobody waits for, until the connector's time-out.",
        )
    if which == "livelock":
        return (
            f"Livelock on {who}: {number(float(np.nansum(seen.preempted[hit])))} preemptions in five minutes",
            f"Requests on {who} were thrown out {number(float(np.nansum(seen.preempted[hit])))} times in five minutes, ten times "
            "more often than there are requests: the same ones again and again, because they cannot fit.",
        )
    return (
        f"A request on {who} does not end: {number(v['running'])} run, {number(v['waiting'])} wait, nothing finishes",
        f"{number(v['running'])} requests run on {who} and make tokens, but none has finished and none has begun for minutes"
        + (f"; {number(v['waiting'])} wait behind." if v["waiting"] >= 1 else "."),
    )
