"""Statistics against values known from elsewhere."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from detectors.degraded_generations import upper_rate
from detectors.stats import binomial_tail, centre_spread, dispersion, nanmedian, poisson_tail, ratio_interval


@pytest.mark.parametrize("module", ["stats", "wording", "degraded_generations"])
def test_examples_in_docstrings_are_right(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"detectors.{module}")).failed == 0


@given(st.integers(1, 200), st.floats(0.01, 150))
def test_the_poisson_tail_is_that_of_scipy(k: int, mean: float) -> None:
    assert float(poisson_tail(k, mean)) == pytest.approx(
        float(reference.poisson.sf(k - 1, mean)), rel=1e-6, abs=1e-300
    )


@given(st.integers(1, 80), st.integers(1, 5000), st.integers(0, 80), st.integers(1, 50000))
def test_the_conditional_binomial_is_exact(k: int, n: int, K: int, N: int) -> None:
    assert float(binomial_tail(k, n, K, N)) == pytest.approx(
        float(reference.binom.sf(k - 1, k + K, n / (n + N))), rel=1e-6, abs=1e-300
    )


def test_over_dispersion_weakens_evidence() -> None:
    assert float(binomial_tail(20, 100, 5, 1000, 3.0)) > 1e3 * float(binomial_tail(20, 100, 5, 1000))


def test_poisson_blocks_have_no_over_dispersion_and_clumps_have() -> None:
    rng = np.random.default_rng(3)
    n = np.full(400, 200.0)
    assert dispersion(rng.binomial(200, 0.02, 400).astype(float), n) < 1.3
    assert dispersion(rng.binomial(200, rng.choice([0.0, 0.08], 400)).astype(float), n) > 3


@given(
    st.lists(
        st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=5, max_size=5),
        min_size=1,
        max_size=6,
    )
)
def test_the_median_leaves_out_what_is_missing(rows: list[list[float]]) -> None:
    x = np.asarray(rows)
    for got, row in zip(nanmedian(x), x, strict=True):
        known = row[~np.isnan(row)]
        assert (np.isnan(got) and not len(known)) or got == pytest.approx(np.median(known))


def test_spread_is_the_standard_deviation_of_a_normal() -> None:
    c, s = centre_spread(np.random.default_rng(0).normal(5, 2, (1, 20000)))
    assert c[0] == pytest.approx(5, abs=0.05)
    assert s[0] == pytest.approx(2, rel=0.03)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_interval_of_a_ratio_holds_the_ratio(a: int, b: int) -> None:
    low, high = ratio_interval(a, 1000, b, 4000)
    if a + b:
        assert low <= (a / 1000) / max(b / 4000, 1e-12) <= high or b == 0
        assert low < high


def test_the_interval_of_a_ratio_covers_at_its_level() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(1000):
        low, high = ratio_interval(int(rng.poisson(30)), 1000, int(rng.poisson(10)), 1000)
        inside += low <= 3.0 <= high
    assert inside >= 940


def test_an_upper_rate_falls_with_clean_history() -> None:
    assert upper_rate(0, 0) > upper_rate(0, 10_000) > upper_rate(0, 100_000)
    assert upper_rate(3, 10_000) > 3e-4
