"""Who was hurt: shares of requests that missed their first-token objective, in slots of 15 seconds."""

from __future__ import annotations

from collections import defaultdict

SLOT = 15.0
WINDOW = 4  # slots: one minute
SHARE = 0.05
FEWEST = 3  # misses in a window, so that one slow request in a quiet minute is no impact
QUIET = 20 * 60.0  # after the fault, an impact ends for good when nothing is missed this long


class Impact:
    """Counts (requests, misses) by pool, workload, replica and slot."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, str], dict[int, list[int]]] = defaultdict(dict)

    def record(self, t: float, pool: str, workload: str, replica: str, missed: bool) -> None:
        """One request got its first token, or will never get it."""
        cell = self._cells[pool, workload, replica].setdefault(int(t // SLOT), [0, 0])
        cell[0] += 1
        cell[1] += missed

    def forget(self, before: float) -> None:
        """Drop what is older."""
        edge = int(before // SLOT)
        for cells in self._cells.values():
            for slot in [s for s in cells if s < edge]:
                del cells[slot]

    def windows(
        self,
        start: float,
        end: float,
        pool: str,
        workloads: tuple[str, ...] | None,
        replica: str | None = None,
    ) -> list[tuple[float, float]]:
        """One-minute windows within [start, end), at steps of 15 s, in which more than 5 % missed."""
        total: dict[int, list[int]] = {}
        for (p, w, r), cells in self._cells.items():
            if p == pool and (workloads is None or w in workloads) and replica in (None, r):
                for slot, (n, missed) in cells.items():
                    if start <= slot * SLOT < end:
                        cell = total.setdefault(slot, [0, 0])
                        cell[0] += n
                        cell[1] += missed
        out = []
        if total:
            for first in range(min(total), max(total) + 1):
                cells4 = [total[s] for s in range(first, first + WINDOW) if s in total]
                n = sum(c[0] for c in cells4)
                missed = sum(c[1] for c in cells4)
                if missed >= FEWEST and missed > SHARE * n:
                    out.append((first * SLOT, (first + WINDOW) * SLOT))
        return out

    def span(
        self, start: float, fault_end: float, end: float, pool: str, workloads: tuple[str, ...] | None
    ) -> tuple[float, float] | None:
        """First and last second of the windows that missed, from ``start`` until it stayed quiet after the
        fault; None if there were none."""
        first = last = None
        for a, b in self.windows(start, end, pool, workloads):
            if a > max(fault_end, last or fault_end) + QUIET:
                break
            first = a if first is None else first
            last = b
        return None if first is None or last is None else (max(start, first), min(end, last))

    def workloads(self, pool: str) -> list[str]:
        """Classes that the pool has served."""
        return sorted({w for p, w, _ in self._cells if p == pool})
