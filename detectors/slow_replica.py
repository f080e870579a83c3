"""Slow replica: one replica does the same work more slowly than its peers and than itself before.

Idea
    Decode steps take longer at more requests in the batch and more prefill beside them, so speed is only
    comparable at equal work.
    A fit over the pool's own past gives the step time expected for what a replica is doing now; each replica's
    usual deviation from
    it is learnt as well. A replica that leaves its own deviation while its peers keep theirs is slow.

Formula
    Per pool, least squares over two-minute blocks of the past::

        itl = a + b * running + c * prefill tokens/s          ratio = itl / fit / own usual ratio
        slow: ratio >= 1.2 and z >= 5 over two and over four minutes, median ratio of the peers < 1.1,
              prefix hits and preemptions as usual, no restart in ten minutes
        with a GPU clock >= 10 % under its own normal and the peers' clocks as usual: ratio >= 1.1 and z >= 4 is enough

    The cause is named from evidence: SM clock, power, uptime; else "not established".

Signals
    inter_token_latency_seconds, requests_running, prefix-cache counters, gpu_sm_clock_hz, gpu_power_watts.

Look-alikes
    replica_skew (more load, same speed at that load), kv_eviction_storm (redone work), warm_up, lock-step
    groups (EP, TP: peers move
    together, so clocks must speak).

Source
    incidents.md G1, A6: vllm#42484, pytorch#120787.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence, Finding, RuledOut, Scope
from detectors.chain import Link, follow
from detectors.contract import Json, Verdict
from detectors.late import harm
from detectors.measures import ITL, QUEUE, TTFT, blocks, needs, now
from detectors.normal import GAP_S, MIN_BLOCKS, Normal, learn
from detectors.stats import centre_spread
from detectors.tail import learn_tail, p99_text, pool_burn
from detectors.window import Window
from detectors.wording import number, percent, rounded, seconds, times

F = NDArray[np.float64]
BLOCK_S = 120.0
_FLOORS = {
    "sm_clock": 0.01,
    "power": 0.05,
    "work": 0.1,
    "hit": 0.01,
    "running": 0.1,
    "itl": 0.03,
    "per_running": 0.1,
    "waiting": 0.1,
}


class SlowReplica:
    """See the module's docstring."""

    kind = "slow_replica"
    needs = needs(
        "running",
        "waiting",
        "hits",
        "queries",
        "finished",
        "preempted",
        "retracted",
        "sm_clock",
        "power",
        "kv",
    )
    hists = (TTFT, f"{QUEUE}:mean", f"{ITL}:mean")

    def fit(self, history: Window, as_of: float) -> Json:
        """Fit of the step time per pool, each replica's usual ratio to it, and the normal of clocks and load."""
        out = learn(history, as_of, _FLOORS, block_s=BLOCK_S)
        cells, gap = int(BLOCK_S // history.step), int(GAP_S // history.step)
        b = blocks(history, cells, gap, "itl", "running", "compute")
        fits: dict[str, list[float]] = {}
        reach: dict[str, float] = {}
        for pool, idx in history.pools.items():
            y = b["itl"][idx].ravel()
            x = np.stack(
                [np.ones_like(y), b["running"][idx].ravel(), np.nan_to_num(b["compute"][idx].ravel()) / 1e4]
            )
            ok = ~np.isnan(y) & ~np.isnan(x).any(axis=0) & (y > 0)
            if ok.sum() < 3 * MIN_BLOCKS:
                continue
            # Weights 1/y: a relative error, because the ratio is what is judged.
            coef, *_ = np.linalg.lstsq((x[:, ok] / y[ok]).T, np.ones(int(ok.sum())), rcond=None)
            fits[pool] = [float(v) for v in coef]
            reach[pool] = float(np.nanmax(b["running"][idx]))
        ratio = _ratio(history, fits, b["itl"], b["running"], b["compute"])
        c, s = centre_spread(ratio)
        few = (~np.isnan(ratio)).sum(axis=1) < MIN_BLOCKS
        c[few], s[few] = 1.0, np.nan
        out["fits"], out["reach"] = fits, reach
        out["ratio"] = [[_j(v) for v in c], [_j(max(v, 0.03)) for v in s]]
        out["tail"] = learn_tail(history, as_of)
        return out

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """One finding a slow replica; several of one pool become one finding."""
        normal = Normal.of(baseline, window)
        own, spread = _own(baseline, window)
        cells = int(BLOCK_S // window.step)
        both = []
        for span in (cells, 2 * cells):
            m = now(window, span, "itl", "running", "compute")
            both.append(_ratio(window, baseline["fits"], m["itl"], m["running"], m["compute"]) / own)
        m = now(window, cells, *_FLOORS, "preempted_per_finished")
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.fmin(both[0], both[1])
            z = (ratio - 1.0) * own / spread
            clock = m["sm_clock"] / normal.centre["sm_clock"]
            same = (
                (window.since_restart(int(900 // window.step)) > 600)
                & ~(normal.factor("work", m["work"]) >= 2.0)
                & ~(m["preempted_per_finished"] >= 0.05)
                & (m["running"] >= 0.5)
                # Far beyond the batches that were seen the fit is a guess: a pool under a surge is not slow for that.
                & (m["running"] <= 2.5 * np.maximum(_reach(window, baseline), 2.0))
            )
            slow = same & (ratio >= 1.2) & (z >= 5)
            throttled = same & (clock <= 0.9) & (ratio >= 1.1) & (z >= 4)
        findings = []
        for pool, idx in window.pools.items():
            hit = idx[(slow | throttled)[idx]]
            if not len(hit):
                continue
            rest = np.setdiff1d(idx, hit)
            known = both[0][rest][~np.isnan(both[0][rest])]
            peers = float(np.median(known)) if len(known) else float("nan")
            clocks = clock[rest][~np.isnan(clock[rest])]
            peer_clock = float(np.median(clocks)) if len(clocks) else float("nan")
            # Without peers, or when they move too, only a clock that fell alone can speak.
            alone = len(hit) <= max(1, len(idx) // 3) and (peers < 1.1)
            if not alone:
                hit = hit[throttled[hit] & (peer_clock > 0.95 or not len(rest))]
                if not len(hit):
                    continue
            findings.append(
                self._finding(window, baseline, normal, m, pool, hit, rest, ratio, clock, peers, peer_clock)
            )
        return Verdict(findings, {})

    def _finding(
        self,
        window: Window,
        baseline: Json,
        normal: Normal,
        m: dict[str, F],
        pool: str,
        hit: NDArray[np.intp],
        rest: NDArray[np.intp],
        ratio: F,
        clock: F,
        peers: float,
        peer_clock: float,
    ) -> Finding:
        def mean(x: F) -> float:
            y = x[hit]
            return float(np.nanmean(y)) if (~np.isnan(y)).any() else float("nan")

        c, v = {k: mean(x) for k, x in normal.centre.items()}, {k: mean(x) for k, x in m.items()}
        how, fell = mean(ratio), mean(clock)
        throttle = fell <= 0.9
        replicas = tuple(sorted(window.units[i].replica for i in hit))
        classes = window.classes_of(hit)
        links = [
            Link(
                "GPU clock falls",
                "sm_clock",
                0.92 * c["sm_clock"] if c["sm_clock"] == c["sm_clock"] else -1.0,
                False,
                lambda x: f"{x / 1e6:.0f} MHz",
            ),
            Link("gaps between tokens grow", "itl", 1.15 * c["itl"], show=seconds),
            Link("requests pile up on it", "running", 1.4 * max(c["running"], 1.0), show=number),
            Link("requests queue", "waiting", 2 + 2 * np.nan_to_num(c["waiting"]), show=number),
        ]
        chain = follow(window, hit, links)
        onset = max(min((e["at"] for e in chain), default=window.end), window.end - 3600)
        burn = pool_burn(window, baseline["tail"], int(300 // window.step), hit)
        name = ", ".join(replicas)
        why = (
            f"its GPU runs at {v['sm_clock'] / 1e6:.0f} MHz instead of {c['sm_clock'] / 1e6:.0f} MHz"
            if throttle
            else "the cause is not established: GPU clock unchanged"
            if fell == fell
            else "the cause is not established: no GPU clock is exported (dcgm-exporter)"
        )
        text = next(
            (
                f"{k} TTFT p99 {t.split(' (')[0]}"
                for k in classes
                if (t := p99_text(window, hit, k, 20, TTFT))
            ),
            "",
        )
        evidence = [
            Evidence(
                "inter_token_latency_seconds",
                name,
                rounded(c["itl"]),
                rounded(v["itl"]),
                rounded(v["itl"] / how if how else None),
                onset,
                "s (mean)",
                f"{times(how)} of what this work takes",
            ),
            Evidence(
                "inter_token_latency_seconds",
                "peers",
                1.0,
                rounded(peers),
                1.0,
                onset,
                "× expected",
                f"{len(rest)} replicas as control group",
            ),
            Evidence(
                "requests_running",
                name,
                rounded(c["running"]),
                rounded(v["running"]),
                rounded(c["running"]),
                onset,
                "requests",
            ),
        ]
        if fell == fell:
            evidence.insert(
                1,
                Evidence(
                    "gpu_sm_clock_hz",
                    name,
                    rounded(c["sm_clock"]),
                    rounded(v["sm_clock"]),
                    rounded(c["sm_clock"]),
                    onset,
                    "Hz",
                    f"peers at {percent(peer_clock)} of their normal",
                ),
            )
        if v["power"] == v["power"]:
            evidence.append(
                Evidence(
                    "gpu_power_watts",
                    name,
                    rounded(c["power"]),
                    rounded(v["power"]),
                    rounded(c["power"]),
                    onset,
                    "W",
                )
            )
        late = burn is not None and burn.burn >= 6 and burn.k >= 5
        return Finding(
            kind=self.kind,
            scope=Scope(classes, (pool,), replicas),
            at=window.end,
            onset=onset,
            strength=float(np.log2(max(how, 1.0))),
            confidence=0.95 if throttle else 0.8,
            severity="page" if late or how >= 1.5 else "ticket",
            runner_up="replica_skew" if not throttle else "",
            title=f"Slow replica {name}: {times(how)} the time per token of the same work before"
            + (f"; {text}" if text else ""),
            cause=f"{name} takes {times(how)} as long per token as it did at the same load, its peers do not; {why}.",
            evidence=tuple(e for e in evidence if e.now is not None),
            ruled_out=(
                RuledOut(
                    "replica_skew",
                    "time per token at equal batch and prefill work (fit over the pool's past)",
                    f"{times(how)} after load is taken out",
                ),
                RuledOut(
                    "capacity_shortfall",
                    "peers under the same traffic",
                    f"peers at ×{peers:.2f} of expected" if peers == peers else "no peers",
                    peers < 1.1,
                ),
                RuledOut(
                    "kv_eviction_storm",
                    "computed tokens per request and preemptions",
                    f"{number(c['work'])} → {number(v['work'])} tokens, "
                    f"{np.nan_to_num(v['preempted_per_finished']):.2g} preemptions per finished request",
                ),
                RuledOut("warm_up", "restart within ten minutes", "none"),
            ),
            detail={
                "chain": chain,
                "control": [window.units[i].replica for i in rest],
                "actions": {
                    "now": [
                        f"Drain {name} (take it out of the router), its peers can carry the rest",
                        *(
                            [
                                "Check cooling and power limit of its host: nvidia-smi "
                                f"-q -d PERFORMANCE,POWER,TEMPERATURE on {name}"
                            ]
                            if throttle
                            else []
                        ),
                    ],
                    "tomorrow": [
                        "Export DCGM_FI_DEV_CLOCKS_EVENT_REASONS (not in dcgm-exporter's "
                        "default list): it names the throttle reason",
                        "Alert on clocks per host, weigh replicas by measured speed in the router",
                    ],
                },
                "harm": dict(harm(window, hit, onset)),
            },
        )


def _ratio(window: Window, fits: dict[str, list[float]], itl: F, running: F, compute: F) -> F:
    """Measured over expected step time; NaN where the pool has no fit. Load beyond the fit makes the expectation grow with it."""
    out = np.full(itl.shape, np.nan)
    for pool, idx in window.pools.items():
        if pool not in fits:
            continue
        a, b, c = fits[pool]
        expected = a + b * running[idx] + c * np.nan_to_num(compute[idx]) / 1e4
        with np.errstate(invalid="ignore", divide="ignore"):
            out[idx] = np.where(expected > 0, itl[idx] / expected, np.nan)
    return out


def _reach(window: Window, baseline: Json) -> F:
    """The largest batch that each replica's pool ran while its fit was learnt; infinite where unknown."""
    known = baseline.get("reach", {})
    return np.asarray([known.get(u.pool, np.inf) for u in window.units], np.float64)


def _own(baseline: Json, window: Window) -> tuple[F, F]:
    at = {k: i for i, k in enumerate(baseline.get("units", []))}
    c, s = baseline.get("ratio", [[], []])
    own, spread = np.ones(len(window.units)), np.full(len(window.units), 0.08)
    for i, u in enumerate(window.units):
        j = at.get(u.key)
        if j is not None and c[j] is not None:
            own[i] = c[j]
            spread[i] = s[j] if s[j] is not None else 0.08
    return own, spread


def _j(x: float) -> float | None:
    return None if x != x else round(float(x), 6)
