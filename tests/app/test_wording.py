"""Words for numbers: units, missing things, nothing rounded into a lie."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.services import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0241, "24 ms"),
        (0.1, "0.1 s"),
        (0.243, "0.24 s"),
        (2.13, "2.1 s"),
        (15.6, "16 s"),
        (156.2, "156 s"),
        (900.0, "15 min"),
        (math.inf, "∞"),
        (None, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_latencies_are_said_in_their_unit(value: float | None, text: str) -> None:
    assert wording.seconds(value).replace("\u00a0", " ") == text


def test_a_flaw_is_never_rounded_to_perfection_nor_a_harm_to_nothing() -> None:
    assert wording.percent(0.99999) == "> 99.9 %".replace(" ", "\u00a0")
    assert wording.percent(0.00001) == "< 0.1 %".replace(" ", "\u00a0")
    assert wording.percent(1.0) == "100.0\u00a0%"
    assert wording.percent(0.0) == "0.0\u00a0%"
    assert wording.percent(None) == "unknown"


@given(some.floats(0, 1))
def test_per_cent_says_100_only_of_all_and_0_only_of_none(share: float) -> None:
    text = wording.percent(share)
    assert text.startswith("100") == (share == 1)
    if text.startswith("0.0"):
        assert share == 0


def test_an_interval_says_its_unit_once() -> None:
    assert wording.between("80\u00a0s", "160\u00a0s") == "80–160\u00a0s"
    assert wording.between("90\u00a0ms", "1.2\u00a0s") == "90\u00a0ms–1.2\u00a0s"
    assert wording.between("3\u00a0s", "3\u00a0s") == "3\u00a0s"


def test_spans_use_one_unit() -> None:
    said = [wording.span(s).replace("\u00a0", " ") for s in (4, 16 * 60, 3 * 3600, 28 * 86400)]
    assert said == ["4 s", "16 min", "3.0 h", "28 d"]


def test_the_time_in_the_url_is_read_back() -> None:
    from core.times import parse_time

    assert parse_time(wording.stamp(1_790_000_400.0)) == 1_790_000_400.0


@given(some.floats(1e-6, 1e12))
def test_two_digits_are_kept_and_no_exponent_is_shown(value: float) -> None:
    text = wording.significant(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.051, abs=1e-9)


def test_quantities_speak_the_language_of_their_unit() -> None:
    assert wording.quantity(0.961, "share of prompt tokens") == "96\u00a0%"
    assert wording.quantity(0.62, "0..1") == "62\u00a0%"
    assert wording.quantity(48_000, "tokens") == "48k tokens"
    assert wording.quantity(None, "s") == "unknown"
