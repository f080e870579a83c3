"""What each replica shows of an eviction storm: who bites, who is about to, and by which of the two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.contract import Json
from detectors.late import strictest_objective
from detectors.measures import now
from detectors.normal import Normal
from detectors.order import Order, new_sessions, pressure_first
from detectors.pd import roles
from detectors.stats import median, poisson_tail, zeroed
from detectors.storm_warning import Room, outgrown, room
from detectors.window import Window

F = NDArray[np.float64]
B = NDArray[np.bool_]

FLOORS = {
    "hit": 0.01,
    "miss": 0.1,
    "work": 0.1,
    "prefill_seconds": 0.15,
    "per_running": 0.1,
    "running": 0.15,
    "kv": 0.1,
    "arrivals": 0.1,
    "done": 0.1,
    "waiting": 0.1,
    "evicted": 0.1,
    "prompt_length": 0.1,
    "itl": 0.1,
}
_MEASURES = tuple(k for k in FLOORS if k != "evicted")
LEAST_KV = 0.2
"""Below a fifth of the memory in use at least four fifths are there for idle prefixes: what is missed then was not pushed out."""


@dataclass(frozen=True)
class Signs:
    """Arrays ``[units]``, and the room of each pool that has a source for it."""

    biting: B
    warned: B
    by_preemption: B
    outgrown: B
    now: dict[str, F]
    ratio: F
    ratio0: F
    rooms: Mapping[str, Room]


def signs(
    window: Window, baseline: Json, normal: Normal, order: Order, span_s: float, least_requests: int
) -> Signs:
    """Judge every replica. ``baseline`` also holds the plain counts of preemptions and finished requests, and the usual room."""
    cells = max(2, int(span_s // window.step))
    m = now(
        window, cells, *_MEASURES, "n", "preempted", "finished", "ttft", "queue", "preempted_per_finished"
    )
    fast = now(window, cells // 2, *_MEASURES, "n", "preempted", "finished", "queue")
    restarted = window.since_restart(int(900 // window.step)) <= 600
    # A decode replica computes no prompts: when it is full, prefill and decode are out of balance.
    mine = ~restarted & ~roles(window).decode
    slots = _slot_bound(window, int(120 // window.step))
    bite, warn = _by_hits(window, normal, order, m, fast, slots, least_requests)
    rooms = {
        p: x for p, idx in window.pools.items() if (x := room(window, idx, _learnt(baseline, p))) is not None
    }
    grown = _outgrown(window, normal, fast, restarted, rooms) & ~slots
    bite_pre, warn_pre, ratio, mean0 = _by_preemption(window, baseline, normal, m, fast)
    bite, warn, bite_pre, warn_pre, grown = (x & mine for x in (bite, warn, bite_pre, warn_pre, grown))
    return Signs(
        bite | bite_pre,
        warn | warn_pre | grown,
        bite_pre | (warn_pre & ~bite),
        grown,
        m,
        ratio,
        mean0,
        rooms,
    )


def _by_hits(
    window: Window, normal: Normal, order: Order, m: dict[str, F], fast: dict[str, F], slots: B, least: int
) -> tuple[B, B]:
    """Prefixes fell out of the cache under pressure and are computed again."""
    pressed, lasting = pressure_first(order, window), ~new_sessions(order)
    strictest = strictest_objective(window)
    bite, warn = np.zeros((2, len(window.units)), bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Half the span is twice as quick and needs more: a block half as long spreads 1.4 times as much.
        for x, wider in ((m, 1.0), (fast, 1.5)):
            z = normal.z("hit", x["hit"]) / wider
            work, kv = normal.factor("work", x["work"]), normal.factor("kv", x["kv"])
            progress = normal.factor("per_running", x["per_running"])
            running = x["running"] / np.maximum(normal.centre["running"], 1.0)
            prefill = x["prefill_seconds"] / np.maximum(normal.centre["prefill_seconds"], 0.02)
            # Redone work must cost time that matters: a fifth of the strictest objective that the replica serves.
            matter = x["prefill_seconds"] / strictest
            # Without a queue metric waiting looks like prefill: then memory in use must speak.
            told_apart = ~np.isnan(x["queue"]) | (x["kv"] >= 0.35)
            ok = pressed & told_apart & (x["n"] >= least) & ~(x["kv"] < LEAST_KV) & ~(slots & (prefill < 4.0))
            # Where most prompts were computed anyway, redone work is felt by those that decode beside it.
            half = (normal.centre["hit"] - x["hit"] >= 0.5) & (work >= 3.0)
            felt = (prefill >= 2.0) | (half & (normal.factor("itl", x["itl"]) >= 1.5))
            bite |= (
                ok & (z <= -5) & (work >= 2.0) & felt & (matter >= 0.2) & (progress <= 0.7) & (running >= 1.7)
            )
            warn |= (
                ok
                & lasting
                & (z <= -4)
                & (work >= 1.6)
                & (prefill >= 1.6)
                & (matter >= 0.1)
                & (running >= 2.0)
                & (kv >= 2.0)
                # A wave of load costs hits and speed for some minutes; it is no storm
                # while nobody waits and memory has room.
                & ~(x["kv"] < 0.25)
                & (x["waiting"] >= 0.5 + 2 * zeroed(normal.centre["waiting"]))
                & (progress <= 0.8)
            )
    return bite, warn


def _by_preemption(
    window: Window, baseline: Json, normal: Normal, m: dict[str, F], fast: dict[str, F]
) -> tuple[B, B, F, F]:
    """Running requests are thrown out of a full cache and computed again; also the rates now and before."""
    known = _aligned(baseline, window)
    mean0 = (known[0] + 0.5) / np.maximum(known[1] + 100.0, 1.0)
    ratio = fast["preempted"] / np.maximum(fast["finished"], 1.0)
    expected = mean0 * np.maximum(zeroed(fast["finished"]), 1.0)
    p = poisson_tail(zeroed(fast["preempted"]), expected, 3.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = fast["running"] / np.maximum(normal.centre["running"], 1.0)
        progress = np.fmin(
            normal.factor("per_running", m["per_running"]),
            normal.factor("per_running", fast["per_running"]),
        )
        bite = (
            (p < 1e-6)
            & (ratio >= np.maximum(0.05, 5 * mean0))
            & ~(fast["kv"] < 0.85)
            & (progress <= 0.75)
            & (busy >= 1.5)
        )
        warn = (
            (p < 1e-3)
            & (ratio >= 3 * mean0)
            & (fast["kv"] >= np.maximum(0.6, 1.5 * normal.centre["kv"]))
            & (busy >= 1.5)
        )
    return bite, warn, ratio, mean0


def _outgrown(
    window: Window, normal: Normal, fast: dict[str, F], restarted: B, rooms: Mapping[str, Room]
) -> B:
    """Replicas of pools whose sessions are about to outgrow the cache, because there are more of them or their contexts grew.

    Not where the cache recycles all the time (evictions in the normal, where they are exported and no block ages are): there
    prefixes come and go anyway, and r says nothing. Not while a replica of the pool is coming back.
    """
    out = np.zeros(len(window.units), bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = fast["running"] / np.maximum(normal.centre["running"], 1.0)
        more = normal.factor("arrivals", fast["arrivals"])
        longer = normal.factor("prompt_length", fast["prompt_length"])
        # A pool of several classes has longer prompts on average whenever its mix shifts: memory in use must follow.
        beyond = normal.z("prompt_length", fast["prompt_length"]) / 1.4
        fuller = normal.factor("kv", fast["kv"])
    for pool, x in rooms.items():
        idx = window.pools[pool]
        recycles = zeroed(normal.centre["evicted"][idx]).sum() > 0
        if not outgrown(x) or restarted[idx].any() or (recycles and x.source != "blocks"):
            continue
        crowds = median(busy[idx]) >= 1.5 and median(more[idx]) >= 1.25
        grows = median(longer[idx]) >= 1.3 and median(beyond[idx]) >= 3.0 and median(fuller[idx]) >= 1.5
        if crowds or grows:
            out[idx] = ~np.isnan(fast["running"][idx])
    return out


def _slot_bound(window: Window, cells: int) -> B:
    """Replicas whose requests wait for a slot: running sits flat at a ceiling, something always waits, and KV has room."""
    run, wait, kv = window.value("running", cells), window.value("waiting", cells), window.mean("kv", cells)
    with np.errstate(invalid="ignore"):
        top, low = _extreme(run, -np.inf, np.max), _extreme(run, np.inf, np.min)
        flat = top - low <= np.maximum(1.0, 0.06 * top)
        return np.asarray(flat & (_extreme(wait, np.inf, np.min) > 0) & ~(kv >= 0.85), bool)


def _extreme(x: F, fill: float, op: Callable[..., Any]) -> F:
    return np.asarray(op(np.where(np.isnan(x), fill, x), axis=1, initial=fill), np.float64)


def _learnt(baseline: Json, pool: str) -> Json:
    found = (baseline.get("room") or {}).get(pool)
    return found if isinstance(found, dict) else {}


def _aligned(baseline: Json, window: Window) -> tuple[F, F]:
    at = {k: i for i, k in enumerate(baseline.get("units", []))}
    pre, fin = baseline.get("preempted", []), baseline.get("finished", [])
    a, b = np.zeros(len(window.units)), np.zeros(len(window.units))
    for i, u in enumerate(window.units):
        j = at.get(u.key)
        if j is not None:
            a[i], b[i] = pre[j], fin[j]
    return a, b
