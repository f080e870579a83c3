"""Every stored signal of every replica as one number a cell of time: what the search for odd ones compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from app.services.measures import MEASURES
from app.services.replicas import Stack, curve_values, stack
from core.frames import Column, FloatArray, Frame, IntArray
from core.signals import SIGNALS

DROPPED = ("rank", "gpu", "model", "worker", "engine")
"""Labels below the replica: its series are joined over them."""
TAIL = 0.05
"""A histogram's tail begins at the first bucket edge that at most this share of the past's observations exceeded."""
LEAST = 5
"""Observations that a cell needs before their mean says anything."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One series: ``what`` is "", "mean" or "tail"; ``labels`` are those of the signal without the class."""

    pool: str
    replica: str
    signal: str
    what: str = ""
    class_: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Sum:
    """What the targets of one replica add to one series."""

    top: FloatArray
    bottom: FloatArray
    buckets: FloatArray | None = None
    edges: tuple[float, ...] = ()


@dataclass(slots=True)
class Found:
    """``values``: one number a cell. ``shares``: of histograms, (observations in the tail, all observations) a cell."""

    values: dict[Key, FloatArray]
    shares: dict[Key, tuple[FloatArray, FloatArray]]


def series_of(
    frames: Iterable[Frame],
    places: Mapping[int, tuple[str, str]],
    edges: FloatArray,
    past: int,
    class_: str = "",
) -> Found:
    """Series on cells ``[edges[i], edges[i + 1])`` (Unix seconds, equal lengths); the first ``past`` cells are the past.

    Gauges: mean. Counters and totals: per second. Histograms: mean, and observations in the past's own tail. Ratios of
    counters that the product shows elsewhere (hit rate, acceptance) come along. NaN where nothing was scraped.
    """
    size = len(edges) - 1
    step = float(edges[1] - edges[0])
    sums: dict[Key, _Sum] = {}
    by_replica: dict[tuple[str, str], list[Stack]] = {}
    for target, stacks in stack(frames).items():
        if target in places:
            by_replica.setdefault(places[target], []).extend(stacks)
    out, shares = dict[Key, FloatArray](), dict[Key, tuple[FloatArray, FloatArray]]()
    for (pool, replica), stacks in by_replica.items():
        for one in stacks:
            _add(one, pool, replica, float(edges[0]), step, size, class_, sums)
        for m in MEASURES.values():
            if m.how == "ratio":
                values = curve_values(stacks, m, float(edges[0]), float(edges[-1]), step, class_=class_)
                if values is not None and np.isfinite(values).any():
                    out[Key(pool, replica, m.id)] = values
    for key, s in sums.items():
        if s.buckets is None:
            out[key] = np.where(s.bottom > 0, s.top / np.maximum(s.bottom, 1e-12), np.nan)
            continue
        number = s.buckets.sum(axis=1)
        out[key] = np.where(number >= LEAST, s.top / np.maximum(number, 1), np.nan)
        beyond = _tail(s.buckets, past)
        if beyond is not None:
            shares[Key(key.pool, key.replica, key.signal, "tail", key.class_, key.labels)] = (beyond, number)
    return Found(out, shares)


def _tail(buckets: FloatArray, past: int) -> FloatArray | None:
    """Observations per cell beyond the past's tail edge; None where the past has no such edge below the last."""
    known = buckets[:past].sum(axis=0)
    beyond = known.sum() - np.cumsum(known)
    at = np.flatnonzero(beyond[:-1] <= TAIL * known.sum())
    if known.sum() < LEAST or not len(at):
        return None
    out: FloatArray = buckets[:, int(at[0]) + 1 :].sum(axis=1)
    return out


def _add(
    one: Stack,
    pool: str,
    replica: str,
    start: float,
    step: float,
    size: int,
    class_: str,
    sums: dict[Key, _Sum],
) -> None:
    cell = np.floor((one.t1 - start) / step).astype(np.int64)
    keep = (cell >= 0) & (cell < size)
    if not keep.any():
        return
    cell = cell[keep]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    at = cell[first]
    gauges, sums_, seconds = one.gauges[keep], one.sums[keep], one.seconds[keep]
    counts = one.counts[keep]
    lost = counts < 0
    spans = np.add.reduceat(seconds, first)
    g_sum = np.add.reduceat(np.where(np.isnan(gauges), 0.0, gauges), first, axis=0)
    g_n = np.add.reduceat((~np.isnan(gauges)).astype(np.float64), first, axis=0)
    n_sum = np.add.reduceat(np.where(lost, 0, counts), first, axis=0)
    n_lost = np.add.reduceat(lost.astype(np.int64), first, axis=0) > 0
    s_sum = np.add.reduceat(np.where(np.isnan(sums_), 0.0, sums_), first, axis=0)
    for i, column in enumerate(one.layout.columns):
        if class_ and column.label("class") not in ("", class_):
            continue
        g, n, s = one.layout.slots[i]
        key = _key(pool, replica, column)
        known = sums.get(key)
        if known is None:
            known = sums[key] = _Sum(np.zeros(size), np.zeros(size))
        if column.kind == "gauge":
            known.top[at] += g_sum[:, g.start]
            known.bottom[at] += g_n[:, g.start]
        elif column.kind == "counter":
            good = ~n_lost[:, n.start]
            known.top[at[good]] += n_sum[good, n.start]
            known.bottom[at[good]] = np.maximum(known.bottom[at[good]], spans[good])
        elif column.kind == "sum":
            known.top[at] += s_sum[:, s.start]
            known.bottom[at] = np.maximum(known.bottom[at], spans)
        else:
            _add_histogram(
                known, column, at, n_sum[:, n], np.asarray(n_lost[:, n].any(axis=1)), s_sum[:, s.start], size
            )


def _add_histogram(
    known: _Sum, column: Column, at: IntArray, n: IntArray, lost: np.ndarray, total: FloatArray, size: int
) -> None:
    if known.buckets is None:
        known.buckets, known.edges = np.zeros((size, len(column.edges) + 1)), column.edges
    if column.edges != known.edges:
        return
    good = ~lost
    known.buckets[at[good]] += n[good]
    known.top[at[good]] += total[good]


def _key(pool: str, replica: str, column: Column) -> Key:
    labels = tuple(p for p in column.labels if p[0] != "class" and p[0] not in DROPPED)
    what = "mean" if column.kind == "histogram" else ""
    return Key(pool, replica, column.signal, what, column.label("class"), labels)


def unit_of(key: Key) -> str:
    """The unit of a series' values."""
    if key.signal in MEASURES:
        return MEASURES[key.signal].unit
    if key.what == "tail":
        return "share"
    signal = SIGNALS.get(key.signal)
    if signal is None:
        return ""
    return f"{signal.unit}/s" if signal.kind in ("counter", "sum") else signal.unit
