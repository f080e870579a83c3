"""Layouts: content-addressed lists of columns, stored once, remembered by every process."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from core.errors import StoreError
from core.frames import Layout
from sql.bulk import upsert
from sql.memo import by_layout
from sql.schema import layouts


class LayoutCache:
    """Layouts by id. Rows are append-only, so a remembered one never goes stale. Shared by threads (dict access is atomic)."""

    def __init__(self) -> None:
        self._by_id: dict[str, Layout] = {}
        self._stored: set[str] = set()

    def load(self, connection: Connection, ids: Iterable[str]) -> None:
        """Read those of ``ids`` that are not known yet."""
        missing = sorted(set(ids) - self._by_id.keys())
        for start in range(0, len(missing), 500):
            query = select(layouts.c.id, layouts.c.columns).where(
                layouts.c.id.in_(missing[start : start + 500])
            )
            for row in connection.execute(query):
                self._by_id[row.id] = Layout.from_json(row.columns)
                self._stored.add(row.id)

    def signals(self, connection: Connection) -> set[str]:
        """Every signal that a stored layout has."""
        self.load(connection, connection.execute(select(layouts.c.id)).scalars())
        return {c.signal for layout in list(self._by_id.values()) for c in layout.columns}

    def get(self, layout_id: str) -> Layout:
        """A layout read or stored before; ``StoreError`` if the table lacks it."""
        try:
            return self._by_id[layout_id]
        except KeyError:
            raise StoreError(
                f"layout {layout_id} is missing: the database is damaged. Fix: restore a copy"
            ) from None

    def store(self, connection: Connection, new: Iterable[Layout]) -> set[str]:
        """Write those not written yet; returns their ids, to be passed to :meth:`committed` once the transaction is."""
        wanted = {x.id: x for x in new if x.id not in self._stored}
        upsert(connection, layouts, [{"id": i, "columns": x.to_json()} for i, x in sorted(wanted.items())])
        self._by_id.update(wanted)
        return set(wanted)

    def committed(self, ids: set[str]) -> None:
        """Remember that these rows exist for good."""
        self._stored |= ids


@by_layout
def cumulative(layout: Layout) -> Layout:
    """The layout without gauges: what a target's state remembers. Count and sum slots keep their order."""
    return Layout(tuple(c for c in layout.columns if c.kind != "gauge"))
