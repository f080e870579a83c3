"""What a dictionary file may say: the schema of ``collectors/engines/*.yaml``, checked when a file is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from core.signals import SIGNALS, Signal

_ENGINE_PREFIX = re.compile(r"^(?:kserve_|ray_)?(vllm|sglang|lmdeploy|lmcache|llamacpp|trtllm|pytrtllm)[:_]")


@lru_cache(maxsize=16384)
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
    labels, not the sample. ``times``, ``over``: multiply with, or divide by, this family of the same labels. ``buckets``:
    false keeps only total and count of a histogram. ``plus``: families added to this one. ``pick: newest``: only the
    series with the largest value, worth the number of names in its ``names`` label. ``pair``: hits and queries with the
    same pair name belong together. ``minus_one``: -1 means no data. ``else_zero``: the family is there but no series
    passes ``where``: the count is 0. ``fallback``: a weaker form that normally stands beside a better one. ``trust:
    never``: shown by the doctor, never stored. ``flag``: what turns it on in the engine.
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


class Bearing(_Strict):
    """Families that start with ``prefix`` are this component's when some of their series bear the labels ``has``, and
    none bears one of ``lacks``.
    """

    prefix: Strings
    has: Strings
    lacks: Strings = Field(default_factory=list)

    def matches(self, labels: Mapping[str, frozenset[str]]) -> bool:
        """``labels``: label names by canonical family."""
        seen: set[str] = set()
        for name, keys in labels.items():
            if name.startswith(tuple(self.prefix)):
                seen |= keys
        return set(self.has) <= seen and seen.isdisjoint(self.lacks)


class Detect(_Strict):
    """How a component is recognised from family names. ``order``: lower is tried first and is the primary component.
    ``any``: one of these is enough; ``all``: all of them; ``labels``: labels that must occur on them. ``prefix``: any
    family that starts so. ``bearing``: families told by the labels of their series. ``raw_prefix``: as ``prefix``, before
    names are folded. ``fragment``: prefixes that name the component where nothing better is in the text. ``beside``:
    primary components on whose endpoint it may appear too. ``hides``: components whose names it borrows. ``yields``: it
    takes a signal only where no other component of the target has it.
    """

    order: int
    any: Strings = Field(default_factory=list)
    all: Strings = Field(default_factory=list)
    labels: Strings = Field(default_factory=list)
    prefix: Strings = Field(default_factory=list)
    bearing: list[Bearing] = Field(default_factory=list)
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

    def matches(self, labels: Mapping[str, frozenset[str]], raw: Collection[str]) -> bool:
        """True where a target's label names by canonical family, and its ``raw`` family names, are this component's."""
        names = labels.keys()
        if not self._any.isdisjoint(names):
            return True
        if (
            self._all
            and self._all <= names
            and set(self.labels) <= set().union(*(labels[n] for n in self._all))
        ):
            return True
        if self.prefix and any(n.startswith(tuple(self.prefix)) for n in names):
            return True
        if any(b.matches(labels) for b in self.bearing):
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
