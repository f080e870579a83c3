"""Rows of the outbox: made once, tried until they are sent or parked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, and_, case, delete, func, or_, select, update

from core.deliveries import Delivery, Face, Tally
from sql.bulk import clean, to_json, upsert
from sql.ids import digest
from sql.paging import newest_first
from sql.schema import deliveries, incidents

_PLAIN = (
    "id", "receiver", "subject", "seq", "action", "state", "place", "made_at", "due_at", "set_at", "attempts", "sent_at",
    "batch", "reference", "error", "reason",
)  # fmt: skip
_ERROR_LENGTH = 500


def key_of(receiver: str, subject: str, seq: int) -> str:
    """The id of a row: whoever makes it, makes the same."""
    return digest("delivery", receiver, subject, str(seq))


def add(connection: Connection, new: Iterable[Delivery]) -> int:
    """Insert rows; one that is there already is left alone. Returns how many are new."""
    rows: dict[str, dict[str, Any]] = {}
    for d in new:
        row: dict[str, Any] = {n: getattr(d, n) for n in _PLAIN}
        rows[d.id] = {**row, "face": to_json(d.face.as_json()), "message": to_json(d.message)}
    have = set()
    if rows:
        query = select(deliveries.c.id).where(deliveries.c.id.in_(list(rows)))
        have = set(connection.execute(query).scalars())
    upsert(connection, deliveries, [r for k, r in rows.items() if k not in have])
    return len(rows) - len(have)


def _delivery(row: Any) -> Delivery:
    fields = {n: row[n] for n in _PLAIN}
    message = orjson.loads(row["message"]) if "message" in row else {}
    return Delivery(**fields, face=Face(**orjson.loads(row["face"])), message=message)


def pending(connection: Connection, receiver: str | None = None) -> list[Delivery]:
    """Rows that are not sent yet, the oldest first, those of one subject in order."""
    c = deliveries.c
    query = select(deliveries).where(c.state == "pending").order_by(c.made_at, c.subject, c.seq)
    if receiver is not None:
        query = query.where(c.receiver == receiver)
    return [_delivery(r) for r in connection.execute(query).mappings()]


_WITHOUT_MESSAGE = tuple(c for c in deliveries.c if c.key != "message")


def last_of(connection: Connection, subjects: Sequence[str]) -> dict[tuple[str, str], Delivery]:
    """(receiver, subject) → the last row made about these subjects, without its message."""
    out: dict[tuple[str, str], Delivery] = {}
    c = deliveries.c
    for i in range(0, len(subjects), 500):
        query = (
            select(*_WITHOUT_MESSAGE)
            .where(c.subject.in_(list(subjects[i : i + 500])))
            .order_by(c.subject, c.receiver, c.seq)
        )
        out |= {(r["receiver"], r["subject"]): _delivery(r) for r in connection.execute(query).mappings()}
    return out


def living(connection: Connection) -> set[str]:
    """Subjects that some receiver was last told to be wrong."""
    c = deliveries.c
    newest = (
        select(c.receiver, c.subject, func.max(c.seq).label("seq")).group_by(c.receiver, c.subject).subquery()
    )
    query = (
        select(c.subject)
        .join(
            newest,
            and_(c.receiver == newest.c.receiver, c.subject == newest.c.subject, c.seq == newest.c.seq),
        )
        .where(c.action.in_(("open", "update")))
        .distinct()
    )
    return set(connection.execute(query).scalars())


def of_subject(connection: Connection, subject: str) -> list[Delivery]:
    """All rows about one incident or event, in the order in which they were made."""
    c = deliveries.c
    query = select(deliveries).where(c.subject == subject).order_by(c.made_at, c.receiver, c.seq)
    return [_delivery(r) for r in connection.execute(query).mappings()]


def last_sent(
    connection: Connection, receiver: str, subjects: Sequence[str] | None = None
) -> dict[str, Delivery]:
    """Subject → the last row that a receiver got: about these subjects, or about all."""
    c = deliveries.c
    base = select(c.subject, func.max(c.seq).label("seq")).where(
        c.receiver == receiver, c.state == "sent", c.action.in_(("open", "update", "resolve"))
    )
    parts = [None] if subjects is None else [subjects[i : i + 500] for i in range(0, len(subjects), 500)]
    out: dict[str, Delivery] = {}
    for part in parts:
        some = base if part is None else base.where(c.subject.in_(list(part)))
        newest = some.group_by(c.subject).subquery()
        query = select(deliveries).join(
            newest, and_(c.receiver == receiver, c.subject == newest.c.subject, c.seq == newest.c.seq)
        )
        out |= {r["subject"]: _delivery(r) for r in connection.execute(query).mappings()}
    return out


def sent_batches(connection: Connection, receiver: str, start: float, end: float) -> list[float]:
    """When messages went to a receiver in (start, end], one time a message, sorted."""
    c = deliveries.c
    query = (
        select(func.max(c.sent_at))
        .where(c.receiver == receiver, c.state == "sent", c.sent_at > start, c.sent_at <= end)
        .group_by(c.batch)
    )
    return sorted(connection.execute(query).scalars())


def mark_sent(connection: Connection, ids: Sequence[str], at: float, batch: str, reference: str) -> None:
    """A receiver has taken these."""
    c = deliveries.c
    values: dict[Any, Any] = {
        c.state: "sent",
        c.sent_at: at,
        c.attempts: c.attempts + 1,
        c.batch: batch,
        c.reference: clean(reference)[:200],
        c.error: "",
    }
    connection.execute(update(deliveries).where(c.id.in_(list(ids))).values(values))


def mark_failed(
    connection: Connection, ids: Sequence[str], at: float, error: str, due_at: float | None
) -> None:
    """These were tried in vain: again at ``due_at``, or parked (None) until somebody asks for them."""
    c = deliveries.c
    values: dict[Any, Any] = {
        c.state: "parked" if due_at is None else "pending",
        c.attempts: c.attempts + 1,
        c.due_at: at if due_at is None else due_at,
        c.set_at: at,
        c.error: clean(error)[:_ERROR_LENGTH],
    }
    connection.execute(update(deliveries).where(c.id.in_(list(ids)), c.state != "sent").values(values))


def retry(connection: Connection, ids: Sequence[str], at: float) -> list[str]:
    """Try unsent rows again, now. What the same receiver was told of the same subject after them goes out again behind them:
    an opening that comes late must not be the last word. Returns the ids of all that is tried."""
    c = deliveries.c
    found = connection.execute(
        select(c.receiver, c.subject, func.min(c.seq))
        .where(c.id.in_(list(ids)), c.state != "sent")
        .group_by(c.receiver, c.subject)
    ).all()
    done: list[str] = []
    for receiver, subject, seq in found:
        mine = select(c.id).where(c.receiver == receiver, c.subject == subject, c.seq >= seq)
        done += connection.execute(mine.order_by(c.seq)).scalars()
    values: dict[Any, Any] = {c.state: "pending", c.due_at: at, c.set_at: at}
    connection.execute(update(deliveries).where(c.id.in_(done)).values(values))
    return done


def page(
    connection: Connection,
    *,
    limit: int,
    before: tuple[float, str] | None = None,
    receiver: str | None = None,
    state: str | None = None,
    subject: str | None = None,
) -> list[Delivery]:
    """Rows, the newest first, after ``before`` = (made_at, id) of the last one seen."""
    c = deliveries.c
    query = newest_first(select(deliveries), c.made_at, c.id, limit, before)
    for column, value in ((c.receiver, receiver), (c.state, state), (c.subject, subject)):
        if value is not None:
            query = query.where(column == value)
    return [_delivery(r) for r in connection.execute(query).mappings()]


def get(connection: Connection, prefix: str) -> list[Delivery]:
    """Rows whose id begins with ``prefix``; at most ten."""
    c = deliveries.c
    query = select(deliveries).where(c.id.startswith(prefix, autoescape=True)).order_by(c.id).limit(10)
    return [_delivery(r) for r in connection.execute(query).mappings()]


def tallies(connection: Connection) -> dict[str, Tally]:
    """Receiver → how it stands, of those with rows."""
    c = deliveries.c
    out: dict[str, dict[str, Any]] = {}
    counts = select(c.state, c.receiver, func.count()).group_by(c.state, c.receiver)
    for state, receiver, n in connection.execute(counts):
        out.setdefault(receiver, {"receiver": receiver})[state] = n
    waiting = (
        select(
            c.receiver,
            func.sum(case((c.error != "", 1), else_=0)).label("failing"),
            func.min(c.made_at).label("oldest_pending"),
        )
        .where(c.state == "pending")
        .group_by(c.receiver)
    )
    tests = (
        select(c.receiver, func.count()).where(c.state == "parked", c.action == "test").group_by(c.receiver)
    )
    for r in connection.execute(waiting).mappings():
        out[r["receiver"]] |= {"failing": r["failing"], "oldest_pending": r["oldest_pending"]}
    for receiver, n in connection.execute(tests):
        out[receiver]["parked"] -= n
    for receiver in out:
        newest = select(func.max(c.sent_at)).where(c.receiver == receiver)
        out[receiver]["last_sent"] = connection.execute(newest).scalar()
    errors = (
        select(c.receiver, c.error, c.set_at, c.action)
        .where(c.state != "sent", c.error != "")
        .order_by(c.set_at)
    )
    for receiver, error, at, action in connection.execute(errors):
        if action == "test" and (out[receiver]["last_sent"] or 0.0) > at:
            continue  # a test that failed once says nothing any more
        out[receiver] |= {"last_error": error, "last_error_at": at}
    return {k: Tally(**v) for k, v in out.items()}


def forget(connection: Connection, before: float) -> int:
    """Delete rows of subjects of which nothing was made or sent since ``before``; pending and parked ones stay."""
    c = deliveries.c
    recent = select(c.subject).where(or_(c.made_at >= before, c.sent_at >= before, c.state != "sent"))
    alive = select(incidents.c.id).where(
        or_(incidents.c.state != "resolved", incidents.c.held_open_at.is_not(None))
    )
    query = delete(deliveries).where(
        c.made_at < before, c.state == "sent", c.subject.not_in(recent), c.subject.not_in(alive)
    )
    return int(connection.execute(query).rowcount)
