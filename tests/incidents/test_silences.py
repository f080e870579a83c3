"""Matchers, silences and mute windows, with nothing but values."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.classes import Matcher
from core.errors import ConfigError
from core.silences import (
    LABELS,
    MuteWindow,
    Silence,
    about,
    canonical,
    check_window,
    labels_of,
    matches,
    parse,
)
from tests.incidents.make import T, incident


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def window(**changes: object) -> MuteWindow:
    values: dict[str, object] = {
        "matchers": 'pool="coder"',
        "days": ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
        "start": "02:00",
        "end": "04:00",
        "zone": "Europe/Berlin",
        "author": "mara",
        "reason": "batch runs",
    }
    return MuteWindow(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('pol="coder"', "pol"),
        ('pool=~"code(r"', "pool"),
        ('pool!="coder"', "!="),
        ('pool!~"coder"', "!~"),
        ("pool=coder", "character 1"),
        ('kind=~".*"', "every incident"),
        ('kind=""', "every incident"),
        ("", "no matcher"),
        ('pool="' + "x" * 400 + '"', "pool"),
    ],
)
def test_a_broken_matcher_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert named in str(refused.value)
    assert "Fix:" in str(refused.value)


def test_an_expression_holds_for_the_whole_value_only() -> None:
    labels = labels_of(incident(pools=("coder-east",)))
    assert matches('pool=~"coder-.*"', labels)
    assert not matches('pool=~"coder"', labels)
    assert not matches('pool=~"east"', labels)


def test_a_silence_of_one_pool_does_not_hide_an_incident_that_reaches_another() -> None:
    both = labels_of(incident(pools=("coder", "chat")))
    assert not matches('pool="coder"', both)
    assert matches('pool=~"coder|chat"', both)


def test_a_label_that_the_incident_lacks_matches_no_value() -> None:
    labels = labels_of(incident(pools=()))
    assert not matches('pool="coder"', labels)
    assert not matches('tenant=~"a.+"', labels)


def test_tenants_are_those_that_the_detector_names() -> None:
    assert matches('tenant="acme"', labels_of(incident(detail={"tenant": "acme"})))
    assert matches('tenant="acme"', labels_of(incident(), ["acme"]))
    assert not matches('tenant="acme"', labels_of(incident(), ["acme", "globex"]))


def test_a_silence_holds_from_its_start_until_before_its_end_unless_taken_back() -> None:
    s = Silence('pool="coder"', T, T + 60, "mara", "load test")
    labels = labels_of(incident())
    assert [s.covers(labels, t) for t in (T - 1, T, T + 59, T + 60)] == [False, True, True, False]
    back = Silence('pool="coder"', T, T + 60, "mara", "load test", withdrawn_by="ole", withdrawn_at=T + 10)
    assert [back.covers(labels, t) for t in (T + 9, T + 10)] == [True, False]
    assert [s.state(t) for t in (T - 1, T, T + 60)] == ["pending", "active", "expired"]
    assert back.state(T + 10) == "withdrawn"


@given(
    st.dictionaries(
        st.sampled_from(LABELS),
        st.text(min_size=1, max_size=20).filter(lambda x: "\x00" not in x),
        min_size=1,
    )
)
def test_whatever_stands_in_a_name_its_matcher_is_read_back_as_it_was(pairs: dict[str, str]) -> None:
    text = ",".join(str(Matcher.of(k, "=", v)) for k, v in pairs.items())
    again = canonical(text)
    assert canonical(again) == again
    assert {(m.label, m.value) for m in parse(again)} == set(pairs.items())


@pytest.mark.parametrize("pools", [("coder",), ("a|b", "c.d"), ('q"uote', "back\\slash"), ()])
def test_the_silence_offered_for_an_incident_matches_it(pools: tuple[str, ...]) -> None:
    assert matches(about(incident(pools=pools)), labels_of(incident(pools=pools)))
    assert not matches(about(incident(pools=pools)), labels_of(incident(pools=("other",), kind="wedged")))


def test_a_window_past_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    w = window(days=("fri",), start="22:00", end="06:00", zone="UTC")
    inside = ["2026-09-25T22:00", "2026-09-25T23:59", "2026-09-26T00:00", "2026-09-26T05:59"]
    outside = ["2026-09-25T21:59", "2026-09-26T06:00", "2026-09-26T22:00", "2026-09-25T05:00"]
    assert all(w.active(at(t)) for t in inside)
    assert not any(w.active(at(t)) for t in outside)
    assert w.active_until(at("2026-09-25T23:00")) == at("2026-09-26T06:00")


def test_a_window_follows_the_clock_on_the_wall_through_the_year() -> None:
    w = window(start="09:00", end="10:00")
    assert w.active(at("2026-07-01T07:30"))  # 09:30 in summer
    assert not w.active(at("2026-07-01T08:30"))
    assert w.active(at("2026-12-01T08:30"))  # 09:30 in winter
    assert not w.active(at("2026-12-01T07:30"))


def test_the_hour_that_spring_leaves_out_is_not_muted() -> None:
    # 29 March 2026: 02:00 becomes 03:00 in Berlin, which is 01:00 UTC
    w = window(start="02:15", end="02:45")
    assert not any(w.active(at("2026-03-29T00:00") + 60 * m) for m in range(240))
    longer = window(start="01:30", end="02:30")
    assert longer.active_until(at("2026-03-29T00:40")) == at("2026-03-29T01:00")


def test_the_hour_that_comes_twice_in_autumn_is_muted_twice() -> None:
    # 25 October 2026: 03:00 becomes 02:00 in Berlin, at 01:00 UTC
    w = window(start="02:00", end="03:00")
    muted = [m for m in range(300) if w.active(at("2026-10-24T23:00") + 60 * m)]
    assert (muted[0], muted[-1], len(muted)) == (60, 179, 120)
    assert w.active_until(at("2026-10-25T00:10")) == at("2026-10-25T02:00")


def test_a_window_holds_from_when_it_was_made_until_it_is_taken_back() -> None:
    day = at("2026-09-25T00:00")
    w = window(zone="UTC", made_at=day + 3 * 3600, withdrawn_at=day + 3.5 * 3600, withdrawn_by="ole")
    assert [w.active(day + h * 3600) for h in (2.5, 3.25, 3.75)] == [False, True, False]


def test_a_window_that_never_ends_says_so() -> None:
    w = window(start="00:00", end="24:00", zone="UTC")
    assert w.active(T)
    assert w.active_until(T) is None


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
def test_the_end_told_of_a_window_is_its_first_minute_outside(moment: datetime, zone: str) -> None:
    w = window(start="23:10", end="03:20", zone=zone, days=("sat", "sun"))
    t = moment.replace(tzinfo=UTC).timestamp()
    end = w.active_until(t)
    assert (end is not None) == w.active(t)
    if end is not None:
        assert w.active(end - 1)
        assert not w.active(end)


@pytest.mark.parametrize(
    ("days", "start", "end", "zone", "named"),
    [
        (["someday"], "02:00", "04:00", "UTC", "days"),
        ([], "02:00", "04:00", "UTC", "days"),
        (["mon"], "2:00", "04:00", "UTC", "start"),
        (["mon"], "02:00", "25:00", "UTC", "end"),
        (["mon"], "02:00", "02:00", "UTC", "end"),
        (["mon"], "02:00", "04:00", "Mars/Olympus", "zone"),
    ],
)
def test_an_impossible_window_is_refused_by_name(
    days: list[str], start: str, end: str, zone: str, named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_window(days, start, end, zone)
    assert refused.value.path == named


def test_days_are_kept_in_the_order_of_the_week() -> None:
    assert check_window(["Sunday", "mon"], "22:00", "06:00", "Europe/Berlin") == ("mon", "sun")
