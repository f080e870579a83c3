"""Engines: one that writes, one that can only read, for SQLite and PostgreSQL, behind one :class:`Database`.

SQLite: WAL, so that readers never wait for a writer; a write takes the lock at once (``BEGIN IMMEDIATE``), because a
transaction that reads first and then wants to write cannot be retried by SQLite itself. The reading engine opens the file
with ``mode=ro`` and has a pool of its own: a screen never queues behind ingestion and cannot change anything.
PostgreSQL: the reading engine sets ``default_transaction_read_only``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.pool import QueuePool

from core.errors import StoreError

BUSY_SECONDS = 30
"""How long a SQLite write waits for another writer. A commit takes milliseconds; a long retention step may take seconds."""

LOCK_MIGRATE = 7106713001
LOCK_WRITE = 7106713002
"""Keys of the PostgreSQL advisory locks: two processes migrating; several collectors merging the same roll-up rows."""


class RowsRefused(StoreError):
    """The database is there but cannot take these rows (a value out of range, a broken rule). Trying again will not help."""


def database_file(url: str) -> Path | None:
    """The file of a SQLite URL, absolute; None for PostgreSQL. ``StoreError`` for what is no database URL."""
    parsed = _parse(url)
    return Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None


def database_name(url: str) -> str:
    """The URL without its password, to be shown or hashed."""
    return _parse(url).render_as_string(hide_password=True)


class Database:
    """Both engines of one database URL. Thread-safe. ``StoreError`` wherever the database cannot be used."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        parsed = _parse(url)
        self.url = parsed
        self.name = parsed.render_as_string(hide_password=True)
        self.read_only = read_only
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.path = Path(parsed.database or "").absolute() if self.sqlite else None
        self._turn = threading.RLock()
        if self.path is not None:
            _check_file(self.path, read_only)
        self.reader = self._sqlite_reader() if self.sqlite else _postgres(parsed, read_only=True)
        self._writer: Engine | None = None
        if not read_only:
            self._writer = self._sqlite_writer() if self.sqlite else _postgres(parsed, read_only=False)

    @property
    def writer(self) -> Engine:
        """The writing engine; ``StoreError`` on a store opened read-only."""
        if self._writer is None:
            raise StoreError(f"{self.name} is opened read-only. Fix: open it without read_only to write")
        return self._writer

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection in one consistent snapshot that cannot change anything."""
        with self.translated(), self.reader.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, lock: bool = False) -> Iterator[Connection]:
        """One transaction, committed at the end, rolled back on any exception.

        ``lock`` serialises read-modify-write against other processes: on SQLite every write does; on PostgreSQL it takes an
        advisory lock until the end of the transaction.
        """
        with self._turn, self.translated(), self.writer.begin() as connection:
            if lock and not self.sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_WRITE})
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Database errors as ``StoreError`` that names the database and a fix."""
        try:
            yield
        except (IntegrityError, DataError) as error:
            raise RowsRefused(f"{self.name}: {_explain(error)}") from error
        except OverflowError as error:
            # sqlite3 itself, for an integer beyond 64 bits
            raise RowsRefused(f"{self.name}: {error}") from error
        except DBAPIError as error:
            raise StoreError(f"{self.name}: {_explain(error)}") from error
        except SQLAlchemyError as error:
            raise StoreError(f"{self.name}: {error}") from error

    def close(self) -> None:
        """Close all connections; the store is unusable afterwards."""
        self.reader.dispose()
        if self._writer is not None:
            self._writer.dispose()

    def _sqlite_writer(self) -> Engine:
        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                str(self.path), timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
            # the first that takes effect only on an empty file: lets retention give space back step by step
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA cache_size=-32768")
            connection.execute("PRAGMA journal_size_limit=67108864")
            return connection

        engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=1, max_overflow=2)
        event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
        return engine

    def _sqlite_reader(self) -> Engine:
        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode=ro",
                uri=True,
                timeout=BUSY_SECONDS,
                check_same_thread=False,
                isolation_level=None,
            )
            connection.execute("PRAGMA query_only=ON")
            connection.execute("PRAGMA cache_size=-8192")
            return connection

        engine = create_engine(
            "sqlite://", creator=connect, poolclass=QueuePool, pool_size=4, max_overflow=12
        )
        event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
        return engine


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(
            f"{url!r} is not a database URL. Fix: sqlite:///./gustfront.db or postgresql://user@host/name"
        ) from error
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(f"{url!r}: only SQLite and PostgreSQL are supported. Fix: use one of the two")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError(f"{url!r} names no file. Fix: sqlite:///./gustfront.db")
    return parsed


def _check_file(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder, not a database. Fix: name a file, as in sqlite:///{path}/gustfront.db"
        )
    if read_only and not path.exists():
        raise StoreError(
            f"{path} does not exist. Fix: start `gustfront run` or `gustfront backfill` first, or correct `database`"
        )
    if not read_only and not path.parent.is_dir():
        raise StoreError(
            f"{path.parent} does not exist, so {path.name} cannot be made. Fix: mkdir -p {path.parent}"
        )


def _postgres(url: URL, *, read_only: bool) -> Engine:
    arguments: dict[str, Any] = {"connect_timeout": 10, "application_name": "gustfront"}
    if read_only:
        arguments["options"] = "-c default_transaction_read_only=on"
    return create_engine(
        url,
        connect_args=arguments,
        pool_pre_ping=True,
        pool_size=8 if read_only else 4,
        isolation_level="REPEATABLE READ" if read_only else "READ COMMITTED",
    )


def _explain(error: DBAPIError) -> str:
    """The driver's first line and what to do about it."""
    message = (
        str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
    )
    lower = message.lower()
    fixes = {
        "not a database": "is not a database. Fix: name another file, or move this one away",
        "malformed": "is damaged. Fix: restore it from a copy, or move it away and start a new one",
        "disk image": "is damaged. Fix: restore it from a copy, or move it away and start a new one",
        "database is locked": "another process has been writing for too long. Fix: stop it, or use PostgreSQL",
        "readonly": "cannot be written. Fix: give this user write permission on the file and its folder",
        "unable to open": "cannot be opened. Fix: give this user permission on the file and its folder",
        "disk is full": "the disk is full. Fix: free space or shorten `retention`",
        "no such table": "has no Gustfront tables. Fix: start a writer once (`gustfront run`) to create them",
        "connection": "PostgreSQL does not answer. Fix: start it, or correct host, port and user in `database`",
    }
    for word, advice in fixes.items():
        if word in lower:
            return f"{advice} ({message})"
    return message
