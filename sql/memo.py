"""Memory for functions of layouts. ``functools.lru_cache`` would hash all columns at each call; a layout's id is remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from core.frames import Layout

T = TypeVar("T")
LIMIT = 8192


def by_layout(function: Callable[[Layout], T]) -> Callable[[Layout], T]:
    """Remember the result for each layout; forgets everything when :data:`LIMIT` layouts have been met."""
    known: dict[str, T] = {}

    @wraps(function)
    def wrapped(layout: Layout) -> T:
        try:
            return known[layout.id]
        except KeyError:
            if len(known) >= LIMIT:
                known.clear()
            return known.setdefault(layout.id, function(layout))

    return wrapped


def by_layouts(function: Callable[[Layout, Layout], T]) -> Callable[[Layout, Layout], T]:
    """As :func:`by_layout` for two layouts."""
    known: dict[tuple[str, str], T] = {}

    @wraps(function)
    def wrapped(a: Layout, b: Layout) -> T:
        key = (a.id, b.id)
        try:
            return known[key]
        except KeyError:
            if len(known) >= LIMIT:
                known.clear()
            return known.setdefault(key, function(a, b))

    return wrapped
