"""One curve per replica from stored frames: what the heat map and the evidence charts are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.services.latency import step_ends, usable_windows
from app.services.measures import Measure
from core.buckets import trailing_quantiles
from core.frames import FloatArray, Frame, IntArray, Layout

P99_WINDOWS = (1, 5, 15)
P99_MIN_N = 100
"""A replica sees a fraction of its class's traffic: its p99 is drawn from 100 observations on (a class's from 300)."""


@dataclass(frozen=True, slots=True)
class Stack:
    """All frames of one target with one layout, as matrices; row = frame, ordered by time."""

    layout: Layout
    t1: FloatArray
    seconds: FloatArray
    gauges: FloatArray
    counts: IntArray
    sums: FloatArray


@dataclass(frozen=True, slots=True)
class Curve:
    """One replica over time: ``t`` are the ends of the steps (Unix seconds), ``value`` NaN where nothing is known."""

    replica: str
    pool: str
    t: FloatArray
    value: FloatArray


def stack(frames: Iterable[Frame]) -> dict[int, list[Stack]]:
    """Frames by target, frames of one layout joined."""
    groups: dict[tuple[int, str], list[Frame]] = {}
    for frame in frames:
        groups.setdefault((frame.target_id, frame.layout.id), []).append(frame)
    out: dict[int, list[Stack]] = {}
    for (target_id, _), rows in groups.items():
        out.setdefault(target_id, []).append(
            Stack(
                rows[0].layout,
                np.array([f.t1 for f in rows]),
                np.array([f.t1 - f.t0 for f in rows]),
                np.stack([f.gauges for f in rows]),
                np.stack([f.counts for f in rows]),
                np.stack([f.sums for f in rows]),
            )
        )
    return out


def curve_values(
    stacks: Sequence[Stack], measure: Measure, start: float, end: float, step: float, *, class_: str = ""
) -> FloatArray | None:
    """The measure of one replica on steps of ``step`` seconds in [start, end); None where no target of it has the signals.

    Several stacks (ranks, layouts) of one replica are added before dividing; gauges are averaged.
    """
    size = max(1, int(np.ceil((end - start) / step)))
    acc = _Accumulator(size)
    for one in stacks:
        bins = np.ceil((one.t1 - start) / step - 1e-9).astype(np.int64) - 1
        keep = (bins >= 0) & (bins < size)
        if keep.any():
            acc.add(one, measure, bins, keep, class_)
    return acc.result(measure, step)


class _Accumulator:
    """Sums of the parts of one measure per step."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.found = False
        self.top = np.zeros(size)
        self.bottom = np.zeros(size)
        self.seen = np.zeros(size, bool)
        self.hists: dict[tuple[float, ...], IntArray] = {}

    def add(self, one: Stack, measure: Measure, bins: IntArray, keep: np.ndarray, class_: str) -> None:
        top = _columns(one.layout, measure.top, class_)
        if not top:
            return
        self.found = True
        if measure.how == "gauge":
            for g, _, _ in top:
                self._add_gauge(one.gauges[:, g].sum(axis=1), bins, keep)
        elif measure.how == "rate":
            for _, n, _ in top:
                self._add(self.top, _increments(one.counts[:, n]), bins, keep)
            self._add(self.bottom, one.seconds, bins, keep)
        elif measure.how == "ratio":
            bottom = _columns(one.layout, measure.bottom, class_)
            for _, n, _ in top:
                self._add(self.top, _increments(one.counts[:, n]), bins, keep)
            for _, n, _ in _columns(one.layout, measure.minus, class_):
                self._add(self.top, -_increments(one.counts[:, n]), bins, keep)
            for _, n, _ in bottom:
                self._add(self.bottom, _increments(one.counts[:, n]), bins, keep)
        elif measure.how == "mean":
            for _, n, s in top:
                self._add(self.top, one.sums[:, s].sum(axis=1), bins, keep)
                self._add(self.bottom, _increments(one.counts[:, n]), bins, keep)
        else:
            for i, c in enumerate(one.layout.columns):
                n = one.layout.slots[i][1]
                if (
                    c.signal == measure.top[0]
                    and c.kind == "histogram"
                    and _of_class(c.label("class"), class_)
                ):
                    matrix = self.hists.setdefault(c.edges, np.zeros((self.size, len(c.edges) + 1), np.int64))
                    counts = one.counts[:, n]
                    good = keep & (counts >= 0).all(axis=1)
                    np.add.at(matrix, bins[good], counts[good])

    def _add(self, into: FloatArray, values: FloatArray, bins: IntArray, keep: np.ndarray) -> None:
        good = keep & ~np.isnan(values)
        np.add.at(into, bins[good], values[good])
        self.seen[bins[good]] = True

    def _add_gauge(self, values: FloatArray, bins: IntArray, keep: np.ndarray) -> None:
        good = keep & ~np.isnan(values)
        np.add.at(self.top, bins[good], values[good])
        np.add.at(self.bottom, bins[good], 1.0)

    def result(self, measure: Measure, step: float) -> FloatArray | None:
        if not self.found:
            return None
        if measure.how == "p99":
            windows = usable_windows(P99_WINDOWS, step)
            found = trailing_quantiles(
                self.hists, measure.q, windows=windows, min_n=P99_MIN_N, step=step / 60
            )
            value = np.where(found.state == 1, found.low, np.where(found.state == 2, found.high, found.value))
            return np.where(found.state <= 2, value, np.nan) if len(value) else np.full(self.size, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.bottom > 0, self.top / self.bottom, np.nan)


def _of_class(label: str, wanted: str) -> bool:
    return not wanted or not label or label == wanted


def _columns(layout: Layout, signals: Sequence[str], class_: str) -> list[tuple[slice, slice, slice]]:
    """Slots of the first signal that the layout has."""
    for signal in signals:
        found = [
            layout.slots[i]
            for i, c in enumerate(layout.columns)
            if c.signal == signal and _of_class(c.label("class"), class_)
        ]
        if found:
            return found
    return []


def _increments(counts: IntArray) -> FloatArray:
    """Increments per frame, NaN where the frame has no value (negative count)."""
    values: FloatArray = counts.sum(axis=1).astype(np.float64)
    values[(counts < 0).any(axis=1)] = np.nan
    return values


def curves(
    frames: Iterable[Frame],
    places: Mapping[int, tuple[str, str]],
    measures: Sequence[Measure],
    start: float,
    end: float,
    step: float,
    *,
    class_: str = "",
) -> dict[str, list[Curve]]:
    """For each measure the curves of all replicas that export it.

    ``places``: target id → (pool, replica). A replica of several targets (ranks, a GPU exporter beside the engine) is one curve.
    """
    stacks = stack(frames)
    by_replica: dict[tuple[str, str], list[Stack]] = {}
    for target_id, rows in stacks.items():
        if target_id in places:
            by_replica.setdefault(places[target_id], []).extend(rows)
    size = max(1, int(np.ceil((end - start) / step)))
    t = step_ends(start, step, size)
    out: dict[str, list[Curve]] = {m.id: [] for m in measures}
    for (pool, replica), rows in sorted(by_replica.items()):
        for m in measures:
            values = curve_values(rows, m, start, end, step, class_=class_)
            if values is not None:
                out[m.id].append(Curve(replica, pool, t, values))
    return out
