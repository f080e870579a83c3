"""The store: everything that Gustfront keeps, behind one object. Thread-safe; each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from core.frames import FloatArray, Frame, IntArray, Reading
from core.lifecycle import LogEntry
from sql import append as append_readings
from sql import frames as frame_rows
from sql import migrate, retention, rollup_reads
from sql import targets as target_rows
from sql.append import LIVE, AppendResult
from sql.engine import Database, RowsRefused, database_file, database_name
from sql.fact_store import FactStore
from sql.increments import BoolArray
from sql.layouts import LayoutCache
from sql.retention import Retention, RetentionResult
from sql.rollup_reads import RollupRow
from sql.rollups import MatrixKey
from sql.targets import TargetRow

__all__ = [
    "AppendResult",
    "LogEntry",
    "RollupRow",
    "RowsRefused",
    "Store",
    "TargetRow",
    "database_file",
    "database_name",
]


class Store(FactStore):
    """One database. Open it with :meth:`open`; every method raises ``StoreError`` where the database cannot be used."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._layouts = LayoutCache()
        self._targets = target_rows.TargetCache()

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Store:
        """Open ``sqlite:///file`` or ``postgresql://…``; a writer creates and migrates the tables.

        ``StoreError`` names the database and the fix: missing (read-only), not a database, damaged, written by a newer
        release, no permission, server away.
        """
        database = Database(url, read_only=read_only)
        try:
            if read_only:
                migrate.check(database)
            else:
                migrate.upgrade(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    # --- readings and frames

    def append(self, readings: Sequence[Reading], *, stream: str = LIVE, events: bool = True) -> AppendResult:
        """Write readings in one transaction: frames, states, roll-ups and (with ``events``) restarts. Idempotent.

        ``stream`` is ``live`` or a name for a back-fill, which may be older than what is stored. Roll-ups are merged once a
        call: pass long runs of many targets together. The rules are in :mod:`sql.append` and :mod:`sql.increments`.
        """
        if not readings:
            return AppendResult(0, 0)
        with self.database.write(lock=True) as c:
            result, commit = append_readings.append(
                c,
                readings,
                stream=stream,
                events=events,
                layouts=self._layouts,
                series=self._series,
                targets=self._targets,
            )
        self._layouts.committed(commit.layouts)
        self._series.committed(commit.series)
        self._targets.committed(commit.targets)
        return result

    def targets(self) -> list[TargetRow]:
        """All targets ever seen, by cluster, pool, replica, rank, address."""
        with self.database.read() as c:
            return target_rows.read(c)

    def frames(
        self,
        start: float,
        end: float,
        *,
        target_ids: Sequence[int] | None = None,
        pools: Sequence[str] | None = None,
    ) -> Iterator[Frame]:
        """Frames with start <= t1 < end, ordered by (t1, target). A count of -1 and a NaN are gaps, not zeros."""
        return frame_rows.read(self.database, self._layouts, start, end, target_ids=target_ids, pools=pools)

    def signals(self) -> set[str]:
        """Ids of all signals ever stored."""
        with self.database.read() as c:
            return self._layouts.signals(c)

    def uptime(
        self,
        start: float,
        end: float,
        *,
        target_ids: Sequence[int] | None = None,
        pools: Sequence[str] | None = None,
    ) -> Mapping[int, tuple[FloatArray, BoolArray]]:
        """Target id → (times float64[n] of scrapes in [start, end), whether each was good bool[n])."""
        with self.database.read() as c:
            return frame_rows.uptime(c, start, end, target_ids=target_ids, pools=pools)

    def newest(self) -> float | None:
        """End of the newest frame, None without frames."""
        with self.database.read() as c:
            return frame_rows.newest(c)

    def oldest(self) -> float | None:
        """End of the oldest frame, None without frames."""
        with self.database.read() as c:
            return frame_rows.oldest(c)

    # --- roll-ups

    def rollups(
        self,
        signal: str,
        start: float,
        end: float,
        *,
        resolution: int = 60,
        classes: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
        clusters: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        per_unit: bool = False,
    ) -> list[RollupRow]:
        """Rows with start <= ts < end at 60 or 3600 s (300 s with ``per_unit``), by time and key."""
        with self.database.read() as c:
            return rollup_reads.read_rows(
                c,
                self._series,
                signal,
                start,
                end,
                resolution=resolution,
                classes=classes,
                pools=pools,
                clusters=clusters,
                models=models,
                per_unit=per_unit,
            )

    def rollup_matrix(
        self,
        signal: str,
        start: float,
        end: float,
        step: int = 60,
        *,
        classes: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
        clusters: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        per_unit: bool = False,
    ) -> dict[MatrixKey, tuple[IntArray, IntArray, FloatArray]]:
        """(class, pool, unit, model, edges) → (ts int64[T], counts int64[T, B], sums float64[T]); see
        :func:`sql.rollup_reads.read_matrix`."""
        with self.database.read() as c:
            return rollup_reads.read_matrix(
                c,
                self._series,
                signal,
                start,
                end,
                step,
                classes=classes,
                pools=pools,
                clusters=clusters,
                models=models,
                labels=labels,
                per_unit=per_unit,
            )

    # --- care

    def apply_retention(self, keep: Retention) -> RetentionResult:
        """Delete what is older than ``keep`` says, counted from the newest data of each source; see :mod:`sql.retention`."""
        return retention.apply(self.database, keep)

    def size_bytes(self) -> int:
        """Bytes that the data take now."""
        with self.database.read() as c:
            return retention.used_bytes(c)

    def ping(self) -> Mapping[str, Any]:
        """Facts for health checks: the database's name without password and its revision."""
        with self.database.read() as c:
            return {"database": self.database.name, "revision": migrate.current(c)}
