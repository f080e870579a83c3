"""``target_state``: the last cumulative values of each target, one row for its newest reading (``head``) and one for each
stream of older readings (back-fill before live data)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import numpy as np
import orjson
import zstandard
from sqlalchemy import Connection, select

from sql.bulk import bulk
from sql.increments import State
from sql.layouts import LayoutCache
from sql.schema import target_state

HEAD = "head"
_local = threading.local()


def encode(state: State) -> bytes:
    """Counts as little-endian int64, then sums as float64, compressed."""
    # zstd contexts must not be shared by threads, and making one costs more than packing a state
    if not hasattr(_local, "packer"):
        _local.packer = zstandard.ZstdCompressor(level=1, write_checksum=False, write_content_size=True)
    packer: zstandard.ZstdCompressor = _local.packer
    return packer.compress(state.counts.astype("<i8").tobytes() + state.sums.astype("<f8").tobytes())


def decode(row: tuple[int, float | None, str, bytes], state_layout: LayoutCache, layout_id: str) -> State:
    """The inverse; ``row`` is (t_ms, process_start, sources, data)."""
    layout = state_layout.get(layout_id)
    _, n, _ = layout.size
    t_ms, start, sources, data = row
    if not hasattr(_local, "unpacker"):
        _local.unpacker = zstandard.ZstdDecompressor()
    raw: bytes = _local.unpacker.decompress(data)
    known = orjson.loads(sources)
    return State(
        t_ms,
        start,
        known[0],
        frozenset(known),
        layout,
        np.frombuffer(raw, "<i8", n),
        np.frombuffer(raw, "<f8", offset=8 * n),
    )


def load(
    connection: Connection, ids: Iterable[int], streams: tuple[str, ...], cache: LayoutCache
) -> dict[tuple[int, str], State]:
    """States of ``ids`` by (target id, stream)."""
    wanted = sorted(ids)
    s = target_state.c
    out: dict[tuple[int, str], State] = {}
    for start in range(0, len(wanted), 500):
        query = select(s.target_id, s.stream, s.layout_id, s.t_ms, s.process_start, s.sources, s.data).where(
            s.target_id.in_(wanted[start : start + 500]), s.stream.in_(streams)
        )
        rows = connection.execute(query).all()
        cache.load(connection, (r.layout_id for r in rows))
        for r in rows:
            out[r.target_id, r.stream] = decode(
                (r.t_ms, r.process_start, r.sources, r.data), cache, r.layout_id
            )
    return out


def save(connection: Connection, states: Mapping[tuple[int, str], State]) -> None:
    """Write states; their layouts must be stored already."""
    rows = [
        (
            target_id,
            stream,
            s.t_ms,
            s.start,
            s.layout.id,
            # the source of the last reading first
            orjson.dumps([s.source, *sorted(s.sources - {s.source})]).decode(),
            encode(s),
        )
        for (target_id, stream), s in states.items()
    ]
    bulk(connection, target_state, _COLUMNS, rows, update=_COLUMNS[2:])


_COLUMNS = ("target_id", "stream", "t_ms", "process_start", "layout_id", "sources", "data")
