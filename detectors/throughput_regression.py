"""Throughput regression: the same work takes longer since a release, at equal batch and context.

Idea
    A release restarts one replica after the other. Each is compared with what *it* needed for the same batch and prefill
    before, by the fit that was learnt before the release, and those not yet restarted are the control group. The part of the
    work that became slower, decode or prefill, names the stage.

Formula
    A release: a deploy, release or flag event of the pool, or replicas that restarted with another version or release, or at
    least half of the pool restarted, in the last three hours. What was learnt before it is kept (:mod:`detectors.pace`)::

        settled  restarted since, up for at least 150 s
        slower   decode: ratio >= 1.2 and z >= 5 over two minutes and >= 1.2 over the time since it settled (at most four)
                 prefill: ratio >= 1.4 and z >= 6 in the same way, and up for ten minutes (the cache is cold before)
        pool     at least 60 % of the settled replicas that work; median ratio of the others < 1.1

    Tokens per busy second is one over the time per token of a running request.

Signals
    inter_token_latency_seconds or token counters, requests_running, ttft_seconds, queue_time_seconds, prefix-cache counters;
    deploys and restarts, version and release of a target; spec_accepted_tokens_total for what it is not.

Look-alikes
    warm_up (passes, and hits recover), slow_replica (one, nothing was released), spec_decode_collapse (fewer tokens a step,
    steps as quick as ever), capacity_shortfall (more requests), config_drift (one replica with other settings).

Source
    DESIGN of the kinds; the load-adjusted comparison of detection.md 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.chain import Link
from detectors.changes import releases
from detectors.contract import Json, Verdict
from detectors.measures import ITL, QUEUE, TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.pace import BLOCK_S, Pace, learn_pace
from detectors.parts import STEP_MEASURES, STEP_NEEDS, step_rows
from detectors.stats import nanmedian
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, seconds, times

F = NDArray[np.float64]
B = NDArray[np.bool_]
KEEP_S = 3 * 3600.0
SETTLED_S = 150.0
WARM_S = 600.0
_FLOORS = {
    "itl": 0.03,
    "token_seconds": 0.05,
    "prefill_seconds": 0.15,
    "work": 0.1,
    "hit": 0.01,
    "waiting": 0.1,
    **dict.fromkeys(STEP_MEASURES, 0.02),
}


@dataclass(frozen=True, slots=True)
class Release:
    """When a release of a pool began (Unix seconds), what it is called, and which replicas have restarted since."""

    since: float
    name: str
    changed: B


class ThroughputRegression:
    """See the module's docstring."""

    kind = "throughput_regression"
    needs = (*STEP_NEEDS, *needs("waiting", "hits", "queries", "generated", "live_decode"))
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean")

    def fit(self, history: Window, as_of: float) -> Json:
        """Pace of decode and prefill, and the normal that the evidence is compared with."""
        return {
            **learn(history, as_of, _FLOORS, block_s=BLOCK_S),
            "step": learn_pace(history),
            "prefill": learn_pace(history, "prefill"),
            "tail": learn_tail(history, as_of),
        }

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that is slower since its release. The state keeps, per pool, what was learnt before it."""
        kept: dict[str, Any] = {}
        findings: list[Finding] = []
        for pool, idx in window.pools.items():
            known = state.get("before", {}).get(pool)
            release = _release(window, pool, idx, known["since"] if known else None)
            if release is None:
                continue
            if known is None:
                known = {"since": release.since, **_of_pool(baseline, window, idx, pool)}
            kept[pool] = known
            found = self._judge(window, baseline, known, pool, idx, release)
            if found is not None:
                findings.append(found)
        return Verdict(findings, {"before": kept})

    def _judge(
        self, window: Window, baseline: Json, known: Json, pool: str, idx: NDArray[np.intp], release: Release
    ) -> Finding | None:
        up = _up(window)
        for stage, least, z, ready in (("step", 1.2, 5.0, SETTLED_S), ("prefill", 1.4, 6.0, WARM_S)):
            if stage not in known or pool not in known[stage]["fits"]:
                continue
            pace = Pace.of(known[stage], window)
            cells = int(BLOCK_S // window.step)
            two = pace.ratio(cells)
            long = pace.ratio(2 * cells)
            running = now(window, cells, "running")["running"]
            with np.errstate(invalid="ignore"):
                works = (running >= 0.5) & pace.within_reach(running) & ~np.isnan(two)
                settled = release.changed & works & (up >= ready)
                # A span that reaches back to before the restart mixes two releases.
                both = np.where(up >= 2 * BLOCK_S + 30.0, np.fmin(two, long), two)
                slower = settled & (both >= least) & (pace.z(both) >= z)
            mine, hit = idx[settled[idx]], idx[slower[idx]]
            rest = idx[~release.changed[idx] & works[idx]]
            others = float(nanmedian(two[rest])) if len(rest) else float("nan")
            if len(hit) and len(hit) >= 0.6 * len(mine) and not others >= 1.1:
                normal = Normal.of(known["normal"], window)
                m = {**now(window, cells, *_FLOORS), "ratio": two}
                case = Case(window, pool, hit, idx, normal, m)
                return self._finding(case, baseline, release, stage, others, rest)
        return None

    def _finding(
        self, case: Case, baseline: Json, release: Release, stage: str, others: float, rest: NDArray[np.intp]
    ) -> Finding:
        c, v, how = case.before, case.now, case.now["ratio"]
        decode = stage == "step"
        gap = "prefill_seconds" if not decode else "itl" if v["itl"] == v["itl"] else "token_seconds"
        what = "a token" if decode else "the prefill of a prompt"
        control = (
            f"the {len(rest)} replicas without it take ×{others:.2f}"
            if len(rest)
            else "each replica is compared with itself before it"
        )
        return case.finding(
            self.kind,
            title=f"Slower since {release.name} on {case.pool}: {what} takes {times(how)} as long",
            cause=f"Since {release.name}, {names(case.replicas)} need {times(how)} the time for {what} at the same batch and the "
            f"same prefill work ({seconds(c[gap])} → {seconds(v[gap])}); {control}.",
            links=(
                Link(
                    "steps take longer" if decode else "prefill takes longer",
                    gap,
                    1.15 * c[gap],
                    show=seconds,
                ),
            ),
            onset=release.since,
            strength=float(np.log2(max(how, 1.0))),
            confidence=0.9 if len(case.units) > 1 or len(rest) else 0.75,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="slow_replica" if len(case.units) == 1 else "capacity_shortfall",
            evidence=(
                Row(
                    "inter_token_latency_seconds"
                    if gap == "itl"
                    else "ttft_seconds"
                    if not decode
                    else "generation_tokens_total",
                    gap,
                    "s (mean)" if gap != "token_seconds" else "s per token of a running request",
                    f"stage: {'decode' if decode else 'prefill'}, {times(how)} of what this work took",
                    expected=v[gap] / how,
                ),
                Row(
                    "generation_tokens_total",
                    unit="tokens per busy second of a request",
                    now=1.0 / v["token_seconds"] if v["token_seconds"] > 0 else None,
                    before=1.0 / c["token_seconds"] if c["token_seconds"] > 0 else None,
                ),
                Row(
                    "deploy",
                    unit="× expected",
                    now=others,
                    before=1.0,
                    note=release.name,
                    scope="not released",
                ),
                *step_rows(case),
                Row("prefix_cache_hit_tokens_total", "hit", "share"),
            ),
            ruled_out=(
                RuledOut(
                    "capacity_shortfall",
                    "time at equal batch and prefill work (fit from before the release)",
                    f"{times(how)} after load is taken out; running {number(c['running'])} → {number(v['running'])}",
                ),
                RuledOut(
                    "slow_replica",
                    "released replicas that are slower",
                    f"{len(case.units)} of {int(release.changed[case.seen].sum())}",
                    len(case.units) > 1,
                ),
                RuledOut(
                    "spec_decode_collapse",
                    "accepted tokens per draft",
                    f"{c['accepted']:.2g} → {v['accepted']:.2g}"
                    if v["accepted"] == v["accepted"]
                    else "no drafts exported",
                    not v["accepted"] < 0.6 * c["accepted"],
                ),
                RuledOut(
                    "warm_up", "a minute or more after the restart", f"up for {_shortest(case)} at least"
                ),
            ),
            now=(
                f"Roll back {release.name} on {case.pool}",
                "Stop the roll-out where replicas are still to come",
            ),
            tomorrow=(
                "Compare tokens per busy second at equal batch on one replica before a release goes on",
                "Bisect flags first (CUDA graphs, attention backend, quantisation), then the version",
            ),
            detail={"stage": "decode" if decode else "prefill", "release": release.name},
        )


def _release(window: Window, pool: str, idx: NDArray[np.intp], known: float | None) -> Release | None:
    """The latest release of a pool; None where nothing was released in three hours. ``known``: that it was seen begin then."""
    up = _up(window)
    events = [
        e for e in releases(window, pool, window.end - KEEP_S, window.end) if "rolled back" not in e.text
    ]
    restarted = np.zeros(len(up), bool)
    restarted[idx] = np.isfinite(up[idx])
    said = {f.version or f.release for i in idx if restarted[i] and (f := window.facts(int(i))) is not None}
    before = {
        f.version or f.release for i in idx if not restarted[i] and (f := window.facts(int(i))) is not None
    }
    new = sorted(x for x in said - before if x)
    if events:
        # A roll-out is one release although each replica has its own event.
        since = min(e.ts for e in events if e.ts >= events[-1].ts - 3600.0)
        name = next((e.text for e in reversed(events) if e.text), "") or (new[0] if new else "the release")
    elif restarted.any() and ((new and before) or 2 * restarted[idx].sum() >= len(idx)):
        since = window.end - float(up[idx][np.isfinite(up[idx])].max())
        name = f"release {new[0]}" if new else "the restarts"
    else:
        return None
    since = known if known is not None else since
    if window.end - since > KEEP_S:
        return None
    return Release(since, name, restarted & (window.end - up >= since - 60.0))


def _up(window: Window) -> F:
    """Seconds since the restart of each replica; infinite where none was seen in three hours."""
    return window.since_restart(int(KEEP_S // window.step))


def _of_pool(baseline: Json, window: Window, idx: NDArray[np.intp], pool: str) -> Json:
    """What was learnt of one pool, apart from later releases."""
    keys = {window.units[i].key for i in idx}
    out: Json = {"normal": _rows(baseline, keys, ("values",))}
    for stage in ("step", "prefill"):
        part = baseline[stage]
        if pool in part["fits"]:
            out[stage] = {
                **_rows(part, keys, ("ratio",)),
                "fits": {pool: part["fits"][pool]},
                "reach": {pool: part["reach"][pool]},
                "stage": stage,
            }
    return out


def _rows(learnt: Json, keys: set[str], fields: tuple[str, ...]) -> Json:
    """The entries of some units of a learnt table: ``units`` and lists in the same order."""
    at = [i for i, k in enumerate(learnt["units"]) if k in keys]
    out: Json = {"units": [learnt["units"][i] for i in at]}
    for name in fields:
        table = learnt[name]
        if isinstance(table, Mapping):
            out[name] = {k: [[row[i] for i in at] for row in rows] for k, rows in table.items()}
        else:
            out[name] = [[row[i] for i in at] for row in table]
    return out


def _shortest(case: Case) -> str:
    return seconds(float(mean(np.asarray([_up(case.window)[case.units].min()]))))
