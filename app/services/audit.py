"""The audit log: who did what to what, with which role, from where. Every act that changes something, every look at a text of a
model's output, and every one of these that was refused. Lines are added and never changed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from app.services.people import Principal
from core.incidents import iso
from sql.people import AuditRow
from sql.store import Store

_MAX = 300


def record(
    store: Store,
    principal: Principal,
    action: str,
    subject: str = "",
    *,
    origin: str = "",
    allowed: bool = True,
    detail: Mapping[str, Any] | None = None,
    at: float | None = None,
) -> AuditRow:
    """Add a line; ``store`` can write. ``action`` is a short word such as ``acknowledge``, ``subject`` the id it was done to,
    ``origin`` the address it came from. StoreError where it cannot be kept: then the act must not be done."""
    ts = time.time() if at is None else at
    row = AuditRow(
        id=f"{time.time_ns():020d}-{secrets.token_hex(4)}",
        ts=ts,
        who=principal.name[:_MAX],
        role=principal.role,
        via=principal.via,
        action=action[:_MAX],
        subject=subject[:_MAX],
        origin=origin[:_MAX],
        allowed=allowed,
        detail=dict(detail or {}),
    )
    store.add_audit(row)
    return row


def as_json(row: AuditRow) -> dict[str, Any]:
    """A line as the API and ``gustfront audit list --json`` show it."""
    return {
        "id": row.id,
        "at": iso(row.ts),
        "who": row.who,
        "role": row.role,
        "via": row.via,
        "action": row.action,
        "subject": row.subject,
        "origin": row.origin,
        "allowed": row.allowed,
        "detail": dict(row.detail),
    }
