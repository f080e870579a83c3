"""The answer to "is it load?" and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LoadVerdict:
    """The answer and what it rests on. ``verdict`` None = cannot tell yet; ``why`` says what decided or what is missing.

    ``bottom`` and ``top`` are (bad, outputs) of the quarters of load, ``limits`` their edges (1 = the pool's mean).
    ``more`` outputs are about what is still needed.
    """

    verdict: bool | None
    why: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    episodes: int = 0
    bottom: tuple[int, int] = (0, 0)
    top: tuple[int, int] = (0, 0)
    limits: tuple[float, float] = (0.0, 0.0)
    more: int | None = None
    crude: tuple[float, float, float] | None = None
    mechanism: tuple[float, float, float] | None = None
    trend: float | None = None
    rotation: float | None = None
    placebos: dict[str, float] = field(default_factory=dict)
    shape: str = ""
    hours: int = 0
    inflation: float = 1.0

    def interval(self) -> str:
        """``×4.1 (2.2–7.9)``; the bounds hold with 95 % each."""
        if self.ratio is None or self.low is None or self.high is None:
            return "not known"
        high = "∞" if self.high > 1000 else f"{self.high:.1f}"
        return f"×{self.ratio:.1f} ({self.low:.1f}–{high})"

    def sentence(self) -> str:
        """For the cause line."""
        if self.ratio is None:
            return self.why if self.verdict is False else f"load: {self.why}"
        says = {
            True: "it grows with load",
            False: "it does not depend on load",
            None: f"load: cannot tell yet ({self.why})",
        }
        return f"{says[self.verdict]} (top to bottom quarter of load {self.interval()})"

    def test(self) -> str:
        """What was tested."""
        return "adjusted rate ratio of top to bottom load quarter at admission; load turned round within its episodes"

    def result(self) -> str:
        """The numbers of the test."""
        if self.ratio is None:
            return self.why
        p = "" if self.rotation is None else f", permutation p = {self.rotation:.3f}"
        return f"{self.interval()}{p}, {self.episodes} load episodes; {self.why}"

    def as_json(self) -> dict[str, Any]:
        """For the incident's detail; an infinite bound is null."""
        out = {name: getattr(self, name) for name in self.__dataclass_fields__}
        out["high"] = None if self.high is None or np.isinf(self.high) else self.high
        for key in ("bottom", "top", "limits", "crude", "mechanism"):
            out[key] = None if out[key] is None else [None if np.isinf(v) else v for v in out[key]]
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LoadVerdict:
        """The inverse of :meth:`as_json`; unknown keys are left out."""
        row = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        if row.get("ratio") is not None and row.get("high") is None:
            row["high"] = float("inf")
        for key in ("bottom", "top", "limits", "crude", "mechanism"):
            if row.get(key) is not None:
                row[key] = tuple(float("inf") if v is None else v for v in row[key])
        return cls(**row)
