"""A frame as bytes: gauges exact, counts exact and sparse, sums as float32.

Layout of a blob, before compression: counts (bitmap of the non-zero slots, then their codes), gauges, sums. Numbers are
written in planes of one byte each with escapes into wider planes: a fixed number of array operations whatever the size.

* count codes: a byte below 255, else 255 and an uint16 below 65,535, else that and an uint32 below 2**32 − 1, else that
  and an uint64. A slot without value (−1) has code 0: zeros are not written at all.
* reals: a byte 0–249 for such an integer; 250 an uint16; 251 NaN; 252 a float32; 253 a float64. Each plane follows in that order.

The first byte says whether the rest is compressed with zstd. A *sample* is one exposed series value: a histogram of ``E`` finite
edges is ``E + 3`` samples (buckets with +Inf, sum, count).
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from core.errors import StoreError
from core.frames import FloatArray, IntArray, Layout

RAW, ZSTD = b"\x01", b"\x02"
_MIN_COMPRESS = 48  # below this zstd's own header eats the gain
_SMALL, _U16, _NAN, _F32, _F64 = 250, 250, 251, 252, 253
_MAX_BYTES = 64 * 1024 * 1024
_local = threading.local()


def samples(layout: Layout) -> int:
    """Number of exposed series values behind one frame of this layout."""
    return sum(len(c.edges) + 3 if c.kind == "histogram" else 1 for c in layout.columns)


def pack(
    layout: Layout, gauges: FloatArray, counts: IntArray, sums: FloatArray, *, exact: bool = False
) -> bytes:
    """The bytes of one frame. Gauges and counts come back as they were (negative counts as −1, NaN payloads dropped).

    ``sums`` lose at most 6e-8 of their value unless ``exact``. Cumulative values (``target_state``) must be packed with
    ``exact``: the difference of two rounded totals is no increment. Raises ValueError where the arrays do not fit the layout.
    """
    if (len(gauges), len(counts), len(sums)) != layout.size:
        raise ValueError(
            f"arrays of {(len(gauges), len(counts), len(sums))} slots, layout {layout.id} has {layout.size}"
        )
    nonzero = counts != 0
    body = b"".join(
        [
            np.packbits(nonzero).tobytes(),
            *_count_planes(counts[nonzero]),
            *_real_planes(gauges, True),
            *_real_planes(sums, exact),
        ]
    )
    if len(body) >= _MIN_COMPRESS:
        small = _compressor().compress(body)
        if len(small) < len(body):
            return ZSTD + small
    return RAW + body


def unpack(layout: Layout, blob: bytes) -> tuple[FloatArray, IntArray, FloatArray]:
    """(gauges, counts, sums) of a blob; StoreError where it is damaged or of another layout."""
    try:
        if blob[:1] == ZSTD:
            body = _decompressor().decompress(blob[1:], max_output_size=_MAX_BYTES)
        elif blob[:1] == RAW:
            body = bytes(blob[1:])
        else:
            raise ValueError("unknown first byte")
        reader = _Reader(body)
        n_gauges, n_counts, n_sums = layout.size
        nonzero = np.unpackbits(reader.take(np.dtype("u1"), -(-n_counts // 8)), count=n_counts).view(bool)
        counts = np.zeros(n_counts, dtype=np.int64)
        counts[nonzero] = _read_counts(reader, int(np.count_nonzero(nonzero)))
        gauges = _read_reals(reader, n_gauges)
        sums = _read_reals(reader, n_sums)
        reader.done()
    except (ValueError, zstandard.ZstdError) as error:
        raise StoreError(f"a frame of layout {layout.id} is damaged: {error}") from None
    return gauges, counts, sums


def _compressor() -> zstandard.ZstdCompressor:
    # zstd contexts must not be shared by threads, and making one costs more than packing a frame.
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=1, write_checksum=False, write_content_size=True)
    found: zstandard.ZstdCompressor = _local.compressor
    return found


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    found: zstandard.ZstdDecompressor = _local.decompressor
    return found


def _count_planes(values: IntArray) -> list[bytes]:
    codes = np.maximum(values, 0)
    out = [np.minimum(codes, 0xFF).astype("u1").tobytes()]
    for dtype, limit, below in (
        ("<u2", 0xFFFF, 0xFF),
        ("<u4", 0xFFFFFFFF, 0xFFFF),
        ("<u8", 2**63 - 1, 0xFFFFFFFF),
    ):
        codes = codes[codes >= below]
        if not codes.size:
            break
        out.append(np.minimum(codes, limit).astype(dtype).tobytes())
    return out


def _read_counts(reader: _Reader, size: int) -> IntArray:
    out = reader.take(np.dtype("u1"), size).astype(np.int64)
    at = np.flatnonzero(out == 0xFF)
    out[out == 0] = -1
    for dtype, limit in (("<u2", 0xFFFF), ("<u4", 0xFFFFFFFF), ("<u8", None)):
        if not at.size:
            break
        wide = reader.take(np.dtype(dtype), at.size).astype(np.int64)
        out[at] = wide
        at = at[wide == limit] if limit is not None else at[:0]
    return out


def _real_planes(values: FloatArray, exact: bool) -> list[bytes]:
    if not values.size:
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        whole = values.astype(np.uint16)
        code = np.minimum(whole, _U16).astype("u1")
        # -0.0 equals its integer but is not it; values beyond 65,535 or with a fraction differ from theirs.
        odd = whole != values
        odd |= np.signbit(values)
        if not odd.any():
            return [code.tobytes(), whole[whole >= _SMALL].astype("<u2").tobytes()]
        single = values.astype("<f4")
        fits = single == values if exact else np.abs(single - values) <= 1e-6 * np.abs(values)
    code[odd] = np.where(fits, _F32, np.where(np.isnan(values), _NAN, _F64)).astype("u1")[odd]
    return [
        code.tobytes(),
        whole[code == _U16].astype("<u2").tobytes(),
        single[code == _F32].tobytes(),
        values[code == _F64].astype("<f8").tobytes(),
    ]


def _read_reals(reader: _Reader, size: int) -> FloatArray:
    code = reader.take(np.dtype("u1"), size)
    out = code.astype(np.float64)
    if not size or int(code.max()) < _SMALL:
        return out
    if int(code.max()) > _F64:
        raise ValueError("unknown code of a real number")
    out[code == _NAN] = np.nan
    for mark, dtype in ((_U16, "<u2"), (_F32, "<f4"), (_F64, "<f8")):
        here = code == mark
        out[here] = reader.take(np.dtype(dtype), int(np.count_nonzero(here)))
    return out


class _Reader:
    """Takes typed planes off the front of a body; ValueError at its end."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
        end = self._at + dtype.itemsize * size
        if end > len(self._body):
            raise ValueError("it is too short")
        out = np.frombuffer(self._body, dtype, size, self._at) if size else np.empty(0, dtype)
        self._at = end
        return out

    def done(self) -> None:
        if self._at != len(self._body):
            raise ValueError(f"{len(self._body) - self._at} bytes are left over")
