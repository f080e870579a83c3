"""Engine dictionaries: which raw metric family is which canonical signal, as data, one YAML file a component.

A file names a component, how to recognise it, which labels mean model and rank, and for each canonical signal its *sources* in
priority order. The schema is checked when a dictionary is loaded; errors name file and entry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from core.errors import ConfigError
from core.signals import SIGNALS, Signal

FOLDER = Path(__file__).parent / "engines"

_ENGINE_PREFIX = re.compile(r"^(?:kserve_|ray_)?(vllm|sglang|lmdeploy|lmcache|llamacpp|trtllm|pytrtllm)[:_]")


def canonical_name(name: str) -> str:
    """The one spelling of a family that exists with ``:`` and ``_``, with Ray's or KServe's prefix, or with dots (rule R1)."""
    folded = _ENGINE_PREFIX.sub(r"\1:", name, count=1)
    return folded.replace(".", "_") if "." in folded else folded


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_mapping(value: object) -> object:
    """A list of labels is the mapping of each to itself."""
    return {k: k for k in value} if isinstance(value, list) else value


Strings = Annotated[list[str], BeforeValidator(_as_list)]
Renames = Annotated[dict[str, str], BeforeValidator(_as_mapping)]
MetricType = Literal["counter", "gauge", "histogram", "summary", "info"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Strict):
    """One raw family as a source of one canonical signal.

    ``family`` is the exposed name without ``_bucket``, ``_sum``, ``_count`` (counters with ``_total`` where they have
    it); ``also`` are other spellings of the same family. ``where`` filters series: a value, a list of values, ``~regex``
    (anchored), ``!value``, ``!~regex``. ``use``: take the ``sum`` or ``count`` of a histogram or summary instead of its
    buckets. ``as``: the derived form of the signal that this source can give. ``count``: family that counts the
    observations of a cumulative sum. ``dims``: raw label kept, under which column label. ``set``: fixed column labels.
    ``values``: canonical words for raw label values, by column label. ``from_labels``: the value is the product of these
    labels, not the sample. ``times``: multiply with this family of the same labels. ``plus``: families added to this one.
    ``pick: newest``: only the series with the largest value, worth the number of names in its ``names`` label. ``pair``:
    hits and queries with the same pair name belong together. ``minus_one``: -1 means no data. ``else_zero``: the family
    is there but no series passes ``where``: the count is 0. ``fallback``: a weaker form that normally stands beside a
    better one. ``trust: never``: shown by the doctor, never stored. ``flag``: what turns it on in the engine.
    """

    family: str
    also: Strings = Field(default_factory=list)
    type: MetricType
    where: dict[str, str | list[str]] = Field(default_factory=dict)
    use: Literal["sum", "count", "value"] | None = None
    as_: str = Field(default="", alias="as")
    count: str = ""
    scale: float = 1.0
    dims: Renames = Field(default_factory=dict)
    set: dict[str, str] = Field(default_factory=dict)
    values: dict[str, dict[str, str]] = Field(default_factory=dict)
    from_labels: list[Strings] = Field(default_factory=list)
    times: str = ""
    over: str = ""
    buckets: bool = True
    plus: Strings = Field(default_factory=list)
    pick: Literal["newest"] | None = None
    names: str = ""
    pair: str = ""
    minus_one: bool = False
    trust: Literal["full", "never"] = "full"
    else_zero: bool = False
    fallback: bool = False
    flag: str = ""
    note: str = ""

    @cached_property
    def families(self) -> tuple[str, ...]:
        """Canonical spellings of the family and its alternatives."""
        return tuple(dict.fromkeys(canonical_name(f) for f in (self.family, *self.also)))

    @cached_property
    def _tests(self) -> tuple[tuple[str, bool, re.Pattern[str] | frozenset[str]], ...]:
        out: list[tuple[str, bool, re.Pattern[str] | frozenset[str]]] = []
        for label, wanted in self.where.items():
            negate = isinstance(wanted, str) and wanted.startswith("!")
            text = wanted[1:] if isinstance(wanted, str) and negate else wanted
            if isinstance(text, str) and text.startswith("~"):
                out.append((label, negate, re.compile(text[1:])))
            else:
                out.append((label, negate, frozenset([text] if isinstance(text, str) else text)))
        return tuple(out)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """True where the series passes ``where``; an absent label is the empty string."""
        for label, negate, wanted in self._tests:
            value = labels.get(label, "")
            hit = wanted.fullmatch(value) is not None if isinstance(wanted, re.Pattern) else value in wanted
            if hit == negate:
                return False
        return True


class SignalSources(_Strict):
    """The sources of one signal. ``combine: first`` takes the first present; ``sum`` adds all present; ``separate`` keeps each
    under its own ``set`` labels or form (equal ones are alternatives, the first present wins)."""

    combine: Literal["first", "sum", "separate"] = "first"
    sources: list[Source]


class Derived(_Strict):
    """A signal that is computed from others when read, not stored: ``formula`` in words, ``needs`` the signals it takes."""

    formula: str
    needs: list[str]
    flag: str = ""


class LabelRoles(_Strict):
    """Raw labels by meaning. ``rank``: ranks that split the work. ``copies``: ranks that repeat it. ``role``: prefill,
    decode or unified. ``private``: labels that mean something else here than in the fleet (SGLang's ``pool`` is a KV
    pool); they never decide a class. ``total_when_empty``: a series without this label is the total of those with it
    (rule R9).
    """

    model: Strings = Field(default_factory=list)
    rank: Strings = Field(default_factory=list)
    copies: Strings = Field(default_factory=list)
    role: Strings = Field(default_factory=list)
    version: Strings = Field(default_factory=list)
    private: Strings = Field(default_factory=list)
    total_when_empty: Strings = Field(default_factory=list)


class Detect(_Strict):
    """How a component is recognised from family names. ``order``: lower is tried first and is the primary component.
    ``any``: one of these is enough; ``all``: all of them; ``labels``: labels that must occur on them. ``prefix``: any
    family that starts so. ``raw_prefix``: as ``prefix``, before names are folded. ``fragment``: prefixes that name the
    component where nothing better is in the text. ``beside``: primary components on whose endpoint it may appear too.
    ``hides``: components whose names it borrows.
    """

    order: int
    any: Strings = Field(default_factory=list)
    all: Strings = Field(default_factory=list)
    labels: Strings = Field(default_factory=list)
    prefix: Strings = Field(default_factory=list)
    raw_prefix: Strings = Field(default_factory=list)
    fragment: Strings = Field(default_factory=list)
    beside: Strings = Field(default_factory=list)
    hides: Strings = Field(default_factory=list)
    yields: bool = False

    @cached_property
    def _any(self) -> frozenset[str]:
        return frozenset(map(canonical_name, self.any))

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset(map(canonical_name, self.all))

    @cached_property
    def _fragments(self) -> tuple[str, ...]:
        return tuple(map(canonical_name, self.fragment))

    def matches(self, names: Collection[str], raw: Collection[str], labels: Collection[str]) -> bool:
        """True where the canonical ``names``, ``raw`` names and label names of a target are this component's."""
        if not self._any.isdisjoint(names):
            return True
        if self._all and self._all <= set(names) and set(self.labels) <= set(labels):
            return True
        if self.prefix and any(n.startswith(tuple(self.prefix)) for n in names):
            return True
        return bool(self.raw_prefix) and any(n.startswith(tuple(self.raw_prefix)) for n in raw)

    def fragments(self, names: Collection[str]) -> int:
        """How many of the names bear one of the component's prefixes."""
        return sum(n.startswith(self._fragments) for n in names) if self._fragments else 0


class Component(_Strict):
    """One component's dictionary as its file says it."""

    component: str
    title: str
    detect: Detect
    labels: LabelRoles = Field(default_factory=LabelRoles)
    enable: str = ""
    port: str = ""
    inherits: str = ""
    signals: dict[str, SignalSources]
    derived: dict[str, list[Derived]] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)
    known: Strings = Field(default_factory=list)
    notes: Strings = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _shorten(cls, data: Any) -> Any:
        """A plain list of sources means ``combine: first``."""
        if isinstance(data, dict) and isinstance(data.get("signals"), dict):
            signals = {k: {"sources": v} if isinstance(v, list) else v for k, v in data["signals"].items()}
            return {**data, "signals": signals}
        return data

    @model_validator(mode="after")
    def _known_signals(self) -> Component:
        for id in (*self.signals, *self.derived, *self.absent):
            if id not in SIGNALS or SIGNALS[id].of:
                raise ValueError(f"signals.{id}: no canonical signal of that name")
        for id, entry in self.signals.items():
            for i, source in enumerate(entry.sources):
                _check_source(f"signals.{id}[{i}] ({source.family})", SIGNALS[id], source)
        return self


def _check_source(where: str, signal: Signal, source: Source) -> None:
    """A source must be able to give the signal, under labels that the signal declares. ValueError says which cannot."""
    form = SIGNALS.get(source.as_ or signal.id)
    if form is None or form.base != signal.id:
        raise ValueError(f"{where}: {source.as_!r} is no form of {signal.id}")
    if form.kind == "histogram" and source.type != "histogram" and not source.as_ and source.type == "gauge":
        form = SIGNALS[f"{signal.id}_mean"]
    labels = {*source.dims.values(), *source.set}
    extra = labels - set(form.labels)
    if extra:
        raise ValueError(f"{where}: column labels {sorted(extra)} are not declared by signal {form.id}")
    if source.pick and not source.names:
        raise ValueError(f"{where}: pick needs names, the label that lists them")
    for label, wanted in source.where.items():
        if isinstance(wanted, str) and wanted.lstrip("!").startswith("~"):
            try:
                re.compile(wanted.lstrip("!")[1:])
            except re.error as error:
                raise ValueError(f"{where}: where.{label}: {error}") from None


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
        names = {canonical_name(n) for n in raw}
        labels = {k for _, ls in series for k in ls}
        found = [c for c in self.ordered if c.detect.matches(names, raw, labels)]
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
    from hashlib import blake2b

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
            f"{path.name}: {place}" if place else path.name, first["msg"], "see collectors/dictionary.py"
        ) from None
