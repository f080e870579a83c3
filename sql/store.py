"""The store: everything that Gustfront keeps, behind one object. Thread-safe; each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from core.frames import FloatArray, Frame, IntArray, Reading
from core.incidents import Incident
from core.records import Event, OutputRecord, Problem
from core.requests import RequestCell, RequestKey
from sql import append as append_readings
from sql import events as event_rows
from sql import frames as frame_rows
from sql import incidents as incident_rows
from sql import migrate, retention, rollups
from sql import outputs as output_rows
from sql import requests as request_rows
from sql import targets as target_rows
from sql.append import LIVE, AppendResult
from sql.engine import Database, RowsRefused, database_file, database_name
from sql.incidents import LogEntry
from sql.increments import BoolArray
from sql.layouts import LayoutCache
from sql.retention import Retention, RetentionResult
from sql.rollups import MatrixKey, RollupRow
from sql.series import SeriesCache
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


class Store:
    """One database. Open it with :meth:`open`; every method raises ``StoreError`` where the database cannot be used."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._layouts = LayoutCache()
        self._series = SeriesCache()
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
            return rollups.read_rows(
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
        :func:`sql.rollups.read_matrix`."""
        with self.database.read() as c:
            return rollups.read_matrix(
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

    # --- gateway requests and outputs

    def add_requests(
        self, cells: Mapping[RequestKey, RequestCell], *, cursor: tuple[str, str] | None = None
    ) -> None:
        """Add cells to what is stored and move the import's cursor (name, value), both or neither."""
        with self.database.write(lock=True) as c:
            request_rows.add(c, cells)
            if cursor is not None:
                event_rows.set_cursor(c, *cursor)

    def request_cells(
        self,
        start: float,
        end: float,
        *,
        classes: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
        points: Sequence[str] | None = None,
    ) -> list[tuple[RequestKey, RequestCell]]:
        """Cells whose minute starts in [start, end), by key; one key appears twice where its bucket edges changed."""
        with self.database.read() as c:
            return request_rows.read(c, self._series, start, end, classes=classes, pools=pools, points=points)

    def add_outputs(self, records: Iterable[OutputRecord], *, cursor: tuple[str, str] | None = None) -> int:
        """Insert records whose id is new, and move the cursor; returns how many were new."""
        with self.database.write() as c:
            new = output_rows.add(c, records)
            if cursor is not None:
                event_rows.set_cursor(c, *cursor)
            return new

    def outputs(
        self,
        start: float,
        end: float,
        *,
        pools: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        verdicts: Sequence[str] | None = None,
    ) -> list[OutputRecord]:
        """Records with start <= ts < end, by time."""
        with self.database.read() as c:
            return output_rows.read(c, start, end, pools=pools, classes=classes, verdicts=verdicts)

    # --- events, problems, cursors

    def add_events(self, new: Iterable[Event]) -> int:
        """Insert events that are not there yet; returns how many."""
        with self.database.write(lock=True) as c:
            return event_rows.add(c, new)

    def events(
        self,
        start: float | None = None,
        end: float | None = None,
        *,
        kinds: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
    ) -> list[Event]:
        """Events with start <= ts < end, by time; ``pools`` also keeps those that name no pool."""
        with self.database.read() as c:
            return event_rows.read(c, start, end, kinds=kinds, pools=pools)

    def add_problems(self, new: Iterable[Problem]) -> None:
        """Count input problems by (source, code, subject)."""
        with self.database.write() as c:
            event_rows.add_problems(c, new)

    def problems(self, since: float | None = None, *, source: str | None = None) -> list[Problem]:
        """Problems seen since a time, the latest first; ``ts`` is the last time, ``count`` the total."""
        with self.database.read() as c:
            return [p for p, _ in event_rows.read_problems(c, since, source=source)]

    def problem_history(self, since: float | None = None) -> list[tuple[Problem, float]]:
        """As :meth:`problems`, each with the time at which it was first seen."""
        with self.database.read() as c:
            return event_rows.read_problems(c, since)

    def get_cursor(self, name: str) -> str | None:
        """Position of an import, None if it never ran."""
        with self.database.read() as c:
            return event_rows.get_cursor(c, name)

    def set_cursor(self, name: str, value: str) -> None:
        """Store the position of an import."""
        with self.database.write() as c:
            event_rows.set_cursor(c, name, value)

    # --- detectors and incidents

    def save_baseline(self, detector: str, scope: str, as_of: float, blob: bytes) -> None:
        """Store what a detector had learnt as of a time."""
        with self.database.write() as c:
            incident_rows.save_baseline(c, detector, scope, as_of, blob)

    def baseline(self, detector: str, scope: str, as_of: float) -> bytes | None:
        """The newest baseline that is not newer than ``as_of``."""
        with self.database.read() as c:
            return incident_rows.baseline(c, detector, scope, as_of)

    def save_state(self, detector: str, blob: bytes) -> None:
        """Store a detector's state."""
        with self.database.write() as c:
            incident_rows.save_state(c, detector, blob)

    def load_state(self, detector: str) -> bytes | None:
        """A detector's state, None if it never ran."""
        with self.database.read() as c:
            return incident_rows.load_state(c, detector)

    def save_incident(self, incident: Incident) -> None:
        """Insert or replace an incident."""
        with self.database.write() as c:
            incident_rows.save(c, incident)

    def save_incidents(self, many: Iterable[Incident]) -> None:
        """Insert or replace incidents, all or none."""
        with self.database.write() as c:
            for incident in many:
                incident_rows.save(c, incident)

    def incidents(
        self,
        start: float | None = None,
        end: float | None = None,
        open_only: bool = False,
        *,
        kinds: Sequence[str] | None = None,
    ) -> list[Incident]:
        """Incidents that touch [start, end), the earliest first."""
        with self.database.read() as c:
            return incident_rows.read(c, start, end, open_only=open_only, kinds=kinds)

    def incident(self, incident_id: str) -> Incident | None:
        """One incident, or None."""
        with self.database.read() as c:
            return incident_rows.get(c, incident_id)

    def log_incident(self, incident_id: str, ts: float, action: str, text: str = "", who: str = "") -> int:
        """Append to an incident's log; returns the entry's number."""
        with self.database.write(lock=True) as c:
            return incident_rows.log(c, incident_id, ts, action, text, who)

    def incident_log(self, incident_id: str) -> list[LogEntry]:
        """An incident's log in order."""
        with self.database.read() as c:
            return incident_rows.read_log(c, incident_id)

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
