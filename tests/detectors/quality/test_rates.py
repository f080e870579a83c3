"""Rates, alarms and evidence hold the numbers they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from detectors.quality.compare import difference
from detectors.quality.cusum import HARMS, false_alarms_per, more_until, push, run_length, steps
from detectors.quality.evalues import average, named, rate_process, share_value
from detectors.quality.rates import exact, from_sums, weighted, with_errors, zero_bound


@given(st.integers(0, 400), st.integers(1, 400))
def test_an_exact_interval_leaves_out_what_the_binomial_finds_unlikely(k: int, extra: int) -> None:
    n = k + extra
    r = exact(k, n)
    assert r.low <= r.value <= r.high
    if k:
        assert stats.binom.sf(k - 1, n, r.low) == pytest.approx(0.025, rel=1e-6)
    assert stats.binom.cdf(k, n, r.high) == pytest.approx(0.025, rel=1e-6)


def test_none_of_three_thousand_bounds_the_rate_at_a_tenth_of_a_percent() -> None:
    assert zero_bound(3000) == pytest.approx(0.001, rel=0.01)


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.sampled_from([1.0, 20.0]))
def test_equal_weights_change_nothing(bad: list[bool], w: float) -> None:
    k = np.asarray(bad, float)
    assert weighted(k, np.full(len(k), w)) == exact(int(k.sum()), len(k))


def test_unequal_weights_weigh_and_widen() -> None:
    bad = np.r_[np.ones(5), np.zeros(995)]
    weight = np.r_[np.full(5, 20.0), np.full(500, 1.0), np.full(495, 20.0)]
    r = weighted(bad, weight)
    assert r.value == pytest.approx(100 / weight.sum())
    plain = exact(5, 1000)
    assert (r.high - r.low) / r.value > 0.9 * (plain.high - plain.low) / plain.value
    assert from_sums(0, 0, 0, 0, 0, 1).n == 0


def test_the_rules_own_error_is_taken_off() -> None:
    assert with_errors(1.45e-3, 1e-4, 0.95) == pytest.approx(1.35e-3 / 0.9499, rel=1e-9)
    assert with_errors(1e-5, 1e-4, 0.95) == 0.0
    with pytest.raises(ValueError, match="recall"):
        with_errors(0.5, 0.5, 0.4)


# ---------------------------------------------------------------- CUSUM


@pytest.mark.parametrize(
    ("alarm", "false_after", "delay"), [(4.0, 1.2e5, 2930), (6.0, 9.8e5, 4610), (8.0, 7.3e6, 6270)]
)
def test_run_lengths_are_those_measured_by_simulation(alarm: float, false_after: float, delay: float) -> None:
    """detection.md 3.4: simulated outputs between false alarms at 3 in 10,000, and until the alarm at 15."""
    assert run_length(3e-4, 3e-4, 5.0, alarm) == pytest.approx(false_after, rel=0.08)
    assert run_length(15e-4, 3e-4, 5.0, alarm) == pytest.approx(delay, rel=0.03)


def test_a_lower_alarm_costs_false_ones() -> None:
    assert false_alarms_per(1e6, 3e-4, 6.0) > 5 * false_alarms_per(1e6, 3e-4, 8.0)
    assert more_until(3e-4, 0.02, 8.0) < 200


def test_the_chart_restarts_at_its_last_zero() -> None:
    rises = steps(3e-4)
    stream = [[0.0, 0.0] for _ in HARMS]
    hit = [push(stream, bad, float(i), rises, 8.0) for i, bad in enumerate([False] * 50 + [True] * 3)]
    assert hit == [False] * 52 + [True]
    assert stream[1][1] == 49.0


# ---------------------------------------------------------------- e-values


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31))
def test_evidence_against_a_true_rate_is_rarely_large_however_often_one_looks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = np.cumsum(rng.random((40, 20_000)) < 3e-4, axis=1)
    e = rate_process(k, np.arange(1, 20_001), 3e-4)
    assert (e.max(axis=1) > np.log(1000.0)).mean() <= 0.1


def test_the_e_process_alarms_after_about_five_thousand_outputs_at_fifteen() -> None:
    rng = np.random.default_rng(1)
    k = np.cumsum(rng.random((60, 30_000)) < 15e-4, axis=1)
    e = rate_process(k, np.arange(1, 30_001), 3e-4)
    first = np.argmax(e > np.log(100.0), axis=1)
    assert 3_500 < first.mean() < 7_000


@pytest.mark.parametrize(("k", "n"), [(705, 1_001_000), (0, 10_000_000), (300, 100_000)])
def test_a_rate_at_or_under_the_bound_is_no_evidence_however_large_the_sample(k: int, n: int) -> None:
    assert float(rate_process(k, n, 3e-3)) < 0


@given(st.floats(0.1, 200.0))
def test_the_e_process_has_mean_one_at_the_bound(expected: float) -> None:
    k = np.arange(int(expected + 60 * expected**0.5 + 400))
    e = np.exp(rate_process(k, expected / 3e-4, 3e-4) + stats.poisson.logpmf(k, expected))
    assert float(e.sum()) == pytest.approx(1.0, abs=0.01) or float(e.sum()) < 1


@given(st.integers(1, 60), st.floats(0.05, 0.9))
def test_a_share_value_has_mean_at_most_one_where_nothing_differs(total: int, q: float) -> None:
    k = np.arange(total + 1)
    p = stats.binom.pmf(k, total, q)
    e = np.asarray([share_value(np.array([float(i)]), np.array([float(total)]), np.array([q])) for i in k])
    assert float((p * e).sum()) <= 1 + 1e-9


def test_one_class_that_is_worse_says_nothing_about_a_replica() -> None:
    """40 of 50 bad outputs on a replica that has 80 % of the bad class: that is its share."""
    within = share_value(np.array([40.0, 0.0]), np.array([50.0, 0.0]), np.array([0.8, 0.1]))
    pooled = share_value(np.array([40.0]), np.array([50.0]), np.array([0.45]))
    assert within < 1 < 100 < pooled


def test_names_are_given_to_the_strongest_only() -> None:
    assert named([1000.0, 3.0, 90.0, 0.1]) == [0, 2]
    assert named([19.0]) == []
    assert average([300.0, 0.0, 0.0]) == 100.0
    assert average([]) == 1.0


def test_a_difference_covers_zero_where_nothing_differs() -> None:
    d = difference(9, 10, 9, 10)
    assert d.low < 0 < d.high
    assert difference(549, 636, 1274, 1274).separable
    with pytest.raises(ValueError, match="trial"):
        difference(1, 1, 0, 0)
