"""KV transfers slow or failing: what prefill computed takes too long to reach the replica that decodes it.

Idea
    The hand-over has a physical price per byte. When the link, its driver or its host is at fault that price rises at any load;
    when the receiver merely has no room the bytes move as fast as ever and only wait (``prefill_decode_imbalance``). So the test
    is the time per gigabyte against the same replicas' own past, with the sender as witness and the receiver's memory as
    the look-alike. How bad it is, is said against prefill alone: below 1 % overhead is good, up to 5 % acceptable, above 20 %
    pathological; between is "raised".

Formula
    Over four minutes, per receiving replica: seconds per gigabyte (per transfer where sizes are not exported) >= 2 x own normal
    and z >= 5, at least 10 transfers, KV usage of the receiver < 90 %. Where the senders export it too: theirs >= 1.5 x.
    overhead = mean transfer time / mean prefill time without queue of the prefill replicas; it must be over 5 % and have at
    least doubled. Or: failed transfers beyond the own rate (Poisson tail < 1e-6), at least 5 and 2 % of the transfers.
    At least half of the pool that has data, or a single replica whose peers are as usual.

Signals
    kv_transfer_time_seconds, kv_transfer_bytes, kv_transfer_failures_total, kv_cache_usage_ratio, ttft_seconds,
    queue_time_seconds, generation_tokens_total.

Look-alikes
    prefill_decode_imbalance (the receiver is full: hand-overs wait for room), longer prompts (more bytes, the same time per
    gigabyte), capacity_shortfall (prefill itself queues), stuck_requests (transfers that expired pin memory).

Source
    incidents.md F2, F3 and the section on Z.ai's later post: sglang#5450, vllm#6170, sglang#7317.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.chain import Link
from detectors.contract import Json, Verdict
from detectors.measures import MOVED, QUEUE, TRANSFER, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.pd import feeders, roles
from detectors.stats import poisson_tail, zeroed
from detectors.tail import learn_tail
from detectors.window import Window, nansum
from detectors.wording import names, number, percent, seconds, times

F = NDArray[np.float64]
Units = NDArray[np.intp]

_FLOORS = {
    "transfer_per_gb": 0.1,
    "transfer_seconds": 0.1,
    "prefill_seconds": 0.15,
    "ttft": 0.15,
    "kv": 0.1,
    "running": 0.15,
}
GOOD, ACCEPTABLE, PATHOLOGICAL = 0.01, 0.05, 0.20
LEAST = 10
FULL = 0.9


class KvTransferSlow:
    """See the module's docstring."""

    kind = "kv_transfer_slow"
    needs = needs("running", "kv", "generated", "transfer_failed")
    hists = (TTFT, f"{QUEUE}:mean", f"{TRANSFER}:mean", f"{MOVED}:mean")

    def __init__(self, span_s: float = 240.0) -> None:
        self.span_s = span_s

    def fit(self, history: Window, as_of: float) -> Json:
        """Own normal of the time per gigabyte, the past of late requests, and the plain rate of failed transfers."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s)
        out["tail"] = learn_tail(history, as_of)
        usable = history.usable.copy()
        usable[:, max(0, usable.shape[1] - int(600 // history.step)) :] = False
        for part, name in (("failed", "transfer_failed"), ("moved", f"{TRANSFER}:n")):
            out[part] = zeroed(nansum(np.where(usable, history.value(name), np.nan))).tolist()
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose transfers are slow or fail."""
        cells = max(2, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "transfers", "n")
        failed = window.total("transfer_failed", cells)
        known = {u: i for i, u in enumerate(baseline.get("units", []))}
        at = [known.get(u.key) for u in window.units]
        rate0 = np.asarray(
            [0.0 if j is None else (baseline["failed"][j] + 0.5) / (baseline["moved"][j] + 100.0) for j in at]
        )
        tried = zeroed(m["transfers"]) + zeroed(failed)
        p = poisson_tail(zeroed(failed), np.maximum(rate0, 1e-4) * np.maximum(tried, 1.0), 2.0)
        with np.errstate(invalid="ignore"):
            slow = (
                (m["transfers"] >= LEAST)
                & (normal.factor("transfer_per_gb", m["transfer_per_gb"]) >= 2.0)
                & (normal.z("transfer_per_gb", m["transfer_per_gb"]) >= 5)
                & ~(m["kv"] >= FULL)
            )
            fails = (p < 1e-6) & (failed >= 5) & (failed >= 0.02 * tried)
        findings = []
        receivers = roles(window).decode
        for pool, idx in window.pools.items():
            # Both ends measure the same hand-over: the receiver speaks where it has data, the sender only where nobody else does.
            mine = idx[receivers[idx]]
            if not len(mine):
                fed = _fed(window, idx)
                mine = idx[roles(window).prefill[idx]] if len(idx) and not fed else idx[:0]
            seen = mine[~np.isnan(m["transfer_per_gb"][mine])]
            broken = mine[fails[mine]]
            hit = seen[slow[seen]]
            senders = feeders(window, mine) if len(mine) else mine
            case = Case(window, pool, hit if len(hit) else broken, seen, normal, m)
            if len(hit) and _carries(hit, seen) and _slow_at_the_sender(normal, m, senders):
                overhead = _overhead(normal, m, hit, senders)
                if overhead[1] > ACCEPTABLE and overhead[1] >= 2 * overhead[0]:
                    findings.append(self._slow(case, baseline, senders, overhead))
                    continue
            if len(broken):
                findings.append(self._failing(case, baseline, failed, tried, rate0))
        return Verdict(findings, {})

    def _slow(self, case: Case, baseline: Json, senders: Units, overhead: tuple[float, float]) -> Finding:
        c, v = case.before, case.now
        before, after = overhead
        unit = "per gigabyte" if case.window.cube.has(f"{MOVED}:n") else "per transfer"
        theirs = mean(case.present["transfer_per_gb"][senders]) if len(senders) else float("nan")
        usual = mean(case.normal.centre["transfer_per_gb"][senders]) if len(senders) else float("nan")
        return case.finding(
            self.kind,
            title=f"KV transfer slow into {case.pool}: {seconds(c['transfer_seconds'])} → {seconds(v['transfer_seconds'])} each, "
            f"{percent(after)} of prefill",
            cause=f"Handing KV over to {names(case.replicas)} takes {seconds(v['transfer_per_gb'])} {unit} instead of "
            f"{seconds(c['transfer_per_gb'])} ({times(case.factor('transfer_per_gb'))}) while their memory has room "
            f"(KV {percent(v['kv'])}). Overhead over prefill alone: {percent(after)}, {grade(after)} (before: "
            f"{percent(before)}).",
            links=[
                Link(
                    "a transferred gigabyte takes longer",
                    "transfer_per_gb",
                    1.5 * c["transfer_per_gb"],
                    show=seconds,
                ),
                Link("first tokens come later", "ttft", 1.5 * c["ttft"], show=seconds),
                Link("requests hold memory for longer", "kv", max(1.5 * c["kv"], 0.05), show=percent),
            ],
            strength=float(np.log2(max(case.factor("transfer_per_gb"), 1.0))),
            confidence=0.9 if theirs == theirs else 0.75,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="prefill_decode_imbalance",
            evidence=(
                Row("kv_transfer_time_seconds", "transfer_per_gb", f"s {unit}"),
                Row("kv_transfer_time_seconds", "transfer_seconds", "s (mean)"),
                Row(
                    "kv_transfer_time_seconds",
                    unit="transfer ÷ prefill",
                    now=after,
                    before=before,
                    expected=ACCEPTABLE,
                    note="below 1 % good, up to 5 % acceptable, above 20 % pathological",
                ),
                Row("kv_transfer_time_seconds", unit=f"s {unit}, at the senders", now=theirs, before=usual),
                Row("kv_cache_usage_ratio", "kv", "0..1", "of the receivers"),
                Row("ttft_seconds", "ttft", "s (mean)"),
            ),
            ruled_out=(
                RuledOut(
                    "prefill_decode_imbalance",
                    "hand-overs wait where the receivers are full",
                    f"KV of the receivers {percent(c['kv'])} → {percent(v['kv'])}",
                ),
                RuledOut(
                    "traffic_shift",
                    "longer prompts move more bytes at the same time per gigabyte",
                    f"{seconds(c['transfer_per_gb'])} → {seconds(v['transfer_per_gb'])} {unit}",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "prefill itself queues or slows",
                    _prefill_words(case, senders),
                ),
            ),
            now=[
                "Look at the link: NIC errors, a congested leaf switch, UCX or NIXL falling back to TCP "
                "(UCX_TLS), NCCL_IB settings",
                "Drain the receivers that are slow alone; if all are, send short prompts to unified replicas",
            ],
            tomorrow=[
                "Watch transfer ÷ prefill: below 1 % is good, above 20 % is pathological",
                "Transfer layer by layer while prefill runs, and keep the transfer thread off the GIL",
            ],
            detail={"overhead": round(after, 4), "overhead_before": round(before, 4), "grade": grade(after)},
        )

    def _failing(self, case: Case, baseline: Json, failed: F, tried: F, rate0: F) -> Finding:
        c, v = case.before, case.now
        k, n = float(np.nansum(failed[case.units])), float(np.nansum(tried[case.units]))
        usual = mean(rate0[case.units])
        return case.finding(
            self.kind,
            title=f"KV transfers fail into {case.pool}: {number(k)} of {number(n)} in {self.span_s / 60:.0f} min",
            cause=f"{number(k)} of {number(n)} hand-overs to {names(case.replicas)} failed (usual "
            f"{percent(usual)}); what fails is "
            "computed again where it is needed, without a word to the client.",
            links=[Link("first tokens come later", "ttft", 1.5 * c["ttft"], show=seconds)],
            onset=case.window.end - self.span_s,
            strength=float(np.log2(max(k / max(usual * n, 0.5), 1.0))),
            confidence=0.8,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="error_burst",
            evidence=(
                Row(
                    "kv_transfer_failures_total", unit="share of transfers", now=k / max(n, 1.0), before=usual
                ),
                Row("ttft_seconds", "ttft", "s (mean)"),
                Row("kv_cache_usage_ratio", "kv", "0..1"),
            ),
            ruled_out=(
                RuledOut(
                    "stuck_requests",
                    "transfers that merely expired are not counted here",
                    "failures of transfer, notification and bootstrap only",
                ),
                RuledOut(
                    "prefill_decode_imbalance",
                    "full receivers make hand-overs wait, not fail",
                    f"KV {percent(c['kv'])} → {percent(v['kv'])}",
                ),
                RuledOut(
                    "warm_up",
                    "peers that restart break transfers",
                    "counted over four minutes, not one restart",
                ),
            ),
            now=["Read the transfer errors in the log of these replicas; drain a replica that fails alone"],
            tomorrow=["Alert on prompt tokens computed on decode replicas: they are failed hand-overs"],
        )


def grade(overhead: float) -> str:
    """The words for a transfer overhead over prefill alone.

    >>> grade(0.004), grade(0.05), grade(0.12), grade(0.8)
    ('good', 'acceptable', 'raised', 'pathological')
    """
    if overhead < GOOD:
        return "good"
    if overhead <= ACCEPTABLE:
        return "acceptable"
    return "raised" if overhead <= PATHOLOGICAL else "pathological"


def _carries(hit: Units, seen: Units) -> bool:
    return 2 * len(hit) >= len(seen) or len(hit) == 1


def _fed(window: Window, idx: Units) -> bool:
    """Whether some decode replica of the same cluster exports transfers of its own."""
    clusters = {window.units[i].cluster for i in idx}
    m = now(window, 240, "transfers")["transfers"]
    return any(window.units[i].cluster in clusters and m[i] > 0 for i in np.flatnonzero(roles(window).decode))


def _slow_at_the_sender(normal: Normal, m: dict[str, F], senders: Units) -> bool:
    """Whether the senders, where they measure it and it is known, see the same slowness."""
    with np.errstate(invalid="ignore"):
        x = normal.factor("transfer_per_gb", m["transfer_per_gb"])[senders]
    x = x[~np.isnan(x)]
    return not len(x) or float(np.median(x)) >= 1.5


def _overhead(normal: Normal, m: dict[str, F], hit: Units, senders: Units) -> tuple[float, float]:
    """Transfer time over prefill time, before and now; prefill time is the senders', or the replica's own where none is known."""
    who = senders if len(senders) and not np.isnan(m["prefill_seconds"][senders]).all() else hit
    # What prefill costs alone is its normal: prefill that is held up by the transfer must not hide it.
    alone = max(mean(normal.centre["prefill_seconds"][who]), 1e-3)
    return mean(normal.centre["transfer_seconds"][hit]) / alone, mean(m["transfer_seconds"][hit]) / alone


def _prefill_words(case: Case, senders: Units) -> str:
    who = senders if len(senders) else case.units
    a, b = case.normal.centre["prefill_seconds"][who], case.present["prefill_seconds"][who]
    return f"prefill {seconds(mean(a))} → {seconds(mean(b))}"
