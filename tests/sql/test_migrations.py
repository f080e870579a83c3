"""A database of an older release, with data, is brought to this release's tables and keeps what it had."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from core.records import Outcome, OutputRecord
from sql import migrate
from sql.engine import Database
from sql.store import Store
from tests.sql.make import DONE, T0, reading

OLD = {
    "id": "r-1",
    "ts": T0 + 3,
    "admitted": T0,
    "class": "chat",
    "session": "s-1",
    "verdict": "hard",
    "rules": '{"char_run": 64.0}',
    "text": "!!!!",
}


def at_revision(url: str, revision: str) -> None:
    """Make the tables of one revision, without this release's views."""
    database = Database(url)
    config = Config()
    config.set_main_option("script_location", str(migrate.FOLDER))
    with database.writer.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    database.close()


def test_outputs_stored_by_the_first_release_count_as_random(empty_url: str) -> None:
    at_revision(empty_url, "0001")
    old = Database(empty_url)
    with old.write() as c:
        names = ", ".join(f'"{n}"' for n in OLD)
        c.execute(text(f"INSERT INTO outputs ({names}) VALUES ({', '.join(':' + n for n in OLD)})"), OLD)
        c.execute(text("INSERT INTO cursors (name, value) VALUES ('a', 'b')"))
    old.close()
    with Store.open(empty_url) as store:
        assert store.ping()["revision"] == migrate.HEAD
        (kept,) = store.outputs(T0, T0 + 10)
        assert kept == OutputRecord(
            "r-1", T0 + 3, T0, "chat", session="s-1", verdict="hard", rules={"char_run": 64.0}, text="!!!!"
        )
        assert (kept.random, kept.weight, kept.structured) == (True, 1.0, None)
        assert store.get_cursor("a") == "b"
        # and the new tables and views work on it
        store.add_outcomes([Outcome("y", T0 + 5, "tests_passed", False, request="r-1")])
        store.append([reading(15.0 * i, {DONE: i}) for i in range(3)])
        with store.database.read() as c:
            row = c.execute(text("SELECT kind, ok, verdict, class FROM v_outcomes")).one()
            assert tuple(row) == ("tests_passed", False, "hard", "chat")
            assert c.execute(text("SELECT random, weight FROM v_outputs")).one() == (True, 1.0)


def test_views_of_an_older_release_do_not_stand_in_the_way(empty_url: str) -> None:
    at_revision(empty_url, "0001")
    old = Database(empty_url)
    with old.write() as c:
        c.execute(text("CREATE VIEW v_outputs AS SELECT id, ts, rules, features FROM outputs"))
    old.close()
    with Store.open(empty_url) as store, store.database.read() as c:
        assert c.execute(text("SELECT source FROM v_outputs")).all() == []
