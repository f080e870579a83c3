"""What the gateway answered, minute by minute: counts of attempts per pool, class, status and tenant as dense arrays.

A minute counts only when it is over at the tick (which lies an ingest lag behind now), so that a detector never sees half of
one. A minute in which the log holds nothing at all is unknown (NaN), not quiet: a log that stopped must not look like an outage.
Memory is bounded: rows beyond :data:`MOST_TENANTS` tenants are kept as ``other``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.requests import RequestCount

F = NDArray[np.float64]
Small = NDArray[np.float32]
PoolClass = tuple[str, str]

MINUTE = 60
MOST_TENANTS = 4000
OTHER = "other"
OK = frozenset(range(200, 300))
FAILED = frozenset(range(500, 600))
LEFT = frozenset({499})
REFUSED = frozenset({429})
TIMED_OUT = frozenset({408, 504})
MEASURES = ("n", "ttft_n", "ttft_sum", "late", "duration_sum", "prompt_tokens", "output_tokens")


class _Rows:
    """Rows of minutes by key, ``[keys, minutes]``, growing in both directions."""

    def __init__(self) -> None:
        self.index: dict[tuple[object, ...], int] = {}
        self.data: Small = np.zeros((16, 512), np.float32)

    def put(self, key: tuple[object, ...], minute: int, value: float) -> None:
        """Add to one cell."""
        row = self.index.setdefault(key, len(self.index))
        rows, width = self.data.shape
        if row >= rows or minute >= width:
            more = (max(0, row + 1 - rows, rows if row >= rows else 0), max(0, minute + 1 - width))
            self.data = np.pad(self.data, ((0, more[0]), (0, more[1] and more[1] + width)))
        self.data[row, minute] += value

    def clear(self, lo: int, hi: int) -> None:
        """Forget the minutes [lo, hi)."""
        self.data[:, lo:hi] = 0.0

    def drop(self, minutes: int) -> None:
        """Forget the oldest minutes."""
        self.data[:, :-minutes] = self.data[:, minutes:].copy()
        self.data[:, -minutes:] = 0.0

    def read(self, keys: Iterable[tuple[object, ...]], lo: int, hi: int) -> F:
        """Sum of some rows over [lo, hi)."""
        at = [self.index[k] for k in keys if k in self.index]
        out = np.zeros(hi - lo)
        width = min(hi, self.data.shape[1])
        if at and width > lo:
            out[: width - lo] = self.data[at, lo:width].sum(axis=0, dtype=np.float64)
        return out


@dataclass
class Attempts:
    """All minutes read so far; ``first`` is the minute (Unix time // 60) of column 0, ``until`` the Unix time read up to.

    ``thresholds`` gives the TTFT objective of a class in seconds: attempts beyond it are counted as ``late``.
    """

    start: float
    depth: float | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = int(self.start // MINUTE)
        self.until = float(self.first * MINUTE)
        self.point = ""
        self._sums = _Rows()
        self._status = _Rows()
        self._tenants = _Rows()
        self._any: NDArray[np.bool_] = np.zeros(512, bool)
        self.pools: dict[str, set[str]] = {}
        self.statuses: dict[str, set[int]] = {}
        self.tenants: dict[PoolClass, set[str]] = {}

    def add(
        self,
        rows: Iterable[RequestCount],
        since: float,
        until: float,
        pool_of: Mapping[str, str] | None = None,
    ) -> None:
        """Take the minutes [since, until) (Unix seconds, whole minutes) from ``rows``; what was known of them is replaced.

        ``pool_of`` gives the pool of a class for rows whose log names none.
        """
        lo, hi = max(0, int(since // MINUTE) - self.first), int(until // MINUTE) - self.first
        if hi <= lo:
            return
        if hi > len(self._any):
            self._any = np.pad(self._any, (0, hi))
        self._any[lo:hi] = False
        for table in (self._sums, self._status, self._tenants):
            table.clear(lo, hi)
        points = [r for r in rows if lo <= r.minute // MINUTE - self.first < hi]
        if not self.point and points:
            known = sorted({r.point for r in points})
            self.point = "gateway" if "gateway" in known else known[0]
        for r in points:
            if r.point == self.point:
                self._take(r, r.pool or (pool_of or {}).get(r.class_, ""))
        self.until = max(self.until, until)
        self._trim()

    def _take(self, r: RequestCount, pool: str) -> None:
        m = r.minute // MINUTE - self.first
        self._any[m] = True
        key = (pool, r.class_)
        self.pools.setdefault(pool, set()).add(r.class_)
        self.statuses.setdefault(pool, set()).add(r.status)
        threshold = self.thresholds.get(r.class_)
        late = 0
        if threshold is not None:
            edge = int(np.searchsorted(r.edges, threshold))
            late = sum(n for b, n in r.ttft.items() if b > edge)
        values = (
            r.n,
            sum(r.ttft.values()),
            r.ttft_sum,
            late,
            r.duration_sum,
            r.prompt_tokens,
            r.output_tokens,
        )
        for name, value in zip(MEASURES, values, strict=True):
            if value:
                self._sums.put((*key, name), m, float(value))
        self._status.put((*key, r.status), m, r.n)
        tenants = self.tenants.setdefault(key, set())
        full = len(self._tenants.index) >= 3 * MOST_TENANTS
        tenant = r.tenant if r.tenant in tenants or not full else OTHER
        tenants.add(tenant)
        self._tenants.put((*key, tenant, "n"), m, r.n)
        self._tenants.put((*key, tenant, "failed"), m, r.n if r.status >= 400 else 0)
        self._tenants.put((*key, tenant, "tokens"), m, r.prompt_tokens + r.output_tokens)

    def _trim(self) -> None:
        if self.depth is None:
            return
        keep = int(self.depth // MINUTE) + 1
        extra = int(self.until // MINUTE) - self.first - keep
        if extra > keep // 4:
            for table in (self._sums, self._status, self._tenants):
                table.drop(extra)
            self._any[:-extra] = self._any[extra:].copy()
            self._any[-extra:] = False
            self.first += extra

    def upto(self, end: float) -> AttemptsView:
        """What was known at ``end`` (Unix seconds): whole minutes only."""
        return AttemptsView(self, int(min(end, self.until) // MINUTE) - self.first)


@dataclass(frozen=True)
class AttemptsView:
    """The minutes before a tick. Arrays are ``[minutes]``, oldest first, NaN where the log holds nothing of that minute."""

    of: Attempts
    stop: int

    @property
    def end(self) -> float:
        """Unix time at which the last minute ends."""
        return float((self.of.first + self.stop) * MINUTE)

    def known(self, pool: str, minutes: int) -> bool:
        """Whether the log covers the last ``minutes`` minutes, and names this pool."""
        return pool in self.of.pools and self.stop >= minutes and bool(self._covered(minutes).all())

    def classes(self, pool: str) -> tuple[str, ...]:
        """Classes seen in a pool."""
        return tuple(sorted(self.of.pools.get(pool, ())))

    def tenants(self, pool: str, workload_class: str) -> tuple[str, ...]:
        """Tenants seen in a pool and class."""
        return tuple(sorted(self.of.tenants.get((pool, workload_class), ())))

    def count(
        self,
        pool: str,
        minutes: int,
        status: Collection[int] | None = None,
        classes: Collection[str] | None = None,
    ) -> F:
        """Attempts per minute that ended with one of these statuses (any where None)."""
        if status is None:
            return self.total(pool, "n", minutes, classes)
        wanted = self.of.statuses.get(pool, set()) & set(status)
        keys = [(pool, c, s) for c in self._classes(pool, classes) for s in wanted]
        return self._read(self.of._status, keys, minutes)

    def total(self, pool: str, measure: str, minutes: int, classes: Collection[str] | None = None) -> F:
        """One of :data:`MEASURES` per minute: ``late`` are attempts whose first token came after the objective."""
        return self._read(self.of._sums, [(pool, c, measure) for c in self._classes(pool, classes)], minutes)

    def tenant(self, pool: str, workload_class: str, tenant: str, minutes: int, what: str = "n") -> F:
        """Of one tenant per minute: attempts ``n``, those that ``failed`` (status 400 or more), or ``tokens``."""
        return self._read(self.of._tenants, [(pool, workload_class, tenant, what)], minutes)

    def by_status(self, pool: str, minutes: int) -> dict[int, int]:
        """How many attempts of the last minutes ended with each status, most frequent first."""
        found = {s: int(np.nansum(self.count(pool, minutes, {s}))) for s in self.of.statuses.get(pool, ())}
        return dict(sorted(((s, n) for s, n in found.items() if n), key=lambda p: (-p[1], p[0])))

    def _classes(self, pool: str, classes: Collection[str] | None) -> Collection[str]:
        return self.of.pools.get(pool, set()) if classes is None else classes

    def _covered(self, minutes: int) -> NDArray[np.bool_]:
        return self.of._any[max(0, self.stop - minutes) : max(0, self.stop)]

    def _read(self, table: _Rows, keys: Iterable[tuple[object, ...]], minutes: int) -> F:
        lo, hi = max(0, self.stop - minutes), max(0, self.stop)
        out = table.read(keys, lo, hi)
        out[~self.of._any[lo:hi]] = np.nan
        return out
