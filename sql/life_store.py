"""The part of the store about what people do to incidents: logs, acts decided on what the log says, silences, mute windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from core.incidents import Incident
from core.lifecycle import Act, Handling, LogEntry, fold
from core.silences import MuteWindow, Silence
from sql import incidents as incident_rows
from sql import silences as silence_rows
from sql.engine import Database

Known = dict[str, tuple[Incident, Handling]]
Decide = Callable[[Known], Iterable[tuple[str, Act]]]


class LifeStore:
    """Life cycle of incidents; each method is one transaction."""

    database: Database

    def incident_log(self, incident_id: str) -> list[LogEntry]:
        """An incident's log in order."""
        with self.database.read() as c:
            return incident_rows.read_log(c, incident_id)

    def incident_logs(self, ids: Iterable[str]) -> dict[str, list[LogEntry]]:
        """Logs of several incidents; those without entries are left out."""
        with self.database.read() as c:
            return incident_rows.read_logs(c, ids)

    def handlings(self, ids: Iterable[str]) -> dict[str, Handling]:
        """How incidents stand with people; those of which the log says nothing are left out."""
        return {i: fold(log) for i, log in self.incident_logs(ids).items()}

    def incident_ids(self, prefix: str) -> list[str]:
        """Ids that begin with ``prefix``; at most ten."""
        with self.database.read() as c:
            return incident_rows.ids_like(c, prefix)

    def incident_page(
        self,
        *,
        limit: int,
        before: tuple[float, str] | None = None,
        start: float | None = None,
        end: float | None = None,
        open_only: bool = False,
        kinds: Sequence[str] | None = None,
        severities: Sequence[str] | None = None,
    ) -> list[Incident]:
        """Incidents, the newest first, after ``before`` = (start, id) of the last one seen."""
        with self.database.read() as c:
            return incident_rows.page(
                c,
                limit=limit,
                before=before,
                start=start,
                end=end,
                open_only=open_only,
                kinds=kinds,
                severities=severities,
            )

    def act(self, ids: Sequence[str], decide: Decide, *, at: float, who: str) -> list[LogEntry]:
        """Read some incidents with their handling, let ``decide`` say what to log, and log it, with nobody in between.

        ``decide`` gets what exists of ``ids`` and returns (incident id, act) pairs; what it raises undoes all of it.
        """
        with self.database.write(lock=True) as c:
            logs = incident_rows.read_logs(c, ids)
            known: Known = {}
            for i in ids:
                found = incident_rows.get(c, i)
                if found is not None:
                    known[i] = (found, fold(logs.get(i, [])))
            out = []
            for i, a in decide(known):
                seq = incident_rows.log(c, i, at, a.action, a.text, who, a.data)
                out.append(LogEntry(i, seq, at, a.action, a.text, who, a.data))
            return out

    # --- silences and mute windows

    def add_silence(self, silence: Silence) -> str:
        """Keep a silence; returns its id."""
        with self.database.write() as c:
            return silence_rows.add_silence(c, silence)

    def silences(self, *, ending_after: float | None = None) -> list[Silence]:
        """Silences; ``ending_after`` (Unix seconds) leaves out those that were over or taken back by then."""
        with self.database.read() as c:
            return silence_rows.read_silences(c, ending_after=ending_after)

    def withdraw_silence(self, key: str, who: str, when: float) -> bool:
        """Take a silence back; False where none of that id is in force."""
        with self.database.write() as c:
            return silence_rows.withdraw(c, "silences", key, who, when)

    def add_mute(self, window: MuteWindow) -> str:
        """Keep a mute window; returns its id."""
        with self.database.write() as c:
            return silence_rows.add_mute(c, window)

    def mutes(self, *, withdrawn: bool = False) -> list[MuteWindow]:
        """Mute windows; those taken back only where asked for."""
        with self.database.read() as c:
            return silence_rows.read_mutes(c, withdrawn=withdrawn)

    def withdraw_mute(self, key: str, who: str, when: float) -> bool:
        """Take a mute window back; False where none of that id is in force."""
        with self.database.write() as c:
            return silence_rows.withdraw(c, "mutes", key, who, when)
