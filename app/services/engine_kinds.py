"""What engines count of each kind of objective: requests within a threshold, answered, within all of several, busy and fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from app.services import latency
from app.services.harm import Within, within
from app.services.view import View
from core.classes import SHARED
from core.frames import FloatArray, IntArray
from core.slo import Objective
from sql.store import Store

Measured = tuple[latency.Matrix, Within] | None
"""The roll-ups that were read, and per step what is certainly and possibly good of how many; None: not exported."""
Measure = Callable[[Store, Objective, float, float, float, View], Measured]


def _histogram(store: Store, o: Objective, start: float, end: float, step: float, view: View) -> Measured:
    """Requests within the threshold of one latency."""
    matrix = store.rollup_matrix(o.signal, start, end, step=int(step), classes=[o.class_])
    mine = {k: v for k, v in matrix.items() if view.has(pool=k[1], model=k[3])}
    if not mine:
        return None
    return mine, within(latency.on_grid(mine, start, end, step).get(o.class_, {}), o.threshold)


def _answered(store: Store, o: Objective, start: float, end: float, step: float, view: View) -> Measured:
    """Requests that finished; what failed and what was given up is counted for every kind alike."""
    matrix = store.rollup_matrix("request_success_total", start, end, step=int(step), classes=[o.class_])
    mine = {k: v for k, v in matrix.items() if view.has(pool=k[1], model=k[3])}
    if not mine:
        return None
    n = np.zeros(latency.grid_size(start, end, step), np.int64)
    for ts, counts, _ in mine.values():
        np.add.at(n, ((ts - start) // step).astype(np.int64), counts.clip(min=0).sum(axis=1))
    return mine, Within(n, n, n)


def _all_at_once(store: Store, o: Objective, start: float, end: float, step: float, view: View) -> Measured:
    """Bounds: at most as many as keep the hardest threshold, at least those left when the misses of each are taken off."""
    parts = []
    mine: dict[latency.MatrixKey, tuple[IntArray, IntArray, FloatArray]] = {}
    for signal, limit in o.joint:
        found = _histogram(store, replace(o, signal=signal, threshold=limit), start, end, step, view)
        if found is None:
            return None
        mine = dict(found[0])
        parts.append(found[1])
    n = np.max([w.n for w in parts], axis=0)
    low = (n - np.sum([n - w.low for w in parts], axis=0)).clip(min=0)
    high = np.min([w.high + (n - w.n) for w in parts], axis=0)
    return mine, Within(low, np.maximum(low, high), n)


BUSY = 1.0
"""A replica with less than one request at work on the mean of five minutes is waiting for work, not slow."""


def _throughput(store: Store, o: Objective, start: float, end: float, step: float, view: View) -> Measured:
    """Slices of five minutes of busy replicas, good where they wrote at least ``threshold`` tokens/s."""
    slot = 300
    first, last = math.floor(start / slot) * slot, math.ceil(end / slot) * slot
    classes = [o.class_, SHARED]
    made = store.rollup_matrix("generation_tokens_total", first, last, slot, classes=classes, per_unit=True)
    busy = store.rollups("requests_running", first, last, classes=classes, per_unit=True)
    served = {p for _, p, _, _, _ in store.rollup_matrix("ttft_seconds", first, last, 60, classes=[o.class_])}
    work = {(r.pool, r.unit, r.ts): r.mean or 0.0 for r in busy}
    size = latency.grid_size(start, end, step)
    good, n = np.zeros(size, np.int64), np.zeros(size, np.int64)
    mine: dict[latency.MatrixKey, tuple[IntArray, IntArray, FloatArray]] = {}
    for key, (ts, counts, sums) in made.items():
        if key[1] not in served or not view.has(pool=key[1], model=key[3]):
            continue
        mine[key] = (ts, counts, sums)
        tokens = counts.clip(min=0).sum(axis=1)
        for t, count in zip(ts.tolist(), tokens.tolist(), strict=True):
            i = int((max(t, start) - start) // step)
            if 0 <= i < size and work.get((key[1], key[2], t), 0.0) >= BUSY:
                n[i] += 1
                good[i] += count / slot >= o.threshold
    return (mine, Within(good, good, n)) if mine else None


MEASURES: dict[str, Measure] = {
    "latency": _histogram,
    "availability": _answered,
    "goodput": _all_at_once,
    "throughput": _throughput,
}
