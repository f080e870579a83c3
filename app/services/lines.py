"""Where lines lie in a picture: time to the right, value upwards, in units that a picture stretches to its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.services.wording import utc_offset
from core.frames import FloatArray

WIDTH, HEIGHT = 1000.0, 100.0
TICKS = tuple(m * 10.0**e for e in range(-3, 10) for m in (1, 3))
FINER = tuple(
    tuple(m * 10.0**e for e in range(-3, 10) for m in steps)
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(x / 10 for x in range(10, 100)))
)
TIME_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where data lie: x is time; y is value, logarithmic if ``log``."""

    start: float
    end: float
    low: float
    high: float
    log: bool = False

    def x(self, t: float) -> float:
        """0 to :data:`WIDTH`."""
        return float((t - self.start) / max(self.end - self.start, 1e-9) * WIDTH)

    def y(self, value: float) -> float:
        """:data:`HEIGHT` (bottom) to 0."""
        if self.log:
            at = (np.log10(value) - np.log10(self.low)) / (np.log10(self.high) - np.log10(self.low))
        else:
            at = (value - self.low) / max(self.high - self.low, 1e-12)
        return float((1 - at) * HEIGHT)


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def time_ticks(start: float, end: float, most: int = 6) -> list[float]:
    """Round times in the range, at most ``most``."""
    step = next((s for s in TIME_STEPS if (end - start) / s <= most), TIME_STEPS[-1])
    ahead = utc_offset(end)
    first = -(-(start + ahead) // step) * step - ahead
    return [float(t) for t in np.arange(first, end + 1e-6, step)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round values from ``low`` to ``high``: 1 and 3 of each decade, finer where the range is narrow."""
    ticks = [t for t in TICKS if low <= t <= high]
    for finer in FINER:
        if len(ticks) >= 2:
            break
        ticks = [t for t in finer if low <= t <= high]
    while len(ticks) > most:
        ticks = ticks[::2]
    return ticks


def path(t: FloatArray, value: FloatArray, frame: Frame) -> str:
    """``M…L…`` of a line; it breaks at gaps."""
    out: list[str] = []
    pen = "M"
    for x, v in zip(t, value, strict=True):
        if not np.isfinite(v) or (frame.log and v <= 0):
            pen = "M"
            continue
        y = min(max(frame.y(float(v)), -2.0), HEIGHT + 2.0)
        out.append(f"{pen}{number(frame.x(float(x)))} {number(y)}")
        pen = "L"
    return "".join(out)


def log_frame(start: float, end: float, values: Sequence[float]) -> tuple[Frame, list[float]]:
    """A logarithmic frame around the values, and at most four round ticks in it."""
    good = [v for v in values if np.isfinite(v) and v > 0] or [0.1, 1.0]
    low, high = min(good) / 1.35, max(good) * 1.35
    ticks = log_ticks(low, high, 4)
    return Frame(start, end, low, high, log=True), ticks
