"""One line of exposition text: name, labels, value. Whatever is no sample raises :class:`LineError` and nothing else."""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:.]*")
_FAST = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*",?)*)\})? ([^ #\t]+)\r?'
)
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\\n]*)",?')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class LineError(ValueError):
    """A line that cannot be read; the message says why."""


def number(token: bytes) -> float:
    """A sample value. ValueError where it is none; ``float`` alone would also take the underscores of Python's literals."""
    if b"_" in token:
        raise ValueError("not a number")
    return float(token)


def show(line: bytes) -> str:
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
