"""Roll-ups: adding a batch's deltas to what is stored.

``n`` is the number of observations (histogram), the increase (counter) or the number of values (gauge, sum); ``total`` the sum of
observations, increase or values; ``max_`` the largest gauge value; ``counts`` a JSON array of counts per bucket, overflow last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import orjson
from sqlalchemy import Connection, case, or_, select

from core.frames import FloatArray, IntArray
from sql.accumulate import Block
from sql.bulk import bulk
from sql.schema import rollups

MatrixKey = tuple[str, str, str, str, tuple[float, ...]]
"""(class, pool, unit, model, edges)"""


def merge(connection: Connection, blocks: Iterable[Block]) -> None:
    """Add blocks to the stored rows; their series are stored, and the caller holds the write lock."""
    shapes: dict[int, list[Block]] = {}
    for block in blocks:
        shapes.setdefault(block.counts.shape[1], []).append(block)
    for width, parts in shapes.items():
        rows = _Table(
            np.concatenate([b.series for b in parts]),
            np.repeat([b.resolution for b in parts], [len(b.ts) for b in parts]),
            np.concatenate([b.ts for b in parts]),
            np.concatenate([b.n for b in parts]),
            np.concatenate([b.total for b in parts]),
            np.concatenate([b.max_ for b in parts]),
            np.concatenate([b.counts for b in parts]),
        ).summed()
        if not width:
            bulk(connection, rollups, _COLUMNS, rows.to_tuples(), update=_added)
            continue
        stored = _stored(connection, rows, width)
        if stored is not None:
            rows = rows.with_stored(stored)
        bulk(connection, rollups, _COLUMNS, rows.to_tuples(), update=("n", "total", "max_", "counts"))


_COLUMNS = ("series_id", "resolution", "ts", "n", "total", "max_", "counts")


def _added(table: Any, excluded: Any) -> dict[str, Any]:
    """Rows without buckets are added by the database itself."""
    keep = or_(excluded.max_.is_(None), table.c.max_ >= excluded.max_)
    return {
        "n": table.c.n + excluded.n,
        "total": table.c.total + excluded.total,
        "max_": case((keep, table.c.max_), else_=excluded.max_),
    }


@dataclass(frozen=True, slots=True)
class _Table:
    """Roll-up rows as arrays."""

    series: IntArray
    resolution: IntArray
    ts: IntArray
    n: IntArray
    total: FloatArray
    max_: FloatArray
    counts: IntArray

    def summed(self) -> _Table:
        """Rows of one key added up, in key order."""
        order = np.lexsort((self.ts, self.resolution, self.series))
        s, r, t = self.series[order], self.resolution[order], self.ts[order]
        new = np.ones(len(s), bool)
        new[1:] = (s[1:] != s[:-1]) | (r[1:] != r[:-1]) | (t[1:] != t[:-1])
        at = np.flatnonzero(new)
        return _Table(
            s[at],
            r[at],
            t[at],
            np.add.reduceat(self.n[order], at),
            np.add.reduceat(self.total[order], at),
            np.fmax.reduceat(self.max_[order], at),
            np.add.reduceat(self.counts[order], at),
        )

    def with_stored(self, stored: _Table) -> _Table:
        """These rows, each with what is stored under its key added."""
        both = _Table(
            *(np.concatenate((getattr(self, f.name), getattr(stored, f.name))) for f in fields(self))
        )
        # whether a key is one of ours, carried through the sum as one more count
        mine = np.repeat([1, 0], [len(self.ts), len(stored.ts)])[:, None]
        summed = replace(both, counts=np.concatenate((both.counts, mine), axis=1)).summed()
        keep = summed.counts[:, -1] > 0
        kept = _Table(*(getattr(summed, f.name)[keep] for f in fields(self)))
        return replace(kept, counts=kept.counts[:, :-1])

    def to_tuples(self) -> list[tuple[Any, ...]]:
        """In the order of ``_COLUMNS``."""
        counts: list[str | None] = [None] * len(self.ts)
        if self.counts.shape[1]:
            text = orjson.dumps(np.ascontiguousarray(self.counts), option=orjson.OPT_SERIALIZE_NUMPY).decode()
            counts = [f"[{row}]" for row in text[2:-2].split("],[")]
        columns = (self.series, self.resolution, self.ts, self.n, self.total)
        maximum: list[float | None] = [None if m != m else m for m in self.max_.tolist()]
        return list(zip(*(c.tolist() for c in columns), maximum, counts, strict=True))


def _stored(connection: Connection, rows: _Table, width: int) -> _Table | None:
    """Stored rows within the range of ``rows`` of each resolution, all of one bucket count; None if there are none."""
    c = rollups.c
    found: list[Any] = []
    for resolution in np.unique(rows.resolution).tolist():
        mask = rows.resolution == resolution
        first, last = int(rows.ts[mask].min()), int(rows.ts[mask].max())
        ids = np.unique(rows.series[mask]).tolist()
        for start in range(0, len(ids), 500):
            query = select(c.series_id, c.resolution, c.ts, c.n, c.total, c.max_, c.counts).where(
                c.series_id.in_(ids[start : start + 500]),
                c.resolution == resolution,
                c.ts.between(first, last),
            )
            found.extend(connection.execute(query).all())
    if not found:
        return None
    s, r, t, n, total, maximum, counts = zip(*found, strict=True)
    return _Table(
        np.array(s, np.int64),
        np.array(r, np.int64),
        np.array(t, np.int64),
        np.array(n, np.int64),
        np.array(total, np.float64),
        np.array(maximum, np.float64),
        parse_counts(counts, width),
    )


def parse_counts(texts: Sequence[str | None], width: int) -> IntArray:
    """JSON arrays of one width as int64[R, width], parsed in one go."""
    if not width:
        return np.zeros((len(texts), 0), np.int64)
    return np.array(orjson.loads(f"[{','.join(t or '' for t in texts)}]"), np.int64).reshape(
        len(texts), width
    )
