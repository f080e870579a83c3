"""Times are said in UTC or in the zone of the browser, and never in a mixture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services import lines
from app.services.wording import brief, clock, instant, use_zone, utc_offset, zone_word
from app.ui import charts

SUMMER = 1_790_000_400.0  # 2026-09-21 14:20 UTC


@pytest.fixture(autouse=True)
def utc_again() -> Iterator[None]:
    yield
    use_zone("")


def test_a_zone_moves_clock_instant_and_charts_alike() -> None:
    assert (clock(SUMMER), instant(SUMMER)) == ("14:20", "2026-09-21 14:20 UTC")
    use_zone("Europe/Berlin")
    assert (clock(SUMMER), instant(SUMMER)) == ("16:20", "2026-09-21 16:20 CEST")
    assert charts.dates(np.array([SUMMER])) == ["2026-09-21T16:20:00"]
    use_zone("Asia/Kathmandu")
    assert (clock(SUMMER), zone_word(SUMMER)) == ("20:05", "UTC+05:45")


def test_an_unknown_zone_is_utc() -> None:
    use_zone("Nowhere/Land")
    assert instant(SUMMER) == "2026-09-21 14:20 UTC"
    use_zone("../etc/passwd")
    assert zone_word(SUMMER) == "UTC"


def test_the_hour_that_is_set_back_is_drawn_with_its_own_offset() -> None:
    use_zone("Europe/Berlin")
    before, after = 1_792_889_400.0, 1_792_893_000.0  # 25 Oct 2026 00:50 and 01:50 UTC
    assert utc_offset(before) - utc_offset(after) == 3600
    assert charts.dates(np.array([before, after])) == ["2026-10-25T02:50:00", "2026-10-25T02:50:00"]


def test_ticks_stand_on_whole_local_hours() -> None:
    use_zone("Asia/Kathmandu")
    ticks = lines.time_ticks(SUMMER, SUMMER + 6 * 3600)
    assert {clock(t)[-2:] for t in ticks} == {"00"}


@given(st.floats(1e-3, 1e6), st.floats(1.05, 1e6))
def test_a_log_axis_has_ticks_inside_its_range_however_narrow_it_is(low: float, factor: float) -> None:
    ticks = lines.log_ticks(low, low * factor, 4)
    assert len(ticks) <= 4
    assert ticks == sorted(ticks)
    assert all(low <= t <= low * factor for t in ticks)
    if factor > 1.3 and low * factor < 1e9:
        assert len(ticks) >= 1


def test_a_pseudonym_is_said_by_its_first_digits_and_a_name_as_it_is() -> None:
    assert brief("d017c03918343d9d") == "d017c0…"
    assert brief("s-d017c03918343d9d") == "s-d017c0…"
    assert brief("acme") == "acme"
    assert brief("deadbeef-corp") == "deadbeef-corp"
    assert brief("") == ""
