"""Opening: migrations, read-only, and databases that cannot be used."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from core.errors import StoreError
from core.records import OutputRecord
from sql import migrate
from sql.schema import metadata
from sql.store import RowsRefused, Store, database_file, database_name
from tests.servers import free_port
from tests.sql.make import DONE, T0, reading


def test_a_new_file_gets_all_tables_and_opens_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    for _ in range(2):
        with Store.open(url) as store:
            assert store.ping()["revision"] == migrate.HEAD
            assert store.targets() == []


def test_an_empty_postgresql_database_gets_all_tables(empty_postgres: str) -> None:
    with Store.open(empty_postgres) as store, store.database.read() as c:
        names = c.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars()
        assert set(names) == {*metadata.tables, "alembic_version"}


def test_the_revision_that_the_code_needs_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.FOLDER))
    assert ScriptDirectory.from_config(config).get_heads() == [migrate.HEAD]
    assert migrate.known_revisions()[-1] == migrate.HEAD


def test_migrations_make_the_tables_that_the_code_describes(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'a.db'}"):
        pass
    described = sqlite3.connect(tmp_path / "b.db", isolation_level=None)
    with Store.open(f"sqlite:///{tmp_path / 'b2.db'}") as other, other.database.writer.connect() as c:
        for name in reversed(metadata.sorted_tables):
            c.exec_driver_sql(f"DROP TABLE {name.name}")
        metadata.create_all(c)
        c.commit()
    described.close()

    def shape(path: Path) -> dict[str, object]:
        with sqlite3.connect(path) as c:
            names = [
                r[0] for r in c.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            ]
            out: dict[str, object] = {}
            for n in names:
                columns = [r[1:] for r in c.execute(f"PRAGMA table_info({n})")]
                keys = sorted(r[2:5] for r in c.execute(f"PRAGMA foreign_key_list({n})"))
                indexes = sorted(r[1:4] for r in c.execute(f"PRAGMA index_list({n})"))
                rowid = [r[4] for r in c.execute("PRAGMA table_list") if r[1] == n]
                out[n] = (columns, keys, indexes, rowid)
        c.close()
        return out

    assert shape(tmp_path / "a.db") == shape(tmp_path / "b2.db")


def test_processes_that_start_together_do_not_collide(empty_url: str) -> None:
    code = "import sys; from sql.store import Store; Store.open(sys.argv[1]).close()"
    root = Path(__file__).resolve().parents[2]
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, empty_url], cwd=root, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for p in started:
        _, err = p.communicate(timeout=60)
        assert p.returncode == 0, err.decode()
    with Store.open(empty_url, read_only=True) as store:
        assert store.ping()["revision"] == migrate.HEAD


def test_a_newer_database_is_refused(empty_url: str) -> None:
    with Store.open(empty_url) as store, store.database.write() as c:
        c.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"revision 9999.*newer Gustfront.*Fix: upgrade"):
            Store.open(empty_url, read_only=read_only)


def test_a_missing_file_opened_read_only_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone\.db does not exist\. Fix: .*gustfront"):
        Store.open(f"sqlite:///{tmp_path / 'gone.db'}", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_tables_opened_read_only_says_how_to_get_them(
    tmp_path: Path, empty_postgres: str
) -> None:
    (tmp_path / "empty.db").touch()
    for url in (f"sqlite:///{tmp_path / 'empty.db'}", empty_postgres):
        with pytest.raises(StoreError, match=r"no Gustfront tables\. Fix: start a writer once"):
            Store.open(url, read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"not a database, but longer than a page header " * 200)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"notes\.txt.*is not a database\. Fix: name another file"):
        Store.open(f"sqlite:///{path}", read_only=read_only)
    assert path.read_bytes() == before


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.append([reading(15.0 * i, {DONE: i}) for i in range(500)])
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    for at in range(page, len(data), page):
        data[at : at + 400] = b"\xff" * 400
    path.write_bytes(data)
    with (
        pytest.raises(StoreError, match=r"x\.db.*is damaged\. Fix: restore it"),
        Store.open(f"sqlite:///{path}") as store,
    ):
        list(store.frames(0, 1e11))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "is not a database URL. Fix: sqlite:///"),
        ("mysql://x/y", "is not a database URL|only SQLite and PostgreSQL"),
        ("sqlite://", "names no file"),
        ("sqlite:////no/such/folder/x.db", "mkdir -p /no/such/folder"),
        ("sqlite:////tmp", "is a folder"),
    ],
)
def test_a_wrong_url_says_what_to_write(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Store.open(url)


def test_a_server_that_is_away_is_said_to_be_away() -> None:
    url = f"postgresql://me:secret@127.0.0.1:{free_port()}/x"
    with pytest.raises(StoreError, match=r"PostgreSQL does not answer\. Fix: start it") as error:
        Store.open(url)
    assert "secret" not in str(error.value)


def test_the_file_and_the_name_of_a_url_can_be_asked_for(tmp_path: Path) -> None:
    assert database_file(f"sqlite:///{tmp_path}/x.db") == tmp_path / "x.db"
    assert database_file("postgresql://me:secret@host/x") is None
    assert database_name("postgresql://me:secret@host/x") == "postgresql+psycopg://me:***@host/x"


def test_rows_that_the_database_refuses_are_told_from_a_database_that_is_away(store: Store) -> None:
    fine = OutputRecord("a", T0, T0, "chat", prompt_tokens=2**62)
    with pytest.raises(RowsRefused):
        store.add_outputs([fine, replace(fine, id="b", prompt_tokens=2**63)])
    assert store.outputs(0, 1e11) == []
    assert store.add_outputs([fine]) == 1


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c%20?d"
    folder.mkdir()
    path = folder / "ü.db"
    from sqlalchemy.engine import URL

    url = URL.create("sqlite", database=str(path)).render_as_string()
    with Store.open(url) as store:
        store.set_cursor("x", "1")
    with Store.open(url, read_only=True) as store:
        assert store.get_cursor("x") == "1"
    assert path.exists()


def test_a_read_only_store_cannot_write_in_any_way(store_url: str, opener: Callable[[], Store]) -> None:
    opener().close()
    with Store.open(store_url, read_only=True) as store:
        with pytest.raises(StoreError, match="opened read-only"):
            store.set_cursor("x", "1")
        with pytest.raises(StoreError), store.database.read() as c:
            c.execute(text("INSERT INTO cursors VALUES ('x', '1')"))
        assert store.get_cursor("x") is None


def test_the_reading_side_of_a_writing_store_cannot_write(store: Store) -> None:
    with pytest.raises(StoreError), store.database.read() as c:
        c.execute(text("INSERT INTO cursors VALUES ('x', '1')"))


def test_a_sqlite_store_runs_in_wal_mode_with_foreign_keys(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'x.db'}") as store, store.database.write() as c:
        for name, value in (
            ("journal_mode", "wal"),
            ("synchronous", 1),
            ("foreign_keys", 1),
            ("auto_vacuum", 2),
        ):
            assert c.exec_driver_sql(f"PRAGMA {name}").scalar() == value


def test_a_store_survives_a_restart_of_its_server(empty_postgres: str) -> None:
    with Store.open(empty_postgres) as store:
        store.set_cursor("x", "1")
        name = empty_postgres.rsplit("/", 1)[1]
        with psycopg.connect(empty_postgres, autocommit=True) as c:
            c.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                (name,),
            )
        store.set_cursor("x", "2")
        assert store.get_cursor("x") == "2"
