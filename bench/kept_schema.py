"""A kept database of an older release, as this release wants it: a migrated copy beside it, the original untouched.

Histories outlive changes of the schema, and several checkouts may share them. Whether a database fits is decided by its
columns, not by its revision alone: a migration that is still being written would otherwise spoil what is kept.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from sql.store import Store

Columns = frozenset[tuple[str, str]]
FILE = "fleet.db"


def _columns(path: Path) -> Columns:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as c:
        tables = [t for (t,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return frozenset((t, row[1]) for t in tables for row in c.execute(f"PRAGMA table_info('{t}')"))


def _revision(path: Path) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as c:
        return str(c.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@cache
def _wanted() -> tuple[Columns, str]:
    with tempfile.TemporaryDirectory() as at:
        path = Path(at) / FILE
        Store.open(f"sqlite:///{path}").close()
        return _columns(path), _revision(path)


def fitting(folder: Path) -> Path | None:
    """The database in ``folder`` with this release's columns: the kept one, or a migrated copy (made now if need be).

    None if there is no way but to make the history anew: its schema is as new as ours and yet another one.
    """
    kept = folder / FILE
    wanted, newest = _wanted()
    # A writer may have left what it said in the log beside the file: readers see both, a copy would not.
    if (_columns(kept), _revision(kept)) == (wanted, newest):
        return kept
    if _revision(kept) >= newest:
        return None
    copy = folder / f"fleet-{newest}.db"
    if not copy.exists() or _columns(copy) != wanted:
        part = folder / f".{newest}-{os.getpid()}.db"
        with closing(sqlite3.connect(kept)) as old, closing(sqlite3.connect(part)) as new:
            old.backup(new)
        Store.open(f"sqlite:///{part}").close()
        for name in ("-wal", "-shm"):
            Path(f"{copy}{name}").unlink(missing_ok=True)
        part.replace(copy)
    return copy


def drop(folder: Path) -> None:
    """Remove a history that no longer fits."""
    shutil.rmtree(folder, ignore_errors=True)
