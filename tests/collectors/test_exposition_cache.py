"""The remembered prefixes of a target: later scrapes say the same as a fresh parse, only faster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.parse import measure
from collectors.exposition import ABSENT_SCRAPES, Exposition, Limits, PrefixCache, parse


def values(found: Exposition) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Value by name and sorted labels, of the series that this scrape has."""
    return {
        (n, tuple(sorted(ls.items()))): v
        for (n, ls), v in zip(found.series, found.values.tolist(), strict=True)
        if not np.isnan(v)
    }


def codes(found: Exposition) -> list[str]:
    return [p.code for p in found.problems]


def test_a_second_scrape_gives_new_values_for_the_same_series() -> None:
    cache = PrefixCache()
    first = cache.scrape('# TYPE a counter\na{b="c"} 1\nd 2.5\n')
    second = cache.scrape('# TYPE a counter\na{b="c"} 7\nd 2.5\n')
    assert first.values.tolist() == [1.0, 2.5]
    assert second.values.tolist() == [7.0, 2.5]
    assert second.series is first.series
    assert second.generation == first.generation


def test_values_of_an_earlier_scrape_do_not_change_afterwards() -> None:
    cache = PrefixCache()
    first = cache.scrape("a 1\n")
    cache.scrape("a 2\n")
    assert first.values.tolist() == [1.0]


def test_a_new_series_moves_the_generation_and_keeps_the_earlier_result_whole() -> None:
    cache = PrefixCache()
    first = cache.scrape("a 1\n")
    second = cache.scrape("a 2\nb 3\n")
    assert first.series == [("a", {})]
    assert second.series == [("a", {}), ("b", {})]
    assert second.generation > first.generation


def test_the_order_of_lines_does_not_matter() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2\nc 3\n")
    found = cache.scrape("c 30\na 10\nb 20\n")
    assert values(found) == {("a", ()): 10.0, ("b", ()): 20.0, ("c", ()): 30.0}
    assert found.generation == 1


def test_an_absent_series_is_not_a_number_and_comes_back_as_itself() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2\n")
    gone = cache.scrape("a 1\n")
    assert np.array_equal(gone.values, [1.0, np.nan], equal_nan=True)
    back = cache.scrape("a 1\nb 3\n")
    assert back.values.tolist() == [1.0, 3.0]
    assert back.generation == gone.generation == 1


def test_series_gone_for_several_scrapes_are_forgotten() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2\n")
    for _ in range(ABSENT_SCRAPES):
        found = cache.scrape("a 1\n")
    assert found.series == [("a", {})]
    assert found.generation > 1
    again = cache.scrape("a 4\nb 5\n")
    assert values(again) == {("a", ()): 4.0, ("b", ()): 5.0}


def test_a_restart_with_other_buckets_leaves_no_old_bucket_behind() -> None:
    cache = PrefixCache()
    cache.scrape('h_bucket{le="1"} 1\nh_bucket{le="2"} 2\nh_bucket{le="+Inf"} 3\n')
    found = cache.scrape('h_bucket{le="1"} 0\nh_bucket{le="5"} 1\nh_bucket{le="+Inf"} 1\n')
    assert [ls["le"] for _, ls in found.series] == ["1", "5", "+Inf"]


def test_only_kept_series_are_read_until_the_list_changes() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2\nc 3\n")
    cache.keep([0, 2])
    found = cache.scrape("a 4\nb bad\nc 6\n")
    assert np.array_equal(found.values, [4.0, np.nan, 6.0], equal_nan=True)
    assert found.problems == []
    found = cache.scrape("a 7\nb 8\nc 9\n")
    assert np.array_equal(found.values, [7.0, np.nan, 9.0], equal_nan=True)
    found = cache.scrape("a 7\nb 8\nc 9\nd 10\n")
    assert found.values.tolist() == [7.0, 8.0, 9.0, 10.0]


def test_an_unended_body_is_still_understood_after_a_choice_of_series() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2")
    cache.keep([1])
    for i in range(3):
        assert np.array_equal(cache.scrape(f"a 1\nb {i}").values, [np.nan, i], equal_nan=True)


def test_time_stamps_and_exemplars_that_move_are_followed() -> None:
    cache = PrefixCache()
    for i in range(1, 5):
        body = f'a{{b="c"}} {i} {1700000000000 + i}\nh_bucket{{le="1"}} {i} # {{t="{i}"}} 0.5 {i}\nx {i}\n'
        found = cache.scrape(body)
        assert found.values.tolist() == [i, i, i]
        assert found.generation == 1
        assert found.problems == []


def test_a_lasting_problem_is_reported_at_each_scrape() -> None:
    cache = PrefixCache(source="host:1")
    for t in (10.0, 20.0, 30.0):
        found = cache.scrape(f"a {t}\n...\ndup 1\ndup 2\n", ts=t)
        assert codes(found) == ["bad_line", "duplicate_series"]
        assert {(p.ts, p.source) for p in found.problems} == {(t, "host:1")}
        assert found.dropped == {"bad_line": 1, "duplicate_series": 1}
        assert values(found) == {("a", ()): t, ("dup", ()): 1.0}


def test_a_value_that_turns_into_nonsense_is_a_gap_and_named() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2\n")
    found = cache.scrape("a 1_0\nb 3\n")
    assert np.array_equal(found.values, [np.nan, 3.0], equal_nan=True)
    assert codes(found) == ["bad_line"]
    assert cache.scrape("a 5\nb 6\n").values.tolist() == [5.0, 6.0]


def test_a_body_that_stops_in_a_number_does_not_make_a_counter_fall() -> None:
    cache = PrefixCache()
    cache.scrape("a 123456\nb 7\n")
    found = cache.scrape("a 1234")
    assert values(found) == {}
    assert codes(found) == ["truncated_body"]
    assert values(cache.scrape("a 123460\nb 8\n")) == {("a", ()): 123460.0, ("b", ()): 8.0}


def test_a_torn_family_is_absent_as_a_whole_so_that_its_sum_cannot_fall() -> None:
    cache = PrefixCache()
    cache.scrape('a_total{x="1"} 5\na_total{x="2"} 7\nb{x="1"} 1\nb{x="2"} 2\nc 1\n')
    found = cache.scrape('a_total{x="1"} 6\na_total{x="2"} oops\nb{x="1"} 1\nb{x="2"} 2\nc 1\n')
    assert values(found) == {("b", (("x", "1"),)): 1.0, ("b", (("x", "2"),)): 2.0, ("c", ()): 1.0}
    found = cache.scrape('a_total{x="1"} 7\na_total{x="2"} oops\nb{x="1"} 1\nb{x="2"} 2\nc 1\n')
    assert ("a_total", (("x", "1"),)) not in values(found)
    found = cache.scrape('a_total{x="1"} 6\na_total{x="2"} 8\nb{x="1"} 3\nb{x="2"')
    assert values(found) == {("a_total", (("x", "1"),)): 6.0, ("a_total", (("x", "2"),)): 8.0}
    found = cache.scrape('a_total{x="1"} 9\nb{x="1"} 3\nb{x="2"} 4\nc 1\n')
    assert len(values(found)) == 4


def test_a_target_that_never_ends_its_last_line_is_read_from_the_second_scrape_on() -> None:
    cache = PrefixCache()
    first = cache.scrape('a 1\nb{x="1"} 5\nb{x="2"} 7')
    assert values(first) == {("a", ()): 1.0}
    assert codes(first) == ["no_final_newline"]
    for i in range(3):
        found = cache.scrape(f'a 1\nb{{x="1"}} 5\nb{{x="2"}} {i}')
        assert found.values.tolist() == [1.0, 5.0, i]
        assert codes(found) == ["no_final_newline"]
        assert found.generation == first.generation


def test_an_error_page_between_two_scrapes_loses_only_itself() -> None:
    cache = PrefixCache()
    cache.scrape("a 1\nb 2\n")
    page = cache.scrape("<html>502</html>")
    assert values(page) == {}
    assert codes(page) == ["html_body"]
    found = cache.scrape("a 3\nb 4\n")
    assert found.values.tolist() == [3.0, 4.0]
    assert found.generation == 1


def test_series_over_a_limit_stay_refused_and_counted() -> None:
    cache = PrefixCache(Limits(max_series=2, max_labels=1))
    for i in range(3):
        found = cache.scrape(f'a {i}\nm{{x="1",y="2"}} {i}\nb {i}\nc {i}\nd {i}\n')
        assert values(found) == {("a", ()): i, ("b", ()): i}
        assert found.dropped == {"too_many_labels": 1, "too_many_series": 2}


def test_a_series_under_ever_new_spellings_does_not_fill_the_memory() -> None:
    cache = PrefixCache()
    for i in range(3000):
        found = cache.scrape(f"a{' ' * (i % 1500 + 1)}{i}\n")
        assert found.values.tolist() == [i]
    assert len(cache._slots) < 1100


_NUMBERS = st.sampled_from(["0", "1", "2.5", "NaN", "1e3", "bad", "-1", "+Inf", "7 1700000000000"])
_NAMES = ["a", "b", 'c{x="1"}', 'c{x="2"}', 'c{x="1 2"}', "# TYPE a counter", "...", ""]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(_NAMES), _NUMBERS), max_size=8), min_size=1, max_size=7),
    st.booleans(),
)
def test_any_sequence_of_scrapes_says_the_same_as_fresh_parses(
    bodies: list[list[tuple[str, str]]], ended: bool
) -> None:
    cache = PrefixCache()
    for lines in bodies:
        body = "\n".join(n if n.startswith(("#", ".")) or not n else f"{n} {v}" for n, v in lines) + "\n"
        fresh, found = parse(body), cache.scrape(body)
        assert values(found).items() <= values(fresh).items()
        if "bad_line" not in fresh.dropped:
            assert values(found) == values(fresh)
        assert codes(found) == codes(fresh)
        assert found.dropped == fresh.dropped


@pytest.mark.shared
def test_two_captures_of_one_server_follow_each_other(shared: Path) -> None:
    before = (shared / "captures" / "live-vllm-0.32.0-before.prom").read_bytes()
    after = (shared / "captures" / "live-vllm-0.32.0-after.prom").read_bytes()
    cache = PrefixCache()
    for body in (before, after, after, before, after):
        assert values(cache.scrape(body)) == values(parse(body))


@pytest.mark.shared
def test_repeated_scrapes_are_at_least_twenty_times_as_fast_as_the_official_parser(shared: Path) -> None:
    text = (shared / "captures" / "live-vllm-0.32.0-after.prom").read_text()
    result = measure(text, rounds=40, moving=0.35)
    assert result["ratio: repeated"] >= 20
    assert result["ratio: repeated, mapped only"] >= 20
