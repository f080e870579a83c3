"""Matchers over incidents in the configuration, checked where they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.classes import parse_matchers
from core.config_types import fail
from core.errors import ConfigError


def check_matchers(items: Iterable[str], labels: Sequence[str], place: str = "") -> None:
    """Refuse by name what cannot be read or asks for a label that incidents do not have (``place``: here)."""
    for item in items:
        try:
            found = parse_matchers(item)
        except ConfigError as error:
            fail(f"{error.problem}: {item!r}", error.fix)
        for m in found:
            if m.label not in labels:
                fail(f"an incident has no label {m.label}{place}: {item!r}", f"use {', '.join(labels)}")
