"""From matched series to columns: labels, kinds, bucket layouts, and which rows feed which slot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collectors.dictionary import Component, Entry, Part, canonical_name
from collectors.fold_builder import FoldBuilder
from collectors.mapping_classes import Classifier
from collectors.mapping_rows import Row, first, without_copies, without_parts
from core.classes import Cap
from core.frames import Column, Kind, Labels
from core.signals import SIGNALS

MAX_VALUES = 256
"""Distinct values of one column label of one signal; later ones become ``other``."""
MAX_VALUE_LENGTH = 200
MAX_EDGES = 512
MAX_COLUMNS = 5000
_PID = frozenset({"pid"})


@dataclass(slots=True)
class _Hist:
    buckets: dict[float, list[int]] = field(default_factory=dict)
    inf: list[int] = field(default_factory=list)
    sum: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)


class ColumnMaker:
    """Emits the columns of chosen entries into a :class:`FoldBuilder`.

    ``by_name``: all series by canonical name. ``used``: indices of series that feed some column. ``dropped``, ``notes``: what was
    left out by reason, and problems that follow from names and labels alone.
    """

    def __init__(
        self,
        by_name: Mapping[str, list[Row]],
        class_of: Classifier,
        models: Sequence[str],
        ranks: Sequence[str],
        present: NDArray[np.bool_] | None,
    ) -> None:
        self.builder = FoldBuilder()
        self.used: set[int] = set()
        self.dropped: dict[str, int] = {}
        self.notes: list[tuple[str, str, str]] = []
        self._by_name, self._class_of, self._present = by_name, class_of, present
        self._model = Cap(MAX_VALUES) if len(models) > 1 else None
        self._rank = Cap(MAX_VALUES) if len(ranks) > 1 else None
        self._caps: dict[tuple[str, str], Cap] = {}

    def _drop(self, reason: str, n: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + n

    def _room(self, column: Column) -> bool:
        """False, and counted, where the target has too many columns already."""
        if len(self.builder.columns) < MAX_COLUMNS or self.builder.has(column):
            return True
        self._drop("too_many_columns")
        return False

    def _labels(self, component: Component, entry: Entry, row: Row, kind: Kind, zero: bool = False) -> Labels:
        source = entry.source
        labels = dict(source.set)
        if not zero:
            for raw, name in source.dims.items():
                if value := row.full.get(raw):
                    cap = self._caps.setdefault((entry.signal, name), Cap(MAX_VALUES))
                    labels[name] = cap(source.values.get(name, {}).get(value, value)[:MAX_VALUE_LENGTH])
        labels["class"] = self._class_of(row)
        if self._model and (model := first(row.full, component.labels.model)):
            labels["model"] = self._model(model[:MAX_VALUE_LENGTH])
        if kind == "gauge" and self._rank and (rank := first(row.full, component.labels.rank)):
            labels.setdefault("rank", self._rank(rank[:MAX_VALUE_LENGTH]))
        return tuple(sorted(labels.items()))

    def emit(self, component: Component, entry: Entry, parts: Mapping[Part, list[Row]]) -> None:
        """Columns of one entry from its rows."""
        source, signal = entry.source, SIGNALS[entry.source.as_ or entry.signal]
        base = source.as_ or entry.signal
        if source.use in ("sum", "count"):
            self._values(component, entry, signal.id, parts.get(source.use, []))
        elif source.type == "histogram" and signal.kind == "histogram":
            self._histograms(component, entry, parts)
        elif signal.kind == "histogram":
            if source.type == "summary":
                self._values(component, entry, f"{base}_sum", parts.get("sum", []))
                self._values(component, entry, f"{base}_count", parts.get("count", []))
            else:
                form = f"{base}_mean" if source.type == "gauge" else f"{base}_sum"
                self._values(component, entry, form, parts.get("value", []))
        elif source.type in ("histogram", "summary"):
            self._values(component, entry, signal.id, parts.get("sum", []) or parts.get("count", []))
        else:
            self._values(component, entry, signal.id, parts.get("value", []))
        if source.count:
            rows = self._counter(source.count)
            count = signal.id.removesuffix("_sum") + "_count"
            self._values(component, entry, count, rows, counting=True)
        for extra in source.plus:
            rows = without_parts(
                self._by_name.get(canonical_name(extra), []), component.labels.total_when_empty
            )
            rows = without_copies(rows, component.labels.copies)
            self._values(component, entry, signal.id, rows)

    def _values(
        self,
        component: Component,
        entry: Entry,
        id: str,
        rows: Sequence[Row],
        *,
        counting: bool = False,
    ) -> None:
        """Columns of single values: gauges, counters, totals."""
        source, signal = entry.source, SIGNALS[id]
        factors = self._factors(source.times or source.over)
        for r in rows:
            zero = source.else_zero and bool(source.where) and not source.accepts(r.full) and not counting
            scale = 0.0 if zero else (1.0 if counting else source.scale)
            const = math.nan
            if source.from_labels:
                scale = product(r.full, source.from_labels)
                if math.isnan(scale):
                    continue
            times = -1
            if source.times or source.over:
                times = factors.get(frozenset(r.own.items()), -1)
                if times < 0:
                    self.notes.append(
                        ("no_factor", source.family, f"{source.times or source.over} is missing")
                    )
                    continue
                self.used.add(times)
            if source.pick == "newest":
                names = [n for n in r.full.get(source.names, "").split(",") if n.strip()]
                const = float(len(names))
            column = Column(id, self._labels(component, entry, r, signal.kind, zero), signal.kind)
            if not self._room(column):
                continue
            strip = _PID if signal.kind == "gauge" else frozenset()
            identity = (r.name, frozenset((k, v) for k, v in r.own.items() if k not in strip))
            op = "newest" if source.pick else signal.across
            ratio = signal.kind == "gauge" and signal.unit == "0..1"
            self.builder.value(
                column,
                identity,
                r.index,
                scale=scale,
                op=op,
                times=times,
                over=bool(source.over),
                const=const,
                minus_one=source.minus_one,
                blanks=component.component == "dcgm_exporter",
                ratio=ratio,
            )
            self.used.add(r.index)

    def _counter(self, family: str) -> list[Row]:
        """Series of a counter, with or without ``_total`` (rule R3)."""
        stem = canonical_name(family).removesuffix("_total")
        return self._by_name.get(f"{stem}_total") or self._by_name.get(stem) or []

    def _factors(self, family: str) -> dict[frozenset[tuple[str, str]], int]:
        if not family:
            return {}
        return {frozenset(r.own.items()): r.index for r in self._by_name.get(canonical_name(family), [])}

    def _histograms(self, component: Component, entry: Entry, parts: Mapping[Part, list[Row]]) -> None:
        """Histogram columns, one per label set and bucket layout; where a series has no buckets, its total and count."""
        source = entry.source
        base = source.as_ or entry.signal
        groups: dict[tuple[Labels, frozenset[tuple[str, str]]], _Hist] = {}
        for part, rows in parts.items():
            if part == "bucket" and not source.buckets:
                continue
            for r in rows:
                labels = self._labels(component, entry, r, "histogram")
                key = frozenset((k, v) for k, v in r.own.items() if k != "le")
                hist = groups.setdefault((labels, key), _Hist())
                if part == "bucket":
                    edge = _edge(r.full["le"], source.scale)
                    if edge is None:
                        self._drop("bad_bucket_edge")
                    elif edge == math.inf:
                        hist.inf.append(r.index)
                    else:
                        hist.buckets.setdefault(edge, []).append(r.index)
                elif part == "sum":
                    hist.sum.append(r.index)
                else:
                    hist.count.append(r.index)
        for (labels, key), h in groups.items():
            identity = (source.family, key)
            if len(h.buckets) > MAX_EDGES:
                self._drop("too_many_buckets", len(h.buckets))
                h.buckets.clear()
            self.used.update(h.inf, h.sum, h.count, *h.buckets.values())
            if not h.buckets:
                for i in h.sum:
                    column = Column(f"{base}_sum", labels, "sum")
                    self.builder.value(column, identity, i, scale=source.scale, op="sum")
                for i in h.inf or h.count:
                    self.builder.value(Column(f"{base}_count", labels, "counter"), identity, i, op="sum")
                continue
            total = h.inf or h.count
            if not total:
                self.notes.append(
                    ("no_overflow_bucket", source.family, "no +Inf bucket and no _count: overflow unknown")
                )
            for edges in self._layouts(h):
                column = Column(base, labels, "histogram", edges)
                if not self._room(column):
                    continue
                cumulative = [*(h.buckets[e] for e in edges), total or h.buckets[edges[-1]]]
                others = [i for e, rows in h.buckets.items() if e not in edges for i in rows]
                suspicious = SIGNALS[base].unit == "seconds" and 0 < edges[0] <= 0.1
                self.builder.histogram(
                    column,
                    identity,
                    cumulative,
                    h.sum,
                    source.scale,
                    h.count,
                    suspicious=suspicious,
                    without=others,
                )

    def _layouts(self, h: _Hist) -> list[tuple[float, ...]]:
        """The bucket layouts of one label set: one, unless it changed over the time that ``present`` covers."""
        edges = tuple(sorted(h.buckets))
        if self._present is None:
            return [edges]
        there = np.array([self._present[h.buckets[e]].any(axis=0) for e in edges])
        patterns, n = np.unique(there[:, there.any(axis=0)], axis=1, return_counts=True)
        if patterns.shape[1] == 1 and patterns.all():
            return [edges]
        least = min(2, there.shape[1])
        found = [
            tuple(e for e, on in zip(edges, pattern, strict=True) if on)
            for pattern, times in zip(patterns.T, n, strict=True)
            if times >= least
        ]
        return found or [edges]


def _edge(text: str, scale: float) -> float | None:
    """An upper edge in the canonical unit; ``1`` and ``1.0`` are one edge. None where it is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    if math.isnan(value) or value == -math.inf:
        return None
    return value if math.isinf(value) else float(f"{value * scale:.12g}")


def product(labels: Mapping[str, str], choices: Sequence[Sequence[str]]) -> float:
    """The product of the first group of labels that are all numbers; NaN where none is."""
    for names in choices:
        try:
            value = math.prod(float(labels[n]) for n in names)
        except (KeyError, ValueError):
            continue
        if math.isfinite(value) and value > 0:
            return value
    return math.nan
