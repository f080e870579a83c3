"""Byte streams of plain, gzip and zstd files behind one ``read``; broken or cut data is an ``InputError``."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Protocol

import zstandard

from core.errors import InputError

WINDOW = 2**31
"""Largest zstd window accepted (``zstd --long=31``)."""
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_PIECE = 4096
"""Compressed bytes taken at once: what they can expand to stays bounded."""


class Stream(Protocol):
    """What the line reader needs."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes (more than none, unless the stream has ended)."""

    def close(self) -> None:
        """Close the stream and its file."""


class PackedFile:
    """A file that may be compressed, told by its first bytes. ``InputError`` if it is missing or no readable file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.BufferedReader | None = None
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                self._magic = file.read(4)
        except OSError as error:
            raise _unreadable(path, error) from None

    @property
    def compressed(self) -> bool:
        """Whether positions cannot be reached by seeking."""
        return self._magic == _ZSTD or self._magic[:2] == _GZIP

    @property
    def done(self) -> int:
        """Bytes of the file on disk read so far by the stream opened last."""
        return self._file.tell() if self._file is not None and not self._file.closed else self.size

    def open(self, offset: int = 0) -> Stream:
        """A stream of the decompressed bytes; ``offset`` (plain files only) is where it begins."""
        try:
            self._file = self.path.open("rb")
            self._file.seek(offset)
        except OSError as error:
            raise _unreadable(self.path, error) from None
        if self._magic == _ZSTD:
            return _Zstd(self.path, self._file)
        if self._magic[:2] == _GZIP:
            return _Gzip(self.path, self._file)
        return self._file


class _Zstd:
    """Frames one after the other; a frame that is cut off is an error, not an end."""

    def __init__(self, path: Path, file: io.BufferedReader) -> None:
        self._path, self._file = path, file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""
        self._out = b""

    def read(self, size: int, /) -> bytes:
        while not self._out:
            data = self._rest or self._file.read(_PIECE)
            self._rest = b""
            if not data:
                if self._frame is not None:
                    raise _broken(self._path, "it ends inside a zstd frame")
                return b""
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                self._out = self._frame.decompress(data)
            except zstandard.ZstdError as error:
                raise _broken(self._path, str(error)) from None
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        out, self._out = self._out[:size], self._out[size:]
        return out

    def close(self) -> None:
        self._file.close()


class _Gzip:
    """gzip members one after the other."""

    def __init__(self, path: Path, file: io.BufferedReader) -> None:
        self._path, self._file = path, file
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(size)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise _broken(self._path, str(error)) from None

    def close(self) -> None:
        self._stream.close()
        self._file.close()


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        str(path),
        (error.strerror or "cannot be read").lower(),
        "give the path of a file that this user may read",
    )


def _broken(path: Path, what: str) -> InputError:
    return InputError(
        str(path),
        f"the compressed data is broken or cut off ({what})",
        "copy the file again and repeat the import; what came before the break is kept",
    )
