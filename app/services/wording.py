"""How numbers, times and missing things are said on screen. One place, so that a word means the same everywhere.

Between a number and its unit stands a no-break space.
"""

from __future__ import annotations

import math
import re
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

NOT_EXPORTED = "not exported"
NO_TRAFFIC = "no traffic"
NOT_ENOUGH = "not enough data"
UNKNOWN = "unknown"

_zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)


def use_zone(name: str) -> None:
    """From here on, in this thread, times are said in the named zone (``Europe/Berlin``); UTC where it is empty or not known."""
    try:
        _zone.set(ZoneInfo(name) if name and name != "UTC" else UTC)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        _zone.set(UTC)


def local(t: float) -> datetime:
    """A time in the zone in use."""
    return datetime.fromtimestamp(t, _zone.get())


def zone_word(t: float) -> str:
    """``UTC``, ``CET``, ``UTC+05:30``: the zone in use at a time."""
    word = local(t).tzname() or "UTC"
    return (
        f"UTC{word}:00"
        if word[:1] in "+-" and len(word) == 3
        else f"UTC{word[:3]}:{word[3:]}"
        if word[:1] in "+-"
        else word
    )


def utc_offset(t: float) -> float:
    """Seconds that the zone in use is ahead of UTC at a time."""
    ahead = local(t).utcoffset()
    return 0.0 if ahead is None else ahead.total_seconds()


def seconds(value: float | None) -> str:
    """A latency as a person says it: ``24 ms``, ``0.24 s``, ``2.1 s``, ``156 s``, ``12 min``."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞"
    if value < 0.1:
        return f"{significant(value * 1000)}\u00a0ms"
    if value < 600:
        return f"{significant(value)}\u00a0s"
    return f"{significant(value / 60)}\u00a0min"


def significant(value: float, digits: int = 2) -> str:
    """``value`` with two significant digits below 100, whole above, no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None, digits: int = 1) -> str:
    """A share 0..1 as per cent; never rounds a flaw away to 100 or a harm away to 0."""
    if share is None or math.isnan(share):
        return UNKNOWN
    text = f"{share * 100:,.{digits}f}".replace("-", "−")
    step = 10**-digits
    if share < 1 and share * 100 >= 100 - step / 2:
        return f">\u00a0{100 - step:.{digits}f}\u00a0%"
    if 0 < share * 100 < step / 2:
        return f"<\u00a0{step:.{digits}f}\u00a0%"
    return f"{text}\u00a0%"


def between(low: str, high: str) -> str:
    """``80–160 s`` of ``80 s`` and ``160 s``: the unit once where it is the same, one value where both are."""
    if low == high:
        return low
    number, _, unit = low.partition("\u00a0")
    return f"{number}–{high}" if unit and high.endswith("\u00a0" + unit) else f"{low}–{high}"


def promise(objective: float) -> str:
    """``99 %``, ``99.9 %``: as it was promised, not rounded."""
    return f"{objective * 100:.6g}\u00a0%"


def count(value: float | None) -> str:
    """A count with thousands separators, or ``unknown``."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{value:,.0f}"


def compact(value: float | None) -> str:
    """A quantity for a sentence: ``48k``, ``2.6k``, ``1.2M``, ``0.35``."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞"
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{significant(value / size)}{suffix}"
    return significant(value)


def quantity(value: float | None, unit: str) -> str:
    """A value in the words of its unit (``s``, ``ratio``, ``tokens``, ``tokens/s``, ``requests``, ...)."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if unit in ("s", "seconds"):
        return seconds(value)
    if unit in ("ratio", "share", "%", "0..1") or unit.startswith("share "):
        return percent(value if unit != "%" else value / 100, 0 if abs(value) >= 0.1 or value == 0 else 1)
    if unit in ("", "1", "count"):
        return compact(value)
    return f"{compact(value)} {unit}"


def clock(t: float | None, *, relative_to: float | None = None) -> str:
    """``15:44`` in the zone in use; with the day where it is not the day of ``relative_to``."""
    if t is None:
        return "–"
    moment = local(t)
    if relative_to is not None and local(relative_to).date() != moment.date():
        return f"{moment:%d %b %H:%M}"
    return f"{moment:%H:%M}"


def instant(t: float | None) -> str:
    """``2026-09-14 15:44 UTC``, in the zone in use."""
    if t is None:
        return "–"
    return f"{local(t):%Y-%m-%d %H:%M} {zone_word(t)}"


def stamp(t: float) -> str:
    """The form times have in the URL: ``2026-09-14T15:44:00Z``."""
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%dT%H:%M:%SZ}"


def span(duration: float | None) -> str:
    """A duration in its one largest sensible unit: ``45 s``, ``16 min``, ``3 h``, ``12 d``."""
    if duration is None or math.isnan(duration):
        return UNKNOWN
    if math.isinf(duration):
        return "never"
    duration = max(0.0, duration)
    if duration < 90:
        return f"{duration:.0f}\u00a0s"
    if duration < 90 * 60:
        return f"{duration / 60:.0f}\u00a0min"
    if duration < 36 * 3600:
        hours = duration / 3600
        return f"{hours:.1f}\u00a0h" if hours < 10 else f"{hours:.0f}\u00a0h"
    return f"{duration / 86400:.0f}\u00a0d"


def window(minutes: float) -> str:
    """A window for a caption: ``5 min``, ``1 h``."""
    return f"{minutes:.0f}\u00a0min" if minutes < 60 else f"{minutes / 60:g}\u00a0h"


def capital(sentence: str) -> str:
    """The sentence with a capital letter, unless it begins with a name such as ``coder-a-3``."""
    first = sentence.split(" ", 1)[0]
    return sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence


def uncapital(words: str) -> str:
    """The words inside a sentence: without the capital, unless it is an abbreviation such as ``KV``."""
    return words if words[1:2].isupper() else words[:1].lower() + words[1:]


_PSEUDONYM = re.compile(r"(.{0,3}?)([0-9a-f]{6})[0-9a-f]{6,58}")


def brief(name: str) -> str:
    """A pseudonym by its first six digits (``d017c0…``); other names as they are. For eyes only: it is no key."""
    found = _PSEUDONYM.fullmatch(name)
    return f"{found[1]}{found[2]}…" if found else name


def listing(names: tuple[str, ...] | list[str], limit: int = 4) -> str:
    """``a, b, c`` or ``a, b, c and 7 more``."""
    shown = list(names[:limit])
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
