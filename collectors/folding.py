"""Index arrays that fold raw series values into the flat arrays of a reading, built once and applied many times.

Two levels. First, series that are copies of one another (one per worker ``pid``, ``le="1"`` beside ``le="1.0"``) become one by
maximum. Then the distinct ones of a column are added, or joined as the signal says for gauges. NaN means "not there" throughout:
it never counts as 0, and a column without any source stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.frames import FloatArray, IntArray

BLANK = 9.2e18
"""Values from here on are an exporter's "no value" (the largest 64-bit integers), as are infinities."""

_DCGM_BLANKS = tuple(2147483632.0 + i for i in range(16)) + tuple(140737488355328.0 + i for i in range(4))

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def to_index(values: Sequence[int]) -> Index:
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
                factor[over[:, None] & (factor == 0)] = np.nan
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


def to_counts(values: FloatArray) -> IntArray:
    """Whole counts; -1 where there is no value."""
    out = np.rint(np.where(np.isnan(values), -1.0, values))
    return out.astype(np.int64)
