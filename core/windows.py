"""Windows of objectives: rolling, or a week, month or quarter of the calendar (UTC)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from core.errors import ConfigError
from core.objective import Objective

MONTH = re.compile(r"(\d{4})-(\d{2})")


def start_of(objective: Objective, end: float) -> float:
    """Start of the window that ends (or is still open) at ``end``, Unix seconds."""
    if not objective.calendar:
        return end - objective.window
    # The last moment of a month belongs to it, not to the next one.
    return period(objective.calendar, end - 1e-3)[0]


def period(calendar: str, at: float) -> tuple[float, float]:
    """[start, end) of the week (from Monday), month or quarter that holds ``at``.

    >>> period("month", 1_790_000_000.0)
    (1788220800.0, 1790812800.0)
    """
    day = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if calendar == "week":
        first = day - timedelta(days=day.weekday())
        return (first.timestamp(), (first + timedelta(days=7)).timestamp())
    months = 1 if calendar == "month" else 3
    first = day.replace(month=(day.month - 1) // months * months + 1, day=1)
    following = first.month - 1 + months
    last = first.replace(year=first.year + following // 12, month=following % 12 + 1)
    return (first.timestamp(), last.timestamp())


def month_span(text: str, path: str = "--month") -> tuple[float, float]:
    """[start, end) of ``2026-09``. ConfigError where it is no month."""
    found = MONTH.fullmatch(text.strip())
    if not found or not 1 <= int(found[2]) <= 12 or int(found[1]) < 1970:
        raise ConfigError(path, "is not a month", "write it as 2026-09", text)
    return period("month", datetime(int(found[1]), int(found[2]), 15, tzinfo=UTC).timestamp())


def month_before(text: str) -> str:
    """``2026-08`` of ``2026-09``."""
    year, month = (int(part) for part in text.split("-"))
    return f"{year - 1}-12" if month == 1 else f"{year}-{month - 1:02d}"


def month_of(at: float) -> str:
    """``2026-09`` of a moment in it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m}"
