"""Names of tenants and sessions replaced by keyed hashes: the same name gives the same pseudonym, and no way back.

The key is random, made once a database and kept in it; who has the database and a list of names can test them, who has only an
export cannot.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Protocol

CURSOR = "secret:pseudonym"


class KeyStore(Protocol):
    """The part of the store that keeps the key."""

    def get_cursor(self, name: str) -> str | None:
        """The value of a cursor, None if it was never set."""

    def set_cursor(self, name: str, value: str) -> None:
        """Set a cursor."""


class Pseudonyms:
    """Maps names to pseudonyms of 16 hexadecimal digits with a prefix that says what was hidden; empty stays empty."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[tuple[str, str], str] = {}

    @classmethod
    def of(cls, store: KeyStore) -> Pseudonyms:
        """With the key of that database, made at first use."""
        if store.get_cursor(CURSOR) is None:
            store.set_cursor(CURSOR, secrets.token_hex(32))
        return cls(bytes.fromhex(store.get_cursor(CURSOR) or ""))

    def tenant(self, name: str) -> str:
        """``t-`` and 16 digits."""
        return self._of("t", name)

    def session(self, name: str) -> str:
        """``s-`` and 16 digits."""
        return self._of("s", name)

    def _of(self, kind: str, name: str) -> str:
        if not name:
            return ""
        known = self._known.get((kind, name))
        if known is None:
            digest = blake2b(
                name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8, person=kind.encode()
            )
            known = f"{kind}-{digest.hexdigest()}"
            if len(self._known) < 100_000:
                self._known[(kind, name)] = known
        return known
