"""Burn alerts fire at the minute the workbook's formulas give: computed here from one list of requests, by other code."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.burn import RULES, MinuteTallies, burns, read_rules
from core.errors import ConfigError
from core.slo import Objective, Tally

CHAT = Objective("chat", "chat", "ttft_seconds", 1.0, 0.99, 28 * 86400.0)
TABLE = (
    ("page", Fraction("14.4"), 60, 5),
    ("page", Fraction(6), 360, 30),
    ("ticket", Fraction(3), 1440, 120),
    ("ticket", Fraction(1), 4320, 360),
)
"""Severity, factor, long and short window in minutes: SRE workbook, table 5-8."""


def workbook(minutes: list[tuple[int, int]], now: int) -> list[bool]:
    """Which rules fire after ``now`` minutes of (good, bad), in exact arithmetic."""
    out = []
    for _, factor, long, short in TABLE:
        over, bad_long = [], 0
        for window in (long, short):
            seen = minutes[max(0, now - window) : now]
            good, bad = sum(g for g, _ in seen), sum(b for _, b in seen)
            over.append(good + bad > 0 and Fraction(bad, good + bad) >= factor * Fraction(1, 100))
            bad_long = bad if window == long else bad_long
        out.append(all(over) and bad_long >= 10)
    return out


def series_of(minutes: list[tuple[int, int]]) -> MinuteTallies:
    return MinuteTallies({60 * i: Tally(good=g, bad=b) for i, (g, b) in enumerate(minutes)})


def firing(series: MinuteTallies, now: int) -> list[bool]:
    return [b.firing for b in burns(CHAT, series, 60.0 * now)]


def outage(before: int, late: int, length: int, after: int) -> list[tuple[int, int]]:
    """A quiet history, then ``late`` of 100 requests bad for ``length`` minutes, then quiet again."""
    return [(100, 0)] * before + [(100 - late, late)] * length + [(100, 0)] * after


@pytest.mark.parametrize("late", [2, 5, 15, 40, 100])
def test_each_rule_starts_and_ends_at_the_minute_of_the_formula(late: int) -> None:
    minutes = outage(4400, late, 90, 400)
    series = series_of(minutes)
    checked = range(4395, len(minutes), 1 if late == 100 else 3)
    first: dict[int, int] = {}
    for now in checked:
        ours, theirs = firing(series, now), workbook(minutes, now)
        assert ours == theirs, now
        for rule, on in enumerate(ours):
            if on:
                first.setdefault(rule, now)
    if late == 100:
        # 14.4 % of an hour's 6,000 requests are 864 bad ones: the ninth minute of an outage of everything.
        assert first[0] == 4400 + 9


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), min_size=1, max_size=400),
    st.integers(0, 400),
)
@settings(max_examples=60, deadline=None)
def test_any_history_fires_as_the_formula_says(minutes: list[tuple[int, int]], now: int) -> None:
    now = min(now, len(minutes))
    assert firing(series_of(minutes), now) == workbook(minutes, now)


def test_the_rules_file_is_the_workbooks_table() -> None:
    assert [(r.severity, r.factor, r.long / 60, r.short / 60) for r in RULES] == [
        (s, float(f), float(a), float(b)) for s, f, a, b in TABLE
    ]


GOOD = "window: 30d\nrules: [{severity: page, budget_percent: 2, factor: 14.4, long: 1h, short: 5m, min_bad: 10}]"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("14.4", "10"), "factor uses up"),
        (("page", "wake"), "neither page nor ticket"),
        (("short: 5m", "short: 2h"), "short < long"),
        (("short: 5m", "short: 0s"), "short < long"),
        (("min_bad: 10", "minimum: 10"), "must hold"),
        (("window: 30d", "window: soon"), "window"),
    ],
)
def test_a_rules_file_that_disagrees_with_itself_is_refused(change: tuple[str, str], says: str) -> None:
    assert len(read_rules(GOOD)) == 1
    with pytest.raises(ConfigError, match=says):
        read_rules(GOOD.replace(*change))
