"""Shares of bad things with exact intervals, or the reason why there is no number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from app.services.wording import NO_TRAFFIC, NOT_ENOUGH, NOT_EXPORTED, percent, significant
from detectors import stats

State = Literal["ok", "not_exported", "no_traffic", "too_few"]
_WORDS = {"not_exported": NOT_EXPORTED, "no_traffic": NO_TRAFFIC, "too_few": NOT_ENOUGH}


exact_interval = lru_cache(maxsize=4096)(stats.exact_interval)
"""Clopper-Pearson bounds of a share from ``k`` of ``n``, remembered: the screens ask for the same ones again."""


@dataclass(frozen=True, slots=True)
class Rate:
    """``k`` of ``n`` with an exact 95 % interval; ``source`` says where it was measured.

    Without state ``ok`` no number is shown.
    """

    state: State
    k: int = 0
    n: int = 0
    low: float = 0.0
    high: float = 1.0
    source: str = ""

    @property
    def value(self) -> float | None:
        """The share, or None."""
        return self.k / self.n if self.state == "ok" and self.n else None

    def as_percent(self) -> str:
        """``6.1 %`` or the reason."""
        return percent(self.value) if self.state == "ok" else _WORDS[self.state]

    def per_10k(self) -> str:
        """``2.8 (1.9–4.1)`` per ten thousand, or the reason."""
        if self.state != "ok" or self.value is None:
            return _WORDS.get(self.state, NOT_ENOUGH)
        low, high = (significant(x * 1e4) for x in (self.low, self.high))
        return f"{significant(self.value * 1e4)} ({low}–{high})"


def rate(k: int, n: int, *, source: str = "", min_n: int = 1) -> Rate:
    """The rate of ``k`` in ``n``; ``no_traffic`` for none, ``too_few`` below ``min_n``."""
    if n <= 0:
        return Rate("no_traffic", source=source)
    low, high = exact_interval(int(k), int(n))
    return Rate("ok" if n >= min_n else "too_few", int(k), int(n), low, high, source)


MISSING = Rate("not_exported")
