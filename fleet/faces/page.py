"""One exposition: families with their series, one float a line, text that is made again only where a value moved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleet.faces.numbers import Spelling, python_number

Floats = NDArray[np.float64]
Labels = tuple[tuple[str, str], ...]


def escape(text: str) -> str:
    """A label value or help text as the format wants it."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@dataclass(slots=True)
class Family:
    """One HELP and TYPE with its series; ``slots`` in the order of their lines."""

    name: str
    kind: str
    help: str
    slots: list[int] = field(default_factory=list)
    born: list[Labels] = field(default_factory=list)  # label sets of _created lines


class Histogram:
    """One series of a histogram family. ``slots`` from ``first``: a cumulative count per edge, +Inf, sum, count."""

    __slots__ = ("edges", "first", "page", "size")

    def __init__(self, page: Page, first: int, edges: Floats) -> None:
        self.page, self.first, self.edges = page, first, edges
        self.size = len(edges) + 1

    def observe(self, values: Iterable[float], weights: Iterable[float] | None = None) -> None:
        """Add observations; ``weights`` are how often each was made."""
        x = np.asarray(values if isinstance(values, (list, np.ndarray)) else list(values), np.float64)
        if not len(x):
            return
        place = np.searchsorted(self.edges, x, side="left")
        out = self.page.values
        a, b = self.first, self.first + self.size
        if weights is None:
            add = np.bincount(place, minlength=self.size)
            out[b] += x.sum()
            out[b + 1] += len(x)
        else:
            w = np.asarray(weights if isinstance(weights, (list, np.ndarray)) else list(weights), np.float64)
            add = np.bincount(place, w, minlength=self.size)
            out[b] += (x * w).sum()
            out[b + 1] += w.sum()
        out[a:b] += np.cumsum(add)

    @property
    def count(self) -> float:
        """Observations so far."""
        return float(self.page.values[self.first + self.size + 1])


class Page:
    """The exposition of one process.

    ``created``: Unix time written as ``_created`` of counters and histograms (None: as in multi-process mode, none).
    Series appear when first asked for and stay until the process ends. ``carry`` gives the page a past: what is added
    to each value that is shown.
    """

    def __init__(self, number: Spelling = python_number, created: float | None = None) -> None:
        self.number, self.created = number, created
        self.values: Floats = np.zeros(256)
        self.size = 0
        self.series: list[tuple[str, Labels]] = []
        self.family_of: list[str] = []
        self.families: dict[str, Family] = {}
        self._known: dict[tuple[str, Labels], int] = {}
        self._hists: dict[tuple[str, Labels], Histogram] = {}
        self._prefixes: list[str] = []
        self._pieces: list[str] = []
        self._place: NDArray[np.intp] = np.zeros(0, np.intp)
        self._shown: Floats = np.zeros(0)
        self._text: str | None = None
        self._base: Floats = np.zeros(0)

    # ------------------------------------------------------------------------------------------------ series

    def _family(self, name: str, kind: str, help: str) -> Family:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = Family(name, kind, help or name.replace("_", " "))
        return family

    def _add(self, family: Family, names: Iterable[tuple[str, Labels]]) -> int:
        first = self.size
        for name, labels in names:
            if self.size == len(self.values):
                self.values = np.concatenate([self.values, np.zeros(len(self.values))])
            self.series.append((name, labels))
            self.family_of.append(family.name)
            inside = ",".join(f'{k}="{escape(v)}"' for k, v in labels)
            self._prefixes.append(f"{name}{{{inside}}} " if inside else f"{name} ")
            family.slots.append(self.size)
            self.size += 1
        self._text = None
        return first

    def _scalar(self, kind: str, name: str, labels: Mapping[str, str], help: str, start: float) -> int:
        pairs = tuple(sorted(labels.items()))
        slot = self._known.get((name, pairs))
        if slot is None:
            family = self._family(name, kind, help)
            slot = self._known[(name, pairs)] = self._add(family, [(name, pairs)])
            self.values[slot] = start
            if kind == "counter":
                family.born.append(pairs)
        return slot

    def gauge(self, name: str, labels: Mapping[str, str], value: float, help: str = "") -> None:
        """Set a gauge."""
        slot = self._scalar("gauge", name, labels, help, 0.0)  # may make `values` a longer array
        self.values[slot] = value

    def counter(self, name: str, labels: Mapping[str, str], value: float, help: str = "") -> None:
        """Set a counter to its cumulative value."""
        slot = self._scalar("counter", name, labels, help, 0.0)  # may make `values` a longer array
        self.values[slot] = value

    def add(self, name: str, labels: Mapping[str, str], by: float = 1.0, help: str = "") -> None:
        """Move a counter."""
        slot = self._scalar("counter", name, labels, help, 0.0)
        self.values[slot] += by

    def histogram(
        self, name: str, labels: Mapping[str, str], edges: tuple[float, ...], help: str = ""
    ) -> Histogram:
        """The histogram with these labels, made at the first call."""
        pairs = tuple(sorted(labels.items()))
        found = self._hists.get((name, pairs))
        if found is None:
            family = self._family(name, "histogram", help)
            spell = self.number
            rows = [(f"{name}_bucket", (*pairs, ("le", spell(e)))) for e in (*edges, float("inf"))]
            rows += [(f"{name}_sum", pairs), (f"{name}_count", pairs)]
            first = self._add(family, rows)
            family.born.append(pairs)
            found = self._hists[(name, pairs)] = Histogram(self, first, np.asarray(edges, np.float64))
        return found

    # -------------------------------------------------------------------------------------------------- text

    def carry(self, base: Floats) -> None:
        """Add ``base`` to the first ``len(base)`` series wherever they are shown from now on."""
        if len(base) > self.size:
            raise ValueError(f"{len(base)} values for {self.size} series")
        self._base = base.copy()

    def snapshot(self) -> Floats:
        """The values of all series now, in the order of ``series`` (a copy)."""
        out = self.values[: self.size].copy()
        out[: len(self._base)] += self._base
        return out

    @property
    def cumulative(self) -> NDArray[np.bool_]:
        """Which series only grow while the process lives."""
        return np.asarray([self.families[f].kind != "gauge" for f in self.family_of], bool)

    def text(self) -> str:
        """The whole body."""
        values = self.snapshot()
        if self._text is None:
            self._lay_out()
            changed = list(range(self.size))
        else:
            moved = np.flatnonzero(values != self._shown)
            if not len(moved):
                return self._text
            changed = moved.tolist()
        pieces, place, prefixes, number = self._pieces, self._place, self._prefixes, self.number
        for i in changed:
            pieces[place[i]] = prefixes[i] + number(float(values[i]))
        self._shown = values
        self._text = "\n".join(pieces) + "\n"
        return self._text

    def _lay_out(self) -> None:
        pieces: list[str] = []
        place = np.zeros(self.size, np.intp)
        for family in self.families.values():
            pieces += self._head(family.name, family.kind, family.help)
            for slot in family.slots:
                place[slot] = len(pieces)
                pieces.append("")
            if self.created is not None and family.born:
                stem = family.name.removesuffix("_total") if family.kind == "counter" else family.name
                pieces += self._head(f"{stem}_created", "gauge", family.help)
                for labels in family.born:
                    inside = ",".join(f'{k}="{escape(v)}"' for k, v in labels)
                    name = f"{stem}_created{{{inside}}}" if inside else f"{stem}_created"
                    pieces.append(f"{name} {self.number(self.created)}")
        self._pieces, self._place = pieces, place

    @staticmethod
    def _head(name: str, kind: str, help: str) -> list[str]:
        return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]

    def altered(self, values: Floats, hidden: Collection[int]) -> str:
        """A body with other values and without the ``hidden`` slots; nothing is remembered."""
        lines: list[str] = []
        for family in self.families.values():
            rows = [i for i in family.slots if i not in hidden]
            if rows:
                lines += self._head(family.name, family.kind, family.help)
                lines += [self._prefixes[i] + self.number(float(values[i])) for i in rows]
        return "\n".join(lines) + "\n"
