"""Telemetry fault: what is exported is stale, vanished, saturated or impossible. First, because every other verdict rests on it.

Idea
    Judge the data before the fleet. A fault here is for Data health and pages nobody, unless so much is
    missing that less than half
    of the replicas behind an objective can be seen for five minutes: then the objective itself is unknown and that is a ticket.

Formula
    Per replica::

        vanished     scraped within the last hour, but not for 90 s (and at least 4 scrapes)
        dropped      a needed family was there in most of the past hour and is missing for 2 minutes, although scrapes arrive
        stale        no value has changed for 4 scrapes and 60 s, although answers keep coming from it
        saturated    more than 1 % of the first tokens of ten minutes lie beyond the last bucket edge (and at least 5)
        impossible   prefix hits > queries, KV usage > 1.02, or observations whose sum is 0

Signals
    every family that a detector needs; up.

Look-alikes
    A rolling restart (one or two scrapes missing, then a new process), an intended scale-down, an idle replica.

Source
    incidents.md E1-E17.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.believable import still_answering, still_for
from detectors.contract import Json, Verdict
from detectors.measures import BY_NAME, TTFT, needs
from detectors.stats import zeroed
from detectors.window import Window, nansum
from detectors.wording import names, percent

F = NDArray[np.float64]
_WATCHED = ("running", "waiting", "kv", "hits", "queries", "finished", "generated")
_FLAGS = {
    "hits": "vLLM: --enable-prefix-caching; SGLang: --enable-metrics, ≥ 0.5.8",
    "queries": "vLLM: --enable-prefix-caching; SGLang: --enable-metrics, ≥ 0.5.8",
    "generated": "vLLM: do not use --disable-log-stats; SGLang: --enable-metrics",
}


BLIND_S = 300.0
"""A gap of some minutes is no incident: an objective must have been unknown for so long."""
Faults = dict[int, list[tuple[str, str, float]]]


class TelemetryFault:
    """See the module's docstring."""

    kind = "telemetry_fault"
    needs = needs("running", "waiting", "kv", "hits", "queries", "finished", "generated")
    hists = (TTFT,)

    def fit(self, history: Window, as_of: float) -> Json:
        """Nothing is learnt: presence is judged against the last hour."""
        return {"as_of": as_of}

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool with faults."""
        hour, short = int(3600 // window.step), int(120 // window.step)
        scraped = ~np.isnan(window.value("span", hour))
        quiet = _quiet(scraped)
        gap = _interval(scraped)
        vanished = scraped.any(axis=1) & (quiet * window.step >= 90) & (quiet >= 4 * gap)
        faults: Faults = {}
        scrapes, still = still_for(window, (*_WATCHED, f"{TTFT}:n"), hour)
        stale = (scrapes >= 4) & (still >= 60) & still_answering(window, np.where(scrapes >= 4, still, 0.0))

        def note(units: NDArray[np.intp], what: str, signal: str, value: F) -> None:
            for i in units:
                faults.setdefault(int(i), []).append((what, signal, float(value[i])))

        note(np.flatnonzero(vanished), "vanished", "up", np.asarray(quiet * window.step, np.float64))
        note(np.flatnonzero(stale), "stale", "requests_running", still)
        arriving = scraped[:, -short:].sum(axis=1) >= 2
        gone: dict[str, list[str]] = {}
        for name in (*_WATCHED, f"{TTFT}:n"):
            x = ~np.isnan(window.value(name, hour))
            before = x[:, :-short].sum(axis=1) if x.shape[1] > 2 * short else np.zeros(len(x), int)
            had = (before >= 0.5 * np.maximum(scraped[:, :-short].sum(axis=1), 1)) & (before > short)
            # What has been missing for long is still missing, although the past hour no longer holds it.
            had |= np.asarray([name in state.get("gone", {}).get(u.key, ()) for u in window.units], bool)
            missing = np.flatnonzero(arriving & had & ~x[:, -short:].any(axis=1))
            note(missing, "dropped", _signal(name), before.astype(float))
            for i in missing:
                gone.setdefault(window.units[i].key, []).append(name)
        ten = int(600 // window.step)
        over, n = np.zeros(len(window.units)), np.zeros(len(window.units))
        for key in window.hist_keys(TTFT):
            c = zeroed(window.counts(TTFT, key, ten)).sum(axis=1)
            over, n = over + c[:, -1], n + c.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(n > 0, over / n, 0.0)
        note(np.flatnonzero((share > 0.01) & (over >= 5)), "saturated", TTFT, share)
        with np.errstate(invalid="ignore"):
            more = nansum(window.value("hits", short)) - nansum(window.value("queries", short))
            note(np.flatnonzero(more > 0), "impossible", "prefix_cache_hit_tokens_total", more)
            kv = zeroed(window.value("kv", 1)[:, -1]) if window.stop else np.zeros(len(window.units))
            note(np.flatnonzero(kv > 1.02), "impossible", "kv_cache_usage_ratio", kv)
            zero = (nansum(window.value(f"{TTFT}:n", ten)) >= 20) & (
                nansum(window.value(f"{TTFT}:sum", ten)) == 0
            )
            note(np.flatnonzero(zero), "impossible", TTFT, np.zeros(len(window.units)))
        since: dict[str, float] = {}
        findings = []
        for pool, idx in window.pools.items():
            mine = {int(i): faults[int(i)] for i in idx if int(i) in faults}
            if _covered(mine, len(idx)) < 0.5:
                since[pool] = state.get("blind", {}).get(pool, window.end - _longest(mine))
            if mine:
                findings.append(self._finding(window, pool, idx, mine, since.get(pool)))
        return Verdict(findings, {"blind": since, "gone": gone})

    def _finding(
        self,
        window: Window,
        pool: str,
        idx: NDArray[np.intp],
        faults: Faults,
        blind_since: float | None,
    ) -> Finding:
        units = np.asarray(sorted(faults), np.intp)
        replicas = tuple(sorted(window.units[i].replica for i in units))
        covered = _covered(faults, len(idx))
        judged = any(o.workload_class in window.classes_of(idx) for o in window.context.objectives)
        kinds = sorted({w for f in faults.values() for w, _, _ in f})
        signals = sorted({s for f in faults.values() for _, s, _ in f})
        flags = sorted({_FLAGS[n] for n in _WATCHED if n in _FLAGS and BY_NAME[n].signal in signals})
        longest = _longest(faults)
        unknown = blind_since is not None and window.end - blind_since >= BLIND_S
        return Finding(
            kind=self.kind,
            scope=Scope(window.classes_of(units), (pool,), replicas),
            at=window.end,
            onset=window.end - longest,
            strength=float(len(units)),
            confidence=0.9,
            severity="ticket" if judged and unknown else "info",
            title=f"Telemetry of {names(replicas)} is {' and '.join(kinds)}: {names(signals)}",
            cause=f"{len(units)} of {len(idx)} replicas of {pool} cannot be judged fully "
            f"({names(kinds)}); {percent(covered)} of them are covered.",
            evidence=tuple(
                Evidence(s, window.units[i].replica, None, v, None, window.end, _UNIT[w], w)
                for i in units
                for w, s, v in faults[i]
            )[:20],
            ruled_out=(
                RuledOut(
                    "restart",
                    "a new process within the gap",
                    "none seen" if np.isinf(window.since_restart(8)[units]).all() else "restarted",
                ),
                RuledOut(
                    "idle",
                    "an idle replica still answers scrapes",
                    "scrapes are missing" if "vanished" in kinds else "scrapes arrive",
                ),
                RuledOut("wedged", "a wedged engine still exports", "see the list of what is missing"),
            ),
            detail={
                "chain": [
                    {"at": window.end - longest, "what": f"{w} {s}", "value": window.units[i].replica}
                    for i in units
                    for w, s, _ in faults[i]
                ][:20],
                "actions": {
                    "now": [
                        "Check that the process and its port are there; until then nothing is known about these replicas"
                    ]
                    if covered < 1
                    else ["Nothing urgent: other signals still stand"],
                    "tomorrow": flags or ["See Data health for the flag of each missing family"],
                },
                "harm": {},
                "coverage": covered,
            },
        )


def _signal(name: str) -> str:
    return BY_NAME[name].signal if name in BY_NAME else name.partition(":")[0]


def _covered(faults: Faults, replicas: int) -> float:
    """Share of the replicas whose objective can still be judged."""
    blind = [
        i
        for i, f in faults.items()
        if any(w in ("vanished", "impossible", "stale") or (w == "dropped" and s == TTFT) for w, s, _ in f)
    ]
    return 1 - len(blind) / max(replicas, 1)


def _longest(faults: Faults) -> float:
    """Seconds since the first of them began."""
    return max((v for f in faults.values() for w, _, v in f if w in ("vanished", "stale")), default=120.0)


_UNIT = {
    "stale": "s without a change",
    "vanished": "s without a scrape",
    "dropped": "scrapes had it before",
    "saturated": "share beyond the last edge",
    "impossible": "",
}


def _quiet(scraped: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Cells since the last scrape of each row; the whole width where there was none."""
    width = scraped.shape[1]
    return np.where(scraped.any(axis=1), np.argmax(scraped[:, ::-1], axis=1) if width else 0, width)


def _interval(scraped: NDArray[np.bool_]) -> F:
    """Usual number of cells between scrapes of each row (at least 1), from the share of cells that have one."""
    first = np.where(scraped.any(axis=1), np.argmax(scraped, axis=1), 0)
    last = scraped.shape[1] - 1 - _quiet(scraped)
    count = scraped.sum(axis=1)
    return np.asarray(np.maximum(1.0, (last - first) / np.maximum(count - 1, 1)), np.float64)
