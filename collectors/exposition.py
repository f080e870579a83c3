"""Reading exposition text: Prometheus text format and OpenMetrics, from targets that are not trusted.

:func:`parse` reads a body from scratch. :class:`PrefixCache` remembers one target's lines: on later scrapes a line that did not
change costs a comparison, a line that did costs one ``float()``; only a line never seen before is parsed.

A bad line costs only itself and becomes a problem with its number and reason. Nothing here raises on the content of a body.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import ne

import numpy as np

from core.frames import FloatArray
from core.records import Problem

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:.]*")
_FAST = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*",?)*)\})? ([^ #\t]+)\r?'
)
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\\n]*)",?')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_BOM = b"\xef\xbb\xbf"

Series = tuple[str, dict[str, str]]

ABSENT_SCRAPES = 4
"""After so many scrapes without some of the known series, they are forgotten."""

_TORN = frozenset(
    {"truncated_body", "body_too_large", "html_body", "json_body", "compressed_body", "too_many_series"}
)
"""What says that a body does not hold all that the target exports."""


@dataclass(frozen=True)
class Limits:
    """What one body may hold. ``max_label_length`` is characters of a label value; ``max_problems`` problems are reported
    singly for each code, the rest as a count."""

    max_bytes: int = 32 * 1024 * 1024
    max_series: int = 100_000
    max_label_length: int = 4096
    max_labels: int = 40
    max_line: int = 256 * 1024
    max_problems: int = 5


@dataclass
class Exposition:
    """One body: ``series`` (name, labels) with ``values`` aligned; NaN is a value that is not a number, or a series that this
    scrape lacks. ``types`` by family as the TYPE lines say (not to be trusted). ``dropped``: samples not read, by reason.

    ``generation`` changes whenever ``series`` does.
    """

    series: list[Series]
    values: FloatArray
    types: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    generation: int = 0


class LineError(ValueError):
    """A line that cannot be read; the message says why."""


class _Report:
    """Problems of one body, capped per code."""

    def __init__(self, limits: Limits, source: str, ts: float) -> None:
        self.problems: list[Problem] = []
        self.dropped: dict[str, int] = {}
        self._limits, self._source, self._ts = limits, source, ts
        self._seen: dict[str, int] = {}

    def add(self, code: str, subject: str, message: str, fix: str = "") -> None:
        n = self._seen[code] = self._seen.get(code, 0) + 1
        if n <= self._limits.max_problems:
            self.problems.append(Problem(self._ts, self._source, code, subject, message, fix))

    def drop(self, reason: str, subject: str, message: str, fix: str = "") -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.add(reason, subject, message, fix)

    def finish(self) -> list[Problem]:
        """All problems; where a code was capped, the rest as one with a count."""
        out = list(self.problems)
        for code, n in self._seen.items():
            rest = n - self._limits.max_problems
            if rest > 0:
                out.append(Problem(self._ts, self._source, code, "", f"{rest} more of this kind", count=rest))
        return out


def parse(
    body: bytes | str, *, limits: Limits | None = None, source: str = "", ts: float = 0.0
) -> Exposition:
    """Read a whole body. Problems name line and reason; nothing is raised."""
    limits = limits or Limits()
    report = _Report(limits, source, ts)
    text = prepare(body, limits, report)
    return _Reader(limits, report).read(text)


def prepare(body: bytes | str, limits: Limits, report: _Report) -> bytes:
    """The text of a body without byte-order mark, JSON wrapping (rule R14) and surplus; empty where it is no exposition."""
    raw = body.encode("utf-8", "replace") if isinstance(body, str) else bytes(body)
    if raw.startswith(_BOM):
        raw = raw[3:]
    head = raw[:64].lstrip()
    if head.startswith(b'"'):
        raw = _unwrap(raw, report)
    elif head.startswith(b"<"):
        report.drop(
            "html_body",
            "body",
            "an HTML page, not metrics",
            "check the path and any login in front of the target",
        )
        return b""
    elif head.startswith((b"[", b'{"')) and not _quoted_series(head):
        report.drop(
            "json_body",
            "body",
            "JSON, not metrics",
            "check the path; TensorRT-LLM serves text on /prometheus/metrics",
        )
        return b""
    elif head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        report.drop("compressed_body", "body", "a compressed body", "the transport must decompress it")
        return b""
    if len(raw) > limits.max_bytes:
        report.drop(
            "body_too_large",
            "body",
            f"{len(raw)} bytes, read up to {limits.max_bytes}",
            "raise max_bytes or let the target export less",
        )
        cut = raw.rfind(b"\n", 0, limits.max_bytes)
        raw = raw[: cut + 1]
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return raw


def _quoted_series(head: bytes) -> bool:
    """``{"my.metric"...} 1`` is a sample with a quoted name, ``{"a": 1}`` is JSON."""
    end = head.find(b'"', 2)
    return end > 0 and head[end + 1 : end + 2] in (b",", b"}", b"=")


def _unwrap(raw: bytes, report: _Report) -> bytes:
    try:
        text = json.loads(raw)
    except ValueError as error:
        report.drop("json_body", "body", f"starts as a JSON string but is none: {error}")
        return b""
    if not isinstance(text, str):
        report.drop("json_body", "body", "JSON, not metrics")
        return b""
    report.add("json_string", "body", "the whole body is one JSON string; decoded")
    return text.encode("utf-8", "replace")


def number(token: bytes) -> float:
    """A sample value. ValueError where it is none; ``float`` alone would also take the underscores of Python's literals."""
    if b"_" in token:
        raise ValueError("not a number")
    return float(token)


class _Reader:
    """Reads a body line by line into series, without memory of earlier scrapes."""

    def __init__(self, limits: Limits, report: _Report) -> None:
        self.limits, self.report = limits, report
        self.types: dict[str, str] = {}
        self.series: list[Series] = []
        self.values: list[float] = []
        self.index: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}

    def read(self, text: bytes) -> Exposition:
        lines = text.split(b"\n")
        whole = not lines[-1]
        for n, line in enumerate(lines, 1):
            if not line:
                continue
            if line[0] == 35:
                self.comment(line)
                continue
            cut = not whole and n == len(lines)
            try:
                found = self.sample(line, n)
            except LineError as error:
                code = "truncated_body" if cut else "bad_line"
                self.report.drop(code, f"line {n}", f"{error}: {_show(line)}")
                continue
            if cut:
                self.report.add(
                    "no_final_newline",
                    f"line {n}",
                    "the body does not end with a newline; its last value may be cut",
                )
            if found is not None:
                self.series.append(found[0])
                self.values.append(found[1])
        return Exposition(
            self.series,
            np.asarray(self.values, dtype=np.float64),
            self.types,
            self.report.finish(),
            self.report.dropped,
        )

    def comment(self, line: bytes) -> None:
        parts = line.split(None, 3)
        if len(parts) == 4 and parts[0] == b"#" and parts[1] == b"TYPE":
            name, kind = parts[2].decode("utf-8", "replace"), parts[3].decode("utf-8", "replace").strip()
            if len(self.types) < self.limits.max_series:
                self.types[name.strip('"')] = kind

    def sample(self, line: bytes, n: int) -> tuple[Series, float] | None:
        """The series and value of a line; None where it is dropped for a named reason. LineError where it cannot be read."""
        if len(line) > self.limits.max_line:
            self.report.drop("line_too_long", f"line {n}", f"{len(line)} bytes")
            return None
        name, labels, tail = split_line(line)
        value = tail_value(tail)
        if self.refused(name, labels, n):
            return None
        key = (name, frozenset(labels.items()))
        if key in self.index:
            self.report.drop(
                "duplicate_series",
                f"line {n}",
                f"{name} appears twice with the same labels; the first is kept",
            )
            return None
        if len(self.index) >= self.limits.max_series:
            self.report.drop(
                "too_many_series",
                f"line {n}",
                f"more than {self.limits.max_series} series",
                "raise max_series or export less",
            )
            return None
        self.index[key] = len(self.index)
        return (name, labels), value

    def refused(self, name: str, labels: Mapping[str, str], n: int) -> str:
        """Why a series breaks a limit, reported; empty where it does not."""
        limit = self.limits.max_label_length
        reason, text = "", ""
        if len(labels) > self.limits.max_labels:
            reason = "too_many_labels"
            text = f"{name[:80]} has {len(labels)} labels, at most {self.limits.max_labels} are read"
        elif len(name) > limit:
            reason, text = "label_too_long", f"a name of {len(name)} characters, limit {limit}"
        else:
            for k, v in labels.items():
                if len(v) > limit or len(k) > limit:
                    reason = "label_too_long"
                    text = f"{name[:80]}: label {k[:40]} has {len(v)} characters, limit {limit}"
                    break
        if reason:
            self.report.drop(reason, f"line {n}", text)
        return reason


def _show(line: bytes) -> str:
    text = line[:80].decode("utf-8", "replace")
    return text + ("…" if len(line) > 80 else "")


def tail_value(tail: bytes) -> float:
    """The value after the labels of a sample; time stamp (rule R15) and exemplar are ignored. LineError where there is none."""
    if b"#" in tail:
        tail = tail[: tail.index(b"#")]
    parts = tail.split()
    if not parts:
        raise LineError("no value")
    if len(parts) > 2:
        raise LineError("more than a value and a time stamp")
    try:
        value = number(parts[0])
        if len(parts) == 2:
            number(parts[1])
    except ValueError:
        raise LineError("not a number") from None
    return value


def split_line(line: bytes) -> tuple[str, dict[str, str], bytes]:
    """Name, labels and the rest of a sample line. LineError where the line is no sample."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
    fast = _FAST.fullmatch(text)
    if fast:
        name, inside, value = fast.groups()
        labels = dict(_PAIR.findall(inside)) if inside else {}
        if not inside or inside.count('="') == len(labels):
            return name, labels, value.encode()
    return _split_slowly(text)


def _split_slowly(text: str) -> tuple[str, dict[str, str], bytes]:
    at = _skip(text, 0)
    name = ""
    found = _NAME.match(text, at)
    if found:
        name, at = found[0], _skip(text, found.end())
    labels: dict[str, str] = {}
    if at < len(text) and text[at] == "{":
        at, quoted = _labels(text, at + 1, labels)
        if quoted and name:
            raise LineError("two names")
        name = name or quoted
    elif not found:
        raise LineError("no metric name")
    elif found.end() == at and at < len(text):
        raise LineError("bad character in the name")
    if not name:
        raise LineError("no metric name")
    return name, labels, text[at:].encode()


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def _labels(text: str, at: int, labels: dict[str, str]) -> tuple[int, str]:
    """Read labels up to the closing brace into ``labels``: the place behind it, and a quoted metric name if there was one."""
    name = ""
    while True:
        at = _skip(text, at)
        if at >= len(text):
            raise LineError("labels are not closed")
        if text[at] == "}":
            return at + 1, name
        if text[at] == '"':
            at, key = _quoted(text, at)
        else:
            found = _NAME.match(text, at)
            if not found:
                raise LineError("bad label name")
            key, at = found[0], found.end()
        at = _skip(text, at)
        if at < len(text) and text[at] == "=":
            at = _skip(text, at + 1)
            if at >= len(text) or text[at] != '"':
                raise LineError("label value without quotes")
            at, value = _quoted(text, at)
            if key in labels:
                raise LineError(f"label {key[:40]} appears twice")
            labels[key] = value
        elif name or not key:
            raise LineError("label without value")
        else:
            name = key
        at = _skip(text, at)
        if at < len(text) and text[at] == ",":
            at += 1
        elif at >= len(text) or text[at] != "}":
            raise LineError("labels are not closed")


def _quoted(text: str, at: int) -> tuple[int, str]:
    """The string that opens at ``at``: the place behind its closing quote, and its content without escapes."""
    end = at + 1
    while True:
        end = text.find('"', end)
        if end < 0:
            raise LineError("a quote is not closed")
        slashes = 0
        while text[end - 1 - slashes] == "\\":
            slashes += 1
        if slashes % 2 == 0:
            break
        end += 1
    inside = text[at + 1 : end]
    if "\\" in inside:
        inside = _ESCAPE.sub(lambda m: {"n": "\n"}.get(m[1], m[1] if m[1] in '\\"' else m[0]), inside)
    return end + 1, inside


class PrefixCache:
    """The memory of one target's lines, for repeated scrapes.

    The ``series`` of a result stay the same list while the target exports the same series; values are aligned with it, NaN where
    a scrape lacks one. When series appear, or others have been gone for a few scrapes, the list is made anew and ``generation``
    moves: what is gone must not linger, or a target that restarts with other buckets would seem to have both kinds.
    """

    def __init__(self, limits: Limits | None = None, source: str = "") -> None:
        self.limits = limits or Limits()
        self.source = source
        self.generation = 0
        self._start()

    def _start(self) -> None:
        self.series: list[Series] = []
        self.types: dict[str, str] = {}
        self._slots: dict[bytes, int] = {}
        self._refused: dict[bytes, str] = {}
        self._keys: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._skip: frozenset[int] = frozenset()
        self._lines: list[bytes] = []
        self._line_slot: list[int] = []
        self._line_head: list[bytes | None] = []
        self._values = np.empty(0)
        self._problems: list[Problem] = []
        self._dropped: dict[str, int] = {}
        self._absent = False
        self._absent_for = 0

    def keep(self, used: Collection[int]) -> None:
        """Read only these series until the list changes; the values of the others become NaN."""
        wanted = set(used)
        self._skip = frozenset(i for i in range(len(self.series)) if i not in wanted)
        self._lines = []

    def forget(self) -> None:
        """Drop everything remembered."""
        generation = self.generation
        self._start()
        self.generation = generation + 1

    def scrape(self, body: bytes | str, *, ts: float = 0.0) -> Exposition:
        """Read one body of the target. ``generation`` of the result tells whether ``series`` is still the same list."""
        report = _Report(self.limits, self.source, ts)
        text = prepare(body, self.limits, report)
        lines = text.split(b"\n")
        if not report.dropped and len(lines) == len(self._lines) and self._moved(lines):
            if self._absent:
                self._absent_for += 1
                if self._absent_for >= ABSENT_SCRAPES:
                    return self._anew(lines, ts)
            return self._result([replace(p, ts=ts) for p in self._problems], dict(self._dropped))
        known = len(self.series)
        found = self._resync(lines, report)
        readable = not report.dropped.keys() & _TORN
        grown = len(self.series) > known
        if readable and ((grown and (self._absent or self._skip)) or self._absent_for >= ABSENT_SCRAPES):
            return self._anew(lines, ts)
        return found

    def _anew(self, lines: list[bytes], ts: float) -> Exposition:
        """Forget, and read the same lines again: the series are then exactly those of this body, all of them read."""
        self.forget()
        return self._resync(lines, _Report(self.limits, self.source, ts))

    def _result(self, problems: list[Problem], dropped: dict[str, int]) -> Exposition:
        return Exposition(self.series, self._values.copy(), self.types, problems, dropped, self.generation)

    def _moved(self, lines: list[bytes]) -> bool:
        """Take over the values of lines that changed since the last scrape; False where more than values changed."""
        slots, heads, old = self._line_slot, self._line_head, self._lines
        places: list[int] = []
        tails: list[bytes] = []
        for i in compress(range(len(lines)), map(ne, lines, old)):
            new, head = lines[i], heads[i]
            if head is None or not new.startswith(head):
                return False
            if slots[i] >= 0:
                places.append(slots[i])
                tails.append(new[len(head) :])
        if places:
            try:
                if b"_" in b"".join(tails):
                    raise ValueError
                fresh = list(map(float, tails))
            except ValueError:
                try:
                    fresh = list(map(tail_value, tails))
                except LineError:
                    return False
            self._values[places] = fresh
        self._lines = lines
        return True

    def _resync(self, lines: list[bytes], report: _Report) -> Exposition:
        """Match every line by its prefix, and parse those never seen."""
        before, self.series = self.series, list(self.series)
        last = self._lines[-1] if self._lines else None
        reader = _Reader(self.limits, report)
        reader.types = self.types
        slots: list[int] = []
        heads: list[bytes | None] = []
        found: dict[int, float] = {}
        for n, line in enumerate(lines, 1):
            slot, head = -1, 0
            if line and line[0] == 35:
                if b"TYPE" in line[:8]:
                    reader.comment(line)
            elif line:
                cut = n == len(lines)  # a body that ends as it should has an empty last line
                try:
                    head, slot = self._find(line, n, reader)
                    if slot >= 0:
                        skip = slot in self._skip
                        value = math.nan if skip else self._tail(line[head:])
                        if slot in found:
                            name = self.series[slot][0]
                            report.drop(
                                "duplicate_series", f"line {n}", f"{name} appears twice; the first is kept"
                            )
                            slot = -1
                        elif cut and last is not None and last[:head] != line[:head]:
                            raise LineError("the body stops here")
                        else:
                            found[slot] = value
                            slot = -1 if skip else slot
                            if cut:
                                report.add(
                                    "no_final_newline", f"line {n}", "the body does not end with a newline"
                                )
                except LineError as error:
                    code = "truncated_body" if cut else "bad_line"
                    report.drop(code, f"line {n}", f"{error}: {_show(line)}")
                    slot, head = -1, 0
            slots.append(slot)
            heads.append(line[:head] if head else None)
        if len(self.series) == len(before):
            self.series = before
        else:
            self.generation += 1
        self._values = np.full(len(self.series), np.nan)
        if found:
            self._values[list(found)] = list(found.values())
        self._absent = len(found) < len(self.series)
        self._absent_for = self._absent_for + 1 if self._absent else 0
        if len(self._slots) > 2 * len(self.series) + 1000:  # one series under ever new spellings
            self._slots = {}
        self._lines, self._line_slot, self._line_head = lines, slots, heads
        self._problems, self._dropped = report.finish(), report.dropped
        return self._result(list(self._problems), dict(self._dropped))

    def _find(self, line: bytes, n: int, reader: _Reader) -> tuple[int, int]:
        """Where the value of a line begins and its slot, -1 where the series is dropped."""
        end = line.rfind(b" ") + 1
        slot = self._slots.get(line[:end])
        if slot is None and self._refused and (reason := self._refused.get(line[:end])):
            reader.report.drop(reason, f"line {n}", "as in the scrape before")
            return end, -1
        if slot is None:
            before = line.rfind(b" ", 0, max(end - 1, 0)) + 1  # perhaps a time stamp follows the value
            if before:
                slot = self._slots.get(line[:before])
                end = before
        return self._learn(line, n, reader) if slot is None else (end, slot)

    @staticmethod
    def _tail(tail: bytes) -> float:
        try:
            return number(tail)
        except ValueError:
            return tail_value(tail)

    def _learn(self, line: bytes, n: int, reader: _Reader) -> tuple[int, int]:
        """Parse a line never seen: where its value begins and its slot, -1 where a limit forbids it."""
        if len(line) > self.limits.max_line:
            reader.report.drop("line_too_long", f"line {n}", f"{len(line)} bytes")
            return 0, -1
        name, labels, tail = split_line(line)
        tail_value(tail)
        end = len(line) - len(tail)
        key = (name, frozenset(labels.items()))
        slot = self._keys.get(key)
        if slot is None:
            reason = reader.refused(name, labels, n)
            if not reason and len(self.series) >= self.limits.max_series:
                reason = "too_many_series"
                text = f"more than {self.limits.max_series} series"
                reader.report.drop(reason, f"line {n}", text, "raise max_series or export less")
            if reason:
                if len(self._refused) < 2 * self.limits.max_series:
                    self._refused[line[:end]] = reason
                return end, -1
            slot = self._keys[key] = len(self.series)
            self.series.append((name, labels))
        self._slots[line[:end]] = slot
        return end, slot
