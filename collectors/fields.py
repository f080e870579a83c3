"""Fields of records from strangers: read, checked, or refused with a stable word that says why. Never a value in a message."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from core.errors import ConfigError
from core.times import horizon, parse_time

EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0
"""Times before 2000 or after 2100 are a mistake: milliseconds, or a clock that was never set."""
MAX_NAME = 512
MAX_COUNT = 2**53


class BadRecord(Exception):
    """A line that cannot be used: ``code`` (stable), ``what`` (for people, without data), ``fix``."""

    def __init__(self, code: str, what: str, fix: str = "") -> None:
        self.code, self.what, self.fix = code, what, fix
        super().__init__(what)


def record(data: bytes | None) -> dict[str, Any]:
    """The object of one line."""
    if data is None:
        raise BadRecord("line_too_long", "longer than 8 MiB", "write one record a line")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise BadRecord("not_json", "is not JSON", "write one JSON object a line, UTF-8") from None
    if not isinstance(value, dict):
        raise BadRecord("not_an_object", "is JSON but no object", "write one JSON object a line")
    return value


def instant(data: Mapping[str, Any], key: str = "ts") -> float:
    """A required time: Unix seconds or ISO 8601."""
    value = data.get(key)
    if value is None:
        raise BadRecord("no_time", f"has no {key}", f"give {key} as Unix seconds or ISO 8601")
    if isinstance(value, str):
        try:
            value = parse_time(value)
        except ConfigError:
            raise BadRecord("bad_time", f"{key} is no time", "write Unix seconds or ISO 8601") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRecord("bad_time", f"{key} is no time", "write Unix seconds or ISO 8601")
    if not EARLIEST <= value < LATEST:
        raise BadRecord(
            "bad_time", f"{key} is outside the years 2000 to 2099", "write seconds, not milliseconds"
        )
    if value > horizon():
        raise BadRecord(
            "future_time",
            f"{key} lies more than a day ahead of this machine's clock",
            "correct the clock that wrote it, or this machine's",
        )
    return float(value)


def text(data: Mapping[str, Any], key: str) -> str:
    """An optional short text; numbers become text, None and absence are empty."""
    value = data.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > MAX_NAME:
            raise BadRecord("bad_value", f"{key} is longer than {MAX_NAME} characters", f"shorten {key}")
        return value.replace("\x00", "") if "\x00" in value else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise BadRecord("bad_value", f"{key} is no text", f"write {key} as text")


def number(data: Mapping[str, Any], key: str) -> float | None:
    """An optional number of at least 0; negative sentinels, None and absence are unknown (None)."""
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRecord("bad_value", f"{key} is no number", f"write {key} as a number")
    if not math.isfinite(value) or abs(value) >= MAX_COUNT:
        raise BadRecord("bad_value", f"{key} is too large", f"write {key} in its unit")
    return float(value) if value >= 0 else None


def count(data: Mapping[str, Any], key: str) -> int | None:
    """An optional whole number of at least 0; negative sentinels, None and absence are unknown (None)."""
    value = number(data, key)
    if value is None:
        return None
    if value != int(value):
        raise BadRecord("bad_value", f"{key} is no whole number", f"write {key} as a whole number")
    return int(value)
