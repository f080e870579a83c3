"""Texts of model outputs, which can hold secrets: shown to those who may, each look in the audit log before the text is given."""

from __future__ import annotations

from app.services import audit
from app.services.people import Forbidden, Principal, require_texts
from core.config_auth import AuthConfig
from sql.store import Store

ACTION = "read output text"


def read_text(
    store: Store, principal: Principal, auth: AuthConfig, output: str, *, origin: str = ""
) -> str | None:
    """The text of one output, None where it was not kept. ``store`` can write: a look that cannot be logged shows nothing
    (StoreError). Forbidden, and logged as such, where role or scope is missing."""
    try:
        require_texts(principal, auth)
    except Forbidden:
        audit.record(store, principal, ACTION, output, origin=origin, allowed=False)
        raise
    text = store.output_texts([output]).get(output)
    if text is not None:
        audit.record(store, principal, ACTION, output, origin=origin)
    return text
