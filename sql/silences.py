"""Silences and mute windows: made, taken back, never deleted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, select, update

from core.silences import MuteWindow, Silence
from sql.bulk import upsert
from sql.ids import digest
from sql.schema import mutes, silences


def add_silence(connection: Connection, s: Silence) -> str:
    """Keep one; returns its id. The same one twice is one."""
    key = digest("silence", s.matchers, repr(s.starts_at), repr(s.ends_at), s.author, repr(s.made_at))[:12]
    row = {
        "id": key,
        "made_at": s.made_at,
        "author": s.author,
        "reason": s.reason,
        "matchers": s.matchers,
        "starts_at": s.starts_at,
        "ends_at": s.ends_at,
    }
    upsert(connection, silences, [row])
    return key


def read_silences(connection: Connection, *, ending_after: float | None = None) -> list[Silence]:
    """Silences, the one that ends last first; ``ending_after`` leaves out those that were over or taken back by then."""
    c = silences.c
    query = select(silences).order_by(c.ends_at.desc(), c.id)
    if ending_after is not None:
        query = query.where(c.ends_at > ending_after, c.withdrawn_at.is_(None))
    return [
        Silence(
            r["matchers"],
            r["starts_at"],
            r["ends_at"],
            r["author"],
            r["reason"],
            r["made_at"],
            r["withdrawn_by"],
            r["withdrawn_at"],
            r["id"],
        )
        for r in connection.execute(query).mappings()
    ]


def add_mute(connection: Connection, m: MuteWindow) -> str:
    """Keep a mute window; returns its id. The same one twice is one."""
    key = digest("mute", m.matchers, ",".join(m.days), m.start, m.end, m.zone, m.author, repr(m.made_at))[:12]
    row = {
        "id": key,
        "made_at": m.made_at,
        "author": m.author,
        "reason": m.reason,
        "matchers": m.matchers,
        "days": ",".join(m.days),
        "start_clock": m.start,
        "end_clock": m.end,
        "zone": m.zone,
    }
    upsert(connection, mutes, [row])
    return key


def read_mutes(connection: Connection, *, withdrawn: bool = False) -> list[MuteWindow]:
    """Mute windows by the time at which they were made; those taken back only where asked for."""
    c = mutes.c
    query = select(mutes).order_by(c.made_at, c.id)
    if not withdrawn:
        query = query.where(c.withdrawn_at.is_(None))
    return [
        MuteWindow(
            r["matchers"],
            tuple(r["days"].split(",")),
            r["start_clock"],
            r["end_clock"],
            r["zone"],
            r["author"],
            r["reason"],
            r["made_at"],
            r["withdrawn_by"],
            r["withdrawn_at"],
            r["id"],
        )
        for r in connection.execute(query).mappings()
    ]


def withdraw(connection: Connection, table: str, key: str, who: str, when: float) -> bool:
    """Take a silence (``silences``) or mute window (``mutes``) back; False where none of that id is in force."""
    t: Table = {"silences": silences, "mutes": mutes}[table]
    values: dict[Any, Any] = {t.c.withdrawn_by: who, t.c.withdrawn_at: when}
    done = connection.execute(update(t).where(t.c.id == key, t.c.withdrawn_at.is_(None)).values(values))
    return bool(done.rowcount)
