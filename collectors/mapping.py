"""From the series of one target to columns of canonical signals: decide once (:func:`plan`), then apply to values at speed.

:func:`plan` looks only at names and labels. It recognises the components, chooses one raw family per canonical signal (rule R12),
groups series into columns and compiles that into index arrays. :class:`collectors.plan.Plan` turns vectors of raw values into the
flat arrays of a reading, for one instant or for many at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collectors.dictionary import Dictionary, Entry, Part, canonical_name
from collectors.mapping_classes import Classifier
from collectors.mapping_columns import ColumnMaker, product
from collectors.mapping_rows import START, Matched, Row, first, row, without_copies, without_parts
from collectors.plan import Chosen, Plan, Silent
from core.classes import ClassRules
from core.frames import Target

_NO_MODEL = frozenset({"unknown_model", "undefined", "unknown", "None", "none"})
"""What engines write where a request or a series belongs to no model."""

Series = Sequence[tuple[str, Mapping[str, str]]]


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
        self.rows = [row(i, name, labels, target.labels) for i, (name, labels) in enumerate(series)]
        there = [True] * len(series) if present is None else [bool(times.any()) for times in present]
        self.components = dictionary.detect([s for s, t in zip(series, there, strict=True) if t])
        self.by_name: dict[str, list[Row]] = {}
        for r in self.rows:
            if there[r.index]:
                self.by_name.setdefault(r.name, []).append(r)
        self.dropped: dict[str, int] = {}
        self.used: set[int] = set()
        self.silent: dict[str, Silent] = {}

    def build(self) -> Plan:
        matched: Matched = {c: self._match(c) for c in self.components}
        chosen, also = self._choose(matched)
        columns = self._columns(chosen, matched)
        signals: dict[str, Chosen] = {}
        for name, entries in chosen:
            signal, before = entries[0].signal, len(columns.builder.columns)
            for entry in entries:
                if entry.source.trust == "full" and entry.source.family != START:
                    columns.emit(self.dictionary.components[name], entry, matched[name][entry])
            families = tuple(dict.fromkeys(e.source.family for e in entries))
            signals[signal] = Chosen(
                signal,
                name,
                families,
                tuple(columns.builder.columns[before:]),
                tuple(f for f in dict.fromkeys(also.get(signal, ())) if f not in families),
                entries[0].combine,
                tuple(dict.fromkeys(e.source.note for e in entries if e.source.note)),
                entries[0].source.trust == "never",
                tuple(r.index for e in entries for rs in matched[name][e].values() for r in rs),
            )
        return self._finish(columns, signals)

    # ------------------------------------------------------------------ choice

    def _match(self, component: str) -> dict[Entry, dict[Part, list[Row]]]:
        """The rows of each entry by part of the family, thinned of parts beside totals and of repeated ranks."""
        lookup = self.dictionary.lookup(component)
        roles = self.dictionary.components[component].labels
        out: dict[Entry, dict[Part, list[Row]]] = {}
        rest: dict[Entry, dict[Part, list[Row]]] = {}
        for name, rows in self.by_name.items():
            for entry, part in lookup.get(name, ()):
                if part == "aux":
                    self.used.update(r.index for r in rows)
                    continue
                source = entry.source
                here = [r for r in rows if "le" in r.full] if part == "bucket" else rows
                hits = [r for r in here if source.accepts(r.full)] if source.where else here
                store = out
                if not hits and here:
                    if source.else_zero:
                        hits, store = here, rest
                    else:
                        self.silent.setdefault(
                            entry.signal, Silent(component, source.family, dict(source.where))
                        )
                if hits:
                    store.setdefault(entry, {}).setdefault(part, []).extend(hits)
        for entry, found in rest.items():
            out.setdefault(entry, found)
        for parts in out.values():
            for part, rows in parts.items():
                whole = without_parts(rows, roles.total_when_empty)
                kept = without_copies(whole, roles.copies)
                self._drop("part_beside_total", len(rows) - len(whole))
                self._drop("repeated_rank", len(whole) - len(kept))
                parts[part] = kept
        return {e: p for e, p in out.items() if self._usable(e, p)}

    def _usable(self, entry: Entry, parts: Mapping[Part, list[Row]]) -> bool:
        """True where the rows can give the signal: the part that is used, the factor, the labels that hold the value."""
        source = entry.source
        if source.use in ("sum", "count"):
            return bool(parts.get(source.use))
        factor = source.times or source.over
        if factor and canonical_name(factor) not in self.by_name:
            return False
        if source.from_labels:
            return any(
                not math.isnan(product(r.full, source.from_labels)) for rs in parts.values() for r in rs
            )
        return any(parts.values())

    def _choose(self, matched: Matched) -> tuple[list[tuple[str, list[Entry]]], dict[str, list[str]]]:
        """The entries of each signal with their component, and every family present for it. Who yields comes last."""
        chosen: list[tuple[str, list[Entry]]] = []
        taken: set[str] = set()
        also: dict[str, list[str]] = {}
        for name in sorted(self.components, key=lambda c: self.dictionary.components[c].detect.yields):
            entries = self.dictionary.entries(name)
            for e in entries:
                if e in matched[name] and not e.source.fallback:
                    also.setdefault(e.signal, []).append(e.source.family)
            for signal, picked in _pick(entries, matched[name]).items():
                if signal not in taken:
                    taken.add(signal)
                    chosen.append((name, picked))
        return chosen, also

    def _drop(self, reason: str, n: int) -> None:
        if n:
            self.dropped[reason] = self.dropped.get(reason, 0) + n

    # ------------------------------------------------------------------ labels

    def _columns(self, chosen: Sequence[tuple[str, list[Entry]]], matched: Matched) -> ColumnMaker:
        """The maker of columns, which must know first how many models, ranks and classes the target has."""
        models: dict[str, None] = {}
        ranks: dict[str, None] = {}
        for name, part, rows in _each(chosen, matched):
            roles = self.dictionary.components[name].labels
            for r in rows:
                if model := first(r.full, roles.model):
                    models[model] = None
                if part == "value" and (rank := first(r.full, roles.rank)):
                    ranks[rank] = None
        self.models = tuple(models)
        place: dict[str, str] = {}
        private: list[str] = []
        for c in self.components:
            roles = self.dictionary.components[c].labels
            private += roles.private
            if len(models) == 1:  # the one model of a target counts as the target's own label
                place |= dict.fromkeys(roles.model, self.models[0])
        class_of = Classifier(self.classes, self.target, place, private)
        for _, _, rows in _each(chosen, matched):
            class_of.prepare(rows)
        return ColumnMaker(self.by_name, class_of, self.models, tuple(ranks), self.present)

    # ------------------------------------------------------------------ result

    def _only(self, role: str) -> str:
        """The value of a label role where all series that have one agree."""
        found = {
            v
            for c in self.components
            if (keys := getattr(self.dictionary.components[c].labels, role))
            for r in self.rows
            if (v := first(r.full, keys))
        }
        return found.pop() if len(found) == 1 else ""

    def _finish(self, columns: ColumnMaker, signals: dict[str, Chosen]) -> Plan:
        process = [r.index for r in self.by_name.get(START, [])]
        created = [r.index for r in self.rows if r.name.endswith("_created")]
        used = self.used | columns.used | set(process) | set(created)
        self._drop("created", len(created))
        self._drop("unmapped", self.size - len(used))
        for reason, n in columns.dropped.items():
            self._drop(reason, n)
        real = [m for m in self.models if m not in _NO_MODEL]
        target = replace(
            self.target,
            components=self.components,
            model=self.target.model or (real[0] if len(real) == 1 else ""),
            role=self.target.role or self._only("role"),
            version=self.target.version or self._only("version"),
        )
        layout, folds = columns.builder.finish()
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
            used=frozenset(used),
            dropped=self.dropped,
            silent={k: v for k, v in self.silent.items() if k not in signals},
            notes=tuple(dict.fromkeys(columns.notes)),
        )


def _each(
    chosen: Sequence[tuple[str, list[Entry]]], matched: Matched
) -> Iterator[tuple[str, Part, list[Row]]]:
    for name, entries in chosen:
        for e in entries:
            for part, rows in matched[name][e].items():
                yield name, part, rows


def _pick(
    entries: Sequence[Entry], matched: Mapping[Entry, Mapping[Part, list[Row]]]
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
