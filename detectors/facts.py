"""What a replica says of itself beside numbers: version, model, role, release. Known since its process started.

The store keeps only the newest words of a target. They hold from the start of the process that said them, so a tick before
that start does not see them: a back-test knows no more than a live run did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """``since``: Unix seconds from which they hold; an empty text is unknown."""

    since: float
    version: str = ""
    model: str = ""
    role: str = ""
    release: str = ""
    components: tuple[str, ...] = ()

    def said(self) -> Mapping[str, str]:
        """What is known, by name."""
        named = {
            "version": self.version,
            "model": self.model,
            "role": self.role,
            "release": self.release,
            "components": ", ".join(self.components),
        }
        return {k: v for k, v in named.items() if v}


def latest(history: list[Facts], end: float) -> Facts | None:
    """What was known at ``end``; None where nothing was."""
    return next((f for f in reversed(history) if f.since <= end), None)


def note(history: list[Facts], new: Facts) -> None:
    """Keep ``new`` if it says anything else than the last one; a process says the same all its life."""
    if history and history[-1].said() == new.said():
        return
    history[:] = [f for f in history if f.since < new.since]
    history.append(new)
    del history[:-20]
