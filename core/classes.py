"""Workload classes: which labels or request fields make a request ``chat`` or ``batch``.

A rule is a name and a list of alternatives; each alternative is a comma-separated conjunction of PromQL
label matchers. First matching rule wins. An empty label is an absent label, as in Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.errors import ConfigError

UNCLASSIFIED = "unclassified"
SHARED = "shared"
OTHER = "other"
RESERVED = frozenset({UNCLASSIFIED, SHARED, OTHER})

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_FIX = """write matchers as in PromQL, such as workload="chat" or pool=~"chat-.*",tenant!="test\""""


def _unquote(text: str) -> str:
    """The string between the quotes; an unknown escape keeps its backslash so that ``\\d`` works in a
    regular expression.
    """
    return _ESCAPE.sub(
        lambda m: _ESCAPES.get(m[1], m[1] if m[1] in "\\\"'" else m[0]),
        text[1:-1],
    )


@dataclass(frozen=True)
class Matcher:
    """One ``label op "value"``; ``op`` is ``=``, ``!=``, ``=~`` or ``!~``, regular expressions anchored at
    both ends.
    """

    label: str
    op: str
    value: str
    _test: Callable[[str], bool] = field(repr=False, compare=False)

    @classmethod
    def of(cls, label: str, op: str, value: str, path: str = "match") -> Matcher:
        """Build one; ConfigError where the regular expression does not compile."""
        if op == "=":
            return cls(label, op, value, value.__eq__)
        if op == "!=":
            return cls(label, op, value, value.__ne__)
        try:
            pattern = re.compile(value, re.DOTALL)
        except re.error as error:
            raise ConfigError(
                path, f"regular expression of {label} does not compile: {error}", _FIX, value
            ) from None
        if op == "=~":
            return cls(label, op, value, lambda v: pattern.fullmatch(v) is not None)
        return cls(label, op, value, lambda v: pattern.fullmatch(v) is None)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True where the label (empty if absent) satisfies the matcher."""
        return self._test(labels.get(self.label) or "")

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.label}{self.op}"{quoted}"'


def parse_matchers(text: str, path: str = "match") -> tuple[Matcher, ...]:
    """The conjunction in ``a="b",c=~"d.*"`` (surrounding braces allowed). ConfigError where it cannot be
    read.
    """
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1].strip()
    out: list[Matcher] = []
    at = 0
    while at < len(body):
        found = _MATCHER.match(body, at)
        if not found:
            raise ConfigError(path, f"cannot read a matcher at character {at + 1}", _FIX, text)
        out.append(Matcher.of(found[1], found[2], _unquote(found[3]), path))
        at = found.end()
        if at < len(body):
            if body[at] != ",":
                raise ConfigError(path, f"expected a comma at character {at + 1}", _FIX, text)
            at += 1
    if not out:
        raise ConfigError(path, "no matcher", _FIX, text)
    return tuple(out)


@dataclass(frozen=True)
class ClassRule:
    """A class and its alternatives, each a conjunction of matchers."""

    name: str
    match: tuple[tuple[Matcher, ...], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True where any alternative holds."""
        return any(all(m.matches(labels) for m in alternative) for alternative in self.match)

    @property
    def labels(self) -> frozenset[str]:
        """Names of the labels it looks at."""
        return frozenset(m.label for alternative in self.match for m in alternative)


@dataclass(frozen=True)
class ClassRules:
    """Rules in order. Without any, a class is the label or field ``workload``, else the pool."""

    rules: tuple[ClassRule, ...] = ()

    @classmethod
    def from_config(cls, classes: Iterable[Any]) -> ClassRules:
        """Of ``core.config.ClassConfig`` objects or ``{name, match}`` mappings; ConfigError names the entry
        that is wrong.
        """
        rules = []
        for i, item in enumerate(classes):
            name, match = (
                (item["name"], item["match"]) if isinstance(item, Mapping) else (item.name, item.match)
            )
            rules.append(
                ClassRule(
                    name,
                    tuple(parse_matchers(text, f"classes[{i}].match[{j}]") for j, text in enumerate(match)),
                )
            )
        return cls(tuple(rules))

    def classify(self, labels: Mapping[str, str]) -> str | None:
        """The class of one series or record, None where no rule matches (the caller decides between shared
        and unclassified).
        """
        for rule in self.rules:
            if rule.matches(labels):
                return rule.name
        if self.rules:
            return None
        return labels.get("workload") or labels.get("pool") or None

    @property
    def names(self) -> tuple[str, ...]:
        """Configured class names in order, without repeats."""
        return tuple(dict.fromkeys(rule.name for rule in self.rules))

    @property
    def labels(self) -> frozenset[str]:
        """Labels that decide a class."""
        if not self.rules:
            return frozenset({"workload", "pool"})
        return frozenset().union(*(rule.labels for rule in self.rules))


class Cap:
    """Keeps the number of distinct values of a label bounded: the first ``limit`` stay, later ones become
    ``other``.

    ``keep`` (configured names) are always allowed and do not count.
    """

    def __init__(self, limit: int, keep: Iterable[str] = ()) -> None:
        self.limit = limit
        self._keep = frozenset(keep) | RESERVED | {""}
        self._seen: set[str] = set()
        self.folded: int = 0

    def __call__(self, value: str) -> str:
        """The value, or ``other`` once the limit is reached; ``folded`` counts what was changed."""
        if value in self._keep or value in self._seen:
            return value
        if len(self._seen) < self.limit:
            self._seen.add(value)
            return value
        self.folded += 1
        return OTHER
