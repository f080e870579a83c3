"""The peers do what their public rules say: numbers worked out by hand, and Prometheus' own quantile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.peers import netdata
from bench.peers.alerts import alerts, firing
from bench.peers.grafana import adaptive, robust, selected
from bench.peers.series import histogram_quantile, minutely, trailing_sum


def flat(value: float, minutes: int = 60) -> Any:
    return np.full(minutes, value)


# ------------------------------------------------------------------------------------------------------- alerts


def test_an_alert_fires_when_its_condition_has_held_long_enough_and_ends_with_it() -> None:
    held = np.array([0, 1, 1, 1, 1, 1, 1, 0, 1, 1], bool)
    assert firing(held, 60.0, 300.0) == [(360.0, 420.0)]
    assert firing(held, 60.0, 0.0) == [(60.0, 420.0), (480.0, 600.0)]
    assert firing(np.zeros(3, bool), 60.0, 0.0) == []


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 5))
def test_no_alert_fires_outside_its_condition(held: list[bool], hold: int) -> None:
    for begin, end in firing(np.array(held, bool), 1.0, float(hold)):
        assert all(held[int(begin) - hold : int(end)])
        assert int(end) == len(held) or not held[int(end)]


def test_one_rule_in_one_pool_is_one_alert_until_a_quarter_of_an_hour_is_quiet() -> None:
    spans = [("a-0", 0.0, 60.0), ("a-1", 900.0, 960.0), ("a-0", 1861.0, 1900.0)]
    got = alerts(1000.0, "a", spans, "r")
    assert [(g["detected_at"], g["ended_at"], g["replicas"]) for g in got] == [
        (1030.0, 1990.0, ["a-0", "a-1"]),
        (2891.0, 2930.0, ["a-0"]),
    ]


# ------------------------------------------------------------------------------------------------------ numbers


def test_the_quantile_is_that_of_prometheus() -> None:
    """Values of ``histogram_quantile``: linear inside a bucket, the last finite edge beyond it, NaN for nothing."""
    edges = np.array([0.1, 0.5, 1.0])
    counts = np.array(
        [[10.0, 10.0, 0.0, 0.0], [0.0, 0.0, 1.0, 9.0], [0.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0]]
    )
    got = histogram_quantile(0.9, edges, counts)
    assert got[0] == pytest.approx(0.1 + 0.4 * 0.8)
    assert got[1] == 1.0
    assert np.isnan(got[2])
    assert got[3] == pytest.approx(0.1 + 0.4 * 0.9)


def test_a_trailing_sum_covers_its_cells_and_counts_gaps_as_nothing() -> None:
    x = np.array([1.0, np.nan, 2.0, 3.0])
    assert trailing_sum(x, 2).tolist() == [1.0, 1.0, 2.0, 5.0]
    assert minutely(np.arange(8.0)).tolist() == [3.0, 7.0]


# -------------------------------------------------------------------------------------------------------- bands


def test_a_steady_series_has_the_band_of_half_its_mean() -> None:
    level, lower, upper = adaptive(flat(4.0))
    assert (level[-1], lower[-1], upper[-1]) == (4.0, 2.0, 6.0)
    level, lower, upper = robust(flat(4.0))
    assert (level[-1], lower[-1], upper[-1]) == (4.0, 2.0, 6.0)


def test_a_restless_series_has_the_band_of_twice_its_spread() -> None:
    """0.5 and 7.5 in turn: mean 4, spread 3.5, over half the mean; the band is 4 ± 7, below cut at 0."""
    _, lower, upper = adaptive(np.tile([0.5, 7.5], 60))
    assert upper[-1] == pytest.approx(4.0 + 2 * 3.5, rel=0.03)
    assert lower[-1] == 0.0


def test_a_jump_leaves_the_adaptive_band_at_once_and_the_robust_one_only_after_half_an_hour() -> None:
    x = np.concatenate((flat(1.0, 60), flat(5.0, 40)))
    level, _, upper = adaptive(x)
    assert bool(level[60] > upper[60])
    level, _, upper = robust(x)
    out = np.flatnonzero(level > upper)
    assert out[0] == 60 + 29, "thirty of the hour's sixty points"


def test_sparse_requests_and_zeros_are_left_out() -> None:
    assert np.isnan(selected(flat(0.05), requests=True)).all()
    assert not np.isnan(selected(flat(0.05), requests=False)).any()
    assert np.isnan(selected(flat(0.0), requests=False)).all()


# ------------------------------------------------------------------------------------------------------ Netdata


def test_features_are_differences_smoothed_and_lagged() -> None:
    x = np.array([[0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0]])
    f = netdata.features(x)
    assert f.shape == (1, 9, 6)
    # Differences 1, 2, 3, …; their means over three are 2, 3, 4, 5, 6, 7 from the fourth sample on.
    assert f[0, 8].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert np.isnan(f[0, 7]).any()


def test_a_model_has_two_centres_and_the_range_of_its_training() -> None:
    f = np.zeros((1, 40, 6))
    f[0, 20:] = 10.0
    centres, least, most = netdata.train(f)
    assert sorted(centres[0, :, 0].tolist()) == [0.0, 10.0]
    assert least[0] == most[0] == pytest.approx(10.0 * np.sqrt(6.0) / 2.0)


def test_what_is_like_the_training_is_no_anomaly_and_a_leap_is() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(100.0, 1.0, (1, 240))
    x[0, 150:156] += np.array([40.0, -40.0, 60.0, -60.0, 50.0, -30.0])
    bits = netdata.anomalous(x)
    assert not bits[0, :60].any(), "nothing is judged before the first model"
    assert bits[0, 150:160].any()
    assert bits[0, 170:].mean() < 0.03


def test_a_dimension_that_is_anomalous_half_the_time_is_silenced() -> None:
    bits = np.zeros((1, 180), bool)
    bits[0, 60:150] = True
    assert not netdata._silenced(bits)[0, 120:].any()
