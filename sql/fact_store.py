"""The half of the store that keeps what is no reading: requests, outputs, events, problems, incidents, what detectors know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType

from core.incidents import Incident
from core.records import Event, Outcome, OutputRecord, Problem
from core.requests import RequestCell, RequestCount, RequestKey
from sql import events as event_rows
from sql import incidents as incident_rows
from sql import leases, output_counts
from sql import objectives as objective_rows
from sql import outcomes as outcome_rows
from sql import outputs as output_rows
from sql import requests as request_rows
from sql.delivery_store import DeliveryStore
from sql.engine import Database
from sql.life_store import LifeStore
from sql.objectives import Exclusion, SloMonth, SloVersion
from sql.output_counts import BadOutput, OutputCount
from sql.people_store import PeopleStore
from sql.quality_store import QualityStore
from sql.series import SeriesCache


class FactStore(LifeStore, PeopleStore, DeliveryStore, QualityStore):
    """Facts of one database; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._series = SeriesCache()

    # --- gateway requests and outputs

    def add_requests(
        self,
        cells: Mapping[RequestKey, RequestCell],
        *,
        cursor: tuple[str, str] | None = None,
        expected: str | EllipsisType | None = ...,
    ) -> bool:
        """Add cells to what is stored and move the import's cursor (name, value), both or neither.

        ``expected`` is what the cursor must still be (None: not set). Where it is not, somebody else has imported meanwhile:
        nothing is stored and False comes back. Without ``expected`` the cursor is set whatever it was.
        """
        with self.database.write(lock=True) as c:
            if cursor is not None:
                if expected is not ... and event_rows.get_cursor(c, cursor[0]) != expected:
                    return False
                event_rows.set_cursor(c, *cursor)
            request_rows.add(c, cells)
            return True

    def request_cells(
        self,
        start: float,
        end: float,
        *,
        classes: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
        points: Sequence[str] | None = None,
        hourly: bool = False,
    ) -> list[tuple[RequestKey, RequestCell]]:
        """Cells whose minute starts in [start, end), by key; one key appears twice where its bucket edges changed.

        ``hourly``: cells of whole hours, their key's minute the start of the hour: a month is read sixty times as fast.
        """
        with self.database.read() as c:
            return request_rows.read(
                c, self._series, start, end, classes=classes, pools=pools, points=points, hourly=hourly
            )

    def request_minutes(
        self, start: float, end: float, *, classes: Sequence[str] | None = None
    ) -> list[tuple[str, str, int]]:
        """(class, point, minute) of every minute in [start, end) in which an attempt of the class ended."""
        with self.database.read() as c:
            return request_rows.minutes(c, start, end, classes=classes)

    def newest_attempt(self) -> float | None:
        """End of the newest minute with attempts in the gateway log; None without any."""
        with self.database.read() as c:
            return request_rows.newest(c)

    def sampled_sessions(self, start: float, end: float, class_: str) -> tuple[int, list[list[bool]]]:
        """(sessions of a class in the random sample, turns of those with a degraded one: was it bad?) in [start, end)."""
        with self.database.read() as c:
            return objective_rows.sessions(c, start, end, class_)

    def request_counts(self, start: float, end: float) -> list[RequestCount]:
        """Attempts of the minutes that start in [start, end) as detectors count them; cheaper than the full cells."""
        with self.database.read() as c:
            return request_rows.counts(c, self._series, start, end)

    # --- exclusions, versions and months of objectives

    def add_exclusion(self, exclusion: Exclusion) -> str:
        """Keep time that does not count; returns its id."""
        with self.database.write() as c:
            return objective_rows.add_exclusion(c, exclusion)

    def withdraw_exclusion(self, key: str, who: str, when: float) -> bool:
        """Take an exclusion back; False where none of that id is in force."""
        with self.database.write() as c:
            return objective_rows.withdraw_exclusion(c, key, who, when)

    def exclusions(
        self, start: float | None = None, end: float | None = None, *, withdrawn: bool = False
    ) -> list[Exclusion]:
        """Exclusions that touch [start, end), by start; those withdrawn only where asked for."""
        with self.database.read() as c:
            return objective_rows.read_exclusions(c, start, end, withdrawn=withdrawn)

    def add_slo_version(self, slo: str, version: str, since: float, definition: Mapping[str, object]) -> bool:
        """Keep what a version of an objective means; False where it is known. A version never changes."""
        with self.database.write() as c:
            return objective_rows.add_version(c, slo, version, since, definition)

    def slo_versions(self, slo: str | None = None) -> list[SloVersion]:
        """Versions of objectives, the oldest first."""
        with self.database.read() as c:
            return objective_rows.read_versions(c, slo)

    def add_slo_month(
        self,
        slo: str,
        month: str,
        version: str,
        made_at: float,
        data: Mapping[str, object],
        reason: str = "",
    ) -> SloMonth:
        """Freeze a month, or restate one that is frozen; nothing that is there is changed."""
        with self.database.write() as c:
            return objective_rows.add_month(c, slo, month, version, made_at, data, reason)

    def slo_months(self, slo: str | None = None, month: str | None = None) -> list[SloMonth]:
        """Frozen months with their restatements."""
        with self.database.read() as c:
            return objective_rows.read_months(c, slo, month)

    # --- outputs

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

    def output_turns(self, start: float, end: float, pools: Sequence[str]) -> list[output_rows.Turn]:
        """(ts, admitted, pool, replica, session, prompt, output, cached tokens) with start <= ts < end, by time."""
        with self.database.read() as c:
            return output_rows.turns(c, start, end, pools)

    def output_counts(
        self,
        start: float,
        end: float,
        *,
        pools: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
    ) -> list[OutputCount]:
        """Outputs counted by what they share, of the five-minute bins of admission that begin in [start, end)."""
        with self.database.read() as c:
            return output_counts.read(c, start, end, pools=pools, classes=classes, models=models)

    def bad_outputs(
        self,
        start: float,
        end: float,
        *,
        pools: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        soft: bool = False,
    ) -> list[BadOutput]:
        """Outputs with a hard (and with ``soft``, a soft) verdict admitted in [start, end), by finish."""
        with self.database.read() as c:
            return output_counts.read_bad(
                c, start, end, pools=pools, classes=classes, models=models, soft=soft
            )

    def output_texts(self, ids: Sequence[str]) -> dict[str, str]:
        """Texts of outputs, where they were kept."""
        with self.database.read() as c:
            return output_counts.texts(c, ids)

    def given_up(
        self, start: float, end: float, *, pools: Sequence[str] | None = None
    ) -> list[tuple[int, str, int, int]]:
        """(bin, pool, requests let through, given up by clients) per five minutes, from the gateway's log."""
        with self.database.read() as c:
            return output_counts.given_up(c, start, end, pools=pools)

    def turn_counts(
        self, start: float, end: float, *, classes: Sequence[str] | None = None
    ) -> list[tuple[str, int | None, int]]:
        """(class, turn, outputs) of the random outputs that finished in [start, end) and name a session."""
        with self.database.read() as c:
            return output_counts.turn_counts(c, start, end, classes=classes)

    def bad_sessions(
        self, start: float, end: float, *, classes: Sequence[str] | None = None
    ) -> list[tuple[str, str, int | None, float, bool]]:
        """(class, session, turn, finish, hard) of the outputs of sessions with a hard verdict in [start, end), in order."""
        with self.database.read() as c:
            return output_counts.bad_sessions(c, start, end, classes=classes)

    def add_outcomes(self, records: Iterable[Outcome]) -> int:
        """Insert outcomes whose id is new; returns how many were new."""
        with self.database.write() as c:
            return outcome_rows.add(c, records)

    def outcomes(self, start: float, end: float, *, kinds: Sequence[str] | None = None) -> list[Outcome]:
        """Outcomes with start <= ts < end, by time."""
        with self.database.read() as c:
            return outcome_rows.read(c, start, end, kinds=kinds)

    def erase(self, *, tenant: str = "", session: str = "", ids: Sequence[str] = ()) -> tuple[int, int]:
        """Delete outputs of a tenant, session (both as stored) or requests, with their outcomes: (outputs, outcomes) deleted."""
        with self.database.write() as c:
            return output_rows.erase(c, tenant=tenant, session=session, ids=ids)

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

    def save_detection(
        self,
        incidents: Iterable[Incident],
        entries: Iterable[tuple[str, float, str, str]],
        state: tuple[str, bytes] | None = None,
        lease: tuple[str, str] | None = None,
    ) -> bool:
        """What a tick found, all or nothing: incidents, log entries (incident, time, action, text) and (detector, memory).

        With ``lease`` (name, holder) only while that holder has it; False where it has not, and then nothing is stored.
        """
        with self.database.write(lock=True) as c:
            if lease is not None:
                held = leases.get(c, lease[0])
                if held is None or held.holder != lease[1]:
                    return False
            for incident in incidents:
                incident_rows.save(c, incident)
            for incident_id, ts, action, text in entries:
                incident_rows.log(c, incident_id, ts, action, text, "detector")
            if state is not None:
                incident_rows.save_state(c, *state)
        return True

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
