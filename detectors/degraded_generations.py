"""Degraded generations: answers are garbled, looping or broken more often than this deployment's own normal.

Idea
    Single broken answers are normal (a few in ten thousand), so only a *rate* can alarm, judged against the
    deployment's own rate,
    never against zero. The unit is the first bad turn of a session: later turns inherit the broken context.

Formula
    Bernoulli CUSUM per pool and per replica, over sampled answers in order of their finish, for two sizes of
    harm ``m`` in (5, 30)::

        S <- max(0, S + ln m)                             for a bad answer
        S <- max(0, S + ln((1 - m p0) / (1 - p0)))        for a clean one          alarm: S >= 8

    ``p0`` is the 80 % upper bound of the learnt rate (Gamma prior worth 3,300 answers at 3 in 10,000). ``S``
    restarts at 0, so the
    last zero dates the onset. Which replicas carry it: the subset (the worst ``m`` of them share one raised
    rate, the rest stay at
    ``p0``) of the greatest likelihood.

    Is it load? false where a subset of the replicas carries it (30 times likelier than all of them, the choice of the set
    paid for), or a change that came just before. Else by :mod:`detectors.quality.decision`: adjusted ratio of the top to the
    bottom quarter of load at admission (without the request itself), true if its lower 95 % bound is over 2 and every other
    explanation has been tried, false if its upper bound is under 2, otherwise nobody knows yet (null).

    Soft rules (malformed tool calls, empty and broken-off answers, answers cut by the limit) never count as degraded. Their
    rates have charts of their own per pool and class (:mod:`detectors.quality.soft`) and open a ticket.

Signals
    Sampled outputs with text verdicts (``import-outputs``); requests_running for the load at admission;
    speculative acceptance per
    request as a second, text-free witness.

Look-alikes
    The base rate; one session that repeats itself; a change of traffic mix; spec_decode_collapse (acceptance down, texts clean).

Source
    incidents.md (i) and C1-C12, detection.md 3.3-3.5.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from scipy import special

from core.incidents import Finding
from detectors.contract import Json, Verdict
from detectors.is_it_load import is_it_load
from detectors.measures import needs
from detectors.quality.carriers import ChangeStep, carriers_of, step_at_change
from detectors.quality.cusum import HARMS, push, steps
from detectors.quality.findings import Degraded, finding_of, not_excluded, usable
from detectors.quality.soft import Stratum, advance, learn, seen_through
from detectors.quality.soft_words import SoftRise
from detectors.quality.soft_words import finding_of as soft_finding
from detectors.quality.verdict import LoadVerdict
from detectors.quality.window_load import I
from detectors.samples import Samples
from detectors.stats import poisson_tail, zeroed
from detectors.window import Window
from detectors.wording import names

PRIOR_A, PRIOR_B = 1.0, 1.0 / 3e-4
ALARM = 8.0
RECENT_S = 900.0
REMEMBER_S = 2 * 3600.0
UNKNOWN_RATE = 3e-3
LEAST_PAST = 500
JUDGE_S = 300.0
SURE = log(30.0)
"""Part of the replicas carries it for sure: this many times likelier than all, the choice of the set paid for."""


class DegradedGenerations:
    """See the module's docstring."""

    kind = "degraded_generations"
    needs = needs("running", "waiting", "kv", "preempted")
    hists: tuple[str, ...] = ()

    def fit(self, history: Window, as_of: float) -> Json:
        """Learnt rate per pool: (bad, of how many) among usable samples older than ten minutes, and the usual acceptance."""
        s = history.samples
        hi = s.upto(min(as_of, history.end) - 600.0)
        keep = usable(s, hi, history)
        pools: dict[str, Any] = {}
        for pool in sorted(history.pools):
            at = keep & (s.pool[:hi] == s.code(pool))
            long = at & (zeroed(s.output_tokens[:hi]) >= 24) & ~np.isnan(s.accept[:hi])
            pools[pool] = {
                "bad": int(s.bad[:hi][at].sum()),
                "n": int(at.sum()),
                "accept": float(np.median(s.accept[:hi][long])) if long.sum() >= 50 else None,
            }
        return {"as_of": as_of, "pools": pools, "soft": learn(s, not_excluded(s, hi, history), hi)}

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose answers are degraded now."""
        s = window.samples
        new: Json = dict(state) if state else {"cursor": window.end - 900.0, "streams": {}, "alarms": {}}
        lo, hi = s.since(new["cursor"]), s.upto(window.end)
        streams = {k: [list(x) for x in v] for k, v in new["streams"].items()}
        alarms = {k: dict(v) for k, v in new["alarms"].items()}
        # Spans of raised rates that ended lately: a fault that follows load goes and comes with it.
        past = {k: v for k, v in new.get("past", {}).items() if v[1] > window.end - REMEMBER_S}
        # Without a past of its own a deployment is only judged against ten times the usual rate.
        rates = {
            p: upper_rate(v["bad"], v["n"]) if v["n"] >= LEAST_PAST else UNKNOWN_RATE
            for p, v in baseline["pools"].items()
        }
        rises = {p: steps(p0) for p, p0 in (*rates.items(), ("", UNKNOWN_RATE))}
        for i in range(lo, hi):
            pool = s.names[s.pool[i]]
            p0 = rates.get(pool, UNKNOWN_RATE)
            for key in (pool, f"{pool}/{s.names[s.replica[i]]}"):
                stream = streams.get(key)
                if stream is None:
                    stream = streams[key] = [[0.0, float(s.ts[i])] for _ in HARMS]
                if bool(s.aside[i]):
                    continue
                hit = push(stream, bool(s.bad[i]), float(s.ts[i]), rises.get(pool) or rises[""], ALARM)
                if hit and pool not in alarms:
                    alarms[pool] = {
                        "onset": min(x[1] for x in stream if x[0] >= ALARM),
                        "at": float(s.ts[i]),
                        "p0": p0,
                    }
                    if pool in past:
                        alarms[pool]["since"] = past[pool][0]
        findings = []
        for pool in sorted(alarms):
            found = self._finding(window, baseline, pool, alarms[pool])
            if found is None:
                # Recovered: start counting from nothing, but remember the span for a while.
                past[pool] = [alarms[pool].get("since", alarms[pool]["onset"]), window.end]
                del alarms[pool]
                for key in [k for k in streams if k == pool or k.startswith(pool + "/")]:
                    streams[key] = [[0.0, window.end] for _ in HARMS]
            else:
                findings.append(found)
        risen, watched = self._soft(window, baseline, new.get("soft", {}), (lo, hi), set(alarms))
        return Verdict(
            [*findings, *risen],
            {"cursor": window.end, "streams": streams, "alarms": alarms, "past": past, "soft": watched},
        )

    def _soft(
        self, window: Window, baseline: Json, state: Json, span: tuple[int, int], hard: set[str]
    ) -> tuple[list[Finding], Json]:
        """Soft rules whose rate has risen, in pools where no hard rule says more; and the state of their charts."""
        learnt = baseline.get("soft", {})
        new = advance(window.samples, *span, learnt, state)
        findings = []
        for key in sorted(new["alarms"]):
            where = Stratum.parse(key)
            if where.pool in hard:
                # Loops run into the limit and garbled calls do not parse: the same fault, told by a surer rule.
                del new["alarms"][key]
                new["streams"].pop(key, None)
                continue
            found = self._rise(window, where, new["alarms"][key], learnt.get(key, (0, 0)))
            if found is None:
                del new["alarms"][key]
                new["streams"].pop(key, None)
            else:
                findings.append(found)
        return findings, new

    def _rise(self, window: Window, where: Stratum, alarm: Json, learnt: tuple[int, int]) -> Finding | None:
        seen = seen_through(window, where)
        rows = self._rows(seen, where.pool, alarm)
        if rows is None:
            return None
        bad = rows[seen.samples.bad[rows]]
        carriers, table, mine, load, step = self._blame(seen, where.pool, rows, alarm)
        rise = SoftRise(
            seen, where, rows, bad, carriers, table, mine, alarm, (learnt[0], learnt[1]), load, step
        )
        return soft_finding(rise, self.kind)

    def _finding(self, window: Window, baseline: Json, pool: str, alarm: Json) -> Finding | None:
        s = window.samples
        rows = self._rows(window, pool, alarm)
        if rows is None:
            return None
        rows = self._with_past(s, pool, rows, alarm)
        bad = rows[s.bad[rows]]
        carriers, table, mine, load, step = self._blame(window, pool, rows, alarm)
        before = baseline["pools"].get(pool, {"bad": 0, "n": 0})
        known = Degraded(window, pool, rows, bad, mine, carriers, table, alarm, before, load, step)
        return finding_of(known, self.kind)

    @staticmethod
    def _rows(window: Window, pool: str, alarm: Json) -> I | None:
        """Samples of the pool at risk since the onset; None once the rate is normal again."""
        s, p0 = window.samples, float(alarm["p0"])
        hi = s.upto(window.end)
        recent = np.arange(s.since(window.end - RECENT_S), hi)
        recent = recent[(s.pool[recent] == s.code(pool)) & ~s.aside[recent]]
        k_now, n_now = int(s.bad[recent].sum()), len(recent)
        fresh = window.end - float(alarm["at"]) < RECENT_S
        if not fresh and (k_now < 2 or float(poisson_tail(k_now, n_now * p0)) > 1e-3):
            return None
        rows = np.arange(s.since(float(alarm["onset"]) - 1e-6), hi)
        rows = rows[(s.pool[rows] == s.code(pool)) & ~s.aside[rows]]
        return rows if s.bad[rows].any() else None

    @staticmethod
    def _with_past(s: Samples, pool: str, rows: I, alarm: Json) -> I:
        """The samples since the first of several spans of raised rates, each within :data:`REMEMBER_S` of the one before: what
        comes and goes with load needs both its highs and its lows. Not where part of the replicas carries the present span for
        sure: then the earlier one may have been another fault."""
        if "since" not in alarm:
            return rows
        carriers, gain, table = carriers_of(s, rows, float(alarm["p0"]))
        if len(carriers) < len(table) and gain >= SURE:
            return rows
        wide: I = np.arange(s.since(float(alarm["since"]) - 1e-6), int(rows[-1]) + 1)
        kept: I = wide[(s.pool[wide] == s.code(pool)) & ~s.aside[wide]]
        return kept

    def _blame(
        self, window: Window, pool: str, rows: I, alarm: Json
    ) -> tuple[tuple[str, ...], dict[str, tuple[int, int]], I, LoadVerdict, ChangeStep | None]:
        """Which replicas carry it, (bad, answers) of each, their rows, whether it is load, and the change it began with."""
        s = window.samples
        carriers, gain, table = carriers_of(s, rows, float(alarm["p0"]))
        mine = rows[np.isin(s.replica[rows], [s.code(r) for r in carriers])]
        first = float(s.ts[rows[s.bad[rows]][0]])
        step = step_at_change(window, pool, float(max(alarm["onset"], first - 60.0)))
        if len(carriers) < len(table):
            verdict = False if gain >= SURE else None
            why = "it is the same at any load, only part of the replicas carries it"
            if verdict is None:
                why = f"{names(carriers)} may carry it alone: a few more bad answers will tell"
            load = LoadVerdict(verdict, why)
        else:
            load = self._load(window, pool, mine, alarm, step.sentence() if step else "")
        return carriers, table, mine, load, step

    @staticmethod
    def _load(window: Window, pool: str, rows: I, alarm: Json, carried: str) -> LoadVerdict:
        """The load verdict, judged anew every five minutes of the clock."""
        due = window.end // JUDGE_S * JUDGE_S
        if alarm.get("load_at", -1.0) < due:
            found = is_it_load(window, pool, rows, carried, final=False)
            alarm["load"], alarm["load_at"] = found.as_json(), due
        return LoadVerdict.from_json(alarm["load"])


def upper_rate(bad: int, n: int) -> float:
    """80 % upper bound of a rate of bad answers after ``bad`` of ``n``, with the prior of the docstring.

    >>> round(upper_rate(5, 17000) * 1e4, 1)
    3.9
    """
    return float(special.gammaincinv(PRIOR_A + bad, 0.8) / (PRIOR_B + n))
