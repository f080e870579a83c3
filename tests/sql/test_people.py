"""API tokens and the audit log in the store."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from core.errors import StoreError
from sql.people import AuditRow, TokenRow
from sql.store import Store

TOKEN = TokenRow("ab12", "gateway", "0" * 64, "viewer", ("outputs:write",), 100.0, "ann", 500.0)


def line(i: int, who: str = "ann") -> AuditRow:
    return AuditRow(f"k{i}", 100.0 + i // 2, who, "responder", "oidc", "acknowledge", f"inc-{i}", "10.0.0.9")


def test_a_token_is_kept_used_and_revoked_once(store: Store) -> None:
    store.add_token(TOKEN)
    assert store.token("ab12") == TOKEN
    assert store.token("zz") is None
    store.use_token("ab12", 200.0, "10.0.0.9")
    assert store.revoke_token("ab12", "bob", 300.0)
    assert not store.revoke_token("ab12", "carl", 400.0)
    assert not store.revoke_token("zz", "carl", 400.0)
    (kept,) = store.tokens()
    assert (kept.last_used_at, kept.last_used_from, kept.revoked_by, kept.revoked_at) == (
        200.0,
        "10.0.0.9",
        "bob",
        300.0,
    )


def test_audit_lines_come_newest_first_in_pages_that_never_overlap(store: Store) -> None:
    for i in range(7):
        store.add_audit(line(i))
    seen: list[AuditRow] = []
    while found := store.audit(limit=3, before=(seen[-1].ts, seen[-1].id) if seen else None):
        seen += found
    assert seen == [line(i) for i in reversed(range(7))]
    assert [a.id for a in store.audit(limit=9, start=101.0, end=102.0)] == ["k3", "k2"]
    store.add_audit(line(9, "bob"))
    assert [a.id for a in store.audit(limit=9, who="bob")] == ["k9"]
    assert store.audit(limit=9, action="silence") == []


@pytest.mark.parametrize("statement", ["UPDATE audit SET who = 'nobody'", "DELETE FROM audit"])
def test_no_line_of_the_audit_log_can_be_changed_or_deleted(store: Store, statement: str) -> None:
    store.add_audit(line(1))
    with pytest.raises(StoreError, match="append-only"), store.database.write() as c:
        c.execute(text(statement))
    assert store.audit(limit=9) == [line(1)]
