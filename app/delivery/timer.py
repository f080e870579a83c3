"""Something that is done every so often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Timer:
    """``every`` seconds since ``last``; a clock that was put back makes it due."""

    every: float
    last: float | None = None

    def due(self, now: float) -> bool:
        """Whether it is time."""
        return self.last is None or not 0 <= now - self.last < self.every
