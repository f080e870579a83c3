"""Series of roll-ups: what a row is about, its id, and the bucket edges it counts in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import orjson
from sqlalchemy import Connection, select

from core.frames import Column, IntArray, Kind, Layout
from core.signals import SIGNALS
from sql.bulk import upsert
from sql.ids import edges_id, number
from sql.memo import by_layout
from sql.schema import edges, series

OWN_LABELS = ("class", "model", "rank")
"""Labels of a column that the key of a series holds by itself; ``rank`` is summed over."""


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What one roll-up series is. ``unit`` is the replica, or empty for the whole pool; ``labels`` a JSON object."""

    signal: str
    kind: Kind
    class_: str
    cluster: str
    pool: str
    unit: str
    model: str
    labels: str
    edges: tuple[float, ...]

    @property
    def id(self) -> int:
        """A hash of all that the series is."""
        return number(
            self.signal,
            self.kind,
            self.class_,
            self.cluster,
            self.pool,
            self.unit,
            self.model,
            self.labels,
            str(edges_id(self.edges)),
        )


@dataclass(frozen=True, slots=True)
class Item:
    """A column that is rolled up: its slots of (gauges, counts, sums); ``pooled`` per class and pool, ``local`` per replica."""

    column: Column
    slots: tuple[slice, slice, slice]
    pooled: bool
    local: bool


@by_layout
def items(layout: Layout) -> list[Item]:
    """The columns of a layout that the registry of signals wants rolled up."""
    out = []
    for c, slots in zip(layout.columns, layout.slots, strict=True):
        signal = SIGNALS.get(c.signal)
        if signal is not None and (signal.rollup or signal.per_replica):
            out.append(Item(c, slots, signal.rollup, signal.per_replica))
    return out


class SeriesCache:
    """Ids of series and edges, and which are stored for good. Rows are append-only. One writer at a time, many readers."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str, str, str, str], IntArray] = {}
        self._pending: dict[int, SeriesKey] = {}
        self._stored: set[int] = set()
        self._edges: dict[int, tuple[float, ...]] = {0: ()}

    def ids(self, layout: Layout, cluster: str, pool: str, model: str, unit: str) -> IntArray:
        """The series id of each of ``items(layout)``, int64[I], for a replica or (unit empty) the pool."""
        key = (layout.id, cluster, pool, model, unit)
        found = self._ids.get(key)
        if found is None:
            found = np.zeros(len(items(layout)), np.int64)
            for i, item in enumerate(items(layout)):
                c = item.column
                labels = {k: v for k, v in c.labels if k not in OWN_LABELS}
                series_key = SeriesKey(
                    c.signal,
                    c.kind,
                    c.label("class") or pool or "unclassified",
                    cluster,
                    pool,
                    unit,
                    c.label("model") or model,
                    json.dumps(labels, separators=(",", ":")),
                    c.edges,
                )
                found[i] = series_key.id
                if (item.local if unit else item.pooled) and series_key.id not in self._stored:
                    self._pending[series_key.id] = series_key
            self._ids[key] = found
        return found

    def store(self, connection: Connection) -> set[int]:
        """Write the series not written yet; their ids go to :meth:`committed` after the transaction."""
        new = dict(self._pending)
        store_edges(connection, {k.edges for k in new.values()})
        rows = [
            {
                "id": i,
                "signal": k.signal,
                "kind": k.kind,
                "class_": k.class_,
                "cluster": k.cluster,
                "pool": k.pool,
                "unit": k.unit,
                "model": k.model,
                "labels": k.labels,
                "edges_id": edges_id(k.edges),
            }
            for i, k in sorted(new.items())
        ]
        upsert(connection, series, rows)
        return set(new)

    def committed(self, ids: set[int]) -> None:
        """Remember that these rows exist for good."""
        self._stored |= ids
        for i in ids:
            self._pending.pop(i, None)

    def edges(self, connection: Connection, ids: Iterable[int]) -> Mapping[int, tuple[float, ...]]:
        """Bucket edges by id, read where unknown."""
        missing = set(ids) - self._edges.keys()
        if missing:
            for row in connection.execute(select(edges).where(edges.c.id.in_(missing))):
                self._edges[row.id] = tuple(float(e) for e in orjson.loads(row.edges))
        return self._edges


def store_edges(connection: Connection, lists: Iterable[tuple[float, ...]]) -> None:
    """Write lists of bucket edges; ``()`` has the id 0."""
    rows = [{"id": edges_id(e), "edges": orjson.dumps(list(e)).decode()} for e in sorted(set(lists))]
    upsert(connection, edges, rows)
