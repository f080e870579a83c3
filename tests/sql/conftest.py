"""Every test of the store runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sql.store import Store
from tests.sql import postgres

_number = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A running server; ``TEMPLATE`` is a migrated database that tests copy in milliseconds."""
    why = postgres.missing()
    if why:
        pytest.skip(why)
    with postgres.server() as url:
        with psycopg.connect(f"{url}/postgres", autocommit=True) as c:
            c.execute("CREATE DATABASE migrated")
        Store.open(f"{url}/migrated").close()
        yield url


@pytest.fixture
def empty_postgres(postgres_server: str) -> str:
    """The URL of a database without tables."""
    return _create(postgres_server, "template0")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def dialect(request: pytest.FixtureRequest) -> str:
    """``sqlite`` or ``postgresql``."""
    return str(request.param)


@pytest.fixture
def store_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of this test's own."""
    if dialect == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: str = request.getfixturevalue("postgres_server")
    return _create(server, "migrated")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An open, empty store."""
    with Store.open(store_url) as opened:
        yield opened


@pytest.fixture
def opener(store_url: str) -> Callable[[], Store]:
    """Opens the test's database once more."""
    return lambda: Store.open(store_url)


def _create(server: str, template: str) -> str:
    name = f"t{next(_number)}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as c:
        c.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return f"{server}/{name}"
