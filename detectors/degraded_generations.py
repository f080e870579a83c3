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

    Is it load? false where a subset of the replicas carries it (likelihood 100 times that of all). Else the
    rate ratio of the top to
    the bottom quartile of load at admission (without the request itself), stratified by class, interval widened by the
    over-dispersion of ten-minute blocks: true if the lower 95 % bound is over 2, a circular-shift permutation
    of load gives p <= 0.02
    and there were 5 separate load episodes; false if the upper bound is under 2; otherwise nobody knows yet (null).

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
from numpy.typing import NDArray
from scipy import special

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.contract import Json, Verdict
from detectors.is_it_load import LoadVerdict, is_it_load
from detectors.measures import needs
from detectors.samples import Samples
from detectors.stats import poisson_tail
from detectors.window import Window
from detectors.wording import names, percent, rounded

PRIOR_A, PRIOR_B = 1.0, 1.0 / 3e-4
HARMS = (5.0, 30.0)
ALARM = 8.0
RECENT_S = 900.0
UNKNOWN_RATE = 3e-3
LEAST_PAST = 500


class DegradedGenerations:
    """See the module's docstring."""

    kind = "degraded_generations"
    needs = needs("running", "waiting", "kv")
    hists: tuple[str, ...] = ()

    def fit(self, history: Window, as_of: float) -> Json:
        """Learnt rate per pool: (bad, of how many) among usable samples older than ten minutes, and the usual acceptance."""
        s = history.samples
        hi = s.upto(min(as_of, history.end) - 600.0)
        keep = _usable(s, hi, history)
        pools: dict[str, Any] = {}
        for pool in sorted(history.pools):
            at = keep & (s.pool[:hi] == s.code(pool))
            long = at & (np.nan_to_num(s.output_tokens[:hi]) >= 24) & ~np.isnan(s.accept[:hi])
            pools[pool] = {
                "bad": int(s.bad[:hi][at].sum()),
                "n": int(at.sum()),
                "accept": float(np.median(s.accept[:hi][long])) if long.sum() >= 50 else None,
            }
        return {"as_of": as_of, "pools": pools}

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool whose answers are degraded now."""
        s = window.samples
        new: Json = dict(state) if state else {"cursor": window.end - 900.0, "streams": {}, "alarms": {}}
        lo, hi = s.since(new["cursor"]), s.upto(window.end)
        streams = {k: [list(x) for x in v] for k, v in new["streams"].items()}
        alarms = {k: dict(v) for k, v in new["alarms"].items()}
        # Without a past of its own a deployment is only judged against ten times the usual rate.
        rates = {
            p: upper_rate(v["bad"], v["n"]) if v["n"] >= LEAST_PAST else UNKNOWN_RATE
            for p, v in baseline["pools"].items()
        }
        steps = {p: _steps(p0) for p, p0 in (*rates.items(), ("", UNKNOWN_RATE))}
        for i in range(lo, hi):
            pool = s.names[s.pool[i]]
            p0 = rates.get(pool, UNKNOWN_RATE)
            for key in (pool, f"{pool}/{s.names[s.replica[i]]}"):
                stream = streams.get(key)
                if stream is None:
                    stream = streams[key] = [[0.0, float(s.ts[i])] for _ in HARMS]
                if bool(s.follow[i]):
                    continue
                if (
                    _push(stream, bool(s.bad[i]), float(s.ts[i]), steps.get(pool) or steps[""])
                    and pool not in alarms
                ):
                    alarms[pool] = {
                        "onset": min(x[1] for x in stream if x[0] >= ALARM),
                        "at": float(s.ts[i]),
                        "p0": p0,
                    }
        findings = []
        for pool in sorted(alarms):
            found = self._finding(window, baseline, pool, alarms[pool])
            if found is None:
                # Recovered: forget the alarm and start counting from nothing.
                del alarms[pool]
                for key in [k for k in streams if k == pool or k.startswith(pool + "/")]:
                    streams[key] = [[0.0, window.end] for _ in HARMS]
            else:
                findings.append(found)
        return Verdict(findings, {"cursor": window.end, "streams": streams, "alarms": alarms})

    def _finding(self, window: Window, baseline: Json, pool: str, alarm: Json) -> Finding | None:
        s, p0 = window.samples, float(alarm["p0"])
        hi = s.upto(window.end)
        recent = np.arange(s.since(window.end - RECENT_S), hi)
        recent = recent[(s.pool[recent] == s.code(pool)) & ~s.follow[recent]]
        k_now, n_now = int(s.bad[recent].sum()), len(recent)
        fresh = window.end - float(alarm["at"]) < RECENT_S
        if not fresh and (k_now < 2 or float(poisson_tail(k_now, n_now * p0)) > 1e-3):
            return None
        rows = np.arange(s.since(float(alarm["onset"]) - 1e-6), hi)
        rows = rows[(s.pool[rows] == s.code(pool)) & ~s.follow[rows]]
        bad = rows[s.bad[rows]]
        if not len(bad):
            return None
        carriers, gain, table = carriers_of(s, rows, p0)
        mine = rows[np.isin(s.replica[rows], [s.code(r) for r in carriers])]
        everyone = len(carriers) == len(table)
        load = (
            self._load(window, pool, mine, alarm)
            if everyone
            else LoadVerdict(False, "it is the same at any load, only part of the replicas carries it")
        )
        verdict = load.verdict if (everyone or len(table) == 1) else (False if gain >= log(100.0) else None)
        classes = tuple(sorted({s.names[c] for c in s.workload_class[bad] if s.names[c]}))
        k, n = int(s.bad[mine].sum()), len(mine)
        rate, before = k / max(n, 1), baseline["pools"].get(pool, {"bad": 0, "n": 0})
        old = before["bad"] / before["n"] if before["n"] else None
        witness = _witness(s, bad, before.get("accept"))
        rules = _rules(s, bad)
        onset = float(max(alarm["onset"], s.ts[bad[0]] - 60.0)) if len(bad) else float(alarm["onset"])
        evidence = [
            Evidence(
                "degraded outputs",
                names(carriers),
                rounded(old),
                rounded(rate),
                rounded(p0),
                onset,
                "share of sampled answers",
                f"{k} of {n} (first bad turn of a session)",
            ),
        ]
        evidence += [
            Evidence(
                "degraded outputs",
                r,
                rounded(old),
                rounded(kr / max(nr, 1)),
                rounded(p0),
                onset,
                "share of sampled answers",
                f"{kr} of {nr}",
            )
            for r, (kr, nr) in sorted(table.items())
        ]
        if witness is not None:
            evidence.append(
                Evidence(
                    "spec_accept_length",
                    "bad answers",
                    before.get("accept"),
                    rounded(witness[0]),
                    before.get("accept"),
                    onset,
                    "tokens per step",
                    witness[1],
                )
            )
        evidence += load.evidence(names(carriers), onset)
        where = f"{names(carriers)} ({pool})" if not everyone else pool
        spread = (
            "all replicas of the pool carry it"
            if everyone
            else f"{names(carriers)} carries it, {len(table) - len(carriers)} others do not"
        )
        return Finding(
            kind=self.kind,
            scope=Scope(classes, (pool,), carriers),
            at=float(s.ts[recent[s.bad[recent]][-1]]) if k_now else float(alarm["at"]),
            onset=onset,
            strength=log(max(rate / p0, 1.0)) + log(k + 1.0),
            confidence=min(0.97, 0.8 + 0.02 * k),
            severity="page",
            runner_up="spec_decode_collapse" if witness else "",
            title=f"Degraded generations on {where}: {per_10k(rate)} of 10,000 sampled answers "
            f"are broken, normal {per_10k(old if old is not None else p0)}",
            cause=f"{spread}; {load.sentence()}. Kinds of damage: {rules}.",
            load_correlated=verdict,
            evidence=tuple(evidence),
            ruled_out=self._ruled_out(window, pool, s, rows, bad, k, n, p0, before, everyone, load, table),
            detail={
                "chain": [
                    {
                        "at": onset,
                        "what": "first broken answers",
                        "value": ", ".join(sorted({s.names[x] for x in s.replica[bad[:3]]})),
                    },
                    {
                        "at": float(alarm["at"]),
                        "what": "the rate is beyond chance",
                        "value": f"{k} of {n} since",
                    },
                ],
                "actions": _actions(everyone, carriers, verdict),
                "harm": {"answers_broken": k, "answers_sampled": n},
                "samples": [s.ids[i] for i in bad[-20:]],
                "load": load.as_json(),
                "rules": rules,
            },
        )

    @staticmethod
    def _load(window: Window, pool: str, rows: NDArray[np.intp], alarm: Json) -> LoadVerdict:
        """The load verdict, judged anew every five minutes of the clock."""
        due = window.end // 300 * 300
        if alarm.get("load_at", -1.0) < due:
            alarm["load"], alarm["load_at"] = is_it_load(window, pool, rows).as_json(), due
        return LoadVerdict.from_json(alarm["load"])

    @staticmethod
    def _ruled_out(
        window: Window,
        pool: str,
        s: Samples,
        rows: NDArray[np.intp],
        bad: NDArray[np.intp],
        k: int,
        n: int,
        p0: float,
        before: Json,
        everyone: bool,
        load: LoadVerdict,
        table: dict[str, tuple[int, int]],
    ) -> tuple[RuledOut, ...]:
        chance = float(poisson_tail(k, n * p0))
        sessions = len(np.unique(s.session[bad]))
        ok = rows[~s.bad[rows]]
        base, a_ok = before.get("accept"), s.accept[ok]
        a_ok = a_ok[~np.isnan(a_ok)]
        mix = {
            s.names[c]: int(s.bad[rows[s.workload_class[rows] == c]].sum())
            for c in np.unique(s.workload_class[rows])
        }
        out = [
            RuledOut(
                "base rate",
                f"Poisson tail against the learnt rate ({before['bad']} of {before['n']} before)",
                f"p = {chance:.1g} for {k} of {n}",
            ),
            RuledOut(
                "one bad session", "only the first bad turn of a session counts", f"{sessions} sessions"
            ),
            RuledOut(
                "traffic_shift",
                "bad answers by class: a shift of mix raises none within a class",
                ", ".join(f"{c} {v}" for c, v in mix.items()),
            ),
        ]
        if base and len(a_ok) >= 50:
            out.append(
                RuledOut(
                    "spec_decode_collapse",
                    "acceptance of the clean answers is unchanged",
                    f"median {np.median(a_ok):.2f}, before {base:.2f}",
                    abs(float(np.median(a_ok)) / base - 1) < 0.1,
                )
            )
        out.append(
            RuledOut(
                "load",
                load.test(),
                load.result()
                if everyone or len(table) == 1
                else "one part of the replicas carries it at any load",
                load.verdict is False or not everyone,
            )
        )
        return tuple(out)


def upper_rate(bad: int, n: int) -> float:
    """80 % upper bound of a rate of bad answers after ``bad`` of ``n``, with the prior of the docstring.

    >>> round(upper_rate(5, 17000) * 1e4, 1)
    3.9
    """
    return float(special.gammaincinv(PRIOR_A + bad, 0.8) / (PRIOR_B + n))


def _steps(p0: float) -> list[tuple[float, float]]:
    """Log-likelihood ratio of a bad and of a clean answer, for each size of harm."""
    return [(log(p1 / p0), log((1 - p1) / (1 - p0))) for p1 in (min(m * p0, 0.5) for m in HARMS)]


def _push(stream: list[list[float]], bad: bool, ts: float, steps: list[tuple[float, float]]) -> bool:
    """Advance both CUSUMs of a stream; true when one stands at or above the alarm. Each is [S, time of its last zero]."""
    hit = False
    for x, (up, down) in zip(stream, steps, strict=True):
        x[0] += up if bad else down
        if x[0] <= 0:
            x[0], x[1] = 0.0, ts
        hit |= x[0] >= ALARM
    return hit


def carriers_of(
    s: Samples, rows: NDArray[np.intp], p0: float
) -> tuple[tuple[str, ...], float, dict[str, tuple[int, int]]]:
    """The replicas that carry a raised rate, the log-likelihood gain over 'all of them', and (bad, n) of each replica."""
    table: dict[str, tuple[int, int]] = {}
    for code in np.unique(s.replica[rows]):
        at = rows[s.replica[rows] == code]
        table[s.names[code]] = (int(s.bad[at].sum()), len(at))
    order = sorted(table, key=lambda r: (-table[r][0] / max(table[r][1], 1), r))
    best: tuple[float, int] = (-np.inf, 1)
    scores = []
    for m in range(1, len(order) + 1):
        k = sum(table[r][0] for r in order[:m])
        n = sum(table[r][1] for r in order[:m])
        rest_k = sum(table[r][0] for r in order[m:])
        rest_n = sum(table[r][1] for r in order[m:])
        p = max(k / max(n, 1), p0)
        score = k * log(p) - n * p + rest_k * log(p0) - rest_n * p0
        scores.append(score)
        # A smaller set needs a real gain: a factor of three in likelihood for what chance alone sorts to the top.
        if score >= best[0] or (score > best[0] - 1.0 and m == len(order)):
            best = (score, m)
    return tuple(sorted(order[: best[1]])), float(best[0] - scores[-1]), table


def per_10k(x: float | None) -> str:
    """A share as 'per ten thousand' without the word."""
    return "unknown" if x is None else f"{x * 1e4:.0f}" if x >= 1e-3 else f"{x * 1e4:.1f}"


def _usable(s: Samples, hi: int, w: Window) -> NDArray[np.bool_]:
    keep = ~s.follow[:hi]
    for u, a, b in w.excluded:
        if u < len(w.units):
            unit = w.units[u]
            lo, up = s.since(a), min(s.upto(b), hi)
            if lo < up:
                keep[lo:up] &= ~(
                    (s.pool[lo:up] == s.code(unit.pool)) & (s.replica[lo:up] == s.code(unit.replica))
                )
    return keep


def _witness(s: Samples, bad: NDArray[np.intp], usual: float | None) -> tuple[float, str] | None:
    """Median acceptance length of bad answers long enough to tell, and how many stand out for their length."""
    if not usual:
        return None
    a, tokens = s.accept[bad], np.nan_to_num(s.output_tokens[bad])
    long = (tokens >= 24) & ~np.isnan(a)
    if not long.any():
        return None
    a, tokens = a[long], tokens[long]
    far = (np.abs(a - usual) > 6 * 1.25 / np.sqrt(tokens)) & ((a < 0.6 * usual) | (a > 1.35 * usual))
    return float(
        np.median(a)
    ), f"{int(far.sum())} of {len(a)} bad answers are far from the usual acceptance for their length"


def _rules(s: Samples, bad: NDArray[np.intp]) -> str:
    seen: dict[str, int] = {}
    for i in bad:
        for r in s.rules[i]:
            seen[r] = seen.get(r, 0) + 1
    top = sorted(seen.items(), key=lambda kv: (-kv[1], kv[0]))[:4]
    return ", ".join(f"{r} {percent(n / len(bad))}" for r, n in top) or "not recorded"


def _actions(everyone: bool, carriers: tuple[str, ...], verdict: bool | None) -> dict[str, list[str]]:
    if not everyone:
        return {
            "now": [
                f"Take {names(carriers)} out of rotation (drain, do not kill: keep it for a look)",
                "Compare its release, flags and GPU with its peers",
            ],
            "tomorrow": [
                "Run a fixed canary set per replica after each start, before it takes traffic",
                "vLLM: VLLM_COMPUTE_NANS_IN_LOGITS=1 counts corrupted requests per replica",
            ],
        }
    now = ["Retry broken answers at the gateway (abort on very low or very high acceptance after 128 tokens)"]
    if verdict:
        now.insert(
            0,
            "Lower concurrency: --max-num-seqs (vLLM) / --max-running-requests (SGLang); spread over more replicas",
        )
    return {
        "now": now,
        "tomorrow": [
            "Replay production traffic with real timing at this load; single replays do not show it",
            "Switch off one at a time: speculative decoding (--speculative-config / --speculative-algorithm), "
            "KV offload (--enable-hierarchical-cache), PD transfer; watch the rate",
            "Sample more outputs" if verdict is None else "Keep the sampled outputs of this span",
        ],
    }
