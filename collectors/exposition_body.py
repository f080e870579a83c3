"""A whole exposition body: what may be in it, what is made of it, and reading one from scratch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from collectors.exposition_lines import LineError, show, split_line, tail_value
from core.frames import FloatArray
from core.records import Problem

_BOM = b"\xef\xbb\xbf"

Series = tuple[str, dict[str, str]]


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


class Report:
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
    report = Report(limits, source, ts)
    text = prepare(body, limits, report)
    return Reader(limits, report).read(text)


def prepare(body: bytes | str, limits: Limits, report: Report) -> bytes:
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


def _unwrap(raw: bytes, report: Report) -> bytes:
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


class Reader:
    """Reads a body line by line into series, without memory of earlier scrapes."""

    def __init__(self, limits: Limits, report: Report) -> None:
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
                self.report.drop(code, f"line {n}", f"{error}: {show(line)}")
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
