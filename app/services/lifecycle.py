"""What people do to incidents. Each act needs the role ``responder`` and is one entry of the incident's log, which is never
changed; how an incident stands is told from that log alone (:mod:`core.lifecycle`).

Times are Unix seconds, ``at`` None is now. Errors: :class:`NotFound`, :class:`Conflict` (it cannot be done in the state it is
in), InputError (a text that cannot be taken), Forbidden (the role).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.services.people import Principal, require
from app.services.wording import instant
from core.attention import extent
from core.errors import InputError
from core.incidents import Incident
from core.lifecycle import UNTOUCHED, Act, Handling, LogEntry
from detectors.accepted import Accepted, event
from sql.life_store import Known
from sql.store import Store

MAX_TEXT, MAX_REASON, MAX_NAME = 10_000, 1_000, 100


class NotFound(InputError):
    """There is no such incident, silence or mute window."""


class Conflict(InputError):
    """It cannot be done in the state that the incident is in."""


@dataclass(frozen=True, slots=True)
class Acted:
    """An incident with how it stands now, and what was written to its log (nothing where it was so already)."""

    incident: Incident
    handling: Handling
    written: tuple[LogEntry, ...] = ()


def find(store: Store, incident_id: str) -> Incident:
    """The incident of that id, or of the only id that begins so. NotFound; InputError where several begin so."""
    word = incident_id.strip()
    found = store.incident(word) if word else None
    if found is not None:
        return found
    known = store.incident_ids(word) if word else []
    if len(known) == 1:
        only = store.incident(known[0])
        if only is not None:
            return only
    if len(known) > 1:
        shown = ", ".join(known[:5]) + (" and more" if len(known) > 5 else "")
        raise InputError(word, f"several incidents begin so: {shown}", "write more of the id")
    raise NotFound(
        word or "(empty)",
        "no such incident",
        "take the id from `gustfront incidents` or from the page's address",
    )


def standing(store: Store, incident: Incident) -> Acted:
    """An incident with how it stands."""
    return Acted(incident, store.handlings([incident.id]).get(incident.id, UNTOUCHED))


def perform(
    store: Store,
    incident_id: str,
    by: Principal,
    at: float | None,
    decide: Callable[[Incident, Handling], Act | None],
) -> Acted:
    """One act on one incident, decided on what its log says with nobody in between; None writes nothing."""
    require(by, "responder")
    one = find(store, incident_id)

    def run(known: Known) -> list[tuple[str, Act]]:
        incident, handling = known[one.id]
        act = decide(incident, handling)
        return [] if act is None else [(one.id, act)]

    written = store.act([one.id], run, at=moment(at), who=by.name)
    now = store.incident(one.id)
    return Acted(now or one, standing(store, one).handling, tuple(written))


def moment(at: float | None) -> float:
    """``at``, or now."""
    return time.time() if at is None else at


def checked(text: str, name: str, most: int = MAX_REASON, *, needed: bool = False) -> str:
    """A person's text without space around it; InputError where it is too long, or missing and needed."""
    tidy = text.strip()
    if needed and not tidy:
        raise InputError(name, "is empty", f"say the {name}")
    if len(tidy) > most:
        raise InputError(name, f"is longer than {most:,} characters", "shorten it")
    return tidy


def acknowledge(
    store: Store, incident_id: str, by: Principal, *, text: str = "", at: float | None = None
) -> Acted:
    """Somebody has it: until it is resolved, nobody else is told. Conflict where another has acknowledged it."""
    words = checked(text, "text")

    def decide(i: Incident, h: Handling) -> Act | None:
        _not_merged(i, h)
        if not h.acknowledged:
            return Act("acknowledged", words)
        if h.acknowledged_by == by.name:
            return None
        raise Conflict(
            i.id,
            f"{h.acknowledged_by} acknowledged it on {instant(h.acknowledged_at)}",
            "assign it to yourself, or take that acknowledgement back first",
        )

    return perform(store, incident_id, by, at, decide)


def unacknowledge(
    store: Store, incident_id: str, by: Principal, *, text: str = "", at: float | None = None
) -> Acted:
    """Nobody has it any more: escalation begins anew. Conflict where nobody had acknowledged it."""
    words = checked(text, "text")

    def decide(i: Incident, h: Handling) -> Act:
        if not h.acknowledged:
            raise Conflict(i.id, "nobody has acknowledged it", "there is nothing to take back")
        return Act("unacknowledged", words)

    return perform(store, incident_id, by, at, decide)


def assign(store: Store, incident_id: str, by: Principal, *, to: str, at: float | None = None) -> Acted:
    """Give it to a person or team; an empty name gives it to nobody."""
    name = checked(to, "name", MAX_NAME)

    def decide(i: Incident, h: Handling) -> Act | None:
        if name == h.assignee:
            return None
        return Act("assigned", f"to {name}" if name else "to nobody", {"to": name})

    return perform(store, incident_id, by, at, decide)


def note(store: Store, incident_id: str, by: Principal, *, text: str, at: float | None = None) -> Acted:
    """Write something down."""
    words = checked(text, "note", MAX_TEXT, needed=True)
    return perform(store, incident_id, by, at, lambda i, h: Act("note", words))


def snooze(
    store: Store,
    incident_id: str,
    by: Principal,
    *,
    reason: str = "",
    seconds: float | None = None,
    at: float | None = None,
) -> Acted:
    """Not to be heard of until it is worse than now (severity, classes, pools, replicas or the share of late requests), and at
    most for ``seconds``. Conflict where it is over."""
    words, now = checked(reason, "reason"), moment(at)
    if seconds is not None and seconds <= 0:
        raise InputError("duration", "is not longer than zero", "write one such as 2h")

    def decide(i: Incident, h: Handling) -> Act:
        _not_merged(i, h)
        if i.state == "resolved":
            raise Conflict(i.id, "it is over", "there is nothing to snooze")
        until = None if seconds is None else now + seconds
        return Act("snoozed", words, {"than": extent(i), "until": until})

    return perform(store, incident_id, by, now, decide)


def wake(store: Store, incident_id: str, by: Principal, *, at: float | None = None) -> Acted:
    """Take a snooze back. Conflict where there is none."""

    def decide(i: Incident, h: Handling) -> Act:
        if h.snooze is None:
            raise Conflict(i.id, "it is not snoozed", "there is nothing to take back")
        return Act("woken")

    return perform(store, incident_id, by, at, decide)


def reopen(
    store: Store, incident_id: str, by: Principal, *, reason: str = "", at: float | None = None
) -> Acted:
    """A person says that it is not over. It stays open until somebody resolves it or a detector has news of it."""
    words = checked(reason, "reason")

    def decide(i: Incident, h: Handling) -> Act:
        _not_merged(i, h)
        if i.state != "resolved":
            raise Conflict(i.id, f"it is {i.state}", "only what is resolved can be opened again")
        return Act("reopened_by_hand", words)

    return perform(store, incident_id, by, at, decide)


def resolve(
    store: Store, incident_id: str, by: Principal, *, reason: str = "", at: float | None = None
) -> Acted:
    """End what a person opened again. Conflict for others: they end when their evidence does."""
    words = checked(reason, "reason")

    def decide(i: Incident, h: Handling) -> Act:
        if h.open_again_at is None or i.state == "resolved":
            why = "it is over" if i.state == "resolved" else "its evidence goes on, and it ends with that"
            fix = "acknowledge, snooze or silence it; `accept` makes what it shows the new normal"
            raise Conflict(i.id, why, "" if i.state == "resolved" else fix)
        return Act("resolved_by_hand", words)

    return perform(store, incident_id, by, at, decide)


def accept_new_normal(
    store: Store, incident_id: str, by: Principal, *, reason: str = "", at: float | None = None
) -> Acted:
    """From ``at`` on, what the incident shows is normal: see :mod:`detectors.accepted`."""
    require(by, "responder")
    words, now = checked(reason, "reason"), moment(at)
    incident = find(store, incident_id)
    store.add_events(
        [
            event(
                Accepted(
                    now,
                    min(incident.started_at, now),
                    pool,
                    incident.kind,
                    frozenset(incident.replicas),
                    incident.id,
                    by.name,
                    words,
                )
            )
            for pool in incident.pools
        ]
    )
    return perform(store, incident.id, by, now, lambda i, h: Act("accepted", words or "the new normal"))


def _not_merged(i: Incident, h: Handling) -> None:
    if h.merged_into:
        raise Conflict(i.id, f"it is part of incident {h.merged_into}", "act on that one, or split this off")
