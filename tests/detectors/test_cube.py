"""The grid of arrays: what frames become, and what is missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.frames import Frame, Layout, Target, column
from detectors.contract import Need
from detectors.cube import Cube
from detectors.samples import EMPTY
from detectors.window import Window
from tests.detectors.fleet import CONTEXT

START = 1_790_000_100.0
NEEDS = (
    Need("running", "requests_running"),
    Need("kv", "kv_cache_usage_ratio", "max"),
    Need("clock", "gpu_sm_clock_hz", "min"),
    Need("done", "request_success_total"),
    Need("decode", "realtime_tokens_total", where=("mode", ("decode",))),
)
LAYOUT = Layout(
    (
        column("requests_running", rank="0"),
        column("requests_running", rank="1"),
        column("kv_cache_usage_ratio", rank="0"),
        column("kv_cache_usage_ratio", rank="1"),
        column("request_success_total", "counter", class_="chat", finish_reason="stop"),
        column("request_success_total", "counter", class_="chat", finish_reason="length"),
        column("realtime_tokens_total", "counter", mode="decode"),
        column("realtime_tokens_total", "counter", mode="prefill_compute"),
        column("ttft_seconds", "histogram", (0.5, 1.0), class_="chat"),
    )
)
TARGET = Target("a-0:8000", pool="a", replica="a-0", components=("vllm",))


def frame(
    t0: float,
    t1: float,
    *,
    gauges=(3, 4, 0.2, 0.6),
    counts=(5, 2, 70, 9, 1, 2, 3),
    sums=(4.5,),
    reset=False,
    tid=1,
) -> Frame:  # type: ignore[no-untyped-def]
    return Frame(
        tid,
        t0,
        t1,
        LAYOUT,
        np.asarray(gauges, float),
        np.asarray(counts, np.int64),
        np.asarray(sums, float),
        reset,
    )


def cube(*frames: Frame, until: float = START + 60, targets: dict[int, Target] | None = None) -> Cube:
    c = Cube(NEEDS, ("ttft_seconds",), start=START)
    c.extend(frames, targets or {1: TARGET}, until)
    return c


def test_columns_of_one_signal_are_joined_as_the_need_says() -> None:
    c = cube(frame(START - 5, START + 10))
    assert c.scalar("running")[0, 0] == 7
    assert c.scalar("kv")[0, 0] == pytest.approx(0.6)
    assert c.scalar("done")[0, 0] == 7
    assert c.scalar("decode")[0, 0] == 70
    assert c.counts("ttft_seconds", ("chat", (0.5, 1.0)))[0, 0].tolist() == [1, 2, 3]
    assert c.scalar("ttft_seconds:n")[0, 0] == 6
    assert c.scalar("ttft_seconds:sum")[0, 0] == 4.5
    assert c.scalar("span")[0, 0] == 15


def test_what_was_not_exported_is_missing_and_not_zero() -> None:
    c = cube(
        frame(START - 5, START + 10, gauges=(np.nan, np.nan, 0.2, np.nan), counts=(-1, -1, -1, 9, -1, -1, -1))
    )
    assert np.isnan(c.scalar("running")[0, 0])
    assert c.scalar("kv")[0, 0] == pytest.approx(0.2)
    assert np.isnan(c.scalar("done")[0, 0])
    assert np.isnan(c.scalar("decode")[0, 0])
    assert np.isnan(c.scalar("clock")[0, 0])
    assert np.isnan(c.counts("ttft_seconds", ("chat", (0.5, 1.0)))[0, 0]).all()
    assert np.isnan(c.scalar("done")[0, 1]), "a cell without a scrape"


def test_two_scrapes_in_one_cell_add_counts_but_not_gauges() -> None:
    c = cube(frame(START - 5, START + 2), frame(START + 2, START + 9, gauges=(1, 1, 0.1, 0.1)))
    assert c.scalar("done")[0, 0] == 14
    assert c.scalar("running")[0, 0] == 2
    assert c.scalar("span")[0, 0] == 14


def test_processes_of_one_replica_add_up() -> None:
    twin = Target("a-0:8001", pool="a", replica="a-0", components=("vllm",))
    c = cube(frame(START - 5, START + 10), frame(START - 5, START + 10, tid=2), targets={1: TARGET, 2: twin})
    assert len(c.units) == 1
    assert c.scalar("running")[0, 0] == 14
    assert c.scalar("done")[0, 0] == 14
    assert c.scalar("span")[0, 0] == 15, "both cover the same seconds"


def test_a_frame_after_a_gap_keeps_its_long_span() -> None:
    c = cube(frame(START - 5, START + 10), frame(START + 10, START + 55))
    assert c.scalar("span")[0].tolist()[3] == 45
    assert np.isnan(c.scalar("span")[0, 1:3]).all()


def test_a_restart_is_marked() -> None:
    c = cube(frame(START - 5, START + 10), frame(START + 10, START + 25, reset=True))
    w = Window(c, c.cells, CONTEXT, EMPTY)
    assert w.since_restart(4)[0] == 2 * 15


def test_a_frame_for_a_closed_cell_is_counted_and_left_out() -> None:
    c = cube(until=START + 30)
    c.extend([frame(START - 5, START + 10), frame(START + 30, START + 40)], {1: TARGET}, START + 60)
    assert c.late == 1
    assert np.isnan(c.scalar("done")[0, :2]).all()
    assert c.scalar("done")[0, 2] == 7


def test_a_trimmed_cube_keeps_its_newest_hours() -> None:
    c = Cube(NEEDS, ("ttft_seconds",), start=START, depth=600)
    for k in range(100):
        t = START + 15 * k
        c.extend([frame(t - 5, t + 10, counts=(k, 0, 0, 0, 1, 2, 3))], {1: TARGET}, t + 15)
    assert c.end == START + 1500
    assert 40 <= c.cells <= 50
    assert c.scalar("done")[0, -1] == 99
    assert c.scalar("done")[0, -40] == 60


@given(st.lists(st.integers(1, 90), min_size=1, max_size=40), st.integers(1, 60))
def test_filling_at_once_and_bit_by_bit_give_the_same(gaps: list[int], chunk: int) -> None:
    """Frames at any spacing, closed in pieces of any size."""
    times = np.cumsum(gaps) + START
    frames = [
        frame(float(a), float(b), counts=(k, 1, 2, 3, 4, 5, 6))
        for k, (a, b) in enumerate(zip([START, *times[:-1]], times, strict=True))
    ]
    end = float(times[-1] // 15 * 15 + 15)
    whole = cube(*frames, until=end)
    parts = Cube(NEEDS, ("ttft_seconds",), start=START)
    at = START
    while at < end:
        at = min(at + 15 * chunk, end)
        parts.extend([f for f in frames if parts.end <= f.t1 // 15 * 15 < at], {1: TARGET}, at)
    assert parts.cells == whole.cells
    for name in whole.names():
        np.testing.assert_array_equal(parts.scalar(name), whole.scalar(name))
    assert np.nansum(whole.scalar("done")) == sum(f.counts[0] + f.counts[1] for f in frames)
