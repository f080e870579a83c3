import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ConfigError
from core.times import format_duration, parse_duration, parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("28d", 28 * 86400),
        ("2w", 14 * 86400),
        ("1.5m", 90),
        ("0", 0),
        ("0s", 0),
        (" 5s ", 5),
        ("1m500ms", 60.5),
    ],
)
def test_durations_are_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "15", "s", "15 s", "-5s", "5S", "1h 30m", "15sec", "1e3s", "∞", "5s,", "1.s"]
)
def test_a_duration_without_unit_or_with_nonsense_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_duration(text, "sources[0].every")
    assert error.value.path == "sources[0].every"
    assert "15s" in error.value.fix


def test_a_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError):
        parse_duration(15)  # type: ignore[arg-type]


@given(st.integers(0, 10**12))
def test_formatted_durations_read_back_to_the_millisecond(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(
        milliseconds / 1000, abs=1e-6
    )


def test_durations_are_written_short() -> None:
    assert [format_duration(s) for s in (15, 90, 5400, 28 * 86400, 0.25, 0, -60)] == [
        "15s",
        "1m30s",
        "1h30m",
        "28d",
        "250ms",
        "0s",
        "-1m",
    ]


@pytest.mark.parametrize(
    ("text", "unix"),
    [
        ("2026-09-21T14:00:00Z", 1789999200),
        ("2026-09-21T14:00:00", 1789999200),
        ("2026-09-21T16:00:00+02:00", 1789999200),
        ("2026-09-21 14:00", 1789999200),
        ("2026-09-21", 1789999200 - 14 * 3600),
        ("20260921", 1789999200 - 14 * 3600),
        ("1789999200", 1789999200),
        ("1789999200.25", 1789999200.25),
    ],
)
def test_times_are_iso_or_unix_and_utc_where_no_zone_is_named(text: str, unix: float) -> None:
    assert parse_time(text) == unix


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1789999200000", "nan", "inf", "-5", "2026-13-01", "14:00", "9999-99"]
)
def test_what_is_no_time_is_refused_and_milliseconds_are_not_guessed(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_time(text, "--start")
    assert error.value.path == "--start"


@given(st.text(max_size=30))
def test_no_text_crashes_the_parsers(text: str) -> None:
    for parser in (parse_duration, parse_time):
        with contextlib.suppress(ConfigError):
            assert isinstance(parser(text), float)
