"""The generic series detector: what it may depend on, and what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from core.frames import FloatArray
from detectors.series.memory import WINDOW, unseen_spread
from detectors.series.records import beyond_range, new_records
from detectors.series.refractory import HOLD, news
from detectors.series.scorer import ALARM, LEARNING, score_series
from detectors.series.seasonal import odd_for_the_hour

STEP = 300.0
START = 1_700_006_400.0


def times(n: int, step: float = STEP) -> FloatArray:
    return START + np.arange(n) * step


def some_series(seed: int, n: int) -> FloatArray:
    """A daily wave with noise, a spike, a step and gaps somewhere."""
    rng = np.random.default_rng(seed)
    x = 10 * np.sin(2 * np.pi * times(n) / 86400) + rng.normal(size=n)
    x[rng.integers(n)] += 60
    x[rng.integers(n) :] += 15
    x[rng.random(n) < 0.02] = np.nan
    return x


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(150, 2500), cut=st.floats(0.05, 0.95))
def test_appending_data_never_changes_an_earlier_score(seed: int, n: int, cut: float) -> None:
    x, t = some_series(seed, n), times(n)
    stop = int(n * cut)
    whole, part = score_series(t, x), score_series(t[:stop], x[:stop])
    np.testing.assert_array_equal(whole.total[:stop], part.total)
    for view, values in part.views.items():
        np.testing.assert_array_equal(whole.views[view][:stop], values)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), power=st.integers(-20, 20), shift=st.integers(-1000, 1000))
def test_neither_unit_nor_zero_matters(seed: int, power: int, shift: int) -> None:
    # Whole numbers and powers of two, so that the change of unit itself rounds nothing.
    x, t = np.round(some_series(seed, 1000) * 8), times(1000)
    one, other = score_series(t, x), score_series(t, (x + shift) * 2.0**power)
    np.testing.assert_allclose(one.total, other.total, rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(value=st.floats(-1e12, 1e12), n=st.integers(0, 1500), gaps=st.floats(0, 1))
def test_a_constant_series_never_alarms_with_or_without_gaps(value: float, n: int, gaps: float) -> None:
    x = np.full(n, value)
    x[np.random.default_rng(n).random(n) < gaps] = np.nan
    assert not len(score_series(times(n), x).alarms)


def test_rounding_of_a_constant_is_no_change() -> None:
    x = 45.0 + np.random.default_rng(1).normal(size=2000) * 1e-13
    assert not len(score_series(times(2000), x).alarms)


@settings(max_examples=30, deadline=None)
@given(
    arrays(
        np.float64,
        st.integers(0, 400),
        elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan), st.just(np.inf), st.just(-np.inf)),
    )
)
def test_any_numbers_give_finite_scores_and_a_gap_scores_nothing(x: FloatArray) -> None:
    scores = score_series(times(len(x)), x)
    assert np.isfinite(scores.total).all()
    assert (scores.total >= 0).all()
    assert (scores.total[~np.isfinite(x)] == 0).all()
    assert (scores.total[:LEARNING] == 0).all()


def test_gaps_do_not_move_the_other_scores_of_the_value_view() -> None:
    x = np.random.default_rng(3).normal(size=1000)
    x[700] = 30
    holed = np.insert(x, 400, [np.nan] * 50)
    t = times(1050)
    assert (
        score_series(t, holed).views["value"][750] == score_series(times(1000), x).views["value"][700] > ALARM
    )


def test_a_value_beyond_everything_so_far_is_told_once_by_its_margin() -> None:
    x = np.array([0.0, 10.0, 5.0, 15.0, 15.0, -5.0, 12.0])
    np.testing.assert_allclose(beyond_range(x), [0, np.inf, 0, 0.5, 0, 5 / 15, 0])
    np.testing.assert_allclose(new_records(np.array([0.0, 2.0, 3.0, 3.0, 1.0])), [0, np.inf, 0.5, 0, 0])


def test_a_spread_never_seen_is_new_once_and_known_when_it_comes_back() -> None:
    rng = np.random.default_rng(5)
    high, low = rng.uniform(80, 100, 200), rng.uniform(0, 100, 600)
    x = np.concatenate([low, high, low, high])
    novel = unseen_spread(x)
    first, second = novel[600:800].max(), novel[1400:1600].max()
    assert first > 1.0 > second
    assert (novel[: WINDOW - 1] == 0).all()


def test_a_lost_daily_peak_is_told_on_the_day_it_is_missing() -> None:
    n = 14 * 288
    t = times(n)
    x = 20 + 60 * (((t % 86400) > 32400) & ((t % 86400) < 64800)) + np.random.default_rng(2).normal(size=n)
    day = 10 * 288 - int((START % 86400) // STEP)
    hidden = x.copy()
    missing = np.arange(day + 108, day + 216)
    hidden[missing] = 20 + np.random.default_rng(3).normal(size=108)
    scores = score_series(t, hidden)
    assert scores.views["hour"][missing[0] : missing[0] + 6].max() > ALARM
    assert odd_for_the_hour(t, x)[day : day + 288].max() < 0.1


def test_what_goes_on_is_not_said_again_within_half_a_day_unless_it_grows() -> None:
    t = times(400)
    score = np.zeros(400)
    score[[10, 11, 60, 154, 155, 156]] = [3.0, 2.0, 3.0, 2.5, 3.5, 3.5]
    told = news(t, score)
    assert list(np.flatnonzero(told)) == [10, 155]
    assert news(t, np.where(np.arange(400) % 150 == 0, 1.0, 0.0)).sum() == 3
    assert t[155] - t[10] > HOLD


def test_a_clock_that_goes_back_breaks_nothing_and_lengths_must_agree() -> None:
    t = times(500)
    t[200:260] -= 3600
    assert np.isfinite(score_series(t, np.arange(500.0)).total).all()
    with pytest.raises(ValueError, match="499 values"):
        score_series(t, np.zeros(499))
