"""From absolute readings to increments: pure arithmetic, one target at a time, vectorised over a run of its readings.

Rules (DESIGN sections 2 and 3):

* Between two readings of a target the increment of a count or sum is the difference.
* A restart (the process start moved, or any count fell, or a ``sum`` column fell) concerns the whole target: the new values are
  the increments of that span. The sum of a histogram may fall without a restart (negative observations).
* A column that the target did not have before and has now counts from zero. Only if it was this source that looked before:
  what a second source sees for the first time starts from its present value and is a gap once.
* A negative count or a NaN sum means "absent at this scrape": the increment is a gap (-1, NaN), the last known value is kept,
  and the whole increment is given when the column is back.
* A fall within two seconds of a reading of *another* source is clock skew between the two, not a restart: that reading is
  dropped.
* After a silence of more than :data:`MAX_SPAN_MS` increments could not be placed in time: the next reading starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.frames import FloatArray, IntArray, Layout
from sql.layouts import cumulative
from sql.memo import by_layout, by_layouts

MAX_SPAN_MS = 6 * 3600 * 1000
START_TOLERANCE_S = 2.0
"""Some exporters compute their start as now minus uptime, which wanders by a second."""
SKEW_MS = 2000

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class State:
    """The last known cumulative values of a target. ``layout`` has no gauges; its columns are all seen since the last restart.

    ``source`` gave the last reading; ``sources`` all that have given one.
    """

    t_ms: int
    start: float | None
    source: str
    sources: frozenset[str]
    layout: Layout
    counts: IntArray
    sums: FloatArray


@dataclass(frozen=True, slots=True)
class Run:
    """Readings of one target, one source and one layout, ascending in time: ``t_ms`` int64[T], ``starts`` float64[T] (NaN
    unknown), ``gauges`` [T, G], ``counts`` [T, N], ``sums`` [T, S]."""

    layout: Layout
    source: str
    t_ms: IntArray
    starts: FloatArray
    gauges: FloatArray
    counts: IntArray
    sums: FloatArray


@dataclass(frozen=True, slots=True)
class Increments:
    """Frames of a run: one row a frame; ``t0_ms`` and ``t1_ms`` int64[F], ``reset`` bool[F], ``moved`` bool[F] (the start
    moved)."""

    layout: Layout
    t0_ms: IntArray
    t1_ms: IntArray
    reset: BoolArray
    moved: BoolArray
    starts: FloatArray
    gauges: FloatArray
    counts: IntArray
    sums: FloatArray

    def only(self, keep: BoolArray | IntArray) -> Increments:
        """The frames where ``keep`` (flags, or positions)."""
        return Increments(
            self.layout,
            self.t0_ms[keep],
            self.t1_ms[keep],
            self.reset[keep],
            self.moved[keep],
            self.starts[keep],
            self.gauges[keep],
            self.counts[keep],
            self.sums[keep],
        )


def advance(state: State | None, run: Run) -> tuple[Increments, State | None, int]:
    """Frames of ``run`` after ``state``, the new state, and how many readings were dropped as skew.

    All of ``run.t_ms`` must lie after ``state.t_ms``.
    """
    frames: list[Increments] = []
    dropped = 0
    first, n = 0, len(run.t_ms)
    while first < n:
        if state is None or run.t_ms[first] - state.t_ms > MAX_SPAN_MS:
            state = _begin(run, first)
            first += 1
            continue
        gaps = np.flatnonzero(np.diff(run.t_ms[first:]) > MAX_SPAN_MS)
        stop = first + int(gaps[0]) + 1 if len(gaps) else n
        if state.source != run.source and _is_skew(state, run, first):
            dropped += 1
            first += 1
            continue
        done, state = _stretch(state, run, first, stop)
        frames.append(done)
        first += len(done.t1_ms)
    return _join(run, frames), state, dropped


def _begin(run: Run, i: int) -> State:
    start = float(run.starts[i])
    return State(
        int(run.t_ms[i]),
        None if np.isnan(start) else start,
        run.source,
        frozenset((run.source,)),
        cumulative(run.layout),
        np.maximum(run.counts[i], 0),
        _zero(run.sums[i]),
    )


def _stretch(state: State, run: Run, first: int, stop: int) -> tuple[Increments, State]:
    """Frames from ``first`` up to the next restart (included) or ``stop``."""
    base_counts, base_sums = _base(state, run)
    if run.source not in state.sources:
        # what this source sees for the first time has no base in this one reading only
        stop = first + 1
    counts, sums, starts = run.counts[first:stop], run.sums[first:stop], run.starts[first:stop]
    before_counts, known_counts = _known_counts(base_counts, counts)
    before_sums, known_sums = _known_sums(base_sums, sums)
    before_starts, known_starts = _known_sums(
        np.array([np.nan if state.start is None else state.start]), starts[:, None]
    )
    moved = np.abs(known_starts[:, 0] - before_starts[:, 0]) > START_TOLERANCE_S
    restarted = moved | fell(run.layout, before_counts, counts, before_sums, sums)
    t_ms = run.t_ms[first:stop]
    reset = np.zeros(len(t_ms), bool)
    if restarted.any():
        r = int(np.argmax(restarted))
        stop = first + r + 1
        counts, sums, t_ms, starts = counts[: r + 1], sums[: r + 1], t_ms[: r + 1], starts[: r + 1]
        before_counts, before_sums, moved, reset = (
            before_counts[: r + 1],
            before_sums[: r + 1],
            moved[: r + 1],
            reset[: r + 1],
        )
        reset[r] = True
        before_counts[r], before_sums[r] = 0, 0.0
        last_counts, last_sums = np.maximum(counts[r], 0), _zero(sums[r])
    else:
        last_counts, last_sums = known_counts[-1], known_sums[-1]
    frames = Increments(
        run.layout,
        np.concatenate(([state.t_ms], t_ms[:-1])),
        t_ms,
        reset,
        moved,
        known_starts[: len(t_ms), 0],
        run.gauges[first:stop],
        np.where((counts >= 0) & (before_counts >= 0), counts - before_counts, -1),
        sums - before_sums,
    )
    start = float(known_starts[len(t_ms) - 1, 0])
    after = State(
        int(t_ms[-1]),
        None if np.isnan(start) else start,
        run.source,
        state.sources | {run.source},
        cumulative(run.layout),
        np.maximum(last_counts, 0),
        _zero(last_sums),
    )
    return frames, after if reset[-1] else _merge(state, after)


def fell(
    layout: Layout, before_counts: IntArray, counts: IntArray, before_sums: FloatArray, sums: FloatArray
) -> BoolArray:
    """Which rows (readings) show a restart: a count fell, or a total of its own."""
    out: BoolArray = np.any((counts >= 0) & (counts < before_counts), axis=1)
    totals = _totals(layout)
    if totals.any():
        before = before_sums[:, totals]
        # a real-valued total re-added in another order differs in the last digits
        out |= np.any(sums[:, totals] < before - 1e-9 * np.abs(before), axis=1)
    return out


def _is_skew(state: State, run: Run, i: int) -> bool:
    if run.t_ms[i] - state.t_ms >= SKEW_MS:
        return False
    if state.start is not None and abs(run.starts[i] - state.start) > START_TOLERANCE_S:
        return False
    base_counts, base_sums = _base(state, run)
    at = slice(i, i + 1)
    return bool(fell(run.layout, base_counts[None], run.counts[at], base_sums[None], run.sums[at])[0])


def _zero(values: FloatArray) -> FloatArray:
    return np.where(np.isnan(values), 0.0, values)


def _known_counts(base: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """The last known value before each row, and at each row (-1: none yet)."""
    stacked = np.concatenate((base[None], rows))
    absent = stacked < 0
    if absent.any():
        at = np.where(absent, 0, np.arange(len(stacked))[:, None])
        stacked = np.take_along_axis(stacked, np.maximum.accumulate(at, axis=0), axis=0)
    # a copy: the row of a restart is overwritten by the caller
    return stacked[:-1].copy(), stacked[1:]


def _known_sums(base: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """As :func:`_known_counts`, NaN for absent."""
    stacked = np.concatenate((base[None], rows))
    absent = np.isnan(stacked)
    if absent.any():
        at = np.where(absent, 0, np.arange(len(stacked))[:, None])
        stacked = np.take_along_axis(stacked, np.maximum.accumulate(at, axis=0), axis=0)
    return stacked[:-1].copy(), stacked[1:]


def _base(state: State, run: Run) -> tuple[IntArray, FloatArray]:
    """The state's values in the order of the run's columns; 0 for a new column of a known source, else -1 and NaN."""
    if cumulative(run.layout).id == state.layout.id:
        return state.counts, state.sums
    counts_at, sums_at = _places(run.layout, state.layout)
    known = run.source in state.sources
    counts = np.append(state.counts, 0 if known else -1)[counts_at]
    sums = np.append(state.sums, 0.0 if known else np.nan)[sums_at]
    return counts, sums


def _merge(old: State, new: State) -> State:
    """The new state with the columns that only the old one knows."""
    if new.layout.id == old.layout.id:
        return new
    layout = _union(old.layout, new.layout)
    counts_at, sums_at = _places(layout, old.layout)
    counts = np.append(old.counts, 0)[counts_at]
    sums = np.append(old.sums, 0.0)[sums_at]
    counts_at, sums_at = _places(new.layout, layout)
    counts[counts_at] = new.counts
    sums[sums_at] = new.sums
    return replace(new, layout=layout, counts=counts, sums=sums)


@by_layouts
def _union(old: Layout, new: Layout) -> Layout:
    extra = tuple(c for c in new.columns if c not in old.index)
    return Layout(old.columns + extra) if extra else old


@by_layouts
def _places(layout: Layout, within: Layout) -> tuple[IntArray, IntArray]:
    """For each count slot and sum slot of ``layout`` its position in ``within``; -1 where it has none."""
    _, n, s = layout.size
    counts, sums = np.full(n, -1, np.int64), np.full(s, -1, np.int64)
    for c, (_, dn, ds) in zip(layout.columns, layout.slots, strict=True):
        i = within.index.get(c)
        if i is not None:
            _, wn, ws = within.slots[i]
            counts[dn] = np.arange(wn.start, wn.stop)
            sums[ds] = np.arange(ws.start, ws.stop)
    return counts, sums


@by_layout
def _totals(layout: Layout) -> BoolArray:
    """Which sum slots are real-valued totals of their own rather than the sum of a histogram."""
    return np.array([c.kind == "sum" for c in layout.columns if c.kind in ("sum", "histogram")], bool)


def _join(run: Run, parts: list[Increments]) -> Increments:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, np.int64)
        flags = np.zeros(0, bool)
        return Increments(
            run.layout, none, none, flags, flags, np.zeros(0), run.gauges[:0], run.counts[:0], run.sums[:0]
        )
    return Increments(
        run.layout,
        np.concatenate([p.t0_ms for p in parts]),
        np.concatenate([p.t1_ms for p in parts]),
        np.concatenate([p.reset for p in parts]),
        np.concatenate([p.moved for p in parts]),
        np.concatenate([p.starts for p in parts]),
        np.concatenate([p.gauges for p in parts]),
        np.concatenate([p.counts for p in parts]),
        np.concatenate([p.sums for p in parts]),
    )
