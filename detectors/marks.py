"""Coarse histograms: of some signals a detector needs only how much lies beyond a few marks, not every bucket of every replica.

``signal:marks`` in a detector's ``hists`` keeps, of each layout's own edges, the first at or beyond each mark. Buckets are
joined, never split, so every count stays exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MEAN, COARSE = ":mean", ":marks"
MARKS: Mapping[str, tuple[float, ...]] = {
    "inter_token_latency_seconds": (0.1, 0.25, 0.5, 1.0, 2.5),
    "request_prompt_tokens": (2e3, 5e3, 1e4, 2e4, 5e4, 1e5),
}


def signal_of(hist: str) -> str:
    """The signal of an entry of ``hists``."""
    return hist.removesuffix(MEAN).removesuffix(COARSE)


def detail(hist: str) -> int:
    """How much of a histogram an entry of ``hists`` asks for: 0 number and sum, 1 marks, 2 all buckets."""
    return 0 if hist.endswith(MEAN) else 1 if hist.endswith(COARSE) else 2


@lru_cache(maxsize=256)
def joined(signal: str, edges: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The edges that are kept, and where each joined bucket starts among the old ones (for ``np.add.reduceat``).

    >>> joined("inter_token_latency_seconds", (0.01, 0.1, 0.3, 0.5, 1.0))
    ((0.1, 0.3, 0.5, 1.0), (0, 2, 3, 4, 5))
    """
    at = np.searchsorted(np.asarray(edges), MARKS[signal])
    kept = sorted({int(i) for i in at if i < len(edges)})
    return tuple(edges[i] for i in kept), (0, *(i + 1 for i in kept))


def join(counts: NDArray[np.float64], starts: tuple[int, ...]) -> NDArray[np.float64]:
    """Counts ``[frames, buckets]`` in joined buckets; NaN where one of the joined ones is."""
    return np.add.reduceat(counts, np.asarray(starts), axis=1)
