"""The life cycle of incidents is tested on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from app.services.people import Principal
from sql.store import Store
from tests.incidents.make import incident
from tests.sql.conftest import dialect, empty_postgres, postgres_server, store, store_url

__all__ = ["dialect", "empty_postgres", "postgres_server", "store", "store_url"]


@pytest.fixture
def mara() -> Principal:
    return Principal("mara", "responder")


@pytest.fixture
def looker() -> Principal:
    return Principal("gast", "viewer")


@pytest.fixture
def known(store: Store) -> Store:
    """A store with one open incident ``aa11`` and one that is over, ``ab22``, of the same kind and pool."""
    store.save_incidents(
        [incident("aa11"), incident("ab22", state="resolved", started_at=1000.0, ended_at=1600.0)]
    )
    return store
