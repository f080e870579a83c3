"""Index arrays that fold raw series values into the flat arrays of a reading, built once and applied many times.

Two levels. First, series that are copies of one another (one per worker ``pid``, ``le="1"`` beside ``le="1.0"``) become one by
maximum. Then the distinct ones of a column are added, or joined as the signal says for gauges. NaN means "not there" throughout:
it never counts as 0, and a column without any source stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.frames import Column, FloatArray, IntArray, Layout

BLANK = 9.2e18
"""Values from here on are an exporter's "no value" (the largest 64-bit integers), as are infinities."""

_DCGM_BLANKS = tuple(2147483632.0 + i for i in range(16)) + tuple(140737488355328.0 + i for i in range(4))

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def _index(values: Sequence[int]) -> Index:
    return np.asarray(values, dtype=np.intp)


def _nan_sum(values: FloatArray, starts: Index) -> FloatArray:
    """Sums of consecutive groups of rows; NaN counts as absent, and a group of nothing but NaN is NaN."""
    there = ~np.isnan(values)
    total: FloatArray = np.add.reduceat(np.where(there, values, 0.0), starts, axis=0)
    total[~np.logical_or.reduceat(there, starts, axis=0)] = np.nan
    return total


@dataclass(frozen=True)
class ValueFold:
    """Gauges or totals: raw values ``[S, T]`` to slots ``[n, T]``."""

    size: int
    index: Index
    scale: FloatArray
    times: Index
    over: Mask
    minus_one: Mask
    blanks: Mask
    copies: Index | None
    starts: Index | None
    maximum: Mask
    mean: Mask
    newest: tuple[tuple[int, Index, FloatArray], ...]
    ratio: Mask

    def apply(self, values: FloatArray) -> FloatArray:
        """One value a slot and instant; NaN where no source had one."""
        out = np.full((self.size, values.shape[1]), np.nan)
        if not self.size:
            return out
        if len(self.index):
            raw = clean(values[self.index])
            if self.minus_one.any():
                raw[self.minus_one[:, None] & (raw == -1.0)] = np.nan
            if self.blanks.any():
                raw[self.blanks[:, None] & np.isin(raw, _DCGM_BLANKS)] = np.nan
            raw *= self.scale[:, None]
            extra = self.times >= 0
            if extra.any():
                factor = clean(values[self.times[extra]])
                over = self.over[extra]
                factor[over & (factor == 0).any(axis=1)] = np.nan
                raw[extra] *= np.where(over[:, None], 1.0 / factor, factor)
            if self.copies is not None:
                raw = np.fmax.reduceat(raw, self.copies, axis=0)
            if self.starts is None:
                out = raw
            else:
                out = _nan_sum(raw, self.starts)
                if self.maximum.any():
                    out[self.maximum] = np.fmax.reduceat(raw, self.starts, axis=0)[self.maximum]
                if self.mean.any():
                    n = np.add.reduceat((~np.isnan(raw)).astype(np.float64), self.starts, axis=0)
                    out[self.mean] /= np.maximum(n, 1.0)[self.mean]
        for slot, rows, worth in self.newest:
            stamps = clean(values[rows])
            best = np.nanargmax(np.where(np.isnan(stamps), -np.inf, stamps), axis=0)
            out[slot] = np.where(np.isnan(stamps).all(axis=0), np.nan, worth[best])
        return out


@dataclass(frozen=True)
class CountFold:
    """Counters and cumulative buckets: raw values ``[S, T]`` to counts per bucket ``[n, T]`` as floats, NaN where absent."""

    size: int
    index: Index
    scale: FloatArray
    copies: Index | None
    blocks: Index
    lengths: Index
    order: Index | None
    starts: Index | None
    inner: Index
    first: Index
    last: Index
    without: tuple[tuple[int, Index], ...] = ()

    def cumulative(self, values: FloatArray) -> FloatArray:
        """Counters, and buckets still cumulative over ``le``, one a slot and instant."""
        if not self.size:
            return np.empty((0, values.shape[1]))
        raw = clean(values[self.index])
        raw[raw < 0] = np.nan
        raw *= self.scale[:, None]
        if self.copies is not None:
            raw = np.fmax.reduceat(raw, self.copies, axis=0)
        holes = np.isnan(raw)
        if self.without or holes.any():
            bad = np.logical_or.reduceat(holes, self.blocks, axis=0)
            for block, rows in self.without:  # another bucket layout is in force
                bad[block] |= ~np.isnan(values[rows]).all(axis=0)
            raw[np.repeat(bad, self.lengths, axis=0)] = np.nan
        if self.starts is not None:
            raw = _nan_sum(raw if self.order is None else raw[self.order], self.starts)
        return raw

    def apply(self, values: FloatArray) -> tuple[FloatArray, Mask]:
        """Counts per bucket and the mask ``[n_hist, T]`` of histograms whose buckets had to be made monotone."""
        cum = self.cumulative(values)
        out, wrong = self._difference(cum)
        if wrong.any():
            for h in np.flatnonzero(wrong.any(axis=1)):
                block = slice(self.first[h], self.last[h] + 1)
                cum[block] = np.maximum.accumulate(cum[block], axis=0)
            out, _ = self._difference(cum)
        return out, wrong

    def _difference(self, cum: FloatArray) -> tuple[FloatArray, Mask]:
        out = cum.copy()
        if not len(self.first):
            return out, np.zeros((0, cum.shape[1]), dtype=bool)
        out[self.inner] -= cum[self.inner - 1]
        falling = out < 0
        if not falling.any():
            return out, np.zeros((len(self.first), cum.shape[1]), dtype=bool)
        edges = np.stack([self.first, self.last + 1], axis=1).ravel()
        padded = np.vstack([falling, np.zeros((1, cum.shape[1]), dtype=bool)])
        return out, np.logical_or.reduceat(padded, edges, axis=0)[::2]


def clean(values: FloatArray) -> FloatArray:
    """The same array with infinities and blanks as NaN; changed in place."""
    values[~(np.abs(values) < BLANK)] = np.nan
    return values


@dataclass(frozen=True)
class Fold:
    """The three folds of a layout, and for each histogram what is needed to judge it."""

    gauges: ValueFold
    counts: CountFold
    sums: ValueFold
    hist_columns: Index
    hist_sum: Index
    suspicious: Mask
    count_rows: tuple[tuple[int, ...], ...]


Row = tuple[int, float, int, bool, bool, bool]
"""Row of the values, scale, row of the factor (-1: none), whether to divide, whether -1 is no value, whether blanks occur."""


@dataclass(slots=True)
class _Single:
    """A gauge, counter or total under construction: identity to the rows that are copies of one another."""

    op: str = "sum"
    rows: dict[Hashable, list[Row]] = field(default_factory=dict)
    worth: list[tuple[int, float]] = field(default_factory=list)
    ratio: bool = False


@dataclass(slots=True)
class _Histogram:
    """A histogram under construction: identity to its cumulative rows by slot, and the rows of its sum."""

    blocks: dict[Hashable, list[list[int]]] = field(default_factory=dict)
    sums: dict[Hashable, list[int]] = field(default_factory=dict)
    scale: float = 1.0
    counts: list[int] = field(default_factory=list)
    without: dict[Hashable, Sequence[int]] = field(default_factory=dict)
    suspicious: bool = False


class FoldBuilder:
    """Collects rows by column, then compiles them. Columns are sorted, so that equal targets share a layout."""

    def __init__(self) -> None:
        self._single: dict[Column, _Single] = {}
        self._hist: dict[Column, _Histogram] = {}
        self.columns: list[Column] = []

    def value(
        self,
        column: Column,
        identity: Hashable,
        row: int,
        *,
        scale: float = 1.0,
        op: str = "sum",
        times: int = -1,
        over: bool = False,
        const: float = math.nan,
        minus_one: bool = False,
        blanks: bool = False,
        ratio: bool = False,
    ) -> None:
        """Add a series to a gauge, counter or total."""
        single = self._single.get(column)
        if single is None:
            single = self._single[column] = _Single(op, ratio=ratio)
            self.columns.append(column)
        if op == "newest":
            single.worth.append((row, const))
        else:
            single.rows.setdefault(identity, []).append((row, scale, times, over, minus_one, blanks))

    def histogram(
        self,
        column: Column,
        identity: Hashable,
        cumulative: Sequence[Sequence[int]],
        sums: Sequence[int],
        scale: float,
        counts: Sequence[int],
        *,
        suspicious: bool,
        without: Sequence[int] = (),
    ) -> None:
        """Add one label set of a histogram: the rows of each finite edge in order, then those of the total.

        ``without``: rows of other bucket layouts; where one of them has a value, this layout is not in force.
        """
        hist = self._hist.get(column)
        if hist is None:
            hist = self._hist[column] = _Histogram()
            self.columns.append(column)
        block = hist.blocks.setdefault(identity, [[] for _ in cumulative])
        for slot, rows in zip(block, cumulative, strict=True):
            slot.extend(rows)
        hist.sums.setdefault(identity, []).extend(sums)
        hist.scale, hist.suspicious = scale, suspicious
        hist.counts.extend(counts)
        if without:
            hist.without[identity] = without

    def finish(self) -> tuple[Layout, Fold]:
        """The layout and its compiled folds."""
        layout = Layout(tuple(sorted(self.columns)))
        gauges = [self._single[c] for c in layout.columns if c.kind == "gauge"]
        sums: list[_Single] = []
        hist_columns: list[int] = []
        hist_sum: list[int] = []
        for i, c in enumerate(layout.columns):
            if c.kind == "sum":
                sums.append(self._single[c])
            elif c.kind == "histogram":
                h = self._hist[c]
                rows = {k: [(r, h.scale, -1, False, False, False) for r in v] for k, v in h.sums.items() if v}
                hist_columns.append(i)
                hist_sum.append(len(sums))
                sums.append(_Single("sum", rows))
        return layout, Fold(
            _value_fold(gauges),
            self._count_fold(layout),
            _value_fold(sums),
            _index(hist_columns),
            _index(hist_sum),
            np.asarray([self._hist[layout.columns[i]].suspicious for i in hist_columns], dtype=bool),
            tuple(tuple(self._hist[layout.columns[i]].counts) for i in hist_columns),
        )

    def _count_fold(self, layout: Layout) -> CountFold:
        index: list[int] = []
        scale: list[float] = []
        copies: list[int] = []
        blocks: list[int] = []
        lengths: list[int] = []
        slot_of: list[int] = []
        inner: list[int] = []
        first: list[int] = []
        last: list[int] = []
        without: list[tuple[int, Index]] = []
        slot = 0
        for c in layout.columns:
            if c.kind == "counter":
                for entries in self._single[c].rows.values():
                    blocks.append(len(copies))
                    lengths.append(1)
                    copies.append(len(index))
                    slot_of.append(slot)
                    index += [r for r, *_ in entries]
                    scale += [s for _, s, *_ in entries]
                slot += 1
            elif c.kind == "histogram":
                width = len(c.edges) + 1
                for identity, block in self._hist[c].blocks.items():
                    if others := self._hist[c].without.get(identity):
                        without.append((len(blocks), _index(others)))
                    blocks.append(len(copies))
                    lengths.append(width)
                    for k, rows in enumerate(block):
                        copies.append(len(index))
                        slot_of.append(slot + k)
                        index += rows
                        scale += [1.0] * len(rows)
                first.append(slot)
                last.append(slot + width - 1)
                inner += range(slot + 1, slot + width)
                slot += width
        slots = _index(slot_of)
        straight = len(slots) == slot and bool(np.array_equal(slots, np.arange(slot)))
        order = np.argsort(slots, kind="stable").astype(np.intp)
        sorted_slots = slots[order]
        starts = np.searchsorted(sorted_slots, np.arange(slot)).astype(np.intp)
        return CountFold(
            slot,
            _index(index),
            np.asarray(scale, dtype=np.float64),
            None if len(copies) == len(index) else _index(copies),
            _index(blocks),
            _index(lengths),
            None if straight else order,
            None if straight else starts,
            _index(inner),
            _index(first),
            _index(last),
            tuple(without),
        )


def _value_fold(singles: Sequence[_Single]) -> ValueFold:
    rows: list[Row] = []
    copies: list[int] = []
    starts: list[int] = []
    newest: list[tuple[int, Index, FloatArray]] = []
    for slot, single in enumerate(singles):
        starts.append(len(copies))
        if single.op == "newest":
            newest.append(
                (slot, _index([r for r, _ in single.worth]), np.asarray([w for _, w in single.worth]))
            )
        if not single.rows:  # keeps one row a slot, so that the groups of reduceat are never empty
            copies.append(len(rows))
            rows.append((0, math.nan, -1, False, False, False))
        for entries in single.rows.values():
            copies.append(len(rows))
            rows += entries
    return ValueFold(
        len(singles),
        _index([r[0] for r in rows]),
        np.asarray([r[1] for r in rows], dtype=np.float64),
        _index([r[2] for r in rows]),
        np.asarray([r[3] for r in rows], dtype=bool),
        np.asarray([r[4] for r in rows], dtype=bool),
        np.asarray([r[5] for r in rows], dtype=bool),
        None if len(copies) == len(rows) else _index(copies),
        None if len(starts) == len(copies) else _index(starts),
        np.asarray([s.op == "max" for s in singles], dtype=bool),
        np.asarray([s.op == "mean" for s in singles], dtype=bool),
        tuple(newest),
        np.asarray([s.ratio for s in singles], dtype=bool),
    )


def to_counts(values: FloatArray) -> IntArray:
    """Whole counts; -1 where there is no value."""
    out = np.rint(np.where(np.isnan(values), -1.0, values))
    return out.astype(np.int64)
