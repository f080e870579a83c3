"""JSON lines from a file, one at a time with its position, resumable after a stop and as the file grows.

Positions are byte offsets of the *decompressed* stream. A file is known by its first line, not by its name: a log that was
renamed, rotated or compressed goes on where it stopped. That it is the same file is checked against the line before the stored
offset; another file with the same first line starts at its own beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import orjson

from collectors.packed import PackedFile, Stream
from core.errors import InputError

CHUNK = 1 << 20
MAX_LINE = 8 << 20
"""A longer line (bytes) is a problem, not a record; it is skipped without being held in memory."""
_CHECK = 4096
_MAX_TWINS = 16


class Cursors(Protocol):
    """The part of the store that remembers positions."""

    def get_cursor(self, name: str) -> str | None:
        """The value of a cursor, None if it was never set."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading stopped: after ``line`` lines and ``offset`` decompressed bytes; ``check`` hashes the last of these lines."""

    offset: int = 0
    line: int = 0
    check: str = ""

    def to_json(self) -> str:
        """For the cursor table."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Position:
        """The inverse of :meth:`to_json`."""
        data = json.loads(text)
        return cls(int(data["offset"]), int(data["line"]), str(data["check"]))


BEGINNING = Position()


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; ``data`` is None if it was longer than ``MAX_LINE``.

    ``end``: offset after it. ``tail``: its last 4 KiB. ``complete``: it ended with a newline (false only for the last one).
    """

    number: int
    data: bytes | None
    end: int
    tail: bytes
    complete: bool = True

    def position(self) -> Position:
        """The position after it."""
        return Position(self.end, self.number, _hash(self.tail))


class JsonLines:
    """One file of JSON lines. ``InputError`` if it is missing, or compressed in a way that cannot be read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.file = PackedFile(self.path)

    def first_line(self) -> bytes | None:
        """The first 4 KiB of the first line; None while it is not complete: an empty file, or half a record without newline."""
        head = b""
        with closing(self.file.open()) as stream:
            while len(head) < _CHECK and b"\n" not in head and (data := stream.read(_CHECK - len(head))):
                head += data
        line, newline, _ = head.partition(b"\n")
        return line if newline or len(head) >= _CHECK or _is_json(line) else None

    def resume(self, cursors: Cursors, prefix: str) -> tuple[str, Position]:
        """Cursor name of this file under ``prefix`` and the stored position (the beginning for a new file).

        The name is empty while the first line is not complete: nothing can be remembered of such a file. A file shorter than what
        was read of it is an older copy: everything in it counts as read.
        """
        first = self.first_line()
        if first is None:
            return "", BEGINNING
        base = f"{prefix}:{_hash(first)}"
        for n in range(_MAX_TWINS):
            name = base if n == 0 else f"{base}:{n}"
            stored = cursors.get_cursor(name)
            if stored is None:
                return name, BEGINNING
            position = Position.from_json(stored)
            if self._continues(position):
                return name, position
        raise InputError(
            str(self.path),
            f"begins like {_MAX_TWINS} other imported files but goes on differently",
            "let each log begin with a line of its own, such as its first request",
        )

    def lines(self, start: Position = BEGINNING) -> Iterator[Line]:
        """Lines from a position on. ``InputError`` where the compressed stream breaks, after the lines before it."""
        seek = 0 if self.file.compressed else max(0, start.offset - 2 * _CHECK)
        with closing(self.file.open(seek)) as stream:
            if _skip(stream, start.offset - seek) is not None:
                yield from _split(stream, start)

    def _continues(self, position: Position) -> bool:
        seek = 0 if self.file.compressed else max(0, position.offset - 2 * _CHECK)
        with closing(self.file.open(seek)) as stream:
            tail = _skip(stream, position.offset - seek)
        return tail is None or _hash(tail) == position.check


def _split(stream: Stream, start: Position) -> Iterator[Line]:
    number, at = start.line, start.offset
    rest, dropped = b"", 0
    while chunk := stream.read(CHUNK):
        parts = chunk.split(b"\n")
        parts[0] = rest + parts[0]
        rest = parts.pop()
        for part in parts:
            number += 1
            at += dropped + len(part) + 1
            too_long, dropped = dropped + len(part) > MAX_LINE, 0
            yield Line(number, None if too_long else part, at, part[-_CHECK:])
        if len(rest) > MAX_LINE:
            dropped += len(rest) - _CHECK
            rest = rest[-_CHECK:]
    if rest:
        length = dropped + len(rest)
        yield Line(
            number + 1, None if length > MAX_LINE else rest, at + length, rest[-_CHECK:], complete=False
        )


def _skip(stream: Stream, size: int) -> bytes | None:
    """Read and drop ``size`` bytes; the last line of them (at most 4 KiB), None if the stream is shorter."""
    tail = b""
    while size > 0:
        data = stream.read(min(CHUNK, size))
        if not data:
            return None
        tail = (tail + data)[-2 * _CHECK :]
        size -= len(data)
    return tail.removesuffix(b"\n").rpartition(b"\n")[2][-_CHECK:]


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True
