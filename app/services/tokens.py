"""API tokens: made once and shown once, kept as a digest, checked in constant time, revoked at once.

A token is ``gft_ID_SECRET`` with 256 random bits of secret. What is kept is its SHA-256: a slow password hash protects what
people choose, which can be guessed; 256 random bits cannot, so a fast digest gives nothing away, and each request can afford
it.
"""

from __future__ import annotations

import hmac
import secrets
import string
import time
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Any, cast

from app.services.people import RANK, SCOPES, Principal, Role
from core.errors import ConfigError, InputError
from core.incidents import iso
from sql.people import TokenRow
from sql.store import Store

MARK = "gft"
DAY = 86400.0
USED_EVERY = 60.0
"""Seconds between two notes that a token is in use: not one write per request."""
_LETTERS = string.ascii_lowercase + string.digits
_NOBODY = "0" * 64
_NEEDS: dict[str, Role] = {
    "incidents:write": "responder",
    "deliveries:write": "responder",
    "audit:read": "admin",
}


class BadToken(Exception):
    """The token is forged, revoked or expired; the message says which only where the secret was right."""


def create(
    store: Store,
    name: str,
    *,
    role: str,
    scopes: Collection[str],
    made_by: str,
    expires_at: float | None,
    now: float | None = None,
) -> tuple[str, TokenRow]:
    """A new token and what is kept of it. The token itself cannot be seen again. ConfigError names a wrong argument."""
    at = time.time() if now is None else now
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise ConfigError("name", "must be 1 to 100 printable characters", "say what the token is for")
    if role not in RANK:
        raise ConfigError("--role", "is no role", f"use one of {', '.join(RANK)}", role)
    wanted = sorted(set(scopes))
    if not wanted:
        raise ConfigError("--scopes", "names no scope", f"give one or more of {', '.join(SCOPES)}")
    for scope in wanted:
        if scope not in SCOPES:
            raise ConfigError("--scopes", "is no scope", f"use some of {', '.join(SCOPES)}", scope)
        if RANK[role] < RANK[_NEEDS.get(scope, "viewer")]:
            raise ConfigError("--role", f"{role} cannot use {scope}", f"give --role {_NEEDS[scope]}")
    if expires_at is not None and expires_at <= at:
        raise ConfigError("--expires", "is over already", "give a time to come, such as 90d")
    token_id = "".join(secrets.choice(_LETTERS) for _ in range(10))
    token = f"{MARK}_{token_id}_{secrets.token_urlsafe(32)}"
    row = TokenRow(token_id, name.strip(), _digest(token), role, tuple(wanted), at, made_by, expires_at)
    store.add_token(row)
    return token, row


def verify(store: Store, token: str, now: float | None = None) -> TokenRow:
    """The token's row; BadToken where it is forged, revoked or expired. The same work is done for an unknown id."""
    at = time.time() if now is None else now
    row = store.token(token_id(token) or "")
    known = hmac.compare_digest(_digest(token), row.digest if row is not None else _NOBODY)
    if row is None or not known:
        raise BadToken("the token is not known")
    if row.revoked_at is not None:
        raise BadToken(f"the token {row.name} was revoked at {iso(row.revoked_at)}")
    if row.expires_at is not None and at >= row.expires_at:
        raise BadToken(f"the token {row.name} expired at {iso(row.expires_at)}")
    return row


def principal(row: TokenRow) -> Principal:
    """Who a token is."""
    return Principal(f"token:{row.name}", cast(Role, row.role), frozenset(row.scopes), "token")


def note_use(store: Store, row: TokenRow, origin: str, now: float | None = None) -> None:
    """Note when and from where a token was used, at most once a minute; ``store`` can write."""
    at = time.time() if now is None else now
    if row.last_used_at is None or at - row.last_used_at >= USED_EVERY or row.last_used_from != origin:
        store.use_token(row.id, at, origin)


def revoke(store: Store, wanted: str, who: str, now: float | None = None) -> TokenRow:
    """Revoke the token of that id (or name, where one alone has it); InputError where there is none in force."""
    rows = [r for r in store.tokens() if wanted in (r.id, r.name) or wanted == shown(r)]
    live = [r for r in rows if r.revoked_at is None]
    if not live:
        problem = "is revoked already" if rows else "no token has this id or name"
        raise InputError(wanted, problem, "see gustfront tokens list")
    if len(live) > 1:
        ids = ", ".join(r.id for r in live)
        raise InputError(wanted, "several tokens have this name", f"give one of the ids {ids}")
    store.revoke_token(live[0].id, who, time.time() if now is None else now)
    return live[0]


def shown(row: TokenRow) -> str:
    """The part of a token that may be seen: enough to find it in a configuration."""
    return f"{MARK}_{row.id}"


def as_json(row: TokenRow, now: float) -> dict[str, Any]:
    """A token as lists show it: no digest."""
    state = "revoked" if row.revoked_at is not None else "in force"
    if state == "in force" and row.expires_at is not None and now >= row.expires_at:
        state = "expired"
    return {
        "id": row.id,
        "name": row.name,
        "prefix": shown(row),
        "role": row.role,
        "scopes": list(row.scopes),
        "state": state,
        "made_at": iso(row.made_at),
        "made_by": row.made_by,
        "expires_at": iso(row.expires_at),
        "last_used_at": iso(row.last_used_at),
        "last_used_from": row.last_used_from,
        "revoked_at": iso(row.revoked_at),
        "revoked_by": row.revoked_by,
    }


def token_id(token: str) -> str | None:
    """The id in a token; None where it does not look like one."""
    mark, _, rest = token.partition("_")
    found, _, secret = rest.partition("_")
    plain = found.isascii() and found.isalnum() and len(found) <= 32
    return found if mark == MARK and plain and secret else None


def digest_among(token: str, digests: Iterable[str]) -> bool:
    """Whether the SHA-256 of a token is one of those, each compared in constant time."""
    given = _digest(token)
    return sum(hmac.compare_digest(given, known) for known in digests) > 0


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
