"""Histories are kept whole, and a database of another schema is never spoilt or trusted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench import histories, kept_schema
from bench.histories import history, kept
from sql.store import Store


def test_a_history_is_made_once_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUSTFRONT_HISTORIES", str(tmp_path))
    assert not kept("calm_restart", 5, hours=0.25, most=3)
    made = history("calm_restart", 5, hours=0.25, most=3)
    assert kept("calm_restart", 5, hours=0.25, most=3)
    assert [p.name for p in tmp_path.iterdir()] == [made.folder.name]
    monkeypatch.setattr(histories, "fill", lambda *_: pytest.fail("it is there already"))
    again = history("calm_restart", 5, hours=0.25, most=3)
    assert again.truth == made.truth
    assert again.truth["replicas"] == 3
    with Store.open(again.config.database, read_only=True) as store:
        assert next(iter(store.frames(made.truth["start"], made.truth["end"]))).t1 > made.truth["start"]


def test_a_database_of_this_release_is_used_as_it_is(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path / 'fleet.db'}").close()
    assert kept_schema.fitting(tmp_path) == tmp_path / "fleet.db"


def test_one_with_our_revision_and_other_columns_has_to_be_made_anew(tmp_path: Path) -> None:
    """A migration that was still being written left it."""
    path = tmp_path / "fleet.db"
    Store.open(f"sqlite:///{path}").close()
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as c, c:
        c.execute("ALTER TABLE outputs ADD COLUMN undecided INTEGER")
    changed = path.read_bytes()
    assert changed != before
    assert kept_schema.fitting(tmp_path) is None
    assert path.read_bytes() == changed
