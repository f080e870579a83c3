import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from core.burn import RULES, MinuteTallies, burn_rate, burns
from core.config import parse_config
from core.records import RequestRecord
from core.requests import fine_edges, fold
from core.slo import (
    Objective,
    Tally,
    attain,
    enough,
    first_token_quantile,
    from_histograms,
    good_bad,
    per_minute,
    total,
)

TTFT = Objective("chat-ttft", "chat", "ttft_seconds", 1.0, 0.99, 28 * 86400.0)
E2E = replace(TTFT, signal="request_latency_seconds")
EDGES = fine_edges([1.0])
COARSE = (0.5, 2.0)


def attempt(
    status: int = 200, ttft: float | None = None, duration: float | None = None, ts: float = 0
) -> RequestRecord:
    return RequestRecord(ts, status, "chat", duration, ttft)


def counted(objective: Objective, *records: RequestRecord, edges: tuple[float, ...] = EDGES) -> Tally:
    return good_bad(objective, fold(records, edges))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (attempt(200, 0.4, 3.0), Tally(good=1)),
        (attempt(200, 1.0, 3.0), Tally(good=1)),
        (attempt(200, 1.01, 3.0), Tally(bad=1)),
        (attempt(200, None, 0.9), Tally(good=1)),
        (attempt(200, None, 3.0), Tally(either=1)),
        (attempt(200), Tally(either=1)),
        (attempt(499, None, 90.0), Tally(bad=1)),
        (attempt(499, None, 0.3), Tally(excluded=1)),
        (attempt(499, 0.3, 60.0), Tally(excluded=1)),
        (attempt(499, 1.5, 60.0), Tally(bad=1)),
        (attempt(499), Tally(bad_or_excluded=1)),
        (attempt(0, None, 90.0), Tally(bad=1)),
        (attempt(502, None, 0.1), Tally(bad=1, errors=1)),
        (attempt(500, 0.1, 0.2), Tally(bad=1, errors=1)),
        (attempt(429), Tally(bad=1, unmet=1)),
        (attempt(503, None, 0.1), Tally(bad=1, unmet=1)),
        (attempt(400), Tally(excluded=1)),
    ],
)
def test_each_attempt_is_good_bad_excluded_or_said_to_be_unknown(
    record: RequestRecord, expected: Tally
) -> None:
    assert counted(TTFT, record) == expected


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (attempt(200, 0.1, 0.9), Tally(good=1)),
        (attempt(200, 0.1, 1.1), Tally(bad=1)),
        (attempt(200, 0.1), Tally(either=1)),
        (attempt(499, 0.1, 1.1), Tally(bad=1)),
        (attempt(499, 0.1, 0.9), Tally(excluded=1)),
    ],
)
def test_an_objective_on_the_whole_latency_looks_at_the_duration(
    record: RequestRecord, expected: Tally
) -> None:
    assert counted(E2E, record) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from([200, 499, 502, 429, 404]),
            st.none() | st.floats(0, 5),
            st.none() | st.floats(0, 5),
        ),
        min_size=1,
        max_size=80,
    )
)
@settings(deadline=None)
def test_coarse_buckets_widen_the_interval_around_the_exact_attainment(
    rows: list[tuple[int, float | None, float | None]],
) -> None:
    records = [attempt(*row) for row in rows]
    exact, coarse = counted(TTFT, *records), counted(TTFT, *records, edges=COARSE)
    assert exact.attempts == coarse.attempts == len(rows)
    if not math.isnan(exact.attainment[0]):
        assert coarse.attainment[0] <= exact.attainment[0] <= exact.attainment[1] <= coarse.attainment[1]


def test_only_the_class_of_the_objective_is_counted() -> None:
    cells = fold([attempt(200, 0.1), replace(attempt(200, 9.0), workload_class="batch")], EDGES)
    assert good_bad(TTFT, cells) == Tally(good=1)


def test_an_attempt_in_the_logs_of_two_points_is_counted_once() -> None:
    cells = fold([attempt(200, 0.1)], EDGES, point="gateway") | fold(
        [attempt(200, 2.0)], EDGES, point="client"
    )
    assert good_bad(TTFT, cells) == Tally(good=1)
    assert good_bad(replace(TTFT, point="client"), cells) == Tally(bad=1)
    assert good_bad(replace(TTFT, point="engine"), cells) == Tally()


def test_a_signal_that_gateways_do_not_log_is_refused() -> None:
    queue = replace(TTFT, signal="queue_time_seconds")
    assert not queue.from_requests
    with pytest.raises(ValueError, match="queue_time_seconds"):
        counted(queue, attempt())


def test_aborts_of_unknown_age_make_attainment_an_interval() -> None:
    tally = Tally(good=980, bad=10, bad_or_excluded=10)
    assert tally.attainment == (0.98, 980 / 990)
    assert not tally.exact
    assert attain(TTFT, tally).state == "missed"
    assert attain(TTFT, Tally(good=995, bad=2, bad_or_excluded=20)).state == "undetermined"


def test_a_threshold_between_two_edges_makes_attainment_an_interval() -> None:
    hist = ((0.5, 2.0), np.array([900, 95, 5]))
    tally = from_histograms(TTFT, [hist], aborted=0)
    assert (tally.good, tally.either, tally.bad) == (900, 95, 5)
    assert tally.attainment == (0.9, 0.995)
    assert attain(TTFT, tally).text() == "90.00–99.50 %"
    assert from_histograms(replace(TTFT, threshold=2.0), [hist], aborted=0).exact


def test_errors_rejections_and_requests_already_late_count_as_bad_beside_the_histogram() -> None:
    hist = ((1.0,), np.array([900, 10]))
    tally = from_histograms(TTFT, [hist], aborted=7, errors=3, unmet=2, late_in_flight=5)
    assert (tally.good, tally.bad, tally.bad_or_excluded, tally.errors, tally.unmet) == (900, 20, 7, 3, 2)


def test_an_engine_that_hides_aborts_cannot_show_that_an_objective_is_met() -> None:
    tally = from_histograms(TTFT, [((1.0,), np.array([1000, 0]))])
    assert not tally.aborts_known
    assert attain(TTFT, tally).state == "undetermined"
    assert attain(TTFT, from_histograms(TTFT, [((1.0,), np.array([10, 990]))])).state == "missed"
    assert not (tally + Tally(good=1)).aborts_known


@pytest.mark.parametrize(
    ("tally", "state", "text"),
    [
        (Tally(), "no_traffic", "no traffic"),
        (Tally(excluded=5), "no_traffic", "no traffic"),
        (Tally(good=99), "too_few", "not enough data (n 99)"),
        (Tally(good=100), "met", "100.00 %"),
        (Tally(good=9999, bad=1), "met", "99.99 %"),
        (Tally(good=99999, bad=1), "met", "99.99 %"),
        (Tally(good=989, bad=11), "missed", "98.90 %"),
    ],
)
def test_the_state_says_met_missed_or_why_not(tally: Tally, state: str, text: str) -> None:
    found = attain(TTFT, tally)
    assert (found.state, found.text()) == (state, text)


def test_a_hundred_requests_are_needed_for_99_percent_and_a_thousand_for_99_9() -> None:
    assert enough(TTFT) == 100
    assert enough(replace(TTFT, target=0.999)) == 1000


def test_the_budget_left_is_one_untouched_zero_used_up_and_negative_overspent() -> None:
    def left(bad: int) -> float:
        return attain(TTFT, Tally(good=10_000 - bad, bad=bad)).budget_left[0]

    assert (left(0), left(50), left(100), left(200)) == pytest.approx((1.0, 0.5, 0.0, -1.0))


def test_coverage_is_the_share_of_minutes_with_telemetry() -> None:
    assert attain(TTFT, Tally(good=500), minutes=60, covered=45).coverage == 0.75
    assert attain(TTFT, Tally(good=500)).coverage == 1.0


def test_the_percentile_over_all_attempts_counts_those_who_gave_up_waiting() -> None:
    answered = [attempt(200, 0.5, 2.0)] * 970
    gone = [attempt(499, None, 90.0)] * 30
    cells = fold(answered + gone + [attempt(502)] * 50, EDGES)
    assert first_token_quantile(fold(answered, EDGES)).high < 0.6
    found = first_token_quantile(cells, class_="chat")
    assert (found.state, found.n) == ("above", 1000)
    assert 80 < found.low <= 90
    assert first_token_quantile(cells, 0.95).high < 0.6
    assert first_token_quantile(cells, class_="other").state == "no_traffic"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["storm_load-11", "overload-11"])
def test_attainment_of_a_real_gateway_log_is_exact(shared: Path, name: str) -> None:
    with (shared / "scenarios" / name / "gateway.jsonl.zst").open("rb") as packed:
        stream = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed)
        rows = [json.loads(line) for line in io.TextIOWrapper(stream)]
    rows = rows[::5]
    records = [RequestRecord(r["ts"], r["status"], r["workload"], r["duration_s"], r["ttft_s"]) for r in rows]
    tally = counted(TTFT, *records)
    chat = [r for r in records if r.workload_class == "chat"]
    good = sum(r.status == 200 and r.ttft_s is not None and r.ttft_s <= 1.0 for r in chat)
    assert tally.exact
    assert (tally.good, tally.bad + tally.excluded) == (good, len(chat) - good)


def test_minutes_sum_to_any_window_and_know_what_they_cover() -> None:
    cells = fold([attempt(200, 0.1 if i % 3 else 2.0, ts=60.0 * i) for i in range(30)], EDGES)
    minutes = per_minute(TTFT, cells)
    series = MinuteTallies(minutes)
    assert series.window(0, 1800) == total(minutes.values()) == good_bad(TTFT, cells)
    assert series.window(600, 660) == minutes[600]
    assert series.window(100, 100) == Tally()
    assert series.window(900, 60) == Tally()
    assert (series.covered(0, 1800), series.covered(600, 3600)) == (30, 20)
    assert MinuteTallies({}).window(0, 60) == Tally()
    hidden = MinuteTallies({0: Tally(good=1), 60: Tally(good=1, aborts_known=False)})
    assert hidden.window(0, 60).aborts_known
    assert not hidden.window(0, 120).aborts_known


def steady(bad: int, hours: float = 72) -> MinuteTallies:
    return MinuteTallies({int(60 * i): Tally(good=100 - bad, bad=bad) for i in range(int(hours * 60))})


def test_the_rules_are_those_of_the_workbook() -> None:
    assert [(r.severity, r.factor, r.long / 3600, r.short / 3600) for r in RULES] == [
        ("page", 14.4, 1, pytest.approx(1 / 12)),
        ("page", 6.0, 6, 0.5),
        ("ticket", 3.0, 24, 2),
        ("ticket", 1.0, 72, 6),
    ]
    # Budget used when a rule fires, in a 30 day window: 2 %, 5 %, 10 %, 10 %.
    used = [r.factor * r.long / (30 * 86400) for r in RULES]
    assert used == pytest.approx([0.02, 0.05, 0.1, 0.1])


@pytest.mark.parametrize(("bad", "firing"), [(0, 0), (1, 1), (3, 2), (6, 3), (15, 4)])
def test_a_steady_burn_fires_the_rules_below_its_pace(bad: int, firing: int) -> None:
    assert sum(b.firing for b in burns(TTFT, steady(bad), 72 * 3600.0)) == firing


def test_a_burn_that_has_stopped_no_longer_fires() -> None:
    tallies = {60 * i: Tally(good=50 if i < 170 else 100, bad=50 if i < 170 else 0) for i in range(180)}
    first = burns(TTFT, MinuteTallies(tallies), 180 * 60.0)[0]
    assert first.long[0] > 14.4
    assert first.short[0] == 0
    assert not first.firing


def test_a_handful_of_bad_requests_does_not_fire() -> None:
    quiet = MinuteTallies({60 * i: Tally(good=0, bad=1) for i in range(9)})
    assert not any(b.firing for b in burns(TTFT, quiet, 540.0))
    assert any(b.firing for b in burns(TTFT, MinuteTallies({0: Tally(bad=10)}), 60.0))


def test_a_burn_says_when_the_budget_is_gone() -> None:
    first = burns(TTFT, steady(20), 72 * 3600.0, left=0.5)[0]
    assert first.long == pytest.approx((20.0, 20.0))
    assert first.gone_in == pytest.approx(0.5 * 28 * 86400 / 20)
    assert first.text() == "20.0×: gone in 17h at this pace"
    assert burns(TTFT, steady(20), 72 * 3600.0, left=-1.0)[0].text() == "20.0×: the budget is gone"
    assert burns(TTFT, steady(0), 72 * 3600.0)[0].text() == "0.0×"
    assert burns(TTFT, MinuteTallies({}), 0.0)[0].text() == "no traffic"


def test_unknown_requests_widen_the_burn_rate_and_only_the_certain_part_pages() -> None:
    assert burn_rate(TTFT, Tally(good=90, either=10)) == pytest.approx((0.0, 10.0))
    unknown = MinuteTallies({60 * i: Tally(good=50, either=50) for i in range(60)})
    assert not any(b.firing for b in burns(TTFT, unknown, 3600.0))


def test_an_objective_is_read_from_the_configuration() -> None:
    config = parse_config(
        "slos: [{name: x, class: chat, signal: ttft, threshold: 1s, objective_percent: 99.9}]"
    )
    found = Objective.from_config(config.slos[0])
    assert (found.signal, found.threshold, found.window, found.point) == (
        "ttft_seconds",
        1.0,
        28 * 86400.0,
        "auto",
    )
    assert found.budget == pytest.approx(0.001)
