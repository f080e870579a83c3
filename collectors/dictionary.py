"""Engine dictionaries: which raw metric family is which canonical signal, as data, one YAML file a component.

A file names a component, how to recognise it, which labels mean model and rank, and for each canonical signal its *sources* in
priority order (:mod:`collectors.dictionary_schema`). Errors name file and entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from collectors.dictionary_schema import Component, Derived, Source, canonical_name
from core.errors import ConfigError

__all__ = [
    "FOLDER",
    "Component",
    "Derived",
    "Dictionary",
    "Entry",
    "Part",
    "Source",
    "canonical_name",
    "load_dictionary",
    "read_dictionary",
]

FOLDER = Path(__file__).parent / "engines"

Part = Literal["bucket", "sum", "count", "value", "aux"]


@dataclass(frozen=True, eq=False)
class Entry:
    """A source with its place: component, canonical signal id, how the signal combines, and position in the list."""

    component: str
    signal: str
    combine: str
    position: int
    source: Source


@dataclass(frozen=True)
class Dictionary:
    """All components. ``version`` changes whenever a file does (16 hexadecimal digits)."""

    components: Mapping[str, Component]
    version: str

    @cached_property
    def ordered(self) -> tuple[Component, ...]:
        """Components in the order in which they are tried."""
        return tuple(sorted(self.components.values(), key=lambda c: (c.detect.order, c.component)))

    def entries(self, component: str) -> Sequence[Entry]:
        """Every source of a component in priority order, inherited ones after its own."""
        return self._entries[component]

    def derived(self, component: str) -> Mapping[str, list[Derived]]:
        """Signals of a component that are computed from others, inherited ones included."""
        c = self.components[component]
        return {**(self.components[c.inherits].derived if c.inherits else {}), **c.derived}

    @cached_property
    def _entries(self) -> Mapping[str, tuple[Entry, ...]]:
        out: dict[str, tuple[Entry, ...]] = {}
        for name, c in self.components.items():
            merged = dict(c.signals)
            if c.inherits:
                for id, entry in self.components[c.inherits].signals.items():
                    merged.setdefault(id, entry)
            out[name] = tuple(
                Entry(name, id, e.combine, i, s) for id, e in merged.items() for i, s in enumerate(e.sources)
            )
        return out

    def lookup(self, component: str) -> Mapping[str, tuple[tuple[Entry, Part], ...]]:
        """For a component: canonical series name to the entries it can feed, and as which part of the family."""
        return self._lookup[component]

    @cached_property
    def _lookup(self) -> Mapping[str, Mapping[str, tuple[tuple[Entry, Part], ...]]]:
        out: dict[str, Mapping[str, tuple[tuple[Entry, Part], ...]]] = {}
        for name in self.components:
            table: dict[str, dict[tuple[Entry, Part], None]] = {}
            for entry in self.entries(name):
                for series, part in _series_names(entry.source):
                    table.setdefault(series, {})[(entry, part)] = None
            out[name] = {k: tuple(v) for k, v in table.items()}
        return out

    def detect(self, series: Sequence[tuple[str, Mapping[str, str]]]) -> tuple[str, ...]:
        """Components of a target, the primary one first; empty where its text cannot tell."""
        raw = {_family(name) for name, _ in series}
        labels: dict[str, set[str]] = {}
        for name, bears in series:
            labels.setdefault(canonical_name(_family(name)), set()).update(k for k, v in bears.items() if v)
        names = labels.keys()
        frozen = {n: frozenset(k) for n, k in labels.items()}
        found = [c for c in self.ordered if c.detect.matches(frozen, raw)]
        if not found:
            scored = [(c.detect.fragments(names), c) for c in self.ordered]
            best = max((n for n, _ in scored), default=0)
            if not best:
                return ()
            found = [next(c for n, c in scored if n == best)]
        primary = found[0]
        beside = [
            c.component
            for c in self.ordered
            if c is not primary
            and primary.component in c.detect.beside
            and c.component not in primary.detect.hides
            and (c in found or c.detect.fragments(names))
        ]
        return (primary.component, *beside)


def _family(name: str) -> str:
    """A series name without the suffix of a histogram part; detection looks at families."""
    for suffix in ("_bucket", "_sum", "_count", "_created"):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _series_names(source: Source) -> list[tuple[str, Part]]:
    """The series names that a source reads. Counters are known with and without ``_total`` (rule R3)."""
    out: list[tuple[str, Part]] = []
    for family in source.families:
        if source.type in ("histogram", "summary"):
            if source.type == "histogram" and source.use in (None, "value"):
                out += [(f"{family}_bucket", "bucket"), (family, "bucket")]
            out += [(f"{family}_sum", "sum"), (f"{family}_count", "count")]
        elif source.type == "counter":
            stem = family.removesuffix("_total")
            out += [(f"{stem}_total", "value"), (stem, "value")]
        else:
            out.append((family, "value"))
    for extra in (source.count, source.times, source.over, *source.plus):
        if extra:
            stem = canonical_name(extra).removesuffix("_total")
            out += [(stem, "aux"), (f"{stem}_total", "aux")]
    return out


@lru_cache(maxsize=1)
def load_dictionary() -> Dictionary:
    """The dictionaries that come with Gustfront. ConfigError names file and entry where one is wrong."""
    return read_dictionary(FOLDER)


def read_dictionary(folder: Path) -> Dictionary:
    """The dictionaries of a folder of YAML files."""
    components: dict[str, Component] = {}
    digest = blake2b(digest_size=8)
    for path in sorted(folder.glob("*.yaml")):
        raw = path.read_bytes()
        digest.update(path.name.encode() + b"\0" + raw)
        component = _read_component(path, raw)
        if component.component in components:
            raise ConfigError(path.name, f"component {component.component} is defined twice", "keep one file")
        components[component.component] = component
    for c in components.values():
        for field, names in (
            ("inherits", [c.inherits] if c.inherits else []),
            ("detect.beside", c.detect.beside),
            ("detect.hides", c.detect.hides),
        ):
            for other in names:
                if other not in components:
                    raise ConfigError(f"{c.component}.yaml: {field}", "no such component", value=other)
    return Dictionary(components, digest.hexdigest())


def _read_component(path: Path, raw: bytes) -> Component:
    try:
        data = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return Component.model_validate(data)
    except yaml.YAMLError as error:
        raise ConfigError(path.name, f"not valid YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        raise ConfigError(
            f"{path.name}: {place}" if place else path.name,
            first["msg"],
            "see collectors/dictionary_schema.py",
        ) from None
