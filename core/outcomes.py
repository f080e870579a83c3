"""What can become of an answer, as agents, tools and users report it."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, bool | None] = {
    "tests_passed": None,
    "patch_applied": None,
    "tool_ran": None,
    "accepted": True,
    "regenerated": False,
    "abandoned": False,
    "canary_correct": None,
    "canary_same": None,
}
"""Kind → whether its mere occurrence is good (True), bad (False), or has to be said with ``ok`` (None)."""


def is_ok(kind: str, said: bool | None) -> bool | None:
    """Whether an outcome went well; None where the kind needs ``ok`` and it is missing. ``KeyError`` for an unknown kind."""
    fixed = KINDS[kind]
    return fixed if fixed is not None else said
