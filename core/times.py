"""Durations (``15s``, ``1h30m``, ``28d``) and instants (ISO 8601 or Unix seconds) as people write them."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime

from core.errors import ConfigError

UNITS: dict[str, float] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
AHEAD_SECONDS = 86_400.0
"""Data dated more than a day ahead of this machine's clock are a mistake of some clock, not news from the future."""
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_DURATION_FIX = "write a number with a unit, such as 15s, 500ms, 1h30m or 28d"
_TIME_FIX = "write ISO 8601 such as 2026-09-21T10:00:00Z, or Unix seconds such as 1789999200"
# Unix seconds outside this span are a mistake: milliseconds, or a year beyond datetime's range.
_MAX_UNIX = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def horizon(now: float | None = None) -> float:
    """The latest time (Unix seconds) that data may carry: what is dated later is refused, and never counts as the newest."""
    return (time.time() if now is None else now) + AHEAD_SECONDS


def parse_duration(text: str, path: str = "duration") -> float:
    """Seconds of ``15s``, ``500ms``, ``1h30m``, ``28d``; ``0`` alone is allowed, other bare numbers are not.

    Raises ConfigError naming ``path`` for anything else, a bare number included: its unit would be a guess.
    """
    if isinstance(text, str):
        tidy = text.strip()
        if tidy == "0":
            return 0.0
        if _WHOLE.fullmatch(tidy):
            return math.fsum(float(number) * UNITS[unit] for number, unit in _PART.findall(tidy))
    raise ConfigError(path, "not a duration", _DURATION_FIX, text)


def format_duration(seconds: float) -> str:
    """The shortest exact writing down to milliseconds: ``15s``, ``1h30m``, ``28d``, ``250ms``; negative with
    a minus.
    """
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return "-" + format_duration(-seconds)
    left = round(seconds * 1000)
    if left == 0:
        return "0s"
    out = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        number, left = divmod(left, size)
        if number:
            out.append(f"{number}{unit}")
    return "".join(out)


def parse_time(text: str, path: str = "time") -> float:
    """Unix seconds of an ISO 8601 instant (UTC where it names no zone) or of Unix seconds as text.

    Raises ConfigError naming ``path`` for anything else; a number too large to be seconds is taken for a
    mistake, not guessed at.
    """
    tidy = str(text).strip()
    try:
        number = float(tidy)
    except ValueError:
        pass
    else:
        # Eight digits are a date (20260921), which float() would accept as the year 1970.
        if not (len(tidy) == 8 and tidy.isdigit()):
            if math.isfinite(number) and 0 <= number < _MAX_UNIX:
                return number
            raise ConfigError(path, "not Unix seconds (milliseconds?)", _TIME_FIX, text)
    try:
        moment = datetime.fromisoformat(tidy)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(path, "not a time", _TIME_FIX, text) from None
