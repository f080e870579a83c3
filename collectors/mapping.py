"""From the series of one target to columns of canonical signals: decide once (:func:`plan`), then apply to values at speed.

:func:`plan` looks only at names and labels. It recognises the components, chooses one raw family per canonical signal (rule R12),
groups series into columns and compiles that into index arrays. :class:`Plan` turns vectors of raw values into the flat arrays of
a reading, for one instant or for many at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collectors.dictionary import Component, Dictionary, Entry, Part, canonical_name
from collectors.folding import Fold, FoldBuilder
from collectors.plan import Chosen, Plan, Silent
from core.classes import SHARED, UNCLASSIFIED, ClassRules
from core.frames import Column, Kind, Labels, Layout, Target
from core.signals import SIGNALS

Series = Sequence[tuple[str, Mapping[str, str]]]

_PID = "pid"
_START = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class _Row:
    """One series: its index, canonical name, all labels, and those that are not the target's own."""

    index: int
    name: str
    full: Mapping[str, str]
    own: Mapping[str, str]


def plan(
    series: Series,
    dictionary: Dictionary,
    classes: ClassRules,
    target: Target,
    *,
    present: NDArray[np.bool_] | None = None,
) -> Plan:
    """Decide what each series of a target means.

    ``series``: names and labels as exposed (or as a Prometheus server returns them, target labels included). The result's arrays
    are aligned with it: value vectors given to the plan have ``len(series)`` rows.

    ``present``: ``[S, T]``, which series had a sample when, for series gathered over time. Series without any are ignored, and a
    histogram whose bucket layout changed on the way (an upgrade) becomes one column per layout.
    """
    return _Planner(series, dictionary, classes, target, present).build()


class _Planner:
    def __init__(
        self,
        series: Series,
        dictionary: Dictionary,
        classes: ClassRules,
        target: Target,
        present: NDArray[np.bool_] | None,
    ) -> None:
        self.present = present
        self.dictionary, self.classes, self.target = dictionary, classes, target
        self.size = len(series)
        self.rows = [self._row(i, name, labels) for i, (name, labels) in enumerate(series)]
        there = [True] * len(series) if present is None else [bool(row.any()) for row in present]
        self.components = dictionary.detect([s for s, t in zip(series, there, strict=True) if t])
        self.by_name: dict[str, list[_Row]] = {}
        for row in self.rows:
            if there[row.index]:
                self.by_name.setdefault(row.name, []).append(row)
        self.dropped: dict[str, int] = {}
        self.notes: list[tuple[str, str, str]] = []
        self.used: set[int] = set()
        self.silent: dict[str, Silent] = {}

    def _row(self, index: int, name: str, labels: Mapping[str, str]) -> _Row:
        fixed = self.target.labels
        full = {k: v for k, v in labels.items() if v and k != "__name__"}
        own = {k: v for k, v in full.items() if fixed.get(k) != v} if fixed else full
        return _Row(index, canonical_name(name), full, own)

    # ------------------------------------------------------------------ choice

    def build(self) -> Plan:
        chosen: list[tuple[str, list[Entry], tuple[str, ...]]] = []
        matched = {c: self._match(c) for c in self.components}
        taken: dict[str, str] = {}
        also: dict[str, list[str]] = {}
        for name in self._by_rank():
            for signal, entries in _choose(self.dictionary.entries(name), matched[name]).items():
                present = [
                    e.source.family
                    for e in self.dictionary.entries(name)
                    if e.signal == signal and e in matched[name]
                ]
                also.setdefault(signal, []).extend(present)
                if signal in taken or not entries:
                    continue
                taken[signal] = name
                chosen.append((name, entries, ()))
        self._models(chosen, matched)
        self._ranks(chosen, matched)
        self._class_of = self._classifier(chosen, matched)
        builder = FoldBuilder()
        signals: dict[str, Chosen] = {}
        for name, entries, _ in chosen:
            component = self.dictionary.components[name]
            signal = entries[0].signal
            before = len(builder.columns)
            for entry in entries:
                if entry.source.trust == "never" or entry.source.family == _START:
                    continue
                self._emit(builder, component, entry, matched[name][entry])
            families = tuple(dict.fromkeys(e.source.family for e in entries))
            signals[signal] = Chosen(
                signal,
                name,
                families,
                tuple(builder.columns[before:]),
                tuple(f for f in dict.fromkeys(also[signal]) if f not in families),
                entries[0].combine,
                tuple(dict.fromkeys(e.source.note for e in entries if e.source.note)),
                entries[0].source.trust == "never",
                tuple(r.index for e in entries for rs in matched[name][e].values() for r in rs),
            )
        layout, folds = builder.finish()
        return self._finish(layout, folds, signals)

    def _by_rank(self) -> list[str]:
        """Components in the order in which they may claim a signal: those that yield come last."""
        return sorted(self.components, key=lambda c: self.dictionary.components[c].detect.yields)

    def _match(self, component: str) -> dict[Entry, dict[Part, list[_Row]]]:
        """The rows of each entry by part of the family, thinned of totals beside parts and of repeated ranks."""
        lookup = self.dictionary.lookup(component)
        roles = self.dictionary.components[component].labels
        out: dict[Entry, dict[Part, list[_Row]]] = {}
        rest: dict[Entry, dict[Part, list[_Row]]] = {}
        for name, rows in self.by_name.items():
            for entry, part in lookup.get(name, ()):
                wanted = entry.source
                if part == "bucket":
                    rows_here = [r for r in rows if "le" in r.full]
                else:
                    rows_here = rows
                if part == "aux":
                    self.used.update(r.index for r in rows_here)
                    continue
                hits = [r for r in rows_here if wanted.accepts(r.full)] if wanted.where else rows_here
                store = out
                if not hits and rows_here:
                    if wanted.else_zero:
                        hits, store = rows_here, rest
                    else:
                        silent = Silent(component, wanted.family, dict(wanted.where))
                        self.silent.setdefault(entry.signal, silent)
                if hits:
                    parts = store.setdefault(entry, {})
                    parts.setdefault(part, []).extend(hits)
        for entry, found in rest.items():
            out.setdefault(entry, found)
        for parts in out.values():
            for part, rows in parts.items():
                parts[part] = self._thin(rows, roles.total_when_empty, roles.copies)
        return {e: p for e, p in out.items() if _usable(e, p)}

    def _thin(self, rows: list[_Row], totals: Sequence[str], copies: Sequence[str]) -> list[_Row]:
        for label in totals:
            if any(label in r.own for r in rows):
                groups = _group(rows, {label})
                kept = []
                for members in groups.values():
                    whole = [r for r in members if label not in r.own]
                    kept += whole or members
                if len(kept) < len(rows):
                    self._drop("part_beside_total", len(rows) - len(kept))
                rows = kept
        if copies and any(c in r.own for r in rows for c in copies):
            kept = []
            for members in _group(rows, set(copies)).values():
                low = min(_rank_key(r, copies) for r in members)
                kept += [r for r in members if _rank_key(r, copies) == low]
            if len(kept) < len(rows):
                self._drop("repeated_rank", len(rows) - len(kept))
            rows = kept
        return rows

    def _drop(self, reason: str, n: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + n

    # ------------------------------------------------------------------ labels

    def _models(self, chosen: Iterable[tuple[str, list[Entry], tuple[str, ...]]], matched: _Matched) -> None:
        models: dict[str, None] = {}
        for name, entries, _ in chosen:
            keys = self.dictionary.components[name].labels.model
            for e in entries:
                for rows in matched[name][e].values():
                    for r in rows:
                        if value := _first(r.full, keys):
                            models[value] = None
        self.models = tuple(models)

    def _ranks(self, chosen: Iterable[tuple[str, list[Entry], tuple[str, ...]]], matched: _Matched) -> None:
        ranks: set[str] = set()
        for name, entries, _ in chosen:
            keys = self.dictionary.components[name].labels.rank
            for e in entries:
                for part, rows in matched[name][e].items():
                    if part == "value":
                        ranks |= {v for r in rows if (v := _first(r.full, keys))}
        self.ranks = ranks

    def _classifier(
        self, chosen: Iterable[tuple[str, list[Entry], tuple[str, ...]]], matched: _Matched
    ) -> _Classifier:
        """Rules over the chosen series; the one model of a target counts as the target's own label."""
        place = {}
        if len(self.models) == 1:
            place = {
                k: self.models[0] for c in self.components for k in self.dictionary.components[c].labels.model
            }
        private = [k for c in self.components for k in self.dictionary.components[c].labels.private]
        found = _Classifier(self.classes, self.target, place, private)
        for name, entries, _ in chosen:
            for e in entries:
                for rows in matched[name][e].values():
                    found.prepare(rows)
        return found

    def _labels(self, component: Component, entry: Entry, row: _Row, kind: Kind, zero: bool) -> Labels:
        source = entry.source
        labels = dict(source.set)
        if not zero:
            for raw, name in source.dims.items():
                if value := row.full.get(raw):
                    labels[name] = source.values.get(name, {}).get(value, value)
        labels["class"] = self._class_of(row)
        if len(self.models) > 1 and (model := _first(row.full, component.labels.model)):
            labels["model"] = model
        if kind == "gauge" and len(self.ranks) > 1 and (rank := _first(row.full, component.labels.rank)):
            labels.setdefault("rank", rank)
        return tuple(sorted(labels.items()))

    # ------------------------------------------------------------------ columns

    def _emit(
        self, b: FoldBuilder, component: Component, entry: Entry, parts: Mapping[Part, list[_Row]]
    ) -> None:
        source, signal = entry.source, SIGNALS[entry.source.as_ or entry.signal]
        base = source.as_ or entry.signal
        if source.use in ("sum", "count"):
            self._values(b, component, entry, signal.id, parts.get(source.use, []))
        elif source.type == "histogram" and signal.kind == "histogram":
            self._histograms(b, component, entry, parts)
        elif signal.kind == "histogram":
            if source.type == "summary":
                self._values(b, component, entry, f"{base}_sum", parts.get("sum", []))
                self._values(b, component, entry, f"{base}_count", parts.get("count", []))
            else:
                form = f"{base}_mean" if source.type == "gauge" else f"{base}_sum"
                self._values(b, component, entry, form, parts.get("value", []))
        elif source.type in ("histogram", "summary"):
            self._values(b, component, entry, signal.id, parts.get("sum", []) or parts.get("count", []))
        else:
            self._values(b, component, entry, signal.id, parts.get("value", []))
        if source.count:
            rows = self.by_name.get(canonical_name(source.count), [])
            count = signal.id.removesuffix("_sum") + "_count"
            self._values(b, component, entry, count, rows, counting=True)
        for extra in source.plus:
            rows = self._thin(
                self.by_name.get(canonical_name(extra), []),
                component.labels.total_when_empty,
                component.labels.copies,
            )
            self._values(b, component, entry, signal.id, rows)

    def _values(
        self,
        b: FoldBuilder,
        component: Component,
        entry: Entry,
        id: str,
        rows: Sequence[_Row],
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
                scale = _product(r.full, source.from_labels)
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
            strip = {_PID} if signal.kind == "gauge" else set()
            identity = (r.name, frozenset((k, v) for k, v in r.own.items() if k not in strip))
            op = "newest" if source.pick else signal.across
            ratio = signal.kind == "gauge" and signal.unit == "0..1"
            b.value(
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

    def _factors(self, family: str) -> dict[frozenset[tuple[str, str]], int]:
        if not family:
            return {}
        return {frozenset(r.own.items()): r.index for r in self.by_name.get(canonical_name(family), [])}

    def _histograms(
        self, b: FoldBuilder, component: Component, entry: Entry, parts: Mapping[Part, list[_Row]]
    ) -> None:
        """Histogram columns, one per label set and bucket layout; where a series has no buckets, its total and count."""
        source = entry.source
        base = source.as_ or entry.signal
        groups: dict[tuple[Labels, frozenset[tuple[str, str]]], _Hist] = {}
        for part, rows in parts.items():
            if part == "bucket" and not source.buckets:
                continue
            for r in rows:
                labels = self._labels(component, entry, r, "histogram", False)
                key = frozenset((k, v) for k, v in r.own.items() if k != "le")
                hist = groups.setdefault((labels, key), _Hist({}, [], [], [], r))
                if part == "bucket":
                    edge = _edge(r.full["le"], source.scale)
                    if edge is None:
                        self._drop("bad_bucket_edge", 1)
                    elif edge == math.inf:
                        hist.inf.append(r.index)
                    else:
                        hist.buckets.setdefault(edge, []).append(r.index)
                elif part == "sum":
                    hist.sum.append(r.index)
                else:
                    hist.count.append(r.index)
        for (labels, key), h in groups.items():
            identity = (h.first.name, key)
            self.used.update(h.inf, h.sum, h.count, *h.buckets.values())
            if not h.buckets or not source.buckets:
                for i in h.sum:
                    column = Column(f"{base}_sum", labels, "sum")
                    b.value(column, identity, i, scale=source.scale, op="sum")
                for i in h.inf or h.count:
                    b.value(Column(f"{base}_count", labels, "counter"), identity, i, op="sum")
                continue
            total = h.inf or h.count
            if not total:
                self.notes.append(
                    ("no_overflow_bucket", source.family, "no +Inf bucket and no _count: overflow unknown")
                )
            for edges in self._layouts(h):
                column = Column(base, labels, "histogram", edges)
                cumulative = [*(h.buckets[e] for e in edges), total or h.buckets[edges[-1]]]
                others = [i for e, rows in h.buckets.items() if e not in edges for i in rows]
                suspicious = SIGNALS[base].unit == "seconds" and 0 < edges[0] <= 0.1
                b.histogram(
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
        if self.present is None:
            return [edges]
        there = np.array([self.present[h.buckets[e]].any(axis=0) for e in edges])
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

    # ------------------------------------------------------------------ result

    def _finish(self, layout: Layout, folds: Fold, signals: dict[str, Chosen]) -> Plan:
        process = [r.index for r in self.by_name.get(_START, [])]
        created = [r.index for r in self.rows if r.name.endswith("_created")]
        unmapped = self.size - len(self.used | set(created) | set(process))
        if created:
            self._drop("created", len(created))
        if unmapped:
            self._drop("unmapped", unmapped)
        roles = {
            v
            for c in self.components
            for r in self.rows
            if (v := _first(r.full, self.dictionary.components[c].labels.role))
        }
        versions = {
            v
            for c in self.components
            if (keys := self.dictionary.components[c].labels.version)
            for r in self.rows
            if (v := _first(r.full, keys))
        }
        target = replace(
            self.target,
            components=self.components,
            model=self.target.model or (self.models[0] if len(self.models) == 1 else ""),
            role=self.target.role or (next(iter(roles)) if len(roles) == 1 else ""),
            version=self.target.version or (next(iter(versions)) if len(versions) == 1 else ""),
        )
        return Plan(
            layout=layout,
            folds=folds,
            components=self.components,
            version=self.dictionary.version,
            target=target,
            signals=signals,
            size=self.size,
            names=tuple(r.name for r in self.rows),
            process=tuple(process),
            created=tuple(created),
            used=frozenset(self.used | set(process) | set(created)),
            dropped=self.dropped,
            silent={k: v for k, v in self.silent.items() if k not in signals},
            notes=tuple(dict.fromkeys(self.notes)),
        )


_Matched = Mapping[str, Mapping[Entry, Mapping[Part, list[_Row]]]]


@dataclass(slots=True)
class _Hist:
    buckets: dict[float, list[int]]
    inf: list[int]
    sum: list[int]
    count: list[int]
    first: _Row


class _Classifier:
    """The class of a series: its own, the target's, or shared where the target serves several."""

    def __init__(
        self, classes: ClassRules, target: Target, extra: Mapping[str, str], private: Iterable[str]
    ) -> None:
        self._rules, self._keys = classes, tuple(sorted(classes.labels))
        place = {
            "instance": target.address,
            "cluster": target.cluster,
            "pool": target.pool,
            "replica": target.replica,
            "job": target.job,
            "role": target.role,
            "release": target.release,
            "model": target.model,
        }
        self._place = {k: v for k, v in place.items() if v} | dict(extra) | dict(target.labels)
        self._given = dict(extra)
        self._private = frozenset(private)
        self._default = classes.classify(self._place)
        self._memo: dict[tuple[str, ...], tuple[str | None, bool]] = {}
        self.mixed = False

    def look(self, row: _Row) -> tuple[str | None, bool]:
        """The class by rule, and whether the series' own labels decided it."""
        key = tuple(self._own(row, k) for k in self._keys)
        found = self._memo.get(key)
        if found is None:
            mine = {k: v for k, v in zip(self._keys, key, strict=True) if v}
            name = self._rules.classify({**self._place, **mine})
            own = bool(mine) and (name != self._default or self._rules.classify(mine) is not None)
            found = self._memo[key] = (name, own and name is not None)
        return found

    def _own(self, row: _Row, label: str) -> str:
        value = row.own.get(label, "")
        return "" if label in self._private or self._given.get(label) == value else value

    def prepare(self, rows: Iterable[_Row]) -> None:
        """Look at every series once: a target is mixed when some series has a class of its own that is not the target's."""
        for r in rows:
            name, own = self.look(r)
            if own and name != self._default:
                self.mixed = True

    def __call__(self, row: _Row) -> str:
        name, own = self.look(row)
        if self.mixed and not own:
            return SHARED
        return name or UNCLASSIFIED


def _choose(
    entries: Sequence[Entry], matched: Mapping[Entry, Mapping[Part, list[_Row]]]
) -> dict[str, list[Entry]]:
    """For each signal of a component the entries to take."""
    present: dict[str, list[Entry]] = {}
    for e in entries:
        if e in matched:
            present.setdefault(e.signal, []).append(e)
    pair = _pair(entries, present)
    out: dict[str, list[Entry]] = {}
    for signal, found in present.items():
        combine = found[0].combine
        if combine == "sum":
            out[signal] = found
        elif combine == "separate":
            first: dict[object, Entry] = {}
            for e in found:
                own = (e.source.as_, frozenset(e.source.set.items()), frozenset(e.source.dims.values()))
                first.setdefault(own, e)
            out[signal] = list(first.values())
        else:
            out[signal] = [next((e for e in found if pair and e.source.pair == pair), found[0])]
    return out


def _pair(entries: Sequence[Entry], present: Mapping[str, list[Entry]]) -> str:
    """The first pair name for which every paired signal has a source in the target; empty where none is complete."""
    signals = {e.signal for e in entries if e.source.pair}
    for name in dict.fromkeys(e.source.pair for e in entries if e.source.pair):
        if all(any(e.source.pair == name for e in present.get(s, [])) for s in signals):
            return name
    return ""


def _usable(entry: Entry, parts: Mapping[Part, list[_Row]]) -> bool:
    source = entry.source
    if source.use in ("sum", "count"):
        return bool(parts.get(source.use))
    return any(parts.values())


def _group(
    rows: Sequence[_Row], without: set[str]
) -> dict[tuple[str, frozenset[tuple[str, str]]], list[_Row]]:
    out: dict[tuple[str, frozenset[tuple[str, str]]], list[_Row]] = {}
    for r in rows:
        key = frozenset((k, v) for k, v in r.own.items() if k not in without)
        out.setdefault((r.name, key), []).append(r)
    return out


def _rank_key(row: _Row, copies: Sequence[str]) -> tuple[tuple[int, str], ...]:
    return tuple((len(v), v) for c in copies for v in [row.own.get(c, "")])


def _first(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    return next((v for k in keys if (v := labels.get(k))), "")


def _edge(text: str, scale: float) -> float | None:
    """An upper edge in the canonical unit; ``1`` and ``1.0`` are one edge. None where it is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    if math.isnan(value) or value == -math.inf:
        return None
    return value if math.isinf(value) else float(f"{value * scale:.12g}")


def _product(labels: Mapping[str, str], choices: Sequence[Sequence[str]]) -> float:
    """The product of the first group of labels that are all numbers; NaN where none is."""
    for names in choices:
        try:
            value = math.prod(float(labels[n]) for n in names)
        except (KeyError, ValueError):
            continue
        if math.isfinite(value) and value > 0:
            return value
    return math.nan
