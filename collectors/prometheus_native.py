"""Native histograms of Prometheus turned into classic cumulative buckets with fixed edges, where that is honest.

An exponential histogram of schema 2 or finer has all its boundaries on, or inside the cells of, the grid ``2 ** (k / 4)``: its
counts at the grid's edges are exact. Coarser schemas straddle the grid and custom boundaries are only known where something was
counted, so for those only count and sum are taken and the series is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from core.frames import FloatArray

STEPS = 4
LOW, HIGH = -10, 14
EDGES: tuple[float, ...] = tuple(2.0 ** (k / STEPS) for k in range(LOW * STEPS, HIGH * STEPS + 1))
"""About 1 ms to 16,384 s, 19 % apart."""


class NotOnGrid(ValueError):
    """A bucket straddles an edge of the grid, so its count cannot be split honestly."""


def _index(bound: float) -> float:
    """Position of a positive bound on the grid, 0 at the first edge; -inf for bounds at or below zero."""
    return (math.log2(bound) - LOW) * STEPS if bound > 0 else -math.inf


def grid_counts(buckets: Sequence[Sequence[Any]]) -> FloatArray:
    """Cumulative counts at :data:`EDGES` of ``[rule, "left", "right", "count"]`` entries, which may leave out empty buckets.

    NotOnGrid where an edge lies strictly inside a bucket.
    """
    out = np.zeros(len(EDGES) + 1)
    for _rule, left, right, count in buckets:
        low, high = _index(float(left)), _index(float(right))
        slot = 0 if high == -math.inf else math.ceil(high - 1e-6)
        # The bucket ends at or below edge `slot`; it must not begin below the edge before it.
        if slot > 0 and slot <= len(EDGES) - 1 and low < slot - 1 - 1e-6:
            raise NotOnGrid(f"({left}, {right}]")
        if slot > len(EDGES) - 1 and low < len(EDGES) - 1 - 1e-6:
            raise NotOnGrid(f"({left}, {right}]")
        out[min(max(slot, 0), len(EDGES))] += float(count)
    cumulative: FloatArray = np.cumsum(out)[:-1]
    return cumulative


def to_classic(
    name: str, histograms: Sequence[Sequence[Any]]
) -> tuple[dict[tuple[str, str], FloatArray], list[float], str]:
    """Rows ``(name, le) -> values`` (``_count`` and ``_sum`` with an empty ``le``), their times, and why buckets are missing.

    The reason is empty where they are not. Malformed entries raise KeyError, TypeError or ValueError.
    """
    times = [float(t) for t, _ in histograms]
    rows: dict[tuple[str, str], FloatArray] = {
        (f"{name}_count", ""): np.array([float(h["count"]) for _, h in histograms]),
        (f"{name}_sum", ""): np.array([float(h["sum"]) for _, h in histograms]),
    }
    try:
        cells = np.array([grid_counts(h.get("buckets") or ()) for _, h in histograms])
    except NotOnGrid as error:
        return rows, times, f"its bucket {error} straddles the edges that Gustfront keeps"
    for edge, row in zip(EDGES, cells.T, strict=True):
        rows[(f"{name}_bucket", repr(edge))] = np.ascontiguousarray(row)
    rows[(f"{name}_bucket", "+Inf")] = rows[(f"{name}_count", "")]
    return rows, times, ""
