"""What becomes of readings: increments, restarts, gaps, two sources, back-fill beside live data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.frames import Frame, Reading
from sql.store import Store
from tests.sql.make import ABORTED, DONE, PREEMPTED, RUNNING, SECONDS, T0, TTFT, down, reading, said, target

GAP = ((-1, -1, -1, -1), math.nan)


def frames(store: Store) -> list[Frame]:
    return list(store.frames(0, 1e11))


def done(store: Store) -> list[int]:
    """The increments of the counter, in order of time."""
    return [int(said(f)[DONE]) for f in frames(store) if DONE in f.layout.index]  # type: ignore[arg-type]


def counter(*values: int, every: float = 15.0, first: float = 0.0, source: str = "prom") -> list[Reading]:
    of = target(source=source)
    return [reading(first + i * every, {DONE: v}, of=of) for i, v in enumerate(values)]


def test_a_frame_holds_what_happened_between_two_readings(store: Store) -> None:
    result = store.append(
        [
            reading(0, {TTFT: ((5, 5, 5, 5), 12.5), DONE: 100, RUNNING: 3, SECONDS: 7.0}),
            reading(15, {TTFT: ((6, 5, 7, 6), 20.25), DONE: 104, RUNNING: 4, SECONDS: 7.5}),
        ]
    )
    assert (result.inserted, result.skipped, result.restarts) == (1, 0, [])
    (frame,) = frames(store)
    assert (frame.t0, frame.t1, frame.reset) == (T0, T0 + 15, False)
    assert said(frame) == {TTFT: ((1, 0, 2, 1), 7.75), DONE: 4, RUNNING: 4.0, SECONDS: 0.5}


def test_the_first_reading_of_a_target_makes_no_frame(store: Store) -> None:
    assert store.append(counter(1_000_000)).inserted == 0
    assert frames(store) == []
    assert [t.target.replica for t in store.targets()] == ["r1"]


def test_one_call_or_many_calls_give_the_same_frames(store: Store) -> None:
    readings = counter(1, 4, 4, 9, 2, 3)
    for r in readings:
        store.append([r])
    assert done(store) == [3, 0, 5, 2, 1]
    assert [f.reset for f in frames(store)] == [False, False, False, True, False]


def test_appending_the_same_readings_again_changes_nothing(store: Store) -> None:
    readings = counter(1, 4, 9, 2, 3)
    store.append(readings)
    before, rolled = [said(f) for f in frames(store)], store.rollups("request_success_total", 0, 1e11)
    for stream in ("live", "backfill", "another"):
        again = store.append(readings, stream=stream)
        assert (again.inserted, again.skipped) == (0, 5) if stream == "live" else (0, 4)
        assert again.restarts == []
    assert [said(f) for f in frames(store)] == before
    assert [(r.ts, r.n) for r in store.rollups("request_success_total", 0, 1e11)] == [
        (r.ts, r.n) for r in rolled
    ]
    assert len(store.events()) == 1


def test_a_restart_does_not_lose_counts(store: Store) -> None:
    result = store.append([reading(0, {DONE: 50, ABORTED: 9}), reading(15, {DONE: 60, ABORTED: 2})])
    (frame,) = frames(store)
    assert frame.reset
    assert said(frame) == {DONE: 60, ABORTED: 2}
    (event,) = store.events()
    assert result.restarts == [event]
    assert (event.kind, event.pool, event.replica, event.ts) == ("restart", "p", "r1", T0 + 15)


def test_a_moved_process_start_is_a_restart_even_if_no_count_fell(store: Store) -> None:
    store.append([reading(0, {DONE: 50}, start=T0 - 100), reading(15, {DONE: 60}, start=T0 + 4)])
    assert done(store) == [60]
    (event,) = store.events()
    assert event.ts == T0 + 4
    assert "process start moved" in event.text
    assert store.targets()[0].process_start == T0 + 4


def test_a_process_start_that_wanders_by_a_second_is_no_restart(store: Store) -> None:
    store.append([reading(0, {DONE: 50}, start=T0 - 100), reading(15, {DONE: 60}, start=T0 - 98.6)])
    assert done(store) == [10]
    assert store.events() == []


def test_a_fallen_total_is_a_restart_but_a_fallen_histogram_sum_is_not(store: Store) -> None:
    store.append([reading(0, {SECONDS: 9.0, DONE: 1}), reading(15, {SECONDS: 2.0, DONE: 5})])
    assert said(frames(store)[0]) == {SECONDS: 2.0, DONE: 5}
    other = target("r2")
    store.append(
        [
            reading(0, {TTFT: ((1, 0, 0, 0), 5.0)}, of=other),
            reading(15, {TTFT: ((2, 0, 0, 0), 4.5)}, of=other),
        ]
    )
    (frame,) = [f for f in frames(store) if TTFT in f.layout.index]
    assert said(frame) == {TTFT: ((1, 0, 0, 0), -0.5)}
    assert not frame.reset


def test_a_column_that_appears_later_counts_from_zero(store: Store) -> None:
    store.append(
        [reading(0, {DONE: 5}), reading(15, {DONE: 6, ABORTED: 3}), reading(30, {DONE: 6, ABORTED: 4})]
    )
    assert [said(f) for f in frames(store)] == [{DONE: 1, ABORTED: 3}, {DONE: 0, ABORTED: 1}]


def test_an_absent_value_is_a_gap_and_its_increment_comes_when_it_is_back(store: Store) -> None:
    store.append(
        [
            reading(0, {DONE: 5, TTFT: ((1, 0, 0, 0), 1.0)}),
            reading(15, {DONE: -1, TTFT: GAP}),
            reading(30, {DONE: 9, TTFT: ((1, 2, 0, 0), 4.0)}),
        ]
    )
    gap, back = frames(store)
    assert said(gap)[DONE] == -1
    assert gap.counts.tolist() == [-1] * 5
    assert math.isnan(gap.sums[0])
    assert said(back) == {DONE: 4, TTFT: ((0, 2, 0, 0), 3.0)}
    (row,) = store.rollups("request_success_total", 0, 1e11)
    assert row.n == 4


def test_a_column_dropped_from_the_layout_is_remembered(store: Store) -> None:
    store.append([reading(0, {DONE: 5, ABORTED: 7})])
    store.append([reading(15, {DONE: 6})])
    store.append([reading(30, {ABORTED: 9, DONE: 8})])
    assert [said(f) for f in frames(store)] == [{DONE: 1}, {ABORTED: 2, DONE: 2}]


def test_a_restart_forgets_the_values_of_absent_columns(store: Store) -> None:
    store.append(
        [reading(0, {DONE: 5, ABORTED: 7}), reading(15, {DONE: 1}), reading(30, {DONE: 1, ABORTED: 2})]
    )
    assert [said(f) for f in frames(store)] == [{DONE: 1}, {DONE: 0, ABORTED: 2}]


def test_a_gauge_that_is_not_a_number_stays_so(store: Store) -> None:
    store.append([reading(0, {RUNNING: 1.0}), reading(15, {RUNNING: math.nan}), reading(30, {RUNNING: 0.0})])
    assert math.isnan(frames(store)[0].gauges[0])
    assert frames(store)[1].gauges.tolist() == [0.0]
    (row,) = store.rollups("requests_running", 0, 1e11)
    assert (row.n, row.total, row.max_) == (1, 0.0, 0.0)


def test_two_sources_of_one_process_count_once(store: Store) -> None:
    a = [reading(15.0 * i, {DONE: 10 * i}, of=target(source="a")) for i in range(5)]
    b = [reading(15.0 * i + 7, {DONE: 10 * i + 5}, of=target(source="b")) for i in range(5)]
    for x, y in zip(a, b, strict=True):
        store.append([x])
        store.append([y])
    assert sum(done(store)) == 45
    assert len(store.targets()) == 1


def test_what_a_second_source_sees_for_the_first_time_is_no_burst(store: Store) -> None:
    a, b = target(source="a"), target(source="b")
    store.append([reading(0, {DONE: 10}, of=a), reading(7, {DONE: 12, ABORTED: 5_000}, of=b)])
    store.append([reading(15, {DONE: 14}, of=a), reading(22, {DONE: 15, ABORTED: 5_003}, of=b)])
    assert [said(f) for f in frames(store)] == [
        {DONE: 2, ABORTED: -1},
        {DONE: 2},
        {DONE: 1, ABORTED: 3},
    ]


@pytest.mark.parametrize("calls", ["one call", "many calls"])
def test_what_a_second_source_looked_for_in_vain_counts_from_zero_later(store: Store, calls: str) -> None:
    a, b = target(source="a"), target(source="b")
    readings = [
        reading(0, {DONE: 1}, of=a),
        reading(15, {DONE: 2, ABORTED: -1}, of=b),
        reading(30, {DONE: 3, ABORTED: 7}, of=b),
    ]
    for part in [readings] if calls == "one call" else [[r] for r in readings]:
        store.append(part)
    assert [said(f) for f in frames(store)] == [{DONE: 1, ABORTED: -1}, {DONE: 1, ABORTED: 7}]


def test_two_sources_with_skewed_clocks_make_no_restart(store: Store) -> None:
    a, b = target(source="a"), target(source="b")
    store.append([reading(0, {DONE: 10}, of=a), reading(15, {DONE: 20}, of=a)])
    assert store.append([reading(15.4, {DONE: 19}, of=b)]).skipped == 1
    store.append([reading(30, {DONE: 30}, of=a)])
    assert done(store) == [10, 10]
    assert store.events() == []


def test_a_reading_older_than_the_newest_is_skipped_in_the_live_stream(store: Store) -> None:
    store.append(counter(1, 2, 3))
    late = store.append([reading(20, {DONE: 2})])
    assert (late.inserted, late.skipped) == (0, 1)
    store.append([reading(45, {DONE: 7})])
    assert done(store) == [1, 1, 4]


def test_readings_of_one_call_may_come_in_any_order(store: Store) -> None:
    store.append(list(reversed(counter(1, 2, 4, 8))))
    assert done(store) == [1, 2, 4]


def test_back_fill_before_live_data_fills_in_without_overlap(store: Store) -> None:
    whole = counter(*range(0, 200, 10))
    store.append(whole[10:])
    store.append(whole[:14], stream="backfill")
    assert done(store) == [10] * 19
    spans = [(f.t0, f.t1) for f in frames(store)]
    assert spans == [(T0 + 15 * i, T0 + 15 * (i + 1)) for i in range(19)]


def test_back_fill_over_a_hole_of_live_data_counts_once(store: Store) -> None:
    whole = counter(*range(0, 200, 10))
    store.append(whole[:5] + whole[12:])  # one frame spans the hole
    store.append(whole, stream="backfill")
    assert sum(done(store)) == 190


def test_back_fill_beyond_the_head_and_live_again_count_once(store: Store) -> None:
    whole = counter(*range(0, 200, 10))
    store.append(whole[:5])
    store.append(whole[3:12], stream="backfill")
    store.append(whole[12:])
    assert done(store) == [10] * 19


def test_back_fill_may_go_over_the_same_times_again_in_other_pieces(store: Store) -> None:
    whole = counter(*range(0, 400, 10))
    store.append(whole[35:])
    store.append(whole[10:25], stream="backfill")
    store.append(whole[:12], stream="backfill")
    store.append(whole[5:36], stream="backfill")
    assert done(store) == [10] * 39
    store.append(whole[:20], stream="backfill")
    store.append(whole[20:], stream="backfill")
    assert done(store) == [10] * 39


def test_a_long_silence_starts_anew(store: Store) -> None:
    six_hours = 6 * 3600.0
    store.append(
        counter(0, 10) + counter(500, 510, first=15 + six_hours + 1) + counter(900, first=30 + 2 * six_hours)
    )
    assert done(store) == [10, 10, 390]


def test_a_failed_scrape_makes_no_frame_and_is_remembered(store: Store) -> None:
    first = target(components=("vllm",), version="0.32")  # type: ignore[arg-type]
    store.append([reading(0, {DONE: 1}, of=first), reading(15, {DONE: 2}, of=first), down(30), down(45)])
    (row,) = store.targets()
    assert (row.up, row.first_seen, row.last_seen) == (False, T0, T0 + 45)
    assert (row.target.version, row.target.components) == ("0.32", ("vllm",))
    store.append([reading(60, {DONE: 9}, of=first)])
    assert done(store) == [1, 7]
    (times, up) = store.uptime(T0, T0 + 100)[row.id]
    assert times.tolist() == [T0 + 15, T0 + 30, T0 + 45, T0 + 60]
    assert up.tolist() == [True, False, False, True]
    assert store.targets()[0].up


def test_a_target_that_never_answered_is_listed(store: Store) -> None:
    store.append([down(0), down(15)])
    store.append([down(15)])
    (row,) = store.targets()
    assert not row.up
    assert store.uptime(0, 1e11)[row.id][1].tolist() == [False, False]
    assert store.newest() is None


def test_a_target_without_mapped_series_still_shows_that_it_answers(store: Store) -> None:
    store.append([reading(0, {}), reading(15, {}), reading(30, {DONE: 4})])
    assert [f.t1 for f in frames(store)] == [T0 + 15, T0 + 30]
    assert done(store) == [4]


def test_a_reused_address_of_another_replica_is_another_target(store: Store) -> None:
    old = target("r1")
    new = type(old)(address=old.address, pool="p", replica="r9", source="prom")
    store.append([reading(0, {DONE: 5}, of=old), reading(15, {DONE: 2}, of=new)])
    assert len(store.targets()) == 2
    assert frames(store) == []


def test_frames_are_selected_by_time_pool_and_target(store: Store) -> None:
    a, b = target("a", pool="x"), target("b", pool="y")
    store.append([reading(15.0 * i, {DONE: i}, of=t) for i in range(100) for t in (a, b)])
    ids = {t.target.replica: t.id for t in store.targets()}
    some = list(store.frames(T0 + 15, T0 + 45))
    assert [(f.t1 - T0, f.target_id) for f in some] == [
        (t, i) for t in (15, 30) for i in sorted(ids.values())
    ]
    assert {f.target_id for f in store.frames(0, 1e11, pools=["y"])} == {ids["b"]}
    assert len(list(store.frames(0, 1e11, target_ids=[ids["a"]]))) == 99
    assert list(store.frames(0, 1e11, pools=["z"])) == []
    assert (store.oldest(), store.newest()) == (T0 + 15, T0 + 15 * 99)


def test_big_numbers_come_back_whole(store: Store) -> None:
    store.append([reading(0, {PREEMPTED: 0}), reading(15, {PREEMPTED: 2**53 + 1})])
    assert said(frames(store)[0]) == {PREEMPTED: 2**53 + 1}
    store.append([reading(30, {PREEMPTED: 2**53 + 2})])
    assert said(frames(store)[1]) == {PREEMPTED: 1}


def test_a_failing_batch_leaves_nothing_behind(store: Store) -> None:
    bad = reading(15, {DONE: 2})
    wrong = Reading(bad.target, bad.t, bad.layout, bad.gauges, np.zeros(7, np.int64), bad.sums)
    with pytest.raises(ValueError, match="slots"):
        store.append([reading(0, {DONE: 1}), wrong])
    assert store.targets() == []
    store.append([reading(0, {DONE: 1}), bad])
    assert done(store) == [1]
    assert store.rollups("request_success_total", 0, 1e11)[0].n == 1
