"""Who looks at a page."""

from __future__ import annotations

from app.services.people import LOCAL, Principal


def current() -> Principal:
    """The principal of this page's session."""
    return LOCAL
