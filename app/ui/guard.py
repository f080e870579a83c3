"""Errors raised on purpose become a note on the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.services.people import Forbidden
from app.ui import empty, who
from core.errors import GustfrontError


@contextmanager
def guard() -> Iterator[None]:
    """Errors raised on purpose become a note that says what to do, not a traceback."""
    try:
        yield
    except Forbidden as error:
        who.refusal(error)
    except GustfrontError as error:
        empty.unavailable(str(error))
