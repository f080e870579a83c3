"""How rare a window is: sizes hold under no change, changes are found, and what cannot be told is not told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from core.frames import FloatArray
from detectors.series.rarity import BLOCKS, discoveries, rarity, share_rarity

CELLS, PAST = 10, 100


def made(kind: str, rng: np.random.Generator, count: int, cells: int = PAST + CELLS) -> FloatArray:
    """Series without a change."""
    noise = rng.normal(size=(count, cells))
    if kind == "noise":
        return noise
    if kind == "slow":
        return np.asarray(lfilter([1.0], [1.0, -0.7], noise, axis=1))
    if kind == "long tail":
        return np.exp(noise)
    if kind == "events":
        return rng.poisson(0.03, (count, cells)).astype(np.float64)
    return np.arange(cells) * 0.1 + noise


def p_of(x: FloatArray) -> FloatArray:
    return rarity(x[:, :-CELLS], x[:, -CELLS:]).p


@pytest.mark.parametrize("kind", ["noise", "slow", "long tail", "events", "trend"])
def test_without_a_change_a_p_of_one_in_a_hundred_comes_no_more_often_than_two_in_a_hundred(
    kind: str,
) -> None:
    p = p_of(made(kind, np.random.default_rng(4), 4000))
    assert np.mean(p <= 0.01) <= 0.02
    assert np.mean(p <= 1e-4) <= 2e-3


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), power=st.integers(-20, 20))
def test_the_unit_does_not_matter(seed: int, power: int) -> None:
    x = made("long tail", np.random.default_rng(seed), 8)
    np.testing.assert_allclose(p_of(x), p_of(x * 2.0**power), rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1))
def test_gaps_give_probabilities_or_nothing(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    x = made("noise", rng, 6)
    x[rng.random(x.shape) < share] = np.nan
    p = p_of(x)
    assert ((np.isnan(p)) | ((p >= 0) & (p <= 1))).all()
    assert np.isnan(p_of(np.full((2, PAST + CELLS), np.nan))).all()


def test_a_constant_is_not_odd_and_its_change_is() -> None:
    x = np.full((2, PAST + CELLS), 7.0)
    x[1, -CELLS:] = 8.0
    still, moved = p_of(x)
    assert still > 0.5
    assert moved < 1e-4


def test_a_shift_a_single_peak_and_first_events_are_rare_and_reported_with_before_and_now() -> None:
    rng = np.random.default_rng(6)
    x = made("noise", rng, 3) + 20
    x[0, -CELLS:] += 6
    x[1, -4] += 15
    x[2] = 0
    x[2, -6:] = 3
    found = rarity(x[:, :-CELLS], x[:, -CELLS:])
    assert (found.p < [1e-4, 1e-2, 1e-3]).all()
    assert found.before == pytest.approx([20, 20, 0], abs=0.5)
    assert found.now == pytest.approx([26, 21.5, 1.8], abs=1.0)


def test_an_even_slope_explains_itself_away() -> None:
    x = np.tile(np.arange(PAST + CELLS, dtype=float), (1, 1))
    assert p_of(x)[0] > 0.05


def test_less_than_six_windows_of_past_say_nothing() -> None:
    x = np.random.default_rng(1).normal(size=(3, (BLOCKS - 1) * CELLS + CELLS))
    assert np.isnan(p_of(x)).all()


def test_a_tail_is_judged_by_counts_upwards_and_three_slow_requests_of_a_session_are_no_news() -> None:
    rng = np.random.default_rng(8)
    n0, n1 = np.full((4000, PAST), 20.0), np.full((4000, CELLS), 20.0)
    k0 = rng.binomial(20, 0.03, n0.shape).astype(np.float64)
    k1 = rng.binomial(20, 0.03, n1.shape).astype(np.float64)
    p = share_rarity((k0, n0), (k1, n1)).p
    assert np.mean(p <= 0.01) <= 0.015
    more = share_rarity((k0[:1], n0[:1]), (k1[:1] + 6, n1[:1]))
    assert more.p[0] < 1e-5
    assert more.now[0] == pytest.approx(0.33, abs=0.05)
    assert share_rarity((k0[:1], n0[:1]), (k1[:1] * 0, n1[:1])).p[0] > 0.5
    few = np.zeros((1, CELLS))
    few[0, 4] = 3.0
    assert share_rarity((k0[:1] * 0, n0[:1]), (few, n1[:1])).p[0] > 1e-3


def test_the_false_discovery_rate_is_that_of_benjamini_and_hochberg() -> None:
    q = discoveries(np.array([0.01, np.nan, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(q[[0, 2, 3, 4]], [0.02, 0.04, 0.04, 0.02])
    assert np.isnan(q[1])
    assert discoveries(np.array([])).shape == (0,)
