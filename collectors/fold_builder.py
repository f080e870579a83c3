"""Collects which rows feed which column, and compiles that into the index arrays of :mod:`collectors.folding`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectors.folding import CountFold, Fold, Index, ValueFold, to_index
from core.frames import Column, FloatArray, Layout

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

    def has(self, column: Column) -> bool:
        """True where the column exists already."""
        return column in self._single or column in self._hist

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
            to_index(hist_columns),
            to_index(hist_sum),
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
                        without.append((len(blocks), to_index(others)))
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
        slots = to_index(slot_of)
        straight = len(slots) == slot and bool(np.array_equal(slots, np.arange(slot)))
        order = np.argsort(slots, kind="stable").astype(np.intp)
        sorted_slots = slots[order]
        starts = np.searchsorted(sorted_slots, np.arange(slot)).astype(np.intp)
        return CountFold(
            slot,
            to_index(index),
            np.asarray(scale, dtype=np.float64),
            None if len(copies) == len(index) else to_index(copies),
            to_index(blocks),
            to_index(lengths),
            None if straight else order,
            None if straight else starts,
            to_index(inner),
            to_index(first),
            to_index(last),
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
                (slot, to_index([r for r, _ in single.worth]), np.asarray([w for _, w in single.worth]))
            )
        if not single.rows:  # keeps one row a slot, so that the groups of reduceat are never empty
            copies.append(len(rows))
            rows.append((0, math.nan, -1, False, False, False))
        for entries in single.rows.values():
            copies.append(len(rows))
            rows += entries
    return ValueFold(
        len(singles),
        to_index([r[0] for r in rows]),
        np.asarray([r[1] for r in rows], dtype=np.float64),
        to_index([r[2] for r in rows]),
        np.asarray([r[3] for r in rows], dtype=bool),
        np.asarray([r[4] for r in rows], dtype=bool),
        np.asarray([r[5] for r in rows], dtype=bool),
        None if len(copies) == len(rows) else to_index(copies),
        None if len(starts) == len(copies) else to_index(starts),
        np.asarray([s.op == "max" for s in singles], dtype=bool),
        np.asarray([s.op == "mean" for s in singles], dtype=bool),
        tuple(newest),
        np.asarray([s.ratio for s in singles], dtype=bool),
    )
