"""One pass of making deliveries: reads how incidents stand, compares with what receivers were told, adds what is missing."""

from __future__ import annotations

from collections.abc import Iterable

from app.delivery.message import of_event, of_incident
from app.delivery.planning import STALE_S, Step, told_at, wanted
from app.delivery.receivers import wants_events
from app.delivery.routing import GROUP_WAIT, Routing, Target
from app.delivery.timer import Timer
from core.attention import Decision, notifiable
from core.config import Config
from core.deliveries import Delivery, Face
from core.incidents import Incident
from core.lifecycle import UNTOUCHED, Handling
from core.records import Event
from core.silences import MuteWindow, Silence
from sql.deliveries import key_of
from sql.events import key_of as event_key
from sql.store import Store

SINCE, STARTED = "deliver.since", "deliver.started"
MARGIN_S = 120.0
ENDED_LATE_S = 3600.0
"""An incident is called over up to half an hour after its last evidence."""
LOOK_BACK_S = 60.0
"""How often to look for incidents that were over long ago without a receiver having been told."""
TOLD_EVENTS = ("deploy", "release", "rollback", "flag", "scale", "config", "maintenance", "note")


class Outbox:
    """Makes deliveries for one configuration."""

    def __init__(self, store: Store, config: Config) -> None:
        self.store, self.config = store, config
        self.routing = Routing.of(config)
        self._look_back = Timer(LOOK_BACK_S)
        self._open: set[str] = set()

    def fill(self, now: float) -> list[Delivery]:
        """Add what is missing as of ``now`` (Unix seconds); returns it. Raises StoreError."""
        since = self._since(now)
        made = [*self._incidents(now, since), *self._events(now, since)]
        if made:
            self.store.add_deliveries(made)
        return made

    def done(self, now: float) -> None:
        """Remember that everything up to ``now`` has been looked at."""
        self.store.set_cursor(SINCE, repr(now))

    def _since(self, now: float) -> float:
        """When the last pass was; the present at the very first, and never a time that is still to come."""
        text = self.store.get_cursor(SINCE)
        if text is None:
            self.store.set_cursor(STARTED, repr(now))
            self.done(now)
            return now
        return min(float(text), now)

    # --- incidents

    def _incidents(self, now: float, since: float) -> list[Delivery]:
        store = self.store
        found = {i.id: i for i in store.incidents(start=since - STALE_S - ENDED_LATE_S)}
        for subject in self._elsewhere(now) - set(found):
            old = store.incident(subject)
            if old is not None:
                found[subject] = old
        self._open = {i.id for i in found.values() if i.state != "resolved"}
        if not found:
            return []
        handlings = store.handlings(found)
        silences, mutes = store.silences(ending_after=now), store.mutes()
        last = store.last_deliveries(list(found))
        out: list[Delivery] = []
        for i in found.values():
            handling = handlings.get(i.id, UNTOUCHED)
            decision = self._decision(i, now, handling, silences, mutes, found)
            out += self._of_incident(i, now, since, handling, decision, last)
        return out

    def _elsewhere(self, now: float) -> set[str]:
        """Incidents that may have ended long ago by their evidence and only now by somebody's word."""
        if not self._look_back.due(now):
            return self._open
        self._look_back.last = now
        return self._open | {s for s in self.store.living_subjects() if ":" not in s}

    def _decision(
        self,
        i: Incident,
        now: float,
        handling: Handling,
        silences: Iterable[Silence],
        mutes: Iterable[MuteWindow],
        found: dict[str, Incident],
    ) -> Decision:
        into = handling.merged_into
        parent = (found.get(into) or self.store.incident(into)) if into else None
        return notifiable(i, now, handling=handling, silences=silences, mutes=mutes, into=parent)

    def _of_incident(
        self,
        i: Incident,
        now: float,
        since: float,
        handling: Handling,
        decision: Decision,
        last: dict[tuple[str, str], Delivery],
    ) -> list[Delivery]:
        known = any(subject == i.id for _, subject in last)
        escalates = self.routing.escalates and known and i.severity == "page" and i.state != "resolved"
        first = told_at(self.store.deliveries_of(i.id)) if escalates else None
        targets = {t.receiver: t for t in self.routing.targets(i, handling, first, now)}
        out = []
        for receiver in self.config.receivers:
            told = last.get((receiver.name, i.id))
            target = targets.get(receiver.name)
            steps = wanted(
                i,
                told,
                decision,
                routed=target is not None,
                fresh_since=since - STALE_S,
                touched=max(i.updated_at, handling.open_again_at or 0.0),
                seen_since=since - MARGIN_S,
            )
            seq, before = (told.seq, told.face) if told is not None else (0, None)
            for n, step in enumerate(steps, start=1):
                out.append(self._row(i, receiver.name, seq + n, step, before, target, handling, now))
                before = step.face
        return out

    def _row(
        self,
        i: Incident,
        receiver: str,
        seq: int,
        step: Step,
        before: Face | None,
        target: Target | None,
        handling: Handling,
        now: float,
    ) -> Delivery:
        note = step.note or (target.note if target is not None and step.action == "open" else "")
        message = of_incident(
            i,
            step.action,
            self.config,
            before=before if step.action == "update" else None,
            now=step.face,
            handling=handling,
            team=self.routing.team(i),
            note=note,
        )
        wait = target.group_wait if target is not None else GROUP_WAIT
        return Delivery(
            id=key_of(receiver, i.id, seq),
            receiver=receiver,
            subject=i.id,
            seq=seq,
            action=step.action,
            state="pending",
            place=",".join(sorted(i.pools)) or "fleet",
            made_at=now,
            due_at=now + wait,
            set_at=now,
            reason=target.reason if target is not None else "",
            face=step.face,
            message=message.as_row(),
        )

    # --- deploys and other events

    def _events(self, now: float, since: float) -> list[Delivery]:
        hearing = [r for r in self.config.receivers if wants_events(r)]
        if not hearing:
            return []
        started = float(self.store.get_cursor(STARTED) or now)
        events = self.store.events(max(min(started, now), since - ENDED_LATE_S), now + 1.0, kinds=TOLD_EVENTS)
        subjects = {f"event:{event_key(e)}": e for e in events}
        known = set(self.store.last_deliveries(list(subjects))) if subjects else set()
        return [
            self._event_row(r.name, subject, e, now)
            for r in hearing
            for subject, e in subjects.items()
            if (r.name, subject) not in known and not (r.kind == "grafana" and e.source == "grafana")
        ]

    def _event_row(self, receiver: str, subject: str, event: Event, now: float) -> Delivery:
        return Delivery(
            id=key_of(receiver, subject, 1),
            receiver=receiver,
            subject=subject,
            seq=1,
            action="event",
            state="pending",
            place=event.pool or "fleet",
            made_at=now,
            due_at=now,
            set_at=now,
            reason="event",
            face=Face("resolved", "info", event.kind),
            message=of_event(event, subject, self.config).as_row(),
        )
