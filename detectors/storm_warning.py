"""Early warning of an eviction storm: how much room the KV cache has for the sessions in flight, and how fast that shrinks.

``r`` = KV capacity ÷ (active sessions × mean context); at 1 the cache holds them just so. Sessions are no engine metric, so r is
taken from the first of these that a pool offers:

==========  ==========================================================================================================
blocks      ``kv_block_idle_before_evict_seconds`` over ``kv_block_reuse_gap_seconds``: a block that is evicted sooner
            than the usual gap between two uses is missed. (Those that were evicted are not among the gaps, so the gaps
            are the learnt ones.)
sessions    session ids of sampled outputs, seen in four minutes; those not sampled are a constant share of them, learnt
keys        distinct routing keys with a running request × (prompt + answer): sessions that think are missing, so r is
            too high and only its fall counts
==========  ==========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.incidents import Evidence
from detectors.contract import Json
from detectors.measures import TTFT
from detectors.sessions import Usual, mean_capacity, usual, working_set
from detectors.window import Window

Units = NDArray[np.intp]
IDLE, GAP = "kv_block_idle_before_evict_seconds", "kv_block_reuse_gap_seconds"
SPAN_S = 240.0
BACK_S = 180.0
NEEDED = (
    "No early warning without one of: KV block residency (vLLM --kv-cache-metrics), session ids in sampled "
    "outputs together with the "
    "KV capacity, or routing keys (SGLang x-smg-routing-key). Prefix hits and KV usage are used instead, which move later."
)


@dataclass(frozen=True)
class Room:
    """Room for the sessions of a pool: ``r`` now, three minutes ago and usually, where it comes from, and what it is made of."""

    source: str
    r: float
    before: float
    usual: float
    made_of: str

    @property
    def minutes_left(self) -> float | None:
        """Minutes until r is 1 at the pace of the last three; None where it does not fall or is there already."""
        pace = (self.before - self.r) / (BACK_S / 60.0)
        return (self.r - 1.0) / pace if pace > 0.02 and self.r > 1.0 else None

    def text(self) -> str:
        """One or two sentences."""
        left = self.minutes_left
        when = f" At this pace it is full in {left:.0f} min." if left is not None and left < 60 else ""
        return f"{self.made_of}; usually {self.usual:.2f}, three minutes ago {self.before:.2f}.{when}"

    def evidence(self, scope: str, at: float) -> Evidence:
        """As a line of evidence."""
        signal = {"blocks": IDLE, "sessions": "kv_cache_capacity", "keys": "sessions_running"}[self.source]
        return Evidence(
            signal,
            scope,
            round(self.usual, 3),
            round(self.r, 3),
            1.0,
            at,
            "room for the sessions in flight (r)",
            self.made_of,
        )


def learn_room(window: Window, units: Units, until: float) -> Json:
    """What is usual for a pool before ``until`` (Unix seconds), of every source that it has."""
    out: Json = {}
    known = usual(window, units, until)
    if known is not None:
        out["sessions"] = [known.r, known.need, known.spread]
    stop = int((until - window.time(0)) // window.step) + 1
    lo = max(0, stop - int(7200 // window.step))
    idle, gap = (_mean_seconds(window, name, units, lo, stop) for name in (IDLE, GAP))
    if idle > 0 and gap > 0:
        out["blocks"] = [idle, gap]
    keys = _keys(window, units, lo, stop)
    if keys > 0:
        out["keys"] = keys
    return out


def room(window: Window, units: Units, learnt: Json) -> Room | None:
    """The room that a pool has now, from the best source; None where there is none of them."""
    cells = window.stop - window.start
    back = int(BACK_S // window.step)
    span = int(SPAN_S // window.step)
    if "blocks" in learnt:
        usual_idle, gap = learnt["blocks"]
        idle = _mean_seconds(window, IDLE, units, cells - span, cells)
        was = _mean_seconds(window, IDLE, units, cells - back - span, cells - back)
        # No eviction at all is room without end, not an unknown.
        if idle > 0:
            made = (
                f"r = idle before eviction ÷ gap between uses = {idle:.0f} s ÷ {gap:.0f} s = {idle / gap:.2f}"
            )
            return Room("blocks", idle / gap, (was if was > 0 else usual_idle) / gap, usual_idle / gap, made)
    if "sessions" in learnt:
        known = Usual(*learnt["sessions"])
        capacity = mean_capacity(window, units)
        here, was_here = (working_set(window, units, capacity, window.end - s) for s in (0.0, BACK_S))
        if here is not None:
            r, was = (
                known.r * known.need / (w.seen * w.context) if w is not None else known.r
                for w in (here, was_here)
            )
            made = (
                f"r = capacity ÷ (sessions × context) = {here.capacity:,.0f} ÷ ({here.capacity / (r * here.context):,.0f} × "
                f"{here.context:,.0f}) = {r:.2f}; {here.seen} sessions were seen in the sample, the others are estimated"
            )
            return Room("sessions", r, was, known.r, made)
    if "keys" in learnt:
        r, was = (_keys(window, units, cells - s - span, cells - s) for s in (0, back))
        if r > 0:
            made = f"r = capacity ÷ (routing keys running × context) = {r:.2f}, without sessions that think"
            return Room("keys", r, was if was > 0 else learnt["keys"], learnt["keys"], made)
    return None


def outgrown(x: Room) -> bool:
    """Whether the sessions are about to outgrow a cache that usually holds them.

    Usually with some room (at least 1.15), now a tenth away from full or closer, and at least 15 % less than usual; without
    the sessions that think only a fall by half counts.
    """
    if x.source == "keys":
        return x.r <= 0.5 * x.usual and x.r <= 1.25
    return x.usual >= 1.15 and x.r <= 1.1 and x.r <= 0.85 * x.usual


def _mean_seconds(window: Window, signal: str, units: Units, lo: int, hi: int) -> float:
    """Mean of a histogram's observations over cells [lo, hi) of the window, joined over replicas; NaN without any."""
    lo, hi = max(lo, 0), max(hi, 0)
    n = np.nansum(window.value(f"{signal}:n")[units, lo:hi])
    return float(np.nansum(window.value(f"{signal}:sum")[units, lo:hi]) / n) if n > 0 else float("nan")


def _keys(window: Window, units: Units, lo: int, hi: int) -> float:
    """Capacity over what the sessions with a running request hold; NaN where keys, capacity or lengths are unknown."""
    lo, hi = max(lo, 0), max(hi, 0)
    keys = window.value("sessions_running")[units, lo:hi]
    n = np.nansum(window.value(f"{TTFT}:n")[units, lo:hi])
    capacity = mean_capacity(window, units)
    if np.isnan(keys).all() or not n > 0 or not capacity > 0:
        return float("nan")
    tokens = np.nansum(window.value("queries")[units, lo:hi]) + np.nansum(
        window.value("generated")[units, lo:hi]
    )
    need = float(np.nanmean(keys)) * float(tokens / n)
    return capacity / need if need > 0 else float("nan")
