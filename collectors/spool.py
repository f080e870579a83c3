"""A bounded spool on disk for readings that the database could not take: replayed in order, nothing executed on reading.

A spool is a folder of segment files ``<number>.spool``. Each segment is a run of records: a fixed head (magic,
payload length, CRC-32) and a zstd-compressed payload holding one batch: JSON with targets, layouts and sizes,
then the arrays. A record cut off by a crash, or damaged on disk, ends its segment; it is counted as damaged, never
guessed at. When the spool is full its oldest segment goes: readings are cumulative, so that costs resolution in
time, not counts.

Replaying a batch twice is harmless (the store ignores a reading that it has), so a crash between commit and
deletion loses nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
import zstandard

from core.frames import Layout, Reading, Target

_HEAD = struct.Struct("<4sII")
_MAGIC = b"GFS1"
SEGMENT_BYTES = 4 * 2**20
_RECORD_LIMIT = 2**30


def pack_batch(readings: Sequence[Reading]) -> bytes:
    """One batch as a self-contained record payload (lossless)."""
    targets: dict[int, int] = {}
    layouts: dict[str, int] = {}
    target_rows: list[dict[str, Any]] = []
    layout_rows: list[str] = []
    rows: list[list[Any]] = []
    arrays: list[bytes] = []
    for r in readings:
        if id(r.target) not in targets:
            targets[id(r.target)] = len(target_rows)
            target_rows.append(asdict(r.target))
        if r.layout.id not in layouts:
            layouts[r.layout.id] = len(layout_rows)
            layout_rows.append(r.layout.to_json())
        rows.append(
            [
                targets[id(r.target)],
                layouts[r.layout.id],
                r.t,
                r.start,
                r.up,
                len(r.gauges),
                len(r.counts),
                len(r.sums),
            ]
        )
        arrays += [
            np.ascontiguousarray(r.gauges, "<f8").tobytes(),
            np.ascontiguousarray(r.counts, "<i8").tobytes(),
            np.ascontiguousarray(r.sums, "<f8").tobytes(),
        ]
    head = orjson.dumps({"targets": target_rows, "layouts": layout_rows, "rows": rows})
    return zstandard.ZstdCompressor(level=1).compress(b"".join((struct.pack("<I", len(head)), head, *arrays)))


def _target(row: dict[str, Any]) -> Target:
    known = {f.name for f in fields(Target)}
    given: dict[str, Any] = {k: v for k, v in row.items() if k in known}
    given["components"] = tuple(given.get("components", ()))
    return Target(**given)


def unpack_batch(payload: bytes) -> list[Reading]:
    """The inverse of :func:`pack_batch`. Raises ValueError for anything that is not one."""
    try:
        raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=_RECORD_LIMIT)
        size = struct.unpack_from("<I", raw)[0]
        head = orjson.loads(raw[4 : 4 + size])
        targets = [_target(row) for row in head["targets"]]
        layouts = [Layout.from_json(text) for text in head["layouts"]]
        out: list[Reading] = []
        at = 4 + size
        for target, layout, t, start, up, g, n, s in head["rows"]:
            gauges = np.frombuffer(raw, "<f8", g, at)
            counts = np.frombuffer(raw, "<i8", n, at + 8 * g)
            sums = np.frombuffer(raw, "<f8", s, at + 8 * (g + n))
            at += 8 * (g + n + s)
            out.append(Reading(targets[target], t, layouts[layout], gauges, counts, sums, start, up))
    except (zstandard.ZstdError, struct.error, KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"damaged spool record: {error}") from None
    return out


class Spool:
    """A first-in first-out queue of batches on disk. Not thread-safe: the writer thread owns it.

    ``dropped`` counts readings that were given up because the spool was full, ``damaged`` records that could not be read back.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int = 512 * 2**20, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self.folder = folder
        self.max_bytes = max(max_bytes, segment_bytes)
        self.segment_bytes = segment_bytes
        self.dropped = 0
        self.damaged = 0
        self._segments = sorted(int(p.stem) for p in folder.glob("*.spool") if p.stem.isdigit())
        self._sizes = {n: self._path(n).stat().st_size for n in self._segments}
        self._next = self._segments[-1] + 1 if self._segments else 1
        self._open_segment: int | None = None
        self._offset = 0  # of the next record in the oldest segment

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.spool"

    def __bool__(self) -> bool:
        return bool(self._segments)

    @property
    def size(self) -> int:
        """Bytes on disk that wait to be replayed."""
        return sum(self._sizes.values()) - self._offset

    def put(self, readings: Sequence[Reading]) -> None:
        """Append one batch and flush it to the disk. Raises OSError when the disk is full or read-only."""
        payload = pack_batch(readings)
        record = _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload
        while self._segments and sum(self._sizes.values()) + len(record) > self.max_bytes:
            self._give_up_oldest()
        number = self._open_segment
        if number is None or self._sizes[number] + len(record) > self.segment_bytes:
            number = self._next
        before = self._sizes.get(number, 0)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path(number).open("ab") as file:
            try:
                file.write(record)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(before)
                raise
        if number not in self._sizes:
            self._segments.append(number)
            self._open_segment, self._next = number, number + 1
        self._sizes[number] = before + len(record)

    def peek(self) -> list[Reading] | None:
        """The oldest batch, None when there is none. It stays until :meth:`pop`."""
        while self._segments:
            payload = self._read_head()
            if payload is not None:
                try:
                    return unpack_batch(payload)
                except ValueError:
                    self.damaged += 1
                    self.pop()
                    continue
            self._remove_oldest()
        return None

    def pop(self) -> None:
        """Forget the oldest batch (it has been committed)."""
        if not self._segments:
            return
        number = self._segments[0]
        with self._path(number).open("rb") as file:
            file.seek(self._offset)
            head = file.read(_HEAD.size)
        self._offset += _HEAD.size + int(_HEAD.unpack(head)[1])
        if self._offset >= self._sizes[number]:
            self._remove_oldest()

    def _read_head(self) -> bytes | None:
        number = self._segments[0]
        try:
            with self._path(number).open("rb") as file:
                file.seek(self._offset)
                head = file.read(_HEAD.size)
                if not head:
                    return None
                if len(head) == _HEAD.size:
                    magic, length, crc = _HEAD.unpack(head)
                    if magic == _MAGIC and length < _RECORD_LIMIT:
                        payload = file.read(length)
                        if len(payload) == length and zlib.crc32(payload) == crc:
                            return payload
        except OSError:
            pass
        self.damaged += 1
        return None

    def _give_up_oldest(self) -> None:
        while (payload := self._read_head()) is not None:
            try:
                self.dropped += len(unpack_batch(payload))
            except ValueError:
                self.damaged += 1
            self._offset += _HEAD.size + len(payload)
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        number = self._segments.pop(0)
        self._path(number).unlink(missing_ok=True)
        del self._sizes[number]
        self._offset = 0
        if self._open_segment == number:
            self._open_segment = None


def open_spool(folder: Path, *, max_bytes: int = 512 * 2**20) -> tuple[Spool, IO[bytes]]:
    """The spool in ``folder``, or beside it (``-2``, ...) where another collector holds that one, and its lock.

    The lock holds while its file is open. The folder itself appears only when something has to be spooled.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        lock = folder.with_name(f".{folder.name}{suffix}.lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return Spool(folder.with_name(folder.name + suffix), max_bytes=max_bytes), lock
    raise OSError(f"{folder}: a hundred collectors hold its locks")
