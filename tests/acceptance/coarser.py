"""A store as another scraper would have filled it: scrapes further apart, at other phases, or without some signals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from core.frames import Frame, Layout
from sql.store import Store


class Coarser:
    """Reads ``store`` with ``every`` consecutive scrapes of a target taken as one, and without the signals ``without``.

    What a longer interval would have given: counters and buckets add up, gauges are those of the last scrape. Targets are read at
    different moments (``id % every``), so that the fleet is not scraped in step. All else is the store's own.
    """

    def __init__(self, store: Store, every: int = 1, without: frozenset[str] = frozenset()) -> None:
        self._store, self._every, self._without = store, every, without
        self._cut: dict[str, tuple[Layout, tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def frames(self, start: float, end: float) -> Iterator[Frame]:
        """As the store's."""
        open_: dict[int, list[Frame]] = {}
        for f in self._store.frames(start, end):
            held = open_.setdefault(f.target_id, [])
            if held and (f.layout.id != held[-1].layout.id or f.reset):
                yield self._join(held)
                held.clear()
            held.append(f)
            if round(f.t1 / 15.0) % self._every == f.target_id % self._every:
                yield self._join(held)
                held.clear()
        for held in open_.values():
            if held:
                yield self._join(held)

    def _join(self, held: list[Frame]) -> Frame:
        last = held[-1]
        counts = np.stack([f.counts for f in held])
        merged = replace(
            last,
            t0=held[0].t0,
            counts=np.where((counts < 0).all(axis=0), -1, np.maximum(counts, 0).sum(axis=0)),
            sums=np.stack([f.sums for f in held]).sum(axis=0),
            reset=any(f.reset for f in held),
        )
        if not self._without:
            return merged
        layout, (g, n, s) = self._plan(last.layout)
        return replace(
            merged, layout=layout, gauges=merged.gauges[g], counts=merged.counts[n], sums=merged.sums[s]
        )

    def _plan(self, layout: Layout) -> tuple[Layout, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        if layout.id not in self._cut:
            keep = [i for i, c in enumerate(layout.columns) if c.signal not in self._without]
            parts = tuple(
                np.concatenate(
                    [np.arange(layout.slots[i][k].start, layout.slots[i][k].stop) for i in keep] or [[]]
                ).astype(int)
                for k in range(3)
            )
            self._cut[layout.id] = (Layout(tuple(layout.columns[i] for i in keep)), parts)  # type: ignore[assignment]
        return self._cut[layout.id]
