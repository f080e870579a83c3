"""API tokens, of which only a digest is kept, and the audit log, which can only be added to (triggers see to it)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select, update

from sql.bulk import to_json, upsert
from sql.paging import newest_first
from sql.schema import audit, tokens


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token: ``id`` is the part that may be shown, ``digest`` the SHA-256 of all of it. Times in Unix seconds."""

    id: str
    name: str
    digest: str
    role: str
    scopes: tuple[str, ...]
    made_at: float
    made_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    revoked_by: str = ""
    last_used_at: float | None = None
    last_used_from: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One act, or one that was refused: who, with which role and by which way (local, proxy, oidc, token), did what to what, from
    where. ``id`` orders lines of the same instant."""

    id: str
    ts: float
    who: str
    role: str
    via: str
    action: str
    subject: str = ""
    origin: str = ""
    allowed: bool = True
    detail: Mapping[str, Any] = field(default_factory=dict)


def add_token(connection: Connection, row: TokenRow) -> None:
    """Keep a new token."""
    upsert(
        connection,
        tokens,
        [
            {
                "id": row.id,
                "name": row.name,
                "digest": row.digest,
                "role": row.role,
                "scopes": to_json(row.scopes),
                "made_at": row.made_at,
                "made_by": row.made_by,
                "expires_at": row.expires_at,
            }
        ],
    )


def read_tokens(connection: Connection, token_id: str | None = None) -> list[TokenRow]:
    """All tokens, or that one, by the time they were made."""
    t = tokens.c
    query = select(tokens).order_by(t.made_at, t.id)
    if token_id is not None:
        query = query.where(t.id == token_id)
    return [
        TokenRow(
            r.id,
            r.name,
            r.digest,
            r.role,
            tuple(json.loads(r.scopes)),
            r.made_at,
            r.made_by,
            r.expires_at,
            r.revoked_at,
            r.revoked_by,
            r.last_used_at,
            r.last_used_from,
        )
        for r in connection.execute(query)
    ]


def revoke_token(connection: Connection, token_id: str, who: str, when: float) -> bool:
    """Whether there was one that was not revoked yet."""
    t = tokens.c
    done = connection.execute(
        update(tokens).where(t.id == token_id, t.revoked_at.is_(None)).values(revoked_by=who, revoked_at=when)
    )
    return bool(done.rowcount)


def use_token(connection: Connection, token_id: str, when: float, origin: str) -> None:
    """Note when and from where it was used last."""
    connection.execute(
        update(tokens).where(tokens.c.id == token_id).values(last_used_at=when, last_used_from=origin)
    )


def add_audit(connection: Connection, row: AuditRow) -> None:
    """Add a line."""
    upsert(
        connection,
        audit,
        [
            {
                "id": row.id,
                "ts": row.ts,
                "who": row.who,
                "role": row.role,
                "via": row.via,
                "action": row.action,
                "subject": row.subject,
                "origin": row.origin,
                "allowed": row.allowed,
                "detail": to_json(row.detail),
            }
        ],
    )


def read_audit(
    connection: Connection,
    *,
    limit: int,
    before: tuple[float, str] | None = None,
    start: float | None = None,
    end: float | None = None,
    who: str | None = None,
    action: str | None = None,
) -> list[AuditRow]:
    """Lines with start <= ts < end, the newest first, after ``before`` = (ts, id) of the last one seen."""
    a = audit.c
    query = newest_first(select(audit), a.ts, a.id, limit, before)
    if start is not None:
        query = query.where(a.ts >= start)
    if end is not None:
        query = query.where(a.ts < end)
    if who is not None:
        query = query.where(a.who == who)
    if action is not None:
        query = query.where(a.action == action)
    return [
        AuditRow(
            r.id, r.ts, r.who, r.role, r.via, r.action, r.subject, r.origin, r.allowed, json.loads(r.detail)
        )
        for r in connection.execute(query)
    ]
