"""Error budget burning: an objective loses its budget too fast, and nothing else explains it.

Idea
    A small share of late requests that lasts for hours is below every spike and still breaks the month. Two windows must
    burn at once, so that one bad minute does not open it and its end is seen soon.

Formula
    Late requests of a pool over an objective's budget, both windows beyond the factor (SRE workbook, :mod:`core.burn`)::

        14.4 over 1 h and 5 min (page) | 6 over 6 h and 30 min (page) | 3 over 1 d and 2 h (ticket) | 1 over 3 d and 6 h (ticket)

    A window counts only where nine tenths of it were seen. Besides, because a day is long when the past says that this is new::

        2 over the last half hour and 5 min (ticket), if the half hour is beyond the own past, p < 1e-6 (conditional binomial
        with the measured over-dispersion); the past is kept as it was when the burning began, until five minutes burn
        no faster than evenly

    Twice the even pace ends the budget halfway through its window; the workbook's slowest rule (1) would say so in days.

    At least ten late requests. Restarted replicas stay out for ten minutes.

Signals
    ttft_seconds with a latency objective.

Look-alikes
    Every other kind of its pool: it opens nothing beside them. tail_latency_spike: the same, faster.

Source
    SRE workbook, table 5-8; detection.md 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.burn import RULES
from core.incidents import Finding, RuledOut, Scope, Severity
from core.times import format_duration
from detectors.case import Case, Row
from detectors.contract import Json, Objective, Verdict
from detectors.late import Late, all_late
from detectors.measures import QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.parts import TTFT_HISTS, TTFT_MEASURES, ttft_rows
from detectors.stats import binomial_tail
from detectors.tail import Tail, learn_tail, tails
from detectors.window import Window
from detectors.wording import names, percent, seconds, times

F = NDArray[np.float64]
LEAST_BAD = 10
NEW_LONG_S, NEW_SHORT_S, NEW_FACTOR = 1800.0, 300.0, 2.0
OVER = 1.0
SUSPECT_P = 1e-4
COVERED = 0.9
_FLOORS = {"running": 0.1, "waiting": 0.1, **dict.fromkeys(TTFT_MEASURES, 0.1)}


@dataclass(frozen=True, slots=True)
class Burning:
    """One rule that fires: pace over both windows (seconds), late ``k`` of ``n`` in the long one."""

    severity: Severity
    long_s: float
    short_s: float
    pace: float
    quick: float
    k: float
    n: float
    why: str


class SloBurn:
    """See the module's docstring."""

    kind = "slo_burn"
    needs = needs("running", "waiting")
    hists = (TTFT, f"{QUEUE}:mean", *TTFT_HISTS)

    def fit(self, history: Window, as_of: float) -> Json:
        """The past of late requests, and the normal that the evidence is compared with."""
        return {**learn(history, as_of, _FLOORS), "tail": learn_tail(history, as_of)}

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool and objective. The state keeps since when one burns and what its past was then."""
        short = {
            t.objective.name: t
            for t in tails(window, baseline["tail"], max(1, int(NEW_SHORT_S // window.step)))
        }
        steady = window.since_restart(int(1200 // window.step)) > 600
        kept: dict[str, list[float]] = {}
        findings = []
        for late in all_late(window):
            o = late.objective
            for pool, idx in window.pools.items():
                units = idx[steady[idx] & ~np.isnan(late.total[idx]).all(axis=1)]
                if not len(units):
                    continue
                key = f"{pool}|{o.name}"
                since = _suspect(short[o.name], units, state.get("since", {}).get(key), window.end)
                if since is not None:
                    kept[key] = since
                found = _long(window, late, units) or _new(window, late, units, since)
                if found is not None:
                    findings.append(self._finding(window, baseline, pool, units, late, found, since))
        return Verdict(findings, {"since": kept})

    def _finding(
        self,
        window: Window,
        baseline: Json,
        pool: str,
        units: NDArray[np.intp],
        late: Late,
        b: Burning,
        since: list[float] | None,
    ) -> Finding:
        o = late.objective
        span = max(1, int(NEW_SHORT_S // window.step))
        case = Case(
            window, pool, units, window.pools[pool], Normal.of(baseline, window), now(window, span, *_FLOORS)
        )
        share, long, short = b.k / b.n, format_duration(b.long_s), format_duration(b.short_s)
        past = since[1] / since[2] if since is not None and since[2] > 0 else None
        return case.finding(
            self.kind,
            scope=Scope((o.workload_class,), (pool,), case.replicas),
            title=f"{o.workload_class} on {pool} burns its error budget {times(b.pace)} too fast, cause not established",
            cause=f"{percent(share)} of the {o.workload_class} requests of the last {long} came later than {seconds(late.edge)}, "
            f"{percent(o.budget)} may; {b.why}. No other kind explains it.",
            onset=since[0] if since is not None else window.end - b.long_s,
            strength=float(np.log2(max(b.pace, 1.0))),
            confidence=0.5,
            severity=b.severity,
            runner_up="tail_latency_spike",
            evidence=(
                Row(
                    "ttft_seconds",
                    unit=f"share later than {seconds(late.edge)}, {long}",
                    note=f"{b.k:.0f} of {b.n:.0f}, {times(b.pace)}",
                    now=share,
                    before=past,
                    expected=o.budget,
                ),
                Row(
                    "ttft_seconds",
                    unit=f"share later than {seconds(late.edge)}, {short}",
                    now=b.quick * o.budget,
                    before=past,
                    expected=o.budget,
                    note=times(b.quick),
                ),
                *ttft_rows(case),
                Row("requests_waiting", "waiting", "requests"),
            ),
            ruled_out=(
                RuledOut(
                    "chance",
                    "both windows beyond the factor, at least ten late requests",
                    f"{b.k:.0f} late; {b.why}",
                ),
                RuledOut(
                    "tail_latency_spike",
                    "burns six times too fast within minutes",
                    f"{times(b.quick)} over {short}",
                    b.quick < 6,
                ),
                RuledOut(
                    "warm_up", "replicas within ten minutes of a restart are left out", "steady replicas only"
                ),
            ),
            now=(
                f"Look at {names(case.replicas)}: which part of the first token grew (above)",
                "Nothing else is wrong that Gustfront knows: the front end and what lies before the engine are next",
            ),
            tomorrow=("Export what is missing (Data health lists the flags), so that it has a cause",),
            detail={"burn": times(b.pace)},
        )


def _suspect(t: Tail, units: NDArray[np.intp], known: list[float] | None, end: float) -> list[float] | None:
    """``[since, late, total, dispersion]``: when the burning began and what the past was then; None while nothing burns."""
    k, n = float(t.k[units].sum()), float(t.n[units].sum())
    pace = k / n / t.objective.budget if n > 0 else 0.0
    if known is not None:
        return known if pace > OVER else None
    if pace < NEW_FACTOR:
        return None
    K, N = float(t.K[units].sum()), float(t.N[units].sum())
    p = float(binomial_tail(k, n, K, N, float(t.phi[units].max())))
    return [end - NEW_SHORT_S, K, N, float(t.phi[units].max())] if p < SUSPECT_P else None


def _counts(window: Window, late: Late, units: NDArray[np.intp], span_s: float) -> tuple[float, float, float]:
    """Late, total and the share of the span that was seen."""
    cells = max(1, int(span_s // window.step))
    total = late.total[units][:, -cells:]
    seen = float((~np.isnan(total)).any(axis=0).sum()) / cells
    return float(np.nansum(late.late[units][:, -cells:])), float(np.nansum(total)), seen


def _pace(o: Objective, k: float, n: float) -> float:
    return k / n / o.budget if n > 0 else 0.0


def _long(window: Window, late: Late, units: NDArray[np.intp]) -> Burning | None:
    """The first of the workbook's rules that fires."""
    for r in RULES:
        k, n, seen = _counts(window, late, units, r.long)
        short_k, short_n, _ = _counts(window, late, units, r.short)
        pace, quick = _pace(late.objective, k, n), _pace(late.objective, short_k, short_n)
        if seen >= COVERED and k >= max(r.min_bad, LEAST_BAD) and min(pace, quick) >= r.factor:
            why = f"{r.factor:g}× is the limit over {format_duration(r.long)} and {format_duration(r.short)}"
            return Burning(r.severity, r.long, r.short, pace, quick, k, n, why)
    return None


def _new(window: Window, late: Late, units: NDArray[np.intp], since: list[float] | None) -> Burning | None:
    """Whether a burning that is not as ever has lasted for half an hour."""
    if since is None or window.end - since[0] < NEW_LONG_S - 1.0:
        return None
    k, n, seen = _counts(window, late, units, NEW_LONG_S)
    short_k, short_n, _ = _counts(window, late, units, NEW_SHORT_S)
    pace, quick = _pace(late.objective, k, n), _pace(late.objective, short_k, short_n)
    p = float(binomial_tail(k, n, since[1], since[2], since[3]))
    if seen < COVERED or k < LEAST_BAD or min(pace, quick) < NEW_FACTOR or p >= 1e-6:
        return None
    why = f"it was not so before (p = {p:.1g}) and has lasted for half an hour"
    return Burning("ticket", NEW_LONG_S, NEW_SHORT_S, pace, quick, k, n, why)
