"""Configuration drift: one replica runs with another version, model, KV size, number of slots or features than its peers.

Idea
    Peers of a pool are meant to be equal. What an engine says of itself can be compared as it is; what it does not say (vLLM
    exports no max-num-seqs) shows as a ceiling: running never passes one number, and is at it whenever requests wait, while peers
    go beyond.

Formula
    Per replica, against peers that agree among themselves (at least two, all of them)::

        said       another version, model, release or components
        KV size    differs by 10 % or more from the peers' (which agree within 2 %)
        features   speculation, prefix cache or adapters that all peers export, and it does not, or the reverse
        slots      over five minutes: running <= c in every scrape and = c in 90 % of those in which one waits (at least five),
                   a peer runs >= 1.5 c, it ran >= 1.3 c itself before, KV < 80 %, and it finishes at least half of its normal

    The first three must stand for 15 minutes after the last start in the pool: a roll-out passes through them.

Signals
    target metadata, kv_cache_capacity, the families exported, requests_running, requests_waiting, process starts.

Look-alikes
    A rolling release (every replica in turn), replica_skew (more load, same slots), a full KV cache, wedged and stuck engines
    (they finish nothing), pools of two kinds of GPU (peers do not agree).

Source
    DESIGN section 5; anthropic 2025 (servers of another configuration), vllm#48435.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.contract import Json, Verdict
from detectors.measures import TTFT, needs, now
from detectors.normal import GAP_S, Normal, learn
from detectors.tail import learn_tail
from detectors.window import Window
from detectors.wording import names, number, percent

F = NDArray[np.float64]
Units = NDArray[np.intp]
_FLOORS = {"running": 0.15, "waiting": 0.1, "kv": 0.1, "done": 0.1, "arrivals": 0.1, "ttft": 0.15}
FEATURES = {"spec_drafted": "speculative decoding", "queries": "prefix cache", "adapters": "adapters"}
AGREE, DIFFER, SETTLED_S = 0.02, 0.1, 900.0
SPAN_S, AT_CAP, LEAST_WAITS, PEERS_MORE, WAS_MORE = 300.0, 0.9, 5, 1.5, 1.3
Drift = tuple[str, str, str]
"""What differs, what it is here, and what it is at the peers."""


class ConfigDrift:
    """See the module's docstring."""

    kind = "config_drift"
    needs = needs("running", "waiting", "kv", "kv_capacity", "finished", *FEATURES)
    hists = (TTFT,)

    def fit(self, history: Window, as_of: float) -> Json:
        """Normal of load, the past of late requests, and the most that each replica ran at once."""
        out = learn(history, as_of, _FLOORS, block_s=120.0)
        out["tail"] = learn_tail(history, as_of)
        gap = int(GAP_S // history.step)
        running = history.value("running")
        past = np.where(history.usable, running, np.nan)[:, : max(0, running.shape[1] - gap)]
        most = np.max(np.where(np.isnan(past), -1.0, past), axis=1, initial=-1.0)
        out["most"] = {u.key: float(x) for u, x in zip(history.units, most, strict=True) if x >= 0}
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a pool; the state remembers since when each replica differs."""
        normal = Normal.of(baseline, window)
        m = now(window, max(2, int(120 // window.step)), *_FLOORS, "n")
        since: dict[str, float] = {}
        findings = []
        for pool, idx in window.pools.items():
            live = idx[~np.isnan(window.value("span", 8)[idx]).all(axis=1)]
            drifts: dict[int, list[Drift]] = {}
            if len(live) >= 3:
                if _settled(window, live):
                    for found in (_said(window, live), _sizes(window, live), _features(window, live)):
                        for i, d in found.items():
                            drifts.setdefault(i, []).append(d)
                for i, d in _slots(window, baseline, normal, m, live).items():
                    drifts.setdefault(i, []).append(d)
            if drifts:
                hit = np.asarray(sorted(drifts), np.intp)
                for i in hit:
                    key = window.units[i].key
                    since[key] = state.get("since", {}).get(key, _onset(window, int(i)))
                findings.append(self._finding(window, baseline, normal, m, pool, live, hit, drifts, since))
        return Verdict(findings, {"since": since} if since else {})

    def _finding(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        idx: Units,
        hit: Units,
        drifts: dict[int, list[Drift]],
        since: dict[str, float],
    ) -> Finding:
        case = Case(window, pool, hit, idx, normal, m)
        onset = min(since[window.units[i].key] for i in hit)
        first = drifts[int(hit[0])]
        what = names([f"{w} {here} instead of {there}" for w, here, there in first])
        only_slots = all(w == "slots" for ds in drifts.values() for w, _, _ in ds)
        v = case.now
        return case.finding(
            self.kind,
            title=f"{names(case.replicas)} is configured unlike its peers: {what}",
            cause=f"{names(case.replicas)}: {what}; its {len(case.peers)} peers agree among themselves."
            + (
                f" It never runs more and {v['waiting']:.1f} requests wait there while peers run {number(case.peer('running'))} "
                f"and have room (KV here {percent(v['kv'])})."
                if any(w == "slots" for w, _, _ in first)
                else ""
            ),
            onset=onset,
            strength=float(len(hit) + len(first)),
            confidence=0.75 if only_slots else 0.9,
            severity="page" if case.hurts(baseline["tail"]) else "ticket",
            runner_up="replica_skew",
            evidence=(
                Row("requests_running", "running", "requests", expected=case.peer("running")),
                Row("requests_waiting", "waiting", "requests", expected=case.peer("waiting")),
                Row("kv_cache_usage_ratio", "kv", "0..1", expected=case.peer("kv")),
                Row(
                    "target metadata" if not only_slots else "requests_running",
                    unit="settings that differ",
                    now=float(len(first)),
                    note=what,
                ),
            ),
            ruled_out=(
                RuledOut(
                    "replica_skew",
                    "first tokens/s against peers",
                    f"{v['arrivals']:.2g} here, {case.peer('arrivals'):.2g} at peers",
                ),
                RuledOut("rolling release", "time since the last start in the pool", _settling(window, idx)),
                RuledOut("kv_eviction_storm", "KV in use", percent(v["kv"])),
                RuledOut(
                    "wedged",
                    "finished against own normal",
                    f"{case.before['done']:.2g} → {v['done']:.2g} requests/s",
                ),
            ),
            now=[
                f"Restart {names(case.replicas)} with the flags and image of its peers; until then give it less traffic"
            ],
            tomorrow=[
                "Pin image and arguments by digest, and compare them at start",
                "vLLM: --max-num-seqs, --gpu-memory-utilization; SGLang: --max-running-requests, --mem-fraction-static",
            ],
            detail={
                "chain": [{"at": onset, "what": "differs from its peers", "value": what}],
                "differs": {window.units[i].replica: [list(d) for d in drifts[int(i)]] for i in hit},
                "harm": {"replicas": len(hit)},
            },
        )


def _settled(window: Window, idx: Units) -> bool:
    """Whether no process of the pool has started for a quarter of an hour, and the record is as long."""
    cells = int(SETTLED_S // window.step)
    return window.stop - window.start >= cells and bool((window.since_restart(cells)[idx] == np.inf).all())


def _settling(window: Window, idx: Units) -> str:
    last = float(window.since_restart(int(SETTLED_S // window.step))[idx].min())
    return "over 15 minutes" if last == np.inf else f"{last / 60:.0f} min, of one replica only"


def _odd(values: dict[int, str]) -> dict[int, tuple[str, str]]:
    """The one that differs from all the others, which are at least two and agree: {unit: (here, there)}."""
    if len(values) < 3:
        return {}
    kinds = sorted(set(values.values()))
    if len(kinds) != 2:
        return {}
    for mine, theirs in (kinds, kinds[::-1]):
        odd = [i for i, v in values.items() if v == mine]
        if len(odd) == 1:
            return {odd[0]: (mine, theirs)}
    return {}


def _said(window: Window, idx: Units) -> dict[int, Drift]:
    said = {int(i): f.said() for i in idx if (f := window.facts(int(i))) is not None}
    out: dict[int, Drift] = {}
    for name in ("version", "model", "release", "components"):
        known = {i: v[name] for i, v in said.items() if name in v}
        if len(known) == len(idx):
            out.update({i: (name, here, there) for i, (here, there) in _odd(known).items()})
    return out


def _sizes(window: Window, idx: Units) -> dict[int, Drift]:
    x = window.value("kv_capacity", 8)[idx]
    size = np.max(np.where(np.isnan(x), -1.0, x), axis=1, initial=-1.0)
    if len(idx) < 3 or (size <= 0).any():
        return {}
    for k, i in enumerate(idx):
        rest = np.delete(size, k)
        if rest.max() <= (1 + AGREE) * rest.min() and abs(size[k] / rest.mean() - 1) >= DIFFER:
            return {int(i): ("KV size", f"{size[k]:,.0f}", f"{rest.mean():,.0f} tokens")}
    return {}


def _features(window: Window, idx: Units) -> dict[int, Drift]:
    out: dict[int, Drift] = {}
    for name, what in FEATURES.items():
        has = np.asarray((~np.isnan(window.value(name, 40)[idx])).any(axis=1), bool)
        found = _odd({int(i): "on" if h else "off" for i, h in zip(idx, has.tolist(), strict=True)})
        out.update({i: (what, here, there) for i, (here, there) in found.items()})
    return out


def _slots(window: Window, baseline: Json, normal: Normal, m: dict[str, F], idx: Units) -> dict[int, Drift]:
    cells = int(SPAN_S // window.step)
    running, waiting = window.value("running", cells)[idx], window.value("waiting", cells)[idx]
    if running.shape[1] < cells:
        return {}
    most = np.max(np.where(np.isnan(running), -1.0, running), axis=1)
    out: dict[int, Drift] = {}
    for k, i in enumerate(idx):
        c = most[k]
        waits = waiting[k] >= 1
        rest = np.delete(most, k)
        was = float(baseline["most"].get(window.units[i].key, np.nan))
        known = ~np.isnan(running[k])
        if (
            c < 1
            or known.sum() < 0.8 * cells
            or waits.sum() < LEAST_WAITS
            or (running[k][waits] == c).mean() < AT_CAP
            or (running[k] == c).sum() < LEAST_WAITS
            or not rest.max() >= PEERS_MORE * c
            or was < WAS_MORE * c
            or m["kv"][i] >= 0.8
            or not m["done"][i] >= 0.5 * normal.centre["done"][i]
        ):
            continue
        out[int(i)] = ("slots", f"{c:.0f}", f"at least {rest.max():.0f}")
    # Peers that stop at the same number are a pool that is full, not a replica that differs.
    return out if len(out) == 1 else {}


def _onset(window: Window, unit: int) -> float:
    """When it began: its last start within the hour, else a quarter of an hour ago."""
    last = float(window.since_restart(min(int(3600 // window.step), window.stop - window.start))[unit])
    return window.end - (last if last < np.inf else SETTLED_S)
