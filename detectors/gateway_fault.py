"""Gateway fault: router or gateway is slow or fails in front of engines that are idle.

Idea
    The same requests are seen twice: at the gateway and at the engine. What the gateway adds is its own, if the engines neither
    queue nor fail nor die.

Formula
    Over two whole minutes of the gateway's log, per pool::

        fails   5xx of n attempts: >= 5, >= max(1 %, 5 x past), p < 1e-6 against the past; the engines' counters explain less
                than a third of them, no process died within five minutes
        slow    late attempts (beyond the TTFT objective) of n against the engines' own late share over the last six minutes:
                p < 1e-6 and six times the budget; mean TTFT at the gateway minus mean TTFT at the engines
                >= max(5 x its normal, a quarter of the objective)
        idle    mean waiting < 3 and the engines' mean TTFT < 2 x normal

    Where prefill and decode are apart, the time between the two pools is no gateway's and only failures are judged.

Signals
    The gateway's log (attempts with status and time to first token); ttft_seconds, http_responses_total, errors_total,
    requests_waiting. Without a gateway's log this kind cannot be told.

Look-alikes
    error_burst (the engines fail), capacity_lost (502 of processes that died), capacity_shortfall and head_of_line (the engines
    are slow), kv_transfer_slow (between prefill and decode), refusals (429) by a limit.

Source
    incidents.md A10 (client TTFT far above the server's), A8.
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
    pool_past,
    usable_minutes,
)
from detectors.attempts import FAILED
from detectors.case import Case, Row, mean
from detectors.contract import Json, Objective, Verdict
from detectors.error_burst import LEAST_SHARE, died
from detectors.late import all_late
from detectors.measures import TRANSFER, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.stats import binomial_tail, centre_spread, zeroed
from detectors.window import Window, nansum
from detectors.wording import number, percent, seconds

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {"ttft": 0.15, "running": 0.15, "waiting": 0.1, "done": 0.1}
MINUTES = 2
ENGINE_S = 360.0
APART = ("prefill", "decode")


class GatewayFault:
    """See the module's docstring."""

    kind = "gateway_fault"
    needs = tuple(dict.fromkeys((*NEEDS, *needs("running", "waiting"))))
    hists = (TTFT, f"{TRANSFER}:mean")

    def fit(self, history: Window, as_of: float) -> Json:
        """Past failures, normal of the engines, and what the gateway usually adds to the time to first token."""
        out = learn(history, as_of, _FLOORS, block_s=120.0)
        out["failures"] = learn_failures(history, as_of)
        out["added"] = {p: _usual_gap(history, p) for p in history.pools}
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose gateway is at fault."""
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n")
        a = engines(window, max(2, int(180 // window.step)))
        findings = []
        for pool, idx in window.pools.items():
            seen = gateway(window, pool, MINUTES)
            if not seen.known or not _idle(normal, m, idx):
                continue
            f = self._fails(window, baseline, normal, m, a, pool, idx, seen)
            f = f or self._slow(window, baseline, normal, m, pool, idx, seen)
            if f is not None:
                findings.append(f)
        return Verdict(findings, {})

    def _fails(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        a: Answers,
        pool: str,
        idx: Units,
        seen: Seen,
    ) -> Finding | None:
        K, N, phi = pool_past(baseline["failures"], pool)
        if not beyond(seen.failed, seen.total, K, N, phi, LEAST_SHARE).all():
            return None
        own = a.failed[idx] + zeroed(a.refused[idx])
        if np.isnan(own).all() or np.nansum(own) >= seen.failed / 3 or died(window, idx):
            return None
        share = seen.failed / seen.total
        onset = _since_minute(window, pool)
        return self._finding(
            window,
            normal,
            m,
            pool,
            idx,
            title=f"Gateway fails {percent(share)} of {pool}'s requests ({seen.said}) while its engines are idle",
            cause=f"{number(seen.failed)} of {number(seen.total)} attempts in two minutes ended as {seen.said}; the engines "
            f"count {number(float(np.nansum(own)))} failures, and {mean(m['waiting'][idx]):.0f} requests wait there.",
            onset=onset,
            strength=float(np.log2(1 + 100 * share)),
            rows=(
                Row(
                    "gateway log",
                    unit="share of attempts that failed",
                    now=share,
                    before=K / N,
                    note=seen.said,
                ),
                Row(
                    "http_responses_total",
                    unit="failures the engines count in three minutes",
                    now=float(np.nansum(own)),
                ),
            ),
            what=("attempts fail at the gateway", percent(share)),
            harm={"requests_failed": round(seen.failed)},
        )

    def _slow(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        seen: Seen,
    ) -> Finding | None:
        if apart(window, idx):
            return None
        log = window.gateway
        n, total = (float(log.total(pool, x, MINUTES).sum()) for x in ("ttft_n", "ttft_sum"))
        late = float(log.total(pool, "late", MINUTES).sum())
        objective = _objective(window, log.classes(pool))
        usual = baseline["added"].get(pool)
        cells = int(ENGINE_S // window.step)
        first = nansum(window.value(f"{TTFT}:n", cells)[idx].ravel())
        if objective is None or usual is None or n < 20 or not first >= 20:
            return None
        engine = float(nansum(window.value(f"{TTFT}:sum", cells)[idx].ravel()) / first)
        k, N = _engine_late(window, idx, cells, log.classes(pool))
        added = total / n - engine
        p = float(binomial_tail(late, n, k, max(N, 1.0)))
        if (
            added < max(5 * max(usual[0], 0.0), usual[0] + 5 * usual[1], objective.threshold / 4)
            or late / n < 6 * objective.budget
            or late < 5
            or p > 1e-6
            or k / max(N, 1.0) > late / n / 3
        ):
            return None
        onset = _since_minute(window, pool, objective)
        return self._finding(
            window,
            normal,
            m,
            pool,
            idx,
            title=f"Gateway holds {pool}'s requests: first token after {seconds(total / n)} at the gateway, {seconds(engine)} "
            "at the engines",
            cause=f"{percent(late / n)} of {number(n)} attempts had their first token after {seconds(objective.threshold)} at "
            f"the gateway, {percent(k / max(N, 1.0))} at the engines, where {mean(m['waiting'][idx]):.0f} requests wait. "
            f"What is added before the engines: {seconds(max(usual[0], 0.0))} → {seconds(added)}.",
            onset=onset,
            strength=float(np.log2(1 + added / max(objective.threshold, 1e-3))),
            rows=(
                Row(
                    "gateway log",
                    unit="s to first token added before the engines (mean)",
                    now=added,
                    before=usual[0],
                ),
                Row("gateway log", unit="share of attempts late at the gateway", now=late / n),
                Row("ttft_seconds", unit="share late at the engines", now=k / max(N, 1.0)),
            ),
            what=("the gateway adds time before the first token", seconds(added)),
            harm={"requests_late": round(late), "requests": round(n), "share_late": round(late / n, 4)},
        )

    def _finding(
        self,
        window: Window,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        *,
        title: str,
        cause: str,
        onset: float,
        strength: float,
        rows: tuple[Row, ...],
        what: tuple[str, str],
        harm: dict[str, float],
    ) -> Finding:
        case = Case(window, pool, idx, idx, normal, m)
        c, v = case.before, case.now
        return case.finding(
            self.kind,
            title=title,
            cause=cause,
            onset=onset,
            strength=strength,
            confidence=0.85,
            runner_up="tail_latency_spike",
            with_p99=False,
            evidence=(
                *rows,
                Row("ttft_seconds", "ttft", "s at the engines (mean)"),
                Row("requests_waiting", "waiting", "requests"),
                Row("requests_running", "running", "requests"),
            ),
            ruled_out=(
                RuledOut(
                    "error_burst",
                    "failures that the engines count themselves",
                    next(
                        (f"{number(r.now)} in three minutes" for r in rows if "engines count" in r.unit),
                        "as usual",
                    ),
                ),
                RuledOut(
                    "capacity_shortfall",
                    "requests queue at the engines",
                    f"{number(v['waiting'])} waiting per replica, TTFT there {seconds(c['ttft'])} → {seconds(v['ttft'])}",
                ),
                RuledOut(
                    "capacity_lost",
                    "replicas that died or started",
                    "none within five minutes" if not died(window, idx) else "seen, but failures go on",
                ),
                RuledOut(
                    "kv_transfer_slow",
                    "prefill and decode apart",
                    "apart" if apart(window, idx) else "one pool does both",
                ),
            ),
            now=[
                f"Look at the gateway: its health checks, connection pool and CPU; the engines of {pool} are idle",
                "Send traffic through another gateway replica, or roll back its last change",
            ],
            tomorrow=[
                "Measure time to first token at gateway and engine, and alert on the difference",
                "Give the gateway's upstream pool as many connections as the engines have slots",
            ],
            detail={"chain": [{"at": onset, "what": what[0], "value": what[1]}], "harm": harm},
        )


def _idle(normal: Normal, m: dict[str, F], idx: Units) -> bool:
    """Whether the engines neither queue nor are slower than usual."""
    waiting, ttft = mean(m["waiting"][idx]), mean(m["ttft"][idx])
    usual = mean(normal.centre["ttft"][idx]) if "ttft" in normal.centre else float("nan")
    return not waiting >= 3 and not ttft >= 2 * max(usual, 0.02)


def apart(window: Window, idx: Units) -> bool:
    """Whether prefill and decode are apart here: by what the engines say of themselves, or because KV is transferred."""
    roles = {f.role for i in idx if (f := window.facts(int(i))) is not None}
    moved = window.value(f"{TRANSFER}:n", 40)[idx]
    return bool(roles & set(APART)) or bool((moved > 0).any())


def _objective(window: Window, classes: tuple[str, ...]) -> Objective | None:
    """The strictest objective on the first token among some classes."""
    known = [o for c in classes if (o := window.context.objective(c)) is not None]
    return min(known, key=lambda o: o.threshold, default=None)


def _engine_late(window: Window, idx: Units, cells: int, classes: tuple[str, ...]) -> tuple[float, float]:
    """Late first tokens of all, as the engines saw them."""
    k = n = 0.0
    for x in all_late(window, min(cells, window.stop - window.start)):
        if x.objective.workload_class in classes:
            k, n = k + float(np.nansum(x.late[idx])), n + float(np.nansum(x.total[idx]))
    return k, n


def _per_minute(window: Window, pool: str, idx: Units, minutes: int) -> tuple[F, F]:
    """Mean time to first token at the gateway and at the engines, minute by minute."""
    log = window.gateway
    n, total = (log.total(pool, x, minutes) for x in ("ttft_n", "ttft_sum"))
    per = int(60 // window.step)
    last = int((window.end - log.end) // window.step)

    def engine(name: str) -> F:
        x = window.value(f"{TTFT}:{name}")[idx]
        x = x[:, : x.shape[1] - last] if last else x
        return nansum(nansum(x[:, x.shape[1] - len(n) * per :].reshape(len(idx), len(n), per)).T)

    with np.errstate(invalid="ignore", divide="ignore"):
        return total / n, engine("sum") / engine("n")


def _usual_gap(window: Window, pool: str) -> list[float] | None:
    """Median and spread of what the gateway adds to the mean time to first token; None without ten usual minutes."""
    ok = usable_minutes(window, pool)
    if ok.sum() < 10 or pool not in window.gateway.of.pools:
        return None
    gate, engine = _per_minute(window, pool, window.pools[pool], len(ok))
    x = (gate - engine)[ok[-len(gate) :]]
    x = x[~np.isnan(x)]
    if len(x) < 10:
        return None
    c, s = centre_spread(x[None, :], 0.005)
    return [float(c[0]), float(s[0])]


def _since_minute(window: Window, pool: str, objective: Objective | None = None) -> float:
    """The first minute, going back without a hole, in which attempts failed (or were late)."""
    log = window.gateway
    bad = log.count(pool, 60, FAILED) if objective is None else log.total(pool, "late", 60)
    total = log.count(pool, 60)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = bad / total
    least = LEAST_SHARE if objective is None else 6 * objective.budget
    at = len(share)
    while at > 0 and share[at - 1] >= least:
        at -= 1
    return log.end - (len(share) - at) * 60.0
