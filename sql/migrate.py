"""Bringing a database to this release's revision, once, whoever starts first."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from core.errors import StoreError
from sql.engine import LOCK_MIGRATE, Database
from sql.views import create_views

HEAD = "0008"
"""The revision this code needs; a test checks that it is the newest of the migrations."""

FOLDER = Path(__file__).resolve().parent / "migrations"


def current(connection: Connection) -> str | None:
    """The database's revision; None where there are no Gustfront tables."""
    try:
        with connection.begin_nested():
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    except (OperationalError, ProgrammingError) as error:
        message = str(error.orig).lower()
        if "no such table" in message or "does not exist" in message:
            return None
        raise
    return found[0] if found else None


def check(database: Database) -> None:
    """For read-only openers: ``StoreError`` unless the database is at this revision."""
    with database.read() as connection:
        found = current(connection)
    if found is None:
        raise StoreError(
            f"{database.name} has no Gustfront tables. Fix: start a writer once (`gustfront run`) to create them"
        )
    _refuse_newer(database, found)
    if found != HEAD:
        raise StoreError(
            f"{database.name} is at revision {found}, this release needs {HEAD}. "
            "Fix: start a writer once (`gustfront run`) to migrate it"
        )


def upgrade(database: Database) -> None:
    """Create or migrate the tables. Several processes may call this at once: one works, the others wait."""
    _switch_to_wal(database)
    with database.translated(), database.writer.connect() as connection:
        with connection.begin():
            found = current(connection)
        if found == HEAD:
            return
        _refuse_newer(database, found)
        with connection.begin():
            # SQLite: BEGIN IMMEDIATE is the lock. The wait for a long migration of another process is the busy timeout.
            if not database.sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_MIGRATE})
            found = current(connection)
            if found == HEAD:
                return
            _refuse_newer(database, found)
            _alembic(connection)
            create_views(connection)


def known_revisions() -> list[str]:
    """Revisions that this release knows, oldest first."""
    return sorted(p.name[:4] for p in (FOLDER / "versions").glob("[0-9][0-9][0-9][0-9]_*.py"))


def _alembic(connection: Connection) -> None:
    # a third of a second to import, and needed only when there is something to do
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _refuse_newer(database: Database, found: str | None) -> None:
    if found is not None and found not in known_revisions():
        raise StoreError(
            f"{database.name} is at revision {found}, which this release does not know (it needs {HEAD}): "
            "a newer Gustfront has written it. Fix: upgrade Gustfront, or name another database"
        )


def _switch_to_wal(database: Database) -> None:
    """The first switch of a file to WAL needs it alone; SQLite does not wait for that, so we do."""
    if not database.sqlite:
        return
    deadline = time.monotonic() + 10
    while True:
        try:
            with database.writer.connect():
                return
        except DBAPIError as error:
            if "locked" not in str(error.orig).lower() or time.monotonic() > deadline:
                with database.translated():
                    raise
            time.sleep(0.05)
