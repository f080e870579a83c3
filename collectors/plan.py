"""A compiled decision about the series of one target, and its application to values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from collectors.folding import Fold, clean, to_counts
from core.frames import Column, FloatArray, IntArray, Layout, Target
from core.records import Problem
from core.signals import SIGNALS

PERCENT = 1.5
"""A ratio above this was exported as a percentage."""


@dataclass(frozen=True)
class Chosen:
    """Where a canonical signal of a target comes from. ``families`` are the raw families taken, ``also`` other present families
    that could have been (they are not read: rule R12). ``unusable`` ones are shown but never stored."""

    signal: str
    component: str
    families: tuple[str, ...]
    columns: tuple[Column, ...]
    also: tuple[str, ...] = ()
    combine: str = "first"
    notes: tuple[str, ...] = ()
    unusable: bool = False
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Silent:
    """A family that is exported while no series of it has the label values that mean the signal (no error so far, say)."""

    component: str
    family: str
    where: Mapping[str, str | list[str]]


@dataclass
class Plan:
    """What :func:`collectors.mapping.plan` decided.

    ``layout`` columns in order; ``components`` found, primary first; ``version`` of the dictionaries; ``target`` with components,
    model, role and version filled in where the series say; ``signals`` by canonical id; ``used``: the indices of series whose
    values matter; ``dropped``: number of series not read, by reason.
    """

    layout: Layout
    folds: Fold
    components: tuple[str, ...]
    version: str
    target: Target
    signals: Mapping[str, Chosen]
    size: int
    names: tuple[str, ...]
    process: tuple[int, ...]
    created: tuple[int, ...]
    used: frozenset[int]
    dropped: Mapping[str, int]
    silent: Mapping[str, Silent] = field(default_factory=dict)
    notes: tuple[tuple[str, str, str], ...] = ()
    _percent: set[int] = field(default_factory=set)

    def apply(self, values: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
        """Gauges ``[G]``, counts ``[N]`` and sums ``[Su]`` at one instant, of raw values ``[S]`` (NaN: series absent).

        Counts are per bucket, not cumulative over ``le``; -1 where a counter or histogram has no value. Values are still
        cumulative over time.
        """
        gauges, counts, sums = self.apply_many(np.asarray(values, dtype=np.float64)[:, None])
        return gauges[:, 0], counts[:, 0], sums[:, 0]

    def apply_many(self, values: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
        """As :meth:`apply` for many instants: raw values ``[S, T]`` to ``([G, T], [N, T], [Su, T])``."""
        if values.shape[0] != self.size:
            raise ValueError(f"{values.shape[0]} rows of values for a plan of {self.size} series")
        gauges = self.folds.gauges.apply(values)
        self._to_ratio(gauges)
        counts, _ = self.folds.counts.apply(values)
        sums = self.folds.sums.apply(values)
        impossible = self._impossible(counts, sums)
        if impossible.any():
            for h in np.flatnonzero(impossible.any(axis=1)):
                block = slice(self.folds.counts.first[h], self.folds.counts.last[h] + 1)
                counts[block, impossible[h]] = np.nan
                sums[self.folds.hist_sum[h], impossible[h]] = np.nan
        return gauges, to_counts(counts), sums

    def start(self, values: FloatArray) -> float | None:
        """Start of the process (Unix seconds): its own gauge where exported, else the oldest ``_created``; None where not known.

        A ``_created`` that is missing at this instant makes it unknown, not later: a start that moves is a restart.
        """
        rows = list(self.process or self.created)
        found = clean(np.asarray(values, dtype=np.float64)[rows])
        known = np.isfinite(found) & (found > 0)
        if not rows or not (known.any() if self.process else known.all()):
            return None
        return float(found[known].min())

    def problems(self, values: FloatArray, *, source: str = "", ts: float = 0.0) -> list[Problem]:
        """What cannot be true in raw values ``[S]``: one problem per column or family, for Data health and the doctor."""
        column = np.asarray(values, dtype=np.float64)[:, None]
        out = [Problem(ts, source, code, subject, text) for code, subject, text in self.notes]

        def add(code: str, subject: str, text: str, fix: str = "") -> None:
            out.append(Problem(ts, source, code, subject, text, fix))

        gauges = self.folds.gauges.apply(column)
        for slot in np.flatnonzero(self.folds.gauges.ratio & (gauges[:, 0] > PERCENT)):
            add(
                "percent_not_ratio",
                self._gauge_name(int(slot)),
                "a percentage where a ratio is meant; divided by 100",
            )
        counts, wrong = self.folds.counts.apply(column)
        sums = self.folds.sums.apply(column)
        impossible = self._impossible(counts, sums)
        for h, i in enumerate(self.folds.hist_columns):
            subject = show(self.layout.columns[int(i)])
            total = float(self.folds.counts.cumulative(column)[self.folds.counts.last[h], 0])
            if wrong[h, 0]:
                add("non_monotone_buckets", subject, "a bucket holds less than the one below it; clipped")
            if impossible[h, 0]:
                add("impossible_histogram", subject, f"{total:.0f} observations and a sum of 0; not used")
            elif self._all_low(h, total, counts, sums):
                add(
                    "all_in_first_bucket",
                    subject,
                    "every observation is in the first bucket and no sum tells whether that is so",
                )
            rows = list(self.folds.count_rows[h])
            counted = float(np.nansum(column[rows, 0])) if rows else total
            if rows and np.isfinite(total) and counted != total:
                add(
                    "count_differs",
                    subject,
                    f"_count is {counted:.0f}, the +Inf bucket {total:.0f}; the bucket is used",
                )
            if np.isfinite(total) and np.isnan(sums[self.folds.hist_sum[h], 0]) and not impossible[h, 0]:
                add("sum_missing", subject, "no usable _sum: means are not available")
        negative = [self.names[i] for i in self.folds.counts.index if column[i, 0] < 0]
        for name in dict.fromkeys(negative):
            add("negative_counter", name, "a count below 0; not used")
        out += self._invariants(counts, source, ts)
        return out

    def _invariants(self, counts: FloatArray, source: str, ts: float) -> list[Problem]:
        """Totals that cannot exceed one another."""
        out: list[Problem] = []
        for part, whole, code, text in (
            (
                "prefix_cache_hit_tokens_total",
                "prefix_cache_queries_tokens_total",
                "hits_exceed_queries",
                "more cache hits than look-ups",
            ),
            (
                "spec_accepted_tokens_total",
                "spec_draft_tokens_total",
                "accepted_exceed_drafted",
                "more accepted than drafted",
            ),
        ):
            low, high = self._total(part, counts), self._total(whole, counts)
            if low > high:
                out.append(Problem(ts, source, code, part, f"{text}: {low:.0f} of {high:.0f}"))
        return out

    def _total(self, signal: str, counts: FloatArray) -> float:
        slots = [
            n.start
            for c, (_, n, _) in zip(self.layout.columns, self.layout.slots, strict=True)
            if c.signal == signal
        ]
        found = counts[slots, 0] if slots else np.empty(0)
        return float(found.sum()) if len(found) else float("nan")

    def _impossible(
        self, counts: FloatArray, sums: FloatArray
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """``[n_hist, T]``: observations, all in the first bucket, with a sum of exactly 0."""
        f = self.folds
        if not len(f.hist_columns):
            return np.zeros((0, counts.shape[1]), dtype=bool)
        first, zero = counts[f.counts.first], sums[f.hist_sum] == 0
        result: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = f.suspicious[:, None] & zero & (first > 0)
        return result

    def _all_low(self, h: int, total: float, counts: FloatArray, sums: FloatArray) -> bool:
        """True where all observations are in a first bucket so low that one doubts it, and there is no sum to ask."""
        first = counts[self.folds.counts.first[h], 0]
        no_sum = np.isnan(sums[self.folds.hist_sum[h], 0])
        return bool(self.folds.suspicious[h] and no_sum and total > 0 and first == total)

    def _to_ratio(self, gauges: FloatArray) -> None:
        """Percentages to ratios, in place. A column once seen above 1.5 is a percentage from then on."""
        mask = self.folds.gauges.ratio
        if mask.any():
            over = np.flatnonzero(mask & (np.nan_to_num(gauges) > PERCENT).any(axis=1))
            self._percent.update(int(i) for i in over)
        for slot in self._percent:
            gauges[slot] *= 0.01

    def _gauge_name(self, slot: int) -> str:
        for c, (g, _, _) in zip(self.layout.columns, self.layout.slots, strict=True):
            if c.kind == "gauge" and g.start == slot:
                return show(c)
        raise IndexError(slot)


def show(column: Column) -> str:
    """A column as ``signal{label=value}``, for people."""
    inside = ",".join(f"{k}={v}" for k, v in column.labels)
    return f"{column.signal}{{{inside}}}" if inside else column.signal


def unit_of(column: Column) -> str:
    """The unit of a column: its label ``unit`` where set, else its signal's."""
    return column.label("unit") or SIGNALS[column.signal].unit
