"""Fixtures of delivery: stores of both databases, a receiver that counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.delivery.receiver import Receiver, receiver
from tests.sql.conftest import dialect, empty_postgres, opener, postgres_server, store, store_url

__all__ = ["dialect", "empty_postgres", "opener", "postgres_server", "store", "store_url"]


@pytest.fixture
def hook() -> Iterator[Receiver]:
    """A receiver that takes everything until told otherwise."""
    with receiver() as server:
        yield server
