"""The KV cache of each pool: is it what is wrong, is it coming, what would help.

Room ``r``, hit rates, recomputed work and tiers are the detectors' own functions over the last minutes; *normal* is the median of
earlier five-minute roll-ups. Nothing here computes a second version of a number that a detector judges by.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.services import incident_load
from app.services.heat import natural
from app.services.kv_rows import KvRow, kv_rows
from app.services.recent import affordable, engines, sessions_of, window
from app.services.view import View
from app.services.wording import percent, significant
from core.frames import FloatArray
from core.incidents import Incident
from detectors.contract import Json
from detectors.kv_eviction_storm import KvEvictionStorm
from detectors.measures import TTFT, needs, now
from detectors.sessions import moved_share
from detectors.storm_warning import GAP, IDLE, Room, learn_room, outgrown, room
from detectors.window import Window
from sql.store import Store, TargetRow

KINDS = ("kv_eviction_storm", "prefix_cache_loss", "kv_leak", "offload_thrash")
"""Incidents whose cause is the cache."""
RECENT_S = 240.0
"""The detectors' own span."""
TREND_S, TREND_POINTS = 6 * 3600.0, 24
LEARN_S = 7500.0
"""Sampled outputs so long before the range say what is usual (48 marks of two and a half minutes)."""
COMFORT = 1.3
"""Room that a pool should have: r at which the advice for a storm stops shedding."""
MARK_S, STEP_S = 30.0, 15.0
"""A point of the trend reads two scrapes of each replica."""
LIFETIME = "kv_block_lifetime_seconds"
NEEDS = (
    *KvEvictionStorm.needs,
    *needs("tier_loaded", "tier_stored", "tier_queries", "tier_hits", "store_read", "store_written"),
)
SIGNALS = tuple(dict.fromkeys([*(n.signal for n in NEEDS), TTFT]))
HISTS = tuple(f"{h}:mean" for h in (TTFT, "queue_time_seconds", IDLE, GAP, LIFETIME))
MEASURES_NOW = (
    "hit",
    "miss",
    "work",
    "kv",
    "running",
    "waiting",
    "preempted",
    "finished",
    "preempted_per_finished",
    "evicted",
    "compute",
    "prefill_seconds",
    "n",
    "span",
)

State = Literal["wrong", "coming", "watch", "fine", "unknown"]


@dataclass(frozen=True, slots=True)
class Trend:
    """``r`` of a pool over time: ``t`` Unix seconds, ``r`` NaN where it is not known."""

    t: FloatArray
    r: FloatArray


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier below the GPU's memory: what went through it a second. ``hit`` is the share of look-ups found there."""

    name: str
    read: float | None
    written: float | None
    hit: float | None


@dataclass(frozen=True, slots=True)
class KvPool:
    """One pool. ``sampled_hit``: cached share of the prompt tokens of sampled outputs, with how many outputs; ``wasted_s``: GPU
    seconds a second spent on prompt tokens that are normally found."""

    pool: str
    state: State
    said: str
    helps: tuple[str, ...]
    rows: tuple[KvRow, ...]
    room: Room | None
    trend: Trend
    hit: float
    normal_hit: float
    usage: float
    normal_usage: float
    sampled_hit: float | None
    sampled_n: int
    recomputed: float
    wasted_s: float
    preemptions: float
    evicted: float
    idle_s: float
    gap_s: float
    lifetime_s: float
    tiers: tuple[Tier, ...]
    moved: float | None
    incident: Incident | None


@dataclass(frozen=True, slots=True)
class KvCache:
    """The page. ``missing`` names signals no replica of a pool exports; ``seconds`` is the span of *now*."""

    pools: tuple[KvPool, ...]
    incidents: tuple[Incident, ...]
    seconds: float
    trend_start: float


Learnt = Mapping[str, Json]
"""The usual room by pool, as the storm detector keeps it."""
Learn = Callable[[Store, View, float], Learnt]


def load(store: Store, view: View, learn: Learn | None = None) -> KvCache:
    """The page as of the view's time. ``learn`` may remember what :func:`usual_room` gave."""
    rows = engines(store, view, SIGNALS, RECENT_S)
    begin = max(view.start, view.as_of - TREND_S)
    w = _window(store, view, rows, begin)
    incidents = tuple(i for i in incident_load.in_range(store, view) if i.kind in KINDS)
    if not w.units:
        return KvCache((), incidents, RECENT_S, begin)
    learnt = (learn or usual_room)(store, view, float(np.floor(begin / 900) * 900))
    cells = int(RECENT_S // w.step)
    m = now(w, cells, *MEASURES_NOW)
    details = kv_rows(store, view, w, m)
    pools = [
        _pool(
            w,
            m,
            pool,
            idx,
            learnt.get(pool, {}),
            details,
            _trend(w, idx, learnt.get(pool, {}), begin),
            incidents,
        )
        for pool, idx in w.pools.items()
    ]
    order: dict[State, int] = {"wrong": 0, "coming": 1, "watch": 2, "unknown": 3, "fine": 4}
    pools.sort(key=lambda p: (order[p.state], natural(p.pool)))
    return KvCache(tuple(pools), incidents, RECENT_S, begin)


def _window(store: Store, view: View, rows: Sequence[TargetRow], begin: float) -> Window:
    """The last four minutes, and single scrapes for the trend before them."""
    start = view.as_of - RECENT_S
    points = TREND_POINTS if len(rows) <= 100 else TREND_POINTS // 2
    span = MARK_S if len(rows) <= 100 else STEP_S
    marks = [(float(t) - span, float(t)) for t in trend_times(begin, view.as_of, points)[:-1]]
    pools = sorted({r.target.pool for r in rows})
    samples = sessions_of(store.output_turns(begin - RECENT_S, view.as_of, pools))
    return window(store, rows, start, view.as_of, NEEDS, HISTS, samples=samples, also=marks)


def trend_times(begin: float, end: float, points: int) -> FloatArray:
    """Times of the trend, each at the end of a cell."""
    return np.unique(np.linspace(begin, end, points) // STEP_S * STEP_S)


def usual_room(store: Store, view: View, until: float) -> Learnt:
    """The usual room of each pool: what the running detector had learnt at ``as_of``, else learnt from the two hours before
    ``until``."""
    stored = store.baseline("kv_eviction_storm", "fleet", view.as_of)
    known: Mapping[str, Json] = (json.loads(stored).get("room") or {}) if stored else {}
    rows = [r for r in engines(store, view, SIGNALS, RECENT_S) if not known.get(r.target.pool)]
    if not rows:
        return known
    pools = sorted({r.target.pool for r in rows})
    samples = sessions_of(store.output_turns(until - LEARN_S, until, pools))
    w = window(store, rows, until - 60.0, until, NEEDS, HISTS, samples=samples)
    if not np.isnan(w.value(f"{IDLE}:n")).all():
        # Block ages need their whole past.
        w = window(
            store, rows, until - affordable(len(rows), LEARN_S, 60.0), until, NEEDS, HISTS, samples=samples
        )
    return {**known, **{pool: learn_room(w, idx, until) for pool, idx in w.pools.items()}}


def _trend(w: Window, idx: np.ndarray, learnt: Json, begin: float) -> Trend:
    """Room at points of the range, each as the detector would have seen it then."""
    if not learnt:
        return Trend(np.zeros(0), np.zeros(0))
    t = trend_times(begin, w.end, TREND_POINTS)
    r = np.full(len(t), np.nan)
    for i, at in enumerate(t):
        stop = int(at // w.step) - w.cube.first
        found = room(w.upto(stop), idx, learnt) if stop > w.start else None
        if found is not None:
            r[i] = found.r
    return Trend(t, r)


def _pool(
    w: Window,
    m: Mapping[str, FloatArray],
    pool: str,
    idx: np.ndarray,
    learnt: Json,
    details: Mapping[tuple[str, str], KvRow],
    trend: Trend,
    incidents: Sequence[Incident],
) -> KvPool:
    rows = tuple(
        details[(w.units[i].pool, w.units[i].replica)]
        for i in sorted(idx, key=lambda i: natural(w.units[i].replica))
    )
    here = room(w, idx, learnt)
    mine = [i for i in incidents if pool in i.pools and i.state != "resolved"]
    incident = max(mine, key=lambda i: (i.detected_at is not None, i.started_at), default=None)
    weight = np.nan_to_num(m["n"][idx])
    hit, kv = _weighted(m["hit"][idx], weight), _mean(m["kv"][idx])
    normal_hit = _weighted(np.array([r.normal_hit for r in rows]), np.ones(len(rows)))
    normal_kv = _mean(np.array([r.normal_usage for r in rows]))
    sampled, n = _sampled(w, pool)
    recomputed = float(np.nansum([r.recomputed for r in rows])) if rows else 0.0
    moved = moved_share(w, idx, w.end, 1800.0)
    state, said = _state(incident, here, hit, normal_hit, kv, rows, m, idx)
    cells = int(RECENT_S // w.step)
    return KvPool(
        pool=pool,
        state=state,
        said=said,
        helps=_helps(state, here, rows, moved, incident),
        rows=rows,
        room=here,
        trend=trend,
        hit=hit,
        normal_hit=normal_hit,
        usage=kv,
        normal_usage=normal_kv,
        sampled_hit=sampled,
        sampled_n=n,
        recomputed=recomputed,
        wasted_s=float(np.nansum([r.wasted_s for r in rows])) if rows else 0.0,
        preemptions=_ratio(m["preempted"][idx], m["finished"][idx]),
        evicted=_sum(m["evicted"][idx]),
        idle_s=_seconds(w, IDLE, idx, cells),
        gap_s=_seconds(w, GAP, idx, cells),
        lifetime_s=_seconds(w, LIFETIME, idx, cells),
        tiers=_tiers(w, idx, cells),
        moved=moved,
        incident=incident,
    )


def _state(
    incident: Incident | None,
    here: Room | None,
    hit: float,
    normal_hit: float,
    kv: float,
    rows: Sequence[KvRow],
    m: Mapping[str, FloatArray],
    idx: np.ndarray,
) -> tuple[State, str]:
    """The answer in words: wrong, coming, to be watched, fine, or not to be told."""
    if incident is not None and incident.detected_at is not None:
        return "wrong", f"The cache is what is wrong: {incident.title}."
    if incident is not None:
        return "coming", f"It is coming: {incident.title}."
    if here is not None and outgrown(here):
        return "coming", "The sessions are about to outgrow the cache. " + here.text()
    if not np.isfinite(hit) and not np.isfinite(kv):
        return "unknown", "Neither hit rate nor KV usage is exported here: nothing can be said of the cache."
    fell = np.isfinite(hit) and np.isfinite(normal_hit) and normal_hit - hit >= 0.15
    preempting = _ratio(m["preempted"][idx], m["finished"][idx]) >= 0.05
    if fell:
        return (
            "watch",
            f"Fewer prompt tokens are found than usual ({percent(hit, 0)}, normal {percent(normal_hit, 0)}); "
            "no detector calls it an incident yet.",
        )
    if preempting:
        return (
            "watch",
            "Running requests are thrown out of a full cache; no detector calls it an incident yet.",
        )
    found = (
        f"{percent(hit, 0)} of the prompt tokens are found" if np.isfinite(hit) else "hits are not exported"
    )
    usual = f" (normal {percent(normal_hit, 0)})" if np.isfinite(normal_hit) and np.isfinite(hit) else ""
    if here is not None:
        return "fine", f"The cache is not what is wrong: {found}{usual}, r {here.r:.2f}."
    return "fine", f"The cache is not what is wrong: {found}{usual}. No early warning: r is not known here."


def _helps(
    state: State, here: Room | None, rows: Sequence[KvRow], moved: float | None, incident: Incident | None
) -> tuple[str, ...]:
    """What would help, with numbers; nothing where nothing is wrong."""
    if state in ("fine", "unknown"):
        return ()
    out = []
    if here is not None and 0 < here.r < COMFORT and here.source != "keys":
        share = 1 - here.r / COMFORT
        more = int(np.ceil(len(rows) * (COMFORT / here.r - 1)))
        out.append(
            f"Fewer sessions: {percent(share, 0)} fewer bring r back to {COMFORT} (answer new ones with 503 and Retry-After)."
        )
        out.append(
            f"Capacity: {more} more replicas beside these {len(rows)}, or {significant((COMFORT / here.r - 1) * 100)} % "
            "more KV memory on each; a restart now empties caches."
        )
    if moved is not None:
        out.append(
            f"Routing: {percent(moved, 0)} of the turns run on another replica than the turn before"
            + ("; sending sessions back to their replica would help." if moved >= 0.2 else ": not the cause.")
        )
    elif incident is not None and incident.kind == "prefix_cache_loss":
        out.append(
            "Routing: whether sessions change replica is not known without session ids in sampled outputs."
        )
    known = [r for r in rows if np.isfinite(r.hit)]
    if len(known) >= 3:
        best, worst = max(known, key=lambda r: r.hit), min(known, key=lambda r: r.hit)
        if best.hit - worst.hit >= 0.3:
            out.append(
                f"Not all alike: {worst.replica} finds {percent(worst.hit, 0)}, {best.replica} {percent(best.hit, 0)}. "
                "New sessions belong on those that still find theirs."
            )
    return tuple(out)


def _sampled(w: Window, pool: str) -> tuple[float | None, int]:
    """Cached share of the prompt tokens of the outputs sampled in the last half hour, and how many they are."""
    s = w.samples
    lo = s.since(w.end - 1800.0)
    at = np.arange(lo, s.upto(w.end))
    if not len(at):
        return None, 0
    at = at[s.pool[at] == s.code(pool)]
    cached, prompt = s.cached_tokens[at], s.prompt_tokens[at]
    known = ~np.isnan(cached) & ~np.isnan(prompt) & (prompt > 0)
    if known.sum() < 30:
        return None, int(known.sum())
    return float(cached[known].sum() / prompt[known].sum()), int(known.sum())


def _tiers(w: Window, idx: np.ndarray, cells: int) -> tuple[Tier, ...]:
    """Tiers below the GPU, as far as they are exported: a second."""

    def rate(name: str) -> float | None:
        x = w.value(name, cells)[idx]
        span = np.nansum(w.value("span", cells)[idx])
        return None if np.isnan(x).all() or not span > 0 else float(np.nansum(x) / span * len(idx))

    looked, found = rate("tier_queries"), rate("tier_hits")
    hit = found / looked if looked and found is not None else None
    out = []
    if (loaded := rate("tier_loaded")) is not None or rate("tier_stored") is not None:
        out.append(Tier("host memory or disk", loaded, rate("tier_stored"), None))
    if looked is not None or rate("store_read") is not None or rate("store_written") is not None:
        out.append(Tier("store outside the engine", rate("store_read"), rate("store_written"), hit))
    return tuple(out)


def _seconds(w: Window, signal: str, idx: np.ndarray, cells: int) -> float:
    n = np.nansum(w.value(f"{signal}:n", cells)[idx])
    return float(np.nansum(w.value(f"{signal}:sum", cells)[idx]) / n) if n > 0 else float("nan")


def _mean(x: FloatArray) -> float:
    known = x[np.isfinite(x)]
    return float(known.mean()) if len(known) else float("nan")


def _sum(x: FloatArray) -> float:
    known = x[np.isfinite(x)]
    return float(known.sum()) if len(known) else float("nan")


def _weighted(x: FloatArray, weight: FloatArray) -> float:
    known = np.isfinite(x) & (weight > 0)
    return float((x[known] * weight[known]).sum() / weight[known].sum()) if known.any() else float("nan")


def _ratio(top: FloatArray, bottom: FloatArray) -> float:
    known = np.isfinite(top) & np.isfinite(bottom)
    n = float(bottom[known].sum())
    return float(top[known].sum() / n) if n > 0 else float("nan")
