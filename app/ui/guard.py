"""Errors raised on purpose become a note on the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.ui import empty
from core.errors import GustfrontError


@contextmanager
def guard() -> Iterator[None]:
    """Errors raised on purpose become a note that says what to do, not a traceback."""
    try:
        yield
    except GustfrontError as error:
        empty.unavailable(str(error))
