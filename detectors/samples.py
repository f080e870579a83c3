"""Sampled outputs as columns: what the quality detectors count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.records import OutputRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """Columns of equal length, ordered by ``ts`` (the finish). ``bad`` marks the first degraded turn of a session.

    Later turns of a session that has gone bad carry the bad context along, so they are not independent evidence; they stay in
    the table with ``bad`` false and ``follow`` true.
    """

    ts: Floats
    admitted: Floats
    pool: NDArray[np.object_]
    replica: NDArray[np.object_]
    workload_class: NDArray[np.object_]
    bad: NDArray[np.bool_]
    follow: NDArray[np.bool_]
    accept: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    cached_tokens: Floats
    session: NDArray[np.object_]
    rules: tuple[tuple[str, ...], ...]
    ids: NDArray[np.object_]
    release: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.ts)

    def upto(self, t: float) -> int:
        """Number of rows that had finished by ``t``."""
        return int(np.searchsorted(self.ts, t, side="right"))

    def since(self, t: float) -> int:
        """Index of the first row that finished after ``t``."""
        return int(np.searchsorted(self.ts, t, side="right"))

    @classmethod
    def of(cls, records: Iterable[OutputRecord]) -> Samples:
        """Columns from records in any order."""
        rows = sorted(records, key=lambda r: (r.ts, r.id))
        bad, follow = _first_bad(rows)
        num = lambda f: np.asarray([np.nan if (v := getattr(r, f)) is None else v for r in rows], np.float64)  # noqa: E731
        obj = lambda f: np.asarray([getattr(r, f) for r in rows], object)  # noqa: E731
        return cls(
            ts=np.asarray([r.ts for r in rows], np.float64),
            admitted=np.asarray([r.admitted for r in rows], np.float64),
            pool=obj("pool"),
            replica=np.asarray([r.replica.rsplit(":", 1)[0] for r in rows], object),
            workload_class=obj("workload_class"),
            bad=bad,
            follow=follow,
            accept=num("accept_length"),
            prompt_tokens=num("prompt_tokens"),
            output_tokens=num("output_tokens"),
            cached_tokens=num("cached_tokens"),
            session=obj("session"),
            rules=tuple(tuple(sorted(r.rules)) for r in rows),
            ids=obj("id"),
            release=obj("release"),
        )


def _first_bad(rows: Sequence[OutputRecord]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    bad = np.zeros(len(rows), bool)
    follow = np.zeros(len(rows), bool)
    gone: set[tuple[str, str]] = set()
    for i, r in enumerate(rows):
        if r.verdict != "hard":
            continue
        key = (r.pool, r.session or r.id)
        follow[i] = key in gone
        bad[i] = not follow[i]
        gone.add(key)
    return bad, follow


EMPTY = Samples.of([])
