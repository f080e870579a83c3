"""Error burst: the engine answers requests with 5xx (or refuses them without being full).

Idea
    A failed request leaves no latency behind: percentiles look better while users see errors. So failures are counted, against
    each replica's own past, and a client's own mistakes (4xx other than 429) are left out.

Formula
    Over two minutes, per replica: failures k of n answers; a burst if k >= 5, k/n >= max(1 %, 5 x own past share) and the
    conditional binomial against the own past (over-dispersion divides the counts) gives p < 1e-6. Refusals (429) count only
    where the replica is not full: waiting < 3 and running < 1.5 x normal. Engines that count no failures are judged by the
    gateway's log, as a pool. A replica that has just died or started speaks through capacity_lost.

Signals
    http_responses_total, errors_total, request_success_total, admission_rejections_total; the gateway's log (what users saw).

Look-alikes
    gateway_fault (the gateway fails, engines count no errors), capacity_shortfall (429 of a full engine), capacity_lost (502 of a
    process that died), clients' own 4xx, the base rate of errors.

Source
    DESIGN: 5xx, 429 and out-of-memory at the engine; incidents.md A9 (an error rate of 0 is no proof).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.answers import (
    NEEDS,
    Answers,
    Seen,
    beyond,
    engines,
    gateway,
    learn_failures,
    past,
    pool_past,
)
from detectors.attempts import FAILED
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.measures import TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stats import zeroed
from detectors.window import Window, nansum
from detectors.wording import names, number, percent

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {"running": 0.15, "waiting": 0.1, "done": 0.1}
LEAST_SHARE = 0.01
DEATH_S = 300.0
"""A process that died within this time explains failures of the requests it held."""


class ErrorBurst:
    """See the module's docstring."""

    kind = "error_burst"
    needs = tuple(dict.fromkeys((*NEEDS, *needs("running", "waiting"))))
    hists = (TTFT,)

    def __init__(self, span_s: float = 120.0) -> None:
        self.span_s = span_s

    def fit(self, history: Window, as_of: float) -> Json:
        """Own past of failures by replica and pool, and the normal of load."""
        out = learn(history, as_of, _FLOORS, block_s=self.span_s)
        out["failures"] = learn_failures(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that answers errors."""
        cells = max(2, int(self.span_s // window.step))
        normal = Normal.of(baseline, window)
        m = now(window, cells, *_FLOORS, "n")
        a = engines(window, cells)
        with np.errstate(invalid="ignore"):
            full = (m["waiting"] >= 3) | (m["running"] >= 1.5 * np.maximum(normal.centre["running"], 2.0))
        k = np.where(full, a.failed, zeroed(a.failed) + zeroed(a.refused))
        k = np.where(np.isnan(a.failed) & np.isnan(a.refused), np.nan, k)
        K, N, phi = past(baseline["failures"], window)
        bad = beyond(k, a.total, K, N, phi, LEAST_SHARE)
        findings = []
        for pool, idx in window.pools.items():
            hit = idx[bad[idx]]
            seen = gateway(window, pool, 2)
            unknown = np.isnan(k[idx]).all()
            if not len(hit) and unknown and seen.known and not died(window, idx):
                K_, N_, phi_ = pool_past(baseline["failures"], pool)
                if beyond(seen.failed, seen.total, K_, N_, phi_, 2 * LEAST_SHARE).all():
                    hit = idx[~np.isnan(m["waiting"][idx]) | (m["n"][idx] > 0)]
            if len(hit):
                findings.append(self._finding(window, normal, m, pool, idx, hit, a, k, K / N, seen))
        return Verdict(findings, {})

    def _finding(
        self,
        window: Window,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        hit: Units,
        a: Answers,
        k: F,
        before: F,
        seen: Seen,
    ) -> Finding:
        case = Case(window, pool, hit, idx, normal, m)
        blind = bool(np.isnan(k[hit]).all())
        failed, total = float(np.nansum(k[hit])), float(np.nansum(a.total[hit]))
        if blind:
            failed, total = seen.failed, seen.total
        share = failed / max(total, 1.0)
        refused, broken = float(np.nansum(a.refused[hit])), float(np.nansum(a.failed[hit]))
        what = "refuse" if refused > broken and not blind else "fail"
        what += "s" if len(hit) == 1 and len(idx) > 1 else ""
        pool_share = (
            seen.failed / max(seen.total, 1.0) if seen.known else failed / max(np.nansum(a.total[idx]), 1)
        )
        peers = case.peers
        peer_share = float(np.nansum(k[peers]) / max(np.nansum(a.total[peers]), 1)) if len(peers) else np.nan
        onset = _onset(window, hit, blind, pool)
        who = names(case.replicas) if len(hit) < len(idx) else f"all {len(hit)} replicas of {pool}"
        cause = (
            f"{number(failed)} of {number(total)} requests in two minutes ended as failures at {who} "
            f"(past: {percent(float(before[hit].mean()))}); {m['waiting'][hit].mean():.0f} wait, so it is not full."
            if not blind
            else f"{number(failed)} of {number(total)} attempts in two minutes ended as {seen.said}. These engines export no "
            "errors by status, so the gateway itself is not ruled out."
        )
        return case.finding(
            self.kind,
            title=f"{who} {what} {percent(share)} of requests" + (f" ({seen.said})" if seen.known else ""),
            cause=cause,
            onset=onset,
            strength=float(np.log2(1 + 100 * share)),
            confidence=0.5 if blind else 0.9,
            severity="page" if pool_share >= LEAST_SHARE else "ticket",
            runner_up="gateway_fault" if blind else "capacity_lost",
            with_p99=False,
            evidence=(
                Row(
                    "http_responses_total",
                    unit="share of answers that failed",
                    now=None if blind else share,
                    before=float(before[hit].mean()),
                    scope=names(case.replicas),
                ),
                Row(
                    "http_responses_total", unit="share of answers that failed", now=peer_share, scope="peers"
                ),
                Row(
                    "gateway log",
                    unit="failed attempts in two minutes",
                    now=seen.failed if seen.known else None,
                    note=seen.said,
                ),
                Row("requests_waiting", "waiting", "requests"),
                Row("requests_running", "running", "requests"),
            ),
            ruled_out=(
                RuledOut(
                    "gateway_fault",
                    "the engines' own counters of failures",
                    "not exported (vLLM: its API server counts http_requests_total; SGLang: --enable-metrics, 0.5.8)"
                    if blind
                    else f"they count {number(failed)} failures themselves",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "a full engine queues",
                    f"{number(float(m['waiting'][hit].mean()))} waiting, {number(float(m['running'][hit].mean()))} running",
                ),
                RuledOut(
                    "capacity_lost",
                    "a process that died takes its requests along",
                    "no restart within five minutes"
                    if not died(window, hit)
                    else "restarted, but it goes on failing",
                ),
                RuledOut("client errors", "4xx other than 429", "not counted"),
            ),
            now=[
                f"Take {names(case.replicas)} out of rotation: its peers answer"
                if len(hit) < len(idx)
                else "Roll back the last release or flag of this pool; send its traffic to another pool if there is one",
                "Read the engine's log of the last two minutes (stack trace, out of memory, missing adapter or model)",
            ],
            tomorrow=[
                "Give availability an objective of its own: latency percentiles do not see failed requests",
                "Retry 5xx once at the gateway, on another replica",
            ],
            detail={
                "chain": [
                    {"at": onset, "what": "requests begin to fail", "value": f"{percent(share)} of answers"}
                ],
                "statuses": [list(p) for p in seen.statuses],
                "gateway_log": "read" if seen.known else "no gateway log: what users saw is not known",
                "harm": {"requests_failed": round(seen.failed if seen.known else failed)},
            },
        )


def died(window: Window, units: Units, within: float = DEATH_S) -> bool:
    """Whether a process of these replicas started, or its scrapes stopped, within a time."""
    cells = max(1, int(within // window.step))
    if (window.since_restart(cells)[units] < within).any():
        return True
    scraped = ~np.isnan(window.value("span", cells)[units])
    return (
        bool((scraped.any(axis=1) & ~scraped[:, -5:].any(axis=1)).any()) if scraped.shape[1] >= 5 else False
    )


def _onset(window: Window, units: Units, blind: bool, pool: str) -> float:
    """When failures began: going back over minutes (or cells) with failures, with holes of at most one minute."""
    if blind:
        step, x, end = 60.0, window.gateway.count(pool, 60, FAILED), window.gateway.end
    else:
        a = engines(window, min(240, window.stop - window.start), each=True)
        x = nansum(np.fmax(a.failed, zeroed(a.refused))[units].T)
        step, end = window.step, window.end
    hole, first = 0, len(x)
    for at in range(len(x) - 1, -1, -1):
        hole = 0 if x[at] > 0 else hole + 1
        if hole == 0:
            first = at
        elif hole * step > 60:
            break
    return end - (len(x) - first) * step
