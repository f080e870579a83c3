"""Retry storm: clients repeat rejected, failed or timed-out requests faster than work gets done.

Idea
    More demand fills an engine: more is asked *and* more gets done, up to what it can. Retries are different: more is asked
    because less gets done. So attempts rise while completions do not, and the failures are there before or with the rise.

Formula
    Per pool, over two minutes, from the gateway's log and from the engines (whichever sees more failures)::

        begins   attempts >= 1.5 x normal, completions 0.2 to 1.1 x normal, failed + refused + left >= 30 % of attempts
        goes on  attempts >= 1.5 x normal and attempts / completions >= 1.25
        order    failures did not begin more than a minute after attempts had risen to 1.5 x

    Where prefill and decode are apart, answers depend on another pool, and this one is not judged.
    Without a request id a retry is not told from a new request: the measure is attempts per completion, not a count of repeats.

Signals
    The gateway's log; without one http_responses_total (2xx without a finished request stands for a client that left),
    errors_total, aborted_total, request_success_total.

Look-alikes
    capacity_shortfall (completions rise with demand), error_burst (failures without more attempts), an outage, users who
    stop answers when it is slow (a few per cent), a surge.

Source
    incidents.md A8: smg-project/smg#2247, sglang#9803, inference-sim#963.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.answers import BLOCK_MIN, NEEDS, engines, gateway, usable_minutes
from detectors.attempts import OK
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.gateway_fault import apart
from detectors.measures import TRANSFER, TTFT, needs, now
from detectors.normal import GAP_S, MIN_BLOCKS, Normal, learn
from detectors.stats import centre_spread, zeroed
from detectors.window import Window, nansum
from detectors.wording import number, percent, times

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {"running": 0.15, "waiting": 0.1, "done": 0.1}
MORE, NOT_MORE, LOST, PER_DONE, WORKS = 1.5, 1.1, 0.3, 1.25, 0.2
SLACK_S = 60.0


@dataclass(frozen=True)
class Flow:
    """Attempts, completions and lost attempts of a pool, per minute, now and normally; ``source`` says who counted."""

    source: str
    attempts: float
    done: float
    lost: float
    usual: float
    usual_done: float
    said: str = ""

    @property
    def more(self) -> float:
        """Attempts over their normal."""
        return self.attempts / max(self.usual, 1e-9)

    @property
    def per_done(self) -> float:
        """Attempts per completion."""
        return self.attempts / max(self.done, 1.0)

    @property
    def share(self) -> float:
        """Share of attempts that failed, were refused or left."""
        return self.lost / max(self.attempts, 1.0)

    @property
    def begins(self) -> bool:
        """Whether this is a storm by itself."""
        return (
            self.more >= MORE
            and WORKS * self.usual_done <= self.done <= NOT_MORE * self.usual_done
            and self.share >= LOST
            and self.lost >= 20
        )

    @property
    def lasts(self) -> bool:
        """Whether a storm that was seen goes on."""
        return self.more >= MORE and self.per_done >= PER_DONE


class RetryStorm:
    """See the module's docstring."""

    kind = "retry_storm"
    needs = tuple(dict.fromkeys((*NEEDS, *needs("running", "waiting"))))
    hists = (TTFT, f"{TRANSFER}:mean")

    def fit(self, history: Window, as_of: float) -> Json:
        """Usual attempts and completions per minute of each pool, by the gateway and by the engines."""
        out = learn(history, as_of, _FLOORS, block_s=120.0)
        out["flows"] = {
            p: {"gateway": _usual_log(history, p), "engines": _usual_engines(history, idx)}
            for p, idx in history.pools.items()
        }
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool; the state remembers since when attempts are up, failures are there, and a storm lasts."""
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n")
        memory: dict[str, dict[str, float]] = {}
        findings = []
        for pool, idx in window.pools.items():
            flows = _flows(window, baseline["flows"].get(pool, {}), pool, idx)
            known = dict(state.get("pools", {}).get(pool, {}))
            kept: dict[str, float] = {}
            if any(f.more >= MORE for f in flows):
                kept["more"] = known.get("more", window.end)
            if any(f.share >= LOST / 2 for f in flows):
                kept["lost"] = known.get("lost", window.end)
            storm = next((f for f in flows if f.begins), None)
            in_order = kept.get("lost", np.inf) <= kept.get("more", -np.inf) + SLACK_S
            if storm is None and "storm" in known:
                storm = next((f for f in flows if f.lasts), None)
            elif storm is not None and "storm" not in known and not in_order:
                storm = None
            if storm is not None and not apart(window, idx):
                kept["storm"] = known.get("storm", min(kept["lost"], window.end) - 60.0)
                findings.append(self._finding(window, normal, m, pool, idx, storm, kept))
            if kept:
                memory[pool] = kept
        return Verdict(findings, {"pools": memory} if memory else {})

    def _finding(
        self,
        window: Window,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        f: Flow,
        since: dict[str, float],
    ) -> Finding:
        seen = idx[~np.isnan(m["running"][idx])]
        case = Case(window, pool, seen if len(seen) else idx, idx, normal, m)
        onset = since["storm"]
        return case.finding(
            self.kind,
            title=f"Retry storm on {pool}: {number(f.attempts)} attempts a minute ({times(f.more)}) for {number(f.done)} answers",
            cause=f"{percent(f.share)} of the attempts of two minutes are lost{f' ({f.said})' if f.said else ''} and come back: "
            f"{times(f.per_done)} attempts per answer, while answers went {number(f.usual_done)} → {number(f.done)} a minute. "
            "Failures came with the rise, not after it.",
            onset=onset,
            strength=float(np.log2(1 + f.per_done)),
            confidence=0.85 if f.source == "gateway log" else 0.7,
            runner_up="capacity_shortfall",
            evidence=(
                Row(
                    f.source,
                    unit="attempts a minute",
                    now=f.attempts,
                    before=f.usual,
                    note="ended attempts, repeats included",
                ),
                Row(f.source, unit="answers a minute", now=f.done, before=f.usual_done),
                Row(f.source, unit="share lost", now=f.share, note=f.said),
                Row("requests_waiting", "waiting", "requests"),
                Row("requests_running", "running", "requests"),
            ),
            ruled_out=(
                RuledOut(
                    "capacity_shortfall",
                    "with more demand more gets done, until the pool is full",
                    f"answers {number(f.usual_done)} → {number(f.done)} a minute at {times(f.more)} attempts",
                ),
                RuledOut(
                    "traffic_shift", "new demand comes before failures", "failures came first or at once"
                ),
                RuledOut("error_burst", "failures without more attempts", f"attempts are {times(f.more)}"),
            ),
            now=[
                "Answer overload with 503 and Retry-After (never 408), and cap retries at the gateway (10 % of requests)",
                "Shed the class or tenant that repeats most until the queue is gone; do not restart engines: they do work",
            ],
            tomorrow=[
                "Clients: exponential back-off with jitter, a deadline longer than the p99, no retry of what still runs",
                "Let the engine drop requests whose client has gone",
            ],
            detail={
                "chain": [
                    {
                        "at": since.get("lost", onset),
                        "what": "attempts fail or are left",
                        "value": percent(f.share),
                    },
                    {
                        "at": max(since.get("more", onset), since.get("lost", onset)),
                        "what": "attempts multiply",
                        "value": times(f.more),
                    },
                ],
                "harm": {"requests_failed": round(f.lost)},
            },
        )


def _flows(window: Window, usual: Json, pool: str, idx: Units) -> list[Flow]:
    out = []
    log = usual.get("gateway")
    seen = gateway(window, pool, BLOCK_MIN)
    if log and seen.known:
        lost = seen.failed + seen.refused + seen.left
        out.append(
            Flow(
                "gateway log",
                seen.total / BLOCK_MIN,
                seen.done / BLOCK_MIN,
                lost / BLOCK_MIN,
                log[0],
                log[1],
                seen.said,
            )
        )
    if own := usual.get("engines"):
        a = engines(window, max(2, int(120 // window.step))).of(idx)
        per = window.step * max(2, int(120 // window.step)) / 60
        if not np.isnan(a.total) and not np.isnan(a.done):
            lost = float(zeroed(a.failed) + zeroed(a.refused) + zeroed(a.left))
            out.append(
                Flow(
                    "http_responses_total",
                    float(a.total) / per,
                    float(a.done) / per,
                    lost / per,
                    own[0],
                    own[1],
                )
            )
    return out


def _centre(attempts: F, done: F) -> list[float] | None:
    ok = ~np.isnan(attempts) & ~np.isnan(done)
    if ok.sum() < MIN_BLOCKS:
        return None
    c, _ = centre_spread(np.stack([attempts[ok], done[ok]]))
    return [float(c[0]), float(c[1])] if c[0] > 0 else None


def _usual_log(window: Window, pool: str) -> list[float] | None:
    log = window.gateway
    ok = usable_minutes(window, pool)
    if pool not in log.of.pools or not len(ok):
        return None
    return _centre(
        np.where(ok, log.count(pool, len(ok)), np.nan), np.where(ok, log.count(pool, len(ok), OK), np.nan)
    )


def _usual_engines(window: Window, idx: Units) -> list[float] | None:
    gap, per = int(GAP_S // window.step), int(60 // window.step)
    a = engines(window, each=True)
    width = max(0, a.total.shape[1] - gap) // per * per
    if not width:
        return None
    usable = window.usable[idx, :width]
    keep = usable.mean(axis=0) >= 0.5

    def minutes(x: F) -> F:
        y = np.where(keep, nansum(x[idx, :width].T), np.nan)
        return nansum(y.reshape(-1, per))

    if np.isnan(a.total[idx]).all():
        return None
    return _centre(minutes(a.total), minutes(a.done))
