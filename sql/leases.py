"""Leases: of several processes that could do a thing, one does it, as the database says.

The database's own clock decides, so that machines whose clocks differ agree. A lease that reaches further into the future than
it was ever given for comes from a clock that has been put back since: it does not count.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, select, text

from core.deliveries import Lease
from sql.bulk import upsert
from sql.schema import leases


def clock(connection: Connection) -> float:
    """Unix seconds by the database's clock."""
    statement = (
        "SELECT (julianday('now') - 2440587.5) * 86400.0"
        if connection.dialect.name == "sqlite"
        else "SELECT extract(epoch FROM clock_timestamp())"
    )
    return float(connection.execute(text(statement)).scalar_one())


def get(connection: Connection, name: str) -> Lease | None:
    """A lease as it stands, whether or not it has run out."""
    row = connection.execute(select(leases).where(leases.c.name == name)).mappings().first()
    return None if row is None else Lease(**dict(row))


def acquire(
    connection: Connection, name: str, holder: str, seconds: float, now: float | None = None
) -> Lease | None:
    """Take or renew a lease for ``seconds``; None where somebody else holds it. The caller holds the write lock.

    ``now`` stands in for the database's clock in tests.
    """
    at = clock(connection) if now is None else now
    held = get(connection, name)
    if held is not None and held.holder != holder and at < held.until <= at + 2 * seconds:
        return None
    same = held is not None and held.holder == holder
    token = 1 if held is None else held.token if same else held.token + 1
    row: dict[str, Any] = {
        "name": name,
        "holder": holder,
        "token": token,
        "taken_at": held.taken_at if same and held is not None else at,
        "until": at + seconds,
    }
    upsert(connection, leases, [row], update=("holder", "token", "taken_at", "until"))
    return Lease(**row)


def release(connection: Connection, name: str, holder: str) -> None:
    """Give a lease back, so that the next one need not wait for its end."""
    connection.execute(delete(leases).where(leases.c.name == name, leases.c.holder == holder))
