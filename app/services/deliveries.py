"""Receivers and deliveries for the command line, REST, metrics and Data health: how each stands, test, try again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.delivery.beats import beats
from app.services.people import Principal, allow
from app.services.wording import instant, span
from core.config import Config
from core.config_delivery import ReceiverConfig
from core.deliveries import Delivery, Face, Tally
from core.errors import ConfigError, InputError
from core.incidents import iso
from sql.store import Store

STATUS = "deliver.status"
"""Cursor in which the dispatcher leaves what it knows besides the rows."""
STATES = ("pending", "sent", "parked")


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """One receiver as people see it. ``state``: ok, failing, parked (something was refused), unused, not configured."""

    name: str
    kind: str
    where: str
    state: str
    tally: Tally
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """No secrets, times ISO 8601."""
        t = self.tally
        return {
            "name": self.name,
            "kind": self.kind,
            "where": self.where,
            "state": self.state,
            "pending": t.pending,
            "failing": t.failing,
            "parked": t.parked,
            "sent": t.sent,
            "oldest_pending": iso(t.oldest_pending),
            "last_sent": iso(t.last_sent),
            "error": self.error or None,
        }

    def words(self, now: float) -> str:
        """What is to be known of it in one line."""
        t = self.tally
        parts = []
        if t.pending:
            age = f", the oldest for {span(max(0.0, now - (t.oldest_pending or now)))}"
            parts.append(f"{t.pending} waiting{age}")
        if t.parked:
            parts.append(f"{t.parked} refused")
        if t.last_sent is not None:
            parts.append(f"last sent {instant(t.last_sent)}")
        return "; ".join(parts) or "nothing sent yet"


def where_of(receiver: ReceiverConfig) -> str:
    """Where it goes, without anything that could be a secret: a webhook's address is one."""
    s: Any = receiver.spec
    if receiver.kind == "email":
        return f"{', '.join(s.to)} over {s.host}:{s.port}"
    if receiver.kind in ("slack", "webhook"):
        given = getattr(s, "url", None)
        return "address in url_file" if not given else str(given).split("://", 1)[1].split("/", 1)[0]
    return str(s.url)


def receivers(store: Store, config: Config, now: float) -> list[ReceiverState]:
    """All configured receivers in order, then those of which only rows are left."""
    tallies = store.delivery_tallies()
    besides = _besides(store)
    out = []
    for r in config.receivers:
        t = tallies.pop(r.name, Tally(r.name))
        error = t.last_error or besides.get(r.name, "")
        out.append(ReceiverState(r.name, r.kind, where_of(r), _state(t, besides.get(r.name, "")), t, error))
    for name, t in sorted(tallies.items()):
        out.append(ReceiverState(name, "", "", "not configured", t, t.last_error))
    return out


def not_running(store: Store, config: Config, now: float) -> str:
    """Why nobody is told of anything although somebody should be; "" where delivery runs or nobody is to be told."""
    if not config.receivers:
        return ""
    (beat,) = [b for b in beats(store, now) if b.part == "deliver"]
    if beat.alive:
        return ""
    last = "it never ran" if beat.age is None else f"last heard of {span(beat.age)} ago"
    return f"delivery is not running ({last}): start gustfront run, or gustfront deliver"


def _state(t: Tally, error: str) -> str:
    if t.failing or error or (t.last_error and not t.parked):
        return "failing"
    if t.parked:
        return "parked"
    return "ok" if t.sent else "unused"


def _besides(store: Store) -> Mapping[str, str]:
    """Receiver → what went wrong that is no delivery: repeats to Alertmanager, heartbeats, reading annotations."""
    try:
        known = orjson.loads(store.get_cursor(STATUS) or "{}")
        return {str(k): str(v.get("error", "")) for k, v in known.get("receivers", {}).items()}
    except (orjson.JSONDecodeError, AttributeError):
        return {}


def delivery_json(d: Delivery) -> dict[str, Any]:
    """A delivery as lists show it; the message in full is in ``message``."""
    return {
        "id": d.id,
        "receiver": d.receiver,
        "subject": d.subject,
        "sequence": d.seq,
        "action": d.action,
        "state": d.state,
        "title": str(d.message.get("title", "")),
        "reason": d.reason,
        "attempts": d.attempts,
        "error": d.error or None,
        "made_at": iso(round(d.made_at, 3)),
        "next_at": iso(round(d.due_at, 3)) if d.state == "pending" else None,
        "sent_at": iso(round(d.sent_at, 3)) if d.sent_at is not None else None,
    }


def check_state(state: str | None) -> str | None:
    """One of :data:`STATES` or None; ConfigError otherwise."""
    if state is not None and state not in STATES:
        raise ConfigError("state", "no such state", f"use one of {', '.join(STATES)}", state)
    return state


def receiver_named(config: Config, name: str) -> ReceiverConfig:
    """The receiver of that name; InputError where there is none."""
    for r in config.receivers:
        if r.name == name:
            return r
    known = ", ".join(r.name for r in config.receivers)
    fix = f"use one of {known}" if known else "add it under receivers in the configuration"
    raise InputError(name, "no such receiver", fix)


def send_test(store: Store, config: Config, name: str, who: Principal) -> Delivery:
    """Send a test message now and keep what came of it; state ``sent`` or ``parked`` with the error."""
    from app.delivery.message import of_test
    from app.delivery.receivers import sender_of
    from app.delivery.sender import alone, item_of
    from app.delivery.transport import SendError
    from sql.deliveries import key_of

    allow(who, "responder", "deliveries:write")
    receiver = receiver_named(config, name)
    now, subject = time.time(), f"test:{uuid.uuid4().hex[:12]}"
    # Parked until it is through: no dispatcher takes it up meanwhile.
    row = Delivery(
        key_of(name, subject, 1),
        name,
        subject,
        1,
        "test",
        "parked",
        "test",
        now,
        now,
        now,
        reason=f"asked for by {who.name}",
        face=Face("resolved", "info", "test"),
        message=of_test(subject, now, who.name, config).as_row(),
    )
    store.add_deliveries([row])
    try:
        reference = sender_of(receiver.spec).send(alone(item_of(row)), now)
    except SendError as error:
        store.deliveries_failed([row.id], time.time(), str(error), None)
    else:
        store.deliveries_sent([row.id], time.time(), row.id, reference)
    return store.deliveries_of(subject)[0]


def retry(store: Store, who: Principal, *, delivery: str = "", receiver: str = "") -> list[Delivery]:
    """Try one delivery again (an id or its beginning), or everything that a receiver has refused; returns what is tried."""
    allow(who, "responder", "deliveries:write")
    if bool(delivery) == bool(receiver):
        raise ConfigError("id", "give either a delivery or a receiver", "take an id from the list")
    if delivery:
        found = store.deliveries_like(delivery)
        if not found:
            raise InputError(delivery, "no such delivery", "take the id from `gustfront deliveries`")
        if len(found) > 1:
            raise InputError(delivery, "more than one delivery begins so", "write more of its id")
        if found[0].state == "sent":
            raise InputError(found[0].id, "it has been sent already", "send a test to see whether it works")
        if found[0].action == "test":
            raise InputError(
                found[0].id, "a test is not repeated", f"gustfront deliveries test {found[0].receiver}"
            )
    else:
        rows = store.delivery_page(limit=10_000, receiver=receiver, state="parked")
        found = [d for d in rows if d.action != "test"]
    tried = set(store.retry_deliveries([d.id for d in found], time.time()))
    subjects = dict.fromkeys(d.subject for d in found)
    return [d for s in subjects for d in store.deliveries_of(s) if d.id in tried]
