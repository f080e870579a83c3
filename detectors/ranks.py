"""What the ranks inside a replica do: a few gauges per rank, for data-parallel engines whose sum hides a queue on one of them.

Kept only where columns or targets carry a rank, and for at most :data:`MOST` ranks of the whole fleet, so that memory is bounded
whatever labels a target invents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.frames import Layout

F = NDArray[np.float64]
SIGNALS = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
MOST = 4096


class Ranks:
    """Arrays ``[ranks, cells]`` of each of :data:`SIGNALS`, NaN where missing; cells as in the cube that owns them."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, int]] = {}
        self._count = 0
        self._data = {s: np.full((0, 0), np.nan, np.float32) for s in SIGNALS}
        self._slots: dict[str, tuple[tuple[str, str, int], ...]] = {}

    def add(
        self,
        layout: Layout,
        gauges: F,
        units: NDArray[np.intp],
        cells: NDArray[np.intp],
        ranks: Sequence[str],
    ) -> None:
        """Take the gauges ``[frames, slots]`` of frames of one layout, ordered by time; ``ranks`` are those of their targets."""
        slots = self._of(layout)
        named = any(rank for _, rank, _ in slots)
        if not slots or not (named or any(ranks)):
            return
        for signal, own, slot in slots:
            rows = np.asarray(
                [self._row(int(u), own or r) if own or r else -1 for u, r in zip(units, ranks, strict=True)],
                np.intp,
            )
            values = gauges[:, slot]
            ok = (rows >= 0) & ~np.isnan(values) & (cells >= 0)
            if ok.any():
                self._fit(int(cells[ok].max()) + 1)
                self._data[signal][rows[ok], cells[ok]] = values[ok]

    def drop(self, cells: int) -> None:
        """Forget the oldest cells."""
        for signal, a in self._data.items():
            self._data[signal] = np.ascontiguousarray(a[:, cells:])

    def names(self, unit: int) -> list[str]:
        """Ranks of a replica, as numbers in order where they are numbers."""
        return sorted(self.rows.get(unit, ()), key=lambda r: (len(r), r))

    def values(self, signal: str, unit: int, lo: int, hi: int) -> F:
        """``[ranks, hi - lo]`` in the order of :meth:`names`, NaN where missing."""
        rows = [self.rows[unit][r] for r in self.names(unit)]
        out = np.full((len(rows), max(hi - lo, 0)), np.nan)
        a = self._data[signal]
        top = min(hi, a.shape[1])
        if rows and top > lo:
            out[:, : top - lo] = a[rows, lo:top]
        return out

    def _of(self, layout: Layout) -> tuple[tuple[str, str, int], ...]:
        found = self._slots.get(layout.id)
        if found is None:
            found = self._slots[layout.id] = tuple(
                (c.signal, c.label("rank"), int(layout.slots[i][0].start))
                for i, c in enumerate(layout.columns)
                if c.kind == "gauge" and c.signal in SIGNALS
            )
        return found

    def _row(self, unit: int, rank: str) -> int:
        mine = self.rows.setdefault(unit, {})
        if rank not in mine:
            if self._count >= MOST:
                return -1
            mine[rank] = self._count
            self._count += 1
        return mine[rank]

    def _fit(self, cells: int) -> None:
        for signal, a in self._data.items():
            rows, width = a.shape
            if self._count > rows or cells > width:
                more = (max(0, 2 * self._count - rows), max(0, 2 * cells - width))
                self._data[signal] = np.pad(a, ((0, more[0]), (0, more[1])), constant_values=np.nan)


@dataclass(frozen=True, slots=True)
class RankView:
    """The ranks up to a tick."""

    of: Ranks
    start: int
    stop: int

    def names(self, unit: int) -> list[str]:
        """Ranks of a replica that have said anything by now, at least two; else none."""
        known = self.of.names(unit)
        return known if len(known) > 1 else []

    def values(self, signal: str, unit: int, cells: int | None = None) -> F:
        """The last ``cells`` cells (all where None) of a signal, ``[ranks, cells]``."""
        lo = self.start if cells is None else max(self.start, self.stop - cells)
        return self.of.values(signal, unit, lo, self.stop)
