"""Every test of the store runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sql.schema import metadata
from sql.store import Store
from tests.sql import postgres

_number = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A running server with a migrated database ``migrated``, which tests empty rather than make a new one each."""
    why = postgres.missing()
    if why:
        pytest.skip(why)
    with postgres.server() as url:
        with psycopg.connect(f"{url}/postgres", autocommit=True) as c:
            c.execute("CREATE DATABASE migrated")
            c.execute("CREATE DATABASE model")
        for name in ("migrated", "model"):
            Store.open(f"{url}/{name}").close()
        yield url


@pytest.fixture
def empty_postgres(postgres_server: str) -> Iterator[str]:
    """The URL of a database without tables, of this test's own."""
    name = f"t{next(_number)}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as c:
        c.execute(f"CREATE DATABASE {name}")
        yield f"{postgres_server}/{name}"
        c.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def dialect(request: pytest.FixtureRequest) -> str:
    """``sqlite`` or ``postgresql``."""
    return str(request.param)


@pytest.fixture
def empty_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without tables, of this test's own, on each dialect."""
    if dialect == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return str(request.getfixturevalue("empty_postgres"))


@pytest.fixture
def store_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with no rows, on each dialect."""
    if dialect == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    url = f"{request.getfixturevalue('postgres_server')}/migrated"
    with psycopg.connect(url, autocommit=True) as c:
        c.execute(f"TRUNCATE {', '.join(metadata.tables)}")
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An open, empty store."""
    with Store.open(store_url) as opened:
        yield opened


@pytest.fixture
def opener(store_url: str) -> Callable[[], Store]:
    """Opens the test's database once more."""
    return lambda: Store.open(store_url)
