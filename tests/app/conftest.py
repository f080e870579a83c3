"""Fixtures of the screens and the API: small histories in SQLite, made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.storage import forget_stores
from sql.store import Store
from tests.app import history
from tests.app.history import History


@pytest.fixture(scope="session")
def storm_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history.make(tmp_path_factory.mktemp("storm"))


@pytest.fixture(scope="session")
def hostile_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history.make_hostile(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def empty_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history.make_empty(tmp_path_factory.mktemp("empty"))


@pytest.fixture
def storm_store(storm_history: History) -> Iterator[Store]:
    with Store.open(storm_history.url, read_only=True) as store:
        yield store


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Set GUSTFRONT_CONFIG through this; stores opened meanwhile are closed."""
    monkeypatch.delenv("GUSTFRONT_DATABASE", raising=False)
    yield monkeypatch
    forget_stores()
