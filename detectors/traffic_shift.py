"""Traffic shift: a tenant or class asks for much more, or much less, than it used to. Information, not an alarm.

Idea
    Who asks for what can change for good reasons, and nothing is wrong while all is served. It is worth a line, because it
    explains what follows; when a pool runs short, the shortfall names the same tenant as its owner.

Formula
    Answered attempts of the last three whole minutes by tenant and class, against the mean of the minutes before the last ten
    (:mod:`detectors.demand`), quasi-Poisson with the measured dispersion: ``p < 1e-9``, at least twice as many (or at most a
    third), at least 10 a minute more (or less), and at least a fifth of what the pool's demand changed by. Failed attempts
    are no demand.

Signals
    The gateway's log by class and tenant.

Look-alikes
    retry_storm (the same requests again, after failures), a day's rhythm (all tenants of a class together: each grows, none
    twofold in ten minutes).

Source
    incidents.md A1, A8: who came first, arrivals or errors.
"""

from __future__ import annotations

import numpy as np

from core.incidents import Finding, RuledOut, Scope
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.demand import NOW_MIN, Grown, grown
from detectors.measures import needs
from detectors.normal import Normal
from detectors.window import Window
from detectors.wording import number, percent, times

P = 1e-9
MORE, LESS = 2.0, 1.0 / 3.0
LEAST_PER_MIN = 10.0
LEAST_SHARE = 0.2


class TrafficShift:
    """See the module's docstring."""

    kind = "traffic_shift"
    needs = needs("running")
    hists: tuple[str, ...] = ()

    def fit(self, history: Window, as_of: float) -> Json:
        """Nothing: the log's own minutes before the last ten are the normal."""
        return {"as_of": as_of}

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose demand is another: the tenant that changed most."""
        findings = []
        for pool in window.pools:
            found = [
                g for direction in (1, -1) for g in _joined(grown(window, pool, direction)) if _shifted(g)
            ]
            if found:
                findings.append(
                    self._finding(window, pool, max(found, key=lambda g: abs(g.now - g.before)), len(found))
                )
        return Verdict(findings, {})

    def _finding(self, window: Window, pool: str, g: Grown, many: int) -> Finding:
        idx = window.pools[pool]
        case = Case(window, pool, idx, idx, Normal({}, {}), {})
        failed = (
            float(np.nansum(window.gateway.tenant(pool, g.workload_class, g.tenant, NOW_MIN, "failed")))
            / NOW_MIN
        )
        more = g.now > g.before
        factor = (
            "requests for the first time"
            if not np.isfinite(g.factor)
            else f"{times(g.factor)} of its usual"
            if more
            else f"only {percent(g.factor)} of its usual"
        )
        others = f" {many - 1} more changed with it." if many > 1 else ""
        return case.finding(
            self.kind,
            scope=Scope((g.workload_class,), (pool,), ()),
            title=f"Traffic shift on {pool}: {g.who} sends {factor} ({number(g.before)} → {number(g.now)} a minute)",
            cause=f"{g.who} of class {g.workload_class} has {number(g.now)} answered requests a minute on {pool}, before "
            f"{number(g.before)}: {percent(min(max(g.share, 0.0), 1.0))} of the pool's change.{others}",
            onset=window.gateway.end - NOW_MIN * 60.0,
            with_p99=False,
            strength=float(abs(np.log2(max(g.now, 0.1) / max(g.before, 0.1)))),
            confidence=0.9,
            severity="info",
            evidence=(
                Row(
                    "gateway log",
                    unit="answered attempts/min",
                    now=g.now,
                    before=g.before,
                    note=f"{g.who}, p = {g.p:.1g}",
                ),
                Row("gateway log", unit="failed attempts/min", now=failed, note=g.who),
            ),
            ruled_out=(
                RuledOut(
                    "retry_storm",
                    "attempts that failed are not counted as demand",
                    f"{number(failed)} failed a minute",
                ),
                RuledOut(
                    "chance",
                    "quasi-Poisson against its own minutes, dispersion measured",
                    f"p = {g.p:.1g}",
                ),
            ),
            now=(
                f"Nothing while all is served; ask {g.who} whether it is meant"
                if more
                else f"Ask whether {g.who} is well",
            ),
            tomorrow=("Limits per tenant at the gateway, so that one tenant's burst stays its own",),
            detail={"tenant": g.tenant, "direction": "more" if more else "less"},
        )


def _joined(changes: list[Grown]) -> list[Grown]:
    """A class of which more than half of at least three tenants went the same way is one change of the class, not of a tenant."""
    out = []
    for name in dict.fromkeys(g.workload_class for g in changes):
        mine = [g for g in changes if g.workload_class == name]
        moved = [g for g in mine if g.p < P]
        if len(mine) >= 3 and 2 * len(moved) > len(mine):
            total = (sum(g.now for g in mine), sum(g.before for g in mine), sum(g.share for g in mine))
            out.append(Grown(mine[0].pool, name, "", total[0], total[1], min(g.p for g in moved), total[2]))
        else:
            out += mine
    return out


def _shifted(g: Grown) -> bool:
    beyond = g.factor >= MORE if g.now > g.before else g.factor <= LESS
    return beyond and g.p < P and abs(g.now - g.before) >= LEAST_PER_MIN and g.share >= LEAST_SHARE
