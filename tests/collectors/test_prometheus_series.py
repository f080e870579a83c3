"""Series of a server sorted into targets; native histograms; copies of one scrape; times of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.dictionary import load_dictionary
from collectors.prometheus_client_guard import RawAnswer, RawSeries
from collectors.prometheus_native import EDGES, grid_counts
from collectors.prometheus_series import Window, decode
from collectors.prometheus_targets import TargetBook
from core.classes import ClassRules
from core.frames import Reading
from core.records import Problem
from core.roles import Roles

HOME = {"job": "vllm", "instance": "chat-0:8000", "pool": "chat"}
TIMES = [1000, 1015, 1030, 1045]


def raw(name: str, values: list[object], times: list[float] | None = None, **labels: str) -> RawSeries:
    pairs = [[t, str(v)] for t, v in zip(times or TIMES, values, strict=True) if v is not None]
    return RawSeries({"__name__": name, **HOME, **labels}, pairs)


def window(*series: RawSeries, drop: tuple[str, ...] = (), warnings: list[str] | None = None) -> Window:
    return decode([RawAnswer(list(series), warnings or [])], 1000, 1060, source="p", drop_labels=drop)


def book(every: float = 15.0) -> TargetBook:
    return TargetBook("p", load_dictionary(), ClassRules(), Roles(), every)


def read(b: TargetBook, *series: RawSeries, **more: Any) -> tuple[list[Reading], list[Problem]]:
    return b.readings(window(*series, **more))


def value(reading: Reading, signal: str) -> float:
    """The value of the one column of a signal."""
    (at,) = [i for i, c in enumerate(reading.layout.columns) if c.signal == signal]
    g, n, _ = reading.layout.slots[at]
    return float(reading.gauges[g][0]) if g.stop > g.start else int(reading.counts[n][0])


UP = raw("up", [1, 1, 1, 1])
RUNNING = raw("vllm:num_requests_running", [1, 2, 3, 4], model_name="m")
PREEMPTED = raw("vllm:num_preemptions_total", [5, 6, 6, 9], model_name="m")


def test_the_samples_of_one_scrape_become_one_reading() -> None:
    readings, problems = read(book(), UP, RUNNING, PREEMPTED)
    assert [r.t for r in readings] == TIMES
    assert [value(r, "requests_running") for r in readings] == [1, 2, 3, 4]
    assert [value(r, "preemptions_total") for r in readings] == [5, 6, 6, 9]
    (target,) = {r.target.key for r in readings}
    assert target == ("", "chat", "chat-0", "", "chat-0:8000")
    assert readings[0].target.components == ("vllm",)
    assert problems == []


def test_a_failed_scrape_is_a_reading_that_is_not_up() -> None:
    readings, _ = read(book(), raw("up", [1, 0, 0, 1]), raw("vllm:num_requests_running", [1, None, None, 2]))
    assert [(r.t, r.up) for r in readings] == [(1000, True), (1015, False), (1030, False), (1045, True)]
    assert readings[1].layout.columns == ()


def test_without_up_absence_says_nothing() -> None:
    readings, _ = read(book(), raw("vllm:num_requests_running", [1, None, None, 2]))
    assert [(r.t, r.up) for r in readings] == [(1000, True), (1045, True)]


def test_without_up_samples_a_few_milliseconds_apart_are_one_scrape() -> None:
    later = [t + 0.2 for t in TIMES]
    readings, _ = read(
        book(), RUNNING, raw("vllm:num_preemptions_total", [5, 6, 6, 9], later, model_name="m")
    )
    assert [r.t for r in readings] == later
    assert [value(r, "requests_running") for r in readings] == [1, 2, 3, 4]
    assert [value(r, "preemptions_total") for r in readings] == [5, 6, 6, 9]


def test_a_sample_with_a_time_of_its_own_belongs_to_the_next_scrape() -> None:
    own = raw("vllm:num_preemptions_total", [5, 6, 7, 8], [998 + 15 * i for i in range(1, 5)], model_name="m")
    readings, problems = read(book(), UP, RUNNING, own)
    assert [value(r, "preemptions_total") for r in readings] == [-1, 5, 6, 7]
    assert [(p.code, p.count) for p in problems] == [("own_timestamps", 1)]


def test_nan_and_absent_are_gaps_and_never_zero() -> None:
    readings, _ = read(
        book(),
        UP,
        raw("vllm:num_requests_running", [1, "NaN", None, 4]),
        raw("vllm:num_preemptions_total", ["NaN", 6, None, 9]),
    )
    assert [value(r, "preemptions_total") for r in readings] == [-1, 6, -1, 9]
    assert np.isnan([value(r, "requests_running") for r in readings]).tolist() == [False, True, True, False]


def test_a_series_that_appears_later_changes_the_plan_and_not_the_past() -> None:
    b = book()
    first, _ = read(b, UP, RUNNING)
    late = [t + 60 for t in TIMES]
    second, _ = b.readings(
        decode(
            [
                RawAnswer(
                    [
                        raw("up", [1] * 4, late),
                        raw("vllm:num_requests_running", [1] * 4, late, model_name="m"),
                        raw("vllm:num_preemptions_total", [None, None, 1, 2], late, model_name="m"),
                    ]
                )
            ],
            1060,
            1120,
            source="p",
        )
    )
    assert first[0].layout.id != second[0].layout.id
    assert [value(r, "preemptions_total") for r in second] == [-1, -1, 1, 2]


def test_readings_are_given_once_where_windows_overlap() -> None:
    b = book()
    assert len(read(b, UP, RUNNING)[0]) == 4
    assert read(b, UP, RUNNING)[0] == []


def test_what_lies_before_the_window_is_dropped() -> None:
    """Prometheus 2 counts both edges of a range, Prometheus 3 only the right one."""
    times = [999.999, *TIMES]
    w = window(raw("up", [1] * 5, times), raw("vllm:num_requests_running", [9, 1, 2, 3, 4], times))
    readings, _ = book().readings(w)
    assert [r.t for r in readings] == TIMES


def test_labels_that_clashed_with_the_targets_get_their_names_back() -> None:
    w = window(UP, raw("x", [1] * 4, exported_pool="inner", exported_other="o"))
    (target,) = w.targets.values()
    ((_, labels),) = [s.key for c in target.copies.values() for s in c.series]
    assert labels == (("exported_other", "o"), ("pool", "inner"))


def test_two_clusters_with_the_same_instance_are_two_targets() -> None:
    readings, _ = read(
        book(),
        *(raw("up", [1] * 4, cluster=c) for c in "ab"),
        *(raw("vllm:num_requests_running", [i] * 4, cluster=c) for i, c in enumerate("ab")),
    )
    assert {(r.target.cluster, value(r, "requests_running")) for r in readings} == {("a", 0), ("b", 1)}


def test_two_ups_of_one_instance_that_differ_otherwise_are_two_targets() -> None:
    readings, _ = read(
        book(),
        *(raw("up", [1] * 4, pool=p) for p in ("chat", "batch")),
        *(raw("vllm:num_requests_running", [i] * 4, pool=p) for i, p in enumerate(("chat", "batch"))),
    )
    assert {(r.target.pool, value(r, "requests_running")) for r in readings} == {("chat", 0), ("batch", 1)}


def test_a_gpu_exporter_is_a_target_of_the_replica_on_its_host() -> None:
    home = {"job": "dcgm", "instance": "chat-0:9400", "pool": "chat"}
    series = [
        RawSeries({"__name__": "up", **home}, [[t, "1"] for t in TIMES]),
        RawSeries(
            {"__name__": "DCGM_FI_DEV_SM_CLOCK", **home, "gpu": "0", "Hostname": "chat-0"},
            [[t, "1800"] for t in TIMES],
        ),
    ]
    readings, _ = read(book(), *series)
    target = readings[0].target
    assert (target.replica, target.gpu_host, target.components) == ("chat-0", "chat-0", ("dcgm_exporter",))
    assert len(readings) == 4


@pytest.mark.parametrize("label", ["prometheus_replica", "my_replica"])
def test_copies_of_a_scrape_by_two_servers_are_not_mixed(label: str) -> None:
    """Their clocks differ: taking both would make counters fall, which looks like a restart."""
    theirs = [t + 7 for t in TIMES]
    series = [
        *(raw("up", [1] * 4, t, **{label: c}) for c, t in (("a", TIMES), ("b", theirs))),
        raw("vllm:num_preemptions_total", [10, 20, 30, 40], **{label: "a"}),
        raw("vllm:num_preemptions_total", [9, 19, 29, 39], theirs, **{label: "b"}),
    ]
    readings, _ = read(book(), *series, drop=("my_replica",))
    counts = [value(r, "preemptions_total") for r in readings]
    assert len({r.target.key for r in readings}) == 1
    assert counts in ([10, 20, 30, 40], [9, 19, 29, 39])


def test_the_other_copy_fills_in_when_one_server_is_away() -> None:
    theirs = [t + 7 for t in TIMES]
    series = [
        raw("up", [1, 1, None, None], prometheus_replica="a"),
        raw("up", [1] * 4, theirs, prometheus_replica="b"),
        raw("vllm:num_preemptions_total", [10, 20, None, None], prometheus_replica="a"),
        raw("vllm:num_preemptions_total", [14, 24, 34, 44], theirs, prometheus_replica="b"),
    ]
    b = book()
    before = [
        raw("up", [1], [1000], prometheus_replica="a"),
        raw("vllm:num_preemptions_total", [10], [1000], prometheus_replica="a"),
    ]
    readings = read(b, *before)[0] + read(b, *series)[0]
    assert [(r.t, value(r, "preemptions_total")) for r in readings] == [(1000, 10), (1015, 20), (1052, 44)]


def test_a_server_that_cannot_reach_a_target_does_not_say_it_is_down_while_another_can() -> None:
    series = [
        raw("up", [0] * 4, prometheus_replica="a"),
        raw("up", [1] * 4, [t + 7 for t in TIMES], prometheus_replica="b"),
        raw("vllm:num_preemptions_total", [1, 2, 3, 4], [t + 7 for t in TIMES], prometheus_replica="b"),
    ]
    readings, _ = read(book(), *series)
    assert all(r.up for r in readings)
    assert len(readings) >= 3


def test_a_malformed_series_costs_only_itself_and_is_named() -> None:
    bad = [
        RawSeries({"__name__": "text", **HOME}, [[1000, "one"]]),
        RawSeries({"__name__": "short", **HOME}, [[1000]]),
        RawSeries({"__name__": "order", **HOME}, [[1015, "1"], [1000, "1"]]),
        RawSeries({"__name__": "clock", **HOME}, [["now", "1"]]),
        RawSeries({"__name__": "hist", **HOME}, [], [[1000, {"count": "1"}]]),
    ]
    readings, problems = read(book(), UP, RUNNING, *bad)
    assert [value(r, "requests_running") for r in readings] == [1, 2, 3, 4]
    assert {(p.code, p.subject) for p in problems} == {
        ("malformed_series", n) for n in ("text", "short", "order", "clock", "hist")
    }


def test_a_series_without_a_target_is_named_and_left_out() -> None:
    readings, problems = read(book(), UP, RUNNING, RawSeries({"__name__": "agg"}, [[1000, "1"]]))
    assert len(readings) == 4
    assert [(p.code, p.subject) for p in problems] == [("no_instance", "agg")]


def test_partial_data_is_used_and_told() -> None:
    readings, problems = read(book(), UP, RUNNING, warnings=["no store matched"])
    assert len(readings) == 4
    assert [p.code for p in problems] == ["partial"]
    assert "no store matched" in problems[0].message


def test_a_target_that_means_nothing_gives_no_readings_but_is_known() -> None:
    b = book()
    readings, _ = read(b, UP, raw("node_load1", [1, 2, 3, 4]))
    assert readings == []
    assert [t.address for t in b.unmapped] == ["chat-0:8000"]


# ---- native histograms


def native(
    counts: list[int], bounds: list[tuple[str, str]], name: str = "vllm:time_to_first_token_seconds"
) -> RawSeries:
    points = []
    for i, t in enumerate(TIMES):
        buckets = [[0, low, high, str(n * (i + 1))] for n, (low, high) in zip(counts, bounds, strict=True)]
        points.append(
            [t, {"count": str(sum(counts) * (i + 1)), "sum": str(2.5 * (i + 1)), "buckets": buckets}]
        )
    return RawSeries({"__name__": name, **HOME, "model_name": "m"}, [], points)


def exponential(schema: int, index: int) -> tuple[str, str]:
    base = 2.0 ** (2.0**-schema)
    return repr(base ** (index - 1)), repr(base**index)


def test_a_native_histogram_becomes_buckets_with_fixed_edges() -> None:
    series = native([3, 2, 4], [("-1e-128", "1e-128"), exponential(3, 1), exponential(3, 9)])
    readings, problems = read(book(), UP, RUNNING, series)
    assert problems == []
    (at,) = [i for i, c in enumerate(readings[-1].layout.columns) if c.signal == "ttft_seconds"]
    column = readings[-1].layout.columns[at]
    counts = readings[-1].counts[readings[-1].layout.slots[at][1]]
    assert column.edges == pytest.approx(EDGES)
    assert (EDGES[41], EDGES[45]) == (2**0.25, 2**1.25)
    where = {EDGES[i] if i < len(EDGES) else math.inf: int(c) for i, c in enumerate(counts) if c}
    assert where == {EDGES[0]: 12, EDGES[41]: 8, EDGES[45]: 16}
    assert float(readings[-1].sums[readings[-1].layout.slots[at][2]][0]) == 10.0


def test_a_native_histogram_that_is_too_coarse_gives_count_and_sum_and_is_named() -> None:
    readings, problems = read(book(), UP, RUNNING, native([3], [exponential(0, 2)]))
    assert [p.code for p in problems] == ["native_histogram"]
    assert "time_to_first_token" in problems[0].subject
    assert value(readings[-1], "ttft_seconds_count") == 12


@given(
    st.lists(st.tuples(st.integers(-200, 200), st.integers(1, 1000)), max_size=30, unique_by=lambda p: p[0]),
    st.integers(2, 5),
)
def test_no_observation_is_lost_or_moved_over_an_edge(cells: list[tuple[int, int]], schema: int) -> None:
    """A bucket counts at the first edge at or above its upper bound, and at no edge before."""
    buckets = [[0, *exponential(schema, i), str(n)] for i, n in cells]
    got = grid_counts(buckets)
    for edge, cumulative in zip(EDGES, got, strict=True):
        exact = sum(n for i, n in cells if float(exponential(schema, i)[1]) <= edge * (1 + 1e-9))
        assert cumulative == exact


def ttft(edges: list[str], counts: list[list[int | None]], times: list[float]) -> list[RawSeries]:
    """TTFT buckets (cumulative) of one process at the given times."""
    name = "vllm:time_to_first_token_seconds_bucket"
    return [raw(name, list(row), times, le=le, model_name="m") for le, row in zip(edges, counts, strict=True)]


def histograms(reading: Reading) -> dict[tuple[float, ...], list[int]]:
    """Counts of every TTFT layout that the reading has."""
    return {
        c.edges: reading.counts[n].tolist()
        for c, (_, n, _) in zip(reading.layout.columns, reading.layout.slots, strict=True)
        if c.signal == "ttft_seconds" and c.kind == "histogram" and (reading.counts[n] >= 0).all()
    }


@pytest.mark.parametrize("windows", [1, 2])
def test_other_bucket_edges_after_a_restart_make_another_layout_and_neither_is_lost(windows: int) -> None:
    """Whether the change falls inside one look at the server or between two."""
    old = ttft(["1", "2", "+Inf"], [[1, 2], [3, 5], [4, 7]], [1000, 1015])
    new = ttft(["0.5", "4", "+Inf"], [[1, 1], [2, 3], [2, 4]], [1030, 1045])
    b = book()
    if windows == 1:
        readings, problems = read(b, UP, *old, *new)
    else:
        first, more = read(b, raw("up", [1, 1], [1000, 1015]), *old)
        second, also = read(b, raw("up", [1, 1], [1030, 1045]), *new)
        readings, problems = first + second, more + also
    assert not [p for p in problems if "histogram" in p.code], problems
    assert [histograms(r) for r in readings] == [
        {(1.0, 2.0): [1, 2, 1]},
        {(1.0, 2.0): [2, 3, 2]},
        {(0.5, 4.0): [1, 1, 0]},
        {(0.5, 4.0): [1, 2, 1]},
    ]
