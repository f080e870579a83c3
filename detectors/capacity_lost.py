"""Capacity lost: replicas died in the midst of their work and stay away, or die again and again, and the rest carries their load.

Idea
    A replica that vanishes from scraping may be dead, removed on purpose, or merely unseen. Dead: it was taking requests to its
    last scrape, and the others now take what it took. Removed: it was drained first. Unseen: the others take what they always
    took. Replaced under another name: there are as many replicas as before.

Formula
    missing   scraped within the hour, not for 75 s (and five scrape intervals), not drained (first tokens or running requests in
              its last half minute), fewer replicas than before; and the rest took over: of the gateway's attempts the engines
              that are left see at least as large a share as before, less half of what the lost ones took (without a log:
              first tokens of the rest rose by at least half of it, which needs a loss of 15 %)
    looping   three starts of one replica within 30 minutes (starts within 30 s are one), the last within ten minutes
    said      missing: at once where requests of the rest are late beyond chance; otherwise after three minutes (ten where a
              deploy or scaling was announced) of failed scrapes, because what is no longer scraped at all was taken off the
              list by somebody; looping: at the third start

Signals
    up, process starts, ttft_seconds, requests_running; the gateway's log.

Look-alikes
    telemetry_fault (the rest takes no more), an intended scale-down or a rolling restart (drained, one after the other),
    warm_up (one start), gpu_fault (names the device), a gap in all scrapes.

Source
    DESIGN section 5; incidents.md A7 (three starts in 30 minutes).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row, mean
from detectors.contract import Json, Verdict
from detectors.measures import TTFT, needs, now
from detectors.normal import Normal, learn
from detectors.tail import learn_tail
from detectors.window import Window, nansum
from detectors.wording import names, number, seconds

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {"running": 0.15, "waiting": 0.1, "arrivals": 0.1, "ttft": 0.15}
GONE_S, CALM_S, ANNOUNCED_S = 75.0, 180.0, 600.0
LEAST_LOSS = 0.15
STARTS, LOOP_S, MERGE_S, STABLE_S = 3, 1800.0, 30.0, 600.0
PLANNED = ("deploy", "release", "scale")


class CapacityLost:
    """See the module's docstring."""

    kind = "capacity_lost"
    needs = needs("running", "waiting")
    hists = (TTFT,)

    def fit(self, history: Window, as_of: float) -> Json:
        """Normal of load and the past of late requests."""
        out = learn(history, as_of, _FLOORS, block_s=120.0)
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool that has lost replicas."""
        hour = min(int(3600 // window.step), window.stop - window.start)
        scraped = ~np.isnan(window.value("span", hour))
        starts = _starts(window)
        findings = []
        for pool, idx in window.pools.items():
            looping = idx[starts[idx] >= STARTS]
            lost, share = _lost(window, pool, np.setdiff1d(idx, looping), scraped)
            rest = np.setdiff1d(idx[scraped[idx, -5:].any(axis=1)], np.concatenate([lost, looping]))
            if not len(rest) or not len(lost) + len(looping):
                continue
            normal = Normal.of(baseline, window)
            m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n")
            hurt = Case(window, pool, rest, idx, normal, m).hurts(baseline["tail"])
            away = _away(window, lost, scraped)
            patience = np.where(
                _refused(window, lost, away), ANNOUNCED_S if _planned(window, pool) else CALM_S, np.inf
            )
            lost = lost[away >= (GONE_S if hurt else patience)]
            if len(lost) or len(looping):
                findings.append(
                    self._finding(
                        window, normal, m, pool, idx, lost, looping, rest, starts, share, hurt, scraped
                    )
                )
        return Verdict(findings, {})

    def _finding(
        self,
        window: Window,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        lost: Units,
        looping: Units,
        rest: Units,
        starts: F,
        share: float,
        hurt: bool,
        scraped: NDArray[np.bool_],
    ) -> Finding:
        units = np.union1d(lost, looping)
        case = Case(window, pool, units, idx, normal, m)
        away = float(_away(window, lost, scraped).max()) if len(lost) else 0.0
        onset = window.end - away if len(lost) else _first_start(window, looping)
        what = []
        if len(lost):
            gone = names(sorted(window.units[i].replica for i in lost))
            what.append(f"{gone} gone for {seconds(away)}")
        if len(looping):
            again = names(sorted(window.units[i].replica for i in looping))
            what.append(f"{again} started {int(starts[looping].max())} times in 30 minutes")
        load = Case(window, pool, rest, idx, normal, m)
        arrivals = f"{load.before['arrivals']:.2g} → {load.now['arrivals']:.2g} requests/s each"
        p99 = load.p99()
        return case.finding(
            self.kind,
            title=f"Capacity lost on {pool}: {' and '.join(what)}, {len(rest)} of {len(idx)} replicas left"
            + (f"; {p99}" if p99 and "not enough" not in p99 else ""),
            cause=f"{' and '.join(what)} in the midst of work, not drained. The other {len(rest)} carry the load: {arrivals}, "
            f"running {number(load.before['running'])} → {number(load.now['running'])}"
            + (", and their requests are late." if hurt else ", still in time."),
            onset=onset,
            strength=float(np.log2(1 + len(units) / len(idx))),
            confidence=0.9 if len(looping) or share == share else 0.75,
            severity="page" if hurt else "ticket",
            runner_up="gpu_fault" if len(lost) else "error_burst",
            with_p99=False,
            evidence=(
                Row("up", unit="replicas scraped", now=float(len(rest)), before=float(len(idx))),
                Row(
                    "up",
                    unit="starts in 30 minutes",
                    now=float(starts[looping].max()) if len(looping) else None,
                    scope=names(case.replicas),
                ),
                Row(
                    "ttft_seconds",
                    unit="first tokens/s per remaining replica",
                    now=load.now["arrivals"],
                    before=load.before["arrivals"],
                    scope="the rest",
                ),
                Row(
                    "gateway log",
                    unit="share of the gateway's attempts that the rest takes",
                    now=share if len(lost) else None,
                ),
                Row(
                    "requests_running",
                    unit="requests per remaining replica",
                    now=load.now["running"],
                    before=load.before["running"],
                    scope="the rest",
                ),
            ),
            ruled_out=(
                RuledOut("telemetry_fault", "the rest takes what the missing ones took", arrivals),
                RuledOut("scale-down", "drained before it went", "it took requests to the last scrape"),
                RuledOut(
                    "rolling restart",
                    "one after the other, each back once",
                    f"{int(starts[looping].max())} starts of one replica"
                    if len(looping)
                    else f"gone for {seconds(away)}",
                ),
                RuledOut("gap in scraping", "all replicas at once", f"{len(rest)} are scraped"),
            ),
            now=[
                "Look at the pods (kubectl describe, previous logs): evicted, pending, out of memory, failed probe?",
                "Limit the traffic of this pool or move some of it until they are back"
                if hurt
                else "The rest carries the load: no need to shed traffic yet",
            ],
            tomorrow=[
                "Keep room for one replica less (running and KV of the rest at peak)",
                "Alert on replicas available against wanted; a start-up probe longer than loading the model takes",
            ],
            detail={
                "chain": [{"at": onset, "what": what[0], "value": f"{len(rest)} of {len(idx)} left"}],
                "missing": [window.units[i].replica for i in lost],
                "looping": [window.units[i].replica for i in looping],
                "harm": {"replicas_lost": len(units)},
            },
        )


def _starts(window: Window) -> F:
    """Starts of each replica within half an hour, if the last was within ten minutes; starts within 30 s of another are one."""
    cells = min(int(LOOP_S // window.step), window.stop - window.start)
    marks = window.value("restart", cells) > 0
    merge = max(1, int(MERGE_S // window.step))
    out = np.zeros(len(window.units))
    for u in np.flatnonzero(marks.sum(axis=1) >= STARTS):
        at = np.flatnonzero(marks[u])
        apart = 1 + int((np.diff(at) > merge).sum())
        if (cells - at[-1]) * window.step <= STABLE_S:
            out[u] = apart
    return out


def _first_start(window: Window, units: Units) -> float:
    cells = min(int(LOOP_S // window.step), window.stop - window.start)
    marks = (window.value("restart", cells)[units] > 0).any(axis=0)
    return window.end - (cells - int(np.argmax(marks))) * window.step


def _away(window: Window, units: Units, scraped: NDArray[np.bool_]) -> F:
    """Seconds since the last scrape of each."""
    x = scraped[units]
    return np.argmax(x[:, ::-1], axis=1) * window.step if x.size else np.zeros(len(units))


def _refused(window: Window, units: Units, away: F) -> NDArray[np.bool_]:
    """Whether scrapes of these failed since they went away: still wanted, but dead. Without any, it was taken off the list."""
    up = window.value("up", min(int(3600 // window.step), window.stop - window.start))[units]
    cells = (away // window.step).astype(int)
    return np.asarray([n > 0 and bool((row[-n:] == 0).any()) for row, n in zip(up, cells, strict=True)], bool)


def _planned(window: Window, pool: str) -> bool:
    return any(
        e.kind in PLANNED and e.pool in ("", pool) and window.end - 900 <= e.ts <= window.end
        for e in window.events
    )


def _lost(window: Window, pool: str, idx: Units, scraped: NDArray[np.bool_]) -> tuple[Units, float]:
    """Replicas that died at work and whose load the others carry, and the share of the gateway's attempts that those see
    (NaN without a log)."""
    nobody = np.zeros(0, np.intp)
    x = scraped[idx]
    if not x.size or not x[:, -5:].any():
        return nobody, float("nan")
    quiet = np.where(x.any(axis=1), np.argmax(x[:, ::-1], axis=1), 0)
    before = x.sum(axis=1)
    pace = np.maximum(1.0, (x.shape[1] - quiet) / np.maximum(before, 1))
    gone = (
        x.any(axis=1) & (quiet * window.step >= GONE_S) & (quiet >= 5 * np.minimum(pace, 4)) & (before >= 20)
    )
    gone &= ~_drained(window, idx, quiet)
    if not gone.any():
        return nobody, float("nan")
    first = int(quiet[gone].max())
    alive = x[:, -5:].any(axis=1)
    width = x.shape[1]
    was = x[:, max(0, width - first - 4) : width - first].any(axis=1)
    short = int(was.sum()) - int(alive.sum())
    if short <= 0:
        return nobody, float("nan")
    lost = np.flatnonzero(gone)[np.argsort(-quiet[gone], kind="stable")][:short]
    took, share = _took_over(window, pool, idx[lost], idx[alive], first)
    return (idx[np.sort(lost)], share) if took else (nobody, share)


def _drained(window: Window, idx: Units, quiet: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether the last half minute before a replica went away saw no first token (or, where few are usual, nothing running)."""
    cells = min(int(3600 // window.step), window.stop - window.start)
    n, running = window.value(f"{TTFT}:n", cells)[idx], window.value("running", cells)[idx]
    last = max(1, int(30 // window.step))
    out = np.zeros(len(idx), bool)
    for i, q in enumerate(quiet):
        stop = cells - int(q)
        tail, usual = n[i, max(0, stop - last) : stop], n[i, max(0, stop - 40) : max(0, stop - 4)]
        rate = float(mean(usual))
        if rate * last >= 3:
            out[i] = not np.nansum(tail) > 0
        else:
            out[i] = not np.nansum(running[i, max(0, stop - last) : stop]) > 0
    return out


def _took_over(window: Window, pool: str, lost: Units, rest: Units, first: int) -> tuple[bool, float]:
    """Whether the rest now takes what the lost ones took, and the share of the gateway's attempts that it sees."""
    cells = min(int(3600 // window.step), window.stop - window.start)
    n = window.value(f"{TTFT}:n", cells)
    edge = cells - first
    past = slice(max(0, edge - 44), max(0, edge - 4))
    width = past.stop - past.start
    if width < 8:
        return False, float("nan")
    recent = min(max(4, first - 2), 12)
    taken = float(np.nansum(n[lost, past])) / width
    base = float(np.nansum(n[rest, past])) / width
    current = float(np.nansum(n[rest, cells - recent :])) / recent
    if taken <= 0 or base <= 0:
        return False, float("nan")
    log = window.gateway
    share = _seen_share(window, pool, rest, recent)
    if log.known(pool, 2) and share == share:
        usual = _past_share(window, pool, np.concatenate([lost, rest]), first)
        if usual == usual:
            return share >= usual * (1 - 0.5 * taken / (taken + base)), share
    return (
        taken / (taken + base) >= LEAST_LOSS and current >= base + 0.5 * taken,
        float("nan"),
    )


def _seen_share(window: Window, pool: str, units: Units, cells: int) -> float:
    """First tokens at some engines over first tokens at the gateway, over the last whole minutes."""
    log = window.gateway
    minutes = min(3, max(1, int(cells * window.step // 60)))
    return _ratio(window, pool, units, log.stop - minutes, log.stop)


def _past_share(window: Window, pool: str, units: Units, first: int) -> float:
    """The same over the ten minutes before the first one went away."""
    log = window.gateway
    stop = log.stop - int((first * window.step + 60) // 60) - 1
    return _ratio(window, pool, units, stop - 10, stop)


def _ratio(window: Window, pool: str, units: Units, lo: int, hi: int) -> float:
    """First tokens at engines over those in the log, over the log's minutes [lo, hi)."""
    log = window.gateway
    if lo < 0 or hi <= lo:
        return float("nan")
    at_gate = log.total(pool, "ttft_n", log.stop - lo)[: hi - lo]
    begin = (log.of.first + lo) * 60.0
    a = round(begin / window.step) - window.cube.first - window.start
    b = a + round((hi - lo) * 60 / window.step)
    if a < 0 or np.isnan(at_gate).any() or at_gate.sum() <= 0:
        return float("nan")
    return float(nansum(window.value(f"{TTFT}:n")[units, a:b].ravel()) / at_gate.sum())
