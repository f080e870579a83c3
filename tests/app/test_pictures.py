"""The pictures of the Now page: complete, in range, and made of numbers alone."""

from __future__ import annotations

import itertools
import re
from base64 import b64decode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.services import lines
from app.services.heat import HeatMap, HeatRow
from app.services.latency import Series
from app.services.measures import MEASURES
from app.services.view import MAX_POINTS
from app.ui import pictures
from app.ui.html import esc
from tests.app.history import HOSTILE


def series(value: np.ndarray) -> Series:
    n = len(value)
    t = 60.0 * np.arange(1, n + 1)
    return Series(t, value, value, value, np.full(n, 400.0), np.full(n, 1.0))


def svg_of(markup: str) -> str:
    found = re.search(r"base64,([A-Za-z0-9+/=]+)", markup)
    assert found
    return b64decode(found[1]).decode()


@given(
    some.lists(some.one_of(some.just(float("nan")), some.floats(-0.5, 2.0)), min_size=1, max_size=200),
)
def test_runs_of_a_row_cover_every_column_once_and_keep_gaps(scores: list[float]) -> None:
    score = np.clip(np.array(scores), 0, 1)
    found = pictures.runs(HeatRow("r", "p", 0.0, score, score))
    assert found[0][1] == 0
    assert found[-1][2] == len(scores)
    assert all(a[2] == b[1] and a[0] != b[0] for a, b in itertools.pairwise(found))
    for level, a, b in found:
        inside = score[a:b]
        if level < 0:
            assert np.isnan(inside).all()
        else:
            assert np.allclose(inside, level / (pictures.LEVELS - 1), atol=0.5 / (pictures.LEVELS - 1) + 1e-9)


@given(some.lists(some.floats(1e-3, 1e4), min_size=1, max_size=120), some.floats(0.01, 1000))
def test_a_line_and_its_objective_stay_inside_the_picture(values: list[float], threshold: float) -> None:
    svg = svg_of(
        pictures.latency_line(series(np.array(values)), threshold, 0.0, 60.0 * len(values), "#3f6fe0")
    )
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", svg):
        assert -0.1 <= float(x) <= lines.WIDTH + 0.1
        assert 0 <= float(y) <= lines.HEIGHT


def test_a_gap_breaks_the_line() -> None:
    svg = svg_of(
        pictures.latency_line(series(np.array([1.0, np.nan, 2.0, 2.0])), None, 0.0, 240.0, "#3f6fe0")
    )
    assert re.search(r'd="M[^M]*M[^M]*L', svg)


def test_a_long_range_is_thinned_to_what_a_screen_shows() -> None:
    svg = svg_of(pictures.latency_line(series(np.ones(5000)), 2.0, 0.0, 300_000.0, "#3f6fe0"))
    assert 100 < len(re.findall(r"[ML]\d", svg)) <= MAX_POINTS + 10


def test_nothing_of_the_fleet_gets_into_an_image_and_names_are_escaped() -> None:
    t = np.array([60.0, 120.0])
    row = HeatRow(HOSTILE, HOSTILE, 1.0, np.array([1.0, 20.0]), np.array([0.0, 1.0]))
    markup = pictures.heat_picture(HeatMap(MEASURES["ttft_p99"], t, (row, row), 2, False), HOSTILE)
    assert "<img" not in markup
    assert esc(HOSTILE[:4]) in markup
    bars = [pictures.Bar(HOSTILE, 0.0, 60.0, "page")]
    assert "<img" not in pictures.timeline_picture(bars, 0.0, 120.0)


@given(some.floats(0, 2e9), some.floats(60, 40 * 86400))
def test_ticks_are_round_times_inside_the_range(start: float, length: float) -> None:
    ticks = lines.time_ticks(start, start + length)
    assert len(ticks) <= 7
    assert all(start - 1e-6 <= t <= start + length + 1e-6 and t % 60 == 0 for t in ticks)


def test_the_objective_is_drawn_red_and_dotted_at_its_value() -> None:
    svg = svg_of(pictures.latency_line(series(np.array([1.0, 10.0])), 1.0, 0.0, 120.0, "#3f6fe0"))
    goal = re.search(r'stroke="#d23c2e"[^>]*d="M0 ([\d.]+)H', svg)
    assert goal
    frame, _ = lines.log_frame(0.0, 120.0, [1.0, 10.0, 1.0])
    assert float(goal[1]) == pytest.approx(frame.y(1.0), abs=0.1)
