"""Records of other tools as records of Gustfront: one mapping file a format (``collectors/formats/*.yaml``).

A file says how to recognise a record (``detect``), where the outputs in it are (``each``), which of them are none (``skip``) and,
for each field, a JMESPath expression and what to make of its value (``as``). Nothing in a record is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jmespath
import yaml
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collectors import messages
from core.errors import ConfigError
from core.times import parse_time

FOLDER = Path(__file__).resolve().parent / "formats"
NATIVE = "gustfront"
"""Records that are Gustfront's own already; the format of whatever no mapping recognises."""


class FieldSpec(BaseModel):
    """Where a field is and what it is; ``minus`` is subtracted (both are times then, the result is seconds)."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    at: str
    as_: str = Field(default="plain", alias="as")
    minus: str | None = None


class FormatSpec(BaseModel):
    """One mapping file."""

    model_config = ConfigDict(extra="forbid")
    id: str
    title: str
    documentation: str
    detect: str
    each: str = "@"
    skip: str | None = None
    fields: dict[str, str | FieldSpec]


def _time(value: Any) -> Any:
    """Unix seconds of ISO text or of a number in s, ms, µs or ns: told by its size, which years 2000 to 2099 keep apart."""
    if isinstance(value, str) and value.strip():
        try:
            return float(value) if value.isdigit() and len(value) < 12 else _scaled(float(value))
        except ValueError:
            pass
        try:
            return parse_time(value)
        except ConfigError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _scaled(float(value))
    return value


def _scaled(value: float) -> float:
    for limit, unit in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)):
        if value >= limit:
            return value * unit
    return value


def _number(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _milliseconds(value: Any) -> Any:
    value = _number(value)
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else (None if isinstance(value, list) else value)


KINDS: Mapping[str, Callable[[Any], Any]] = {
    "plain": lambda v: v,
    "time": _time,
    "number": _number,
    "milliseconds": _milliseconds,
    "first": _first,
    "prompt": messages.prompt,
    "tools": messages.tools,
    "response_format": messages.response_schema,
    "answer": messages.answer,
    "json": messages.opened,
}
"""What ``as`` can say."""


@dataclass(frozen=True)
class Format:
    """A mapping ready for use."""

    spec: FormatSpec
    _detect: ParsedResult
    _each: ParsedResult
    _skip: ParsedResult | None
    _fields: tuple[tuple[str, ParsedResult, ParsedResult | None, Callable[[Any], Any]], ...]

    @classmethod
    def of(cls, spec: FormatSpec) -> Format:
        """Compile it; ConfigError where an expression or a kind is wrong."""

        def compiled(expression: str, where: str) -> ParsedResult:
            try:
                return jmespath.compile(expression)
            except JMESPathError as error:
                raise ConfigError(f"formats/{spec.id}.yaml {where}", f"is no JMESPath: {error}") from None

        fields = []
        for name, entry in spec.fields.items():
            field = FieldSpec(at=entry) if isinstance(entry, str) else entry
            if field.as_ not in KINDS:
                raise ConfigError(
                    f"formats/{spec.id}.yaml {name}.as", "is unknown", f"one of {', '.join(KINDS)}", field.as_
                )
            minus = None if field.minus is None else compiled(field.minus, name)
            fields.append((name, compiled(field.at, name), minus, KINDS[field.as_]))
        return cls(
            spec,
            compiled(spec.detect, "detect"),
            compiled(spec.each, "each"),
            None if spec.skip is None else compiled(spec.skip, "skip"),
            tuple(fields),
        )

    def recognises(self, data: Mapping[str, Any]) -> bool:
        """Whether a record is of this format."""
        return bool(_search(self._detect, data))

    def records(self, data: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The outputs in one record, as Gustfront's fields; fields that are absent are left out."""
        found = _search(self._each, data)
        items = found if isinstance(found, list) else [found]
        return [
            self._record(item)
            for item in items
            if isinstance(item, Mapping) and not (self._skip is not None and _search(self._skip, item))
        ]

    def _record(self, item: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, at, minus, convert in self._fields:
            value = _search(at, item)
            if value is None:
                continue
            if minus is not None:
                begun = _time(_search(minus, item))
                value = _time(value)
                if isinstance(value, float | int) and isinstance(begun, float | int) and value >= begun:
                    out.setdefault(name, value - begun)
                continue
            value = convert(value)
            if isinstance(value, messages.Answer):
                _spread(value, out)
            elif value is not None:
                out.setdefault(name, value)
        return out


def _spread(answer: messages.Answer, out: dict[str, Any]) -> None:
    """An answer's parts as fields, none of which replaces one that was given before."""
    if answer.text is not None:
        out.setdefault("output", answer.text)
    if answer.tool_calls:
        out.setdefault("tool_calls", answer.tool_calls)
    if answer.finish_reason:
        out.setdefault("finish_reason", answer.finish_reason)
    if answer.logprobs:
        out.setdefault("logprobs", answer.logprobs)


def _search(expression: ParsedResult, data: Any) -> Any:
    try:
        return expression.search(data)
    except JMESPathError:
        return None  # a value of an unexpected type inside the record: absent


@cache
def formats() -> Mapping[str, Format]:
    """Every mapping file by id. ConfigError names the file that is wrong."""
    out = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        try:
            spec = FormatSpec.model_validate(yaml.safe_load(path.read_text("utf-8")))
        except (yaml.YAMLError, ValidationError) as error:
            raise ConfigError(f"formats/{path.name}", f"cannot be read: {str(error)[:300]}") from None
        out[spec.id] = Format.of(spec)
    return out


def format_names() -> tuple[str, ...]:
    """``auto``, Gustfront's own and every mapping."""
    return ("auto", NATIVE, *formats())


def check_format(name: str, path: str = "--format") -> str:
    """The name, if it is one; ConfigError otherwise."""
    if name not in format_names():
        raise ConfigError(path, "no such format", f"one of {', '.join(format_names())}", name)
    return name


class Translator:
    """Records of one input to Gustfront's records; ``auto`` decides for each record, trying what fitted last first."""

    def __init__(self, name: str = "auto") -> None:
        self._auto = check_format(name) == "auto"
        self._format = None if name in ("auto", NATIVE) else formats()[name]
        self._order: list[Format] = list(formats().values()) if self._auto else []

    def __call__(self, data: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """The outputs in one record. A record of an unknown shape is taken for Gustfront's own."""
        if not self._auto:
            return (data,) if self._format is None else self._format.records(data)
        if "id" in data and "ts" in data and not ("request" in data and "response" in data):
            return (data,)
        for i, known in enumerate(self._order):
            if known.recognises(data):
                if i:
                    self._order.insert(0, self._order.pop(i))
                return known.records(data)
        return (data,)
