import math
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from core.bucket_kernel import rank_bounds
from core.buckets import Hist, Quantile, exceedance_p, merge, quantile, share_within, trailing_quantiles

VLLM = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
VLLM += (20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
SGLANG = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)


def bucketed(edges: tuple[float, ...], values: np.ndarray) -> Hist:
    """The histogram an engine would export: an edge belongs to the bucket below it."""
    at = np.searchsorted(np.array(edges), values, side="left")
    return edges, np.bincount(at, minlength=len(edges) + 1).astype(np.int64)


def counts(edges: tuple[float, ...], **at: int) -> Hist:
    """A histogram with ``_<bucket position>=count``."""
    out = np.zeros(len(edges) + 1, dtype=np.int64)
    for position, n in at.items():
        out[int(position[1:])] = n
    return edges, out


EDGES = st.lists(st.integers(1, 400), min_size=1, max_size=8, unique=True).map(
    lambda e: tuple(sorted(x / 8 for x in e))
)
VALUES = st.lists(st.integers(0, 420).map(lambda v: v / 8), min_size=1, max_size=120)


@given(st.lists(st.tuples(EDGES, VALUES), min_size=1, max_size=4), st.sampled_from([0.01, 0.5, 0.9, 0.99]))
@settings(max_examples=500, deadline=None)
def test_the_interval_holds_the_exact_sample_quantile_whatever_the_layouts(
    parts: list[tuple[tuple[float, ...], list[float]]], q: float
) -> None:
    found = quantile([bucketed(e, np.array(v)) for e, v in parts], q, min_n=1)
    exact = float(np.quantile(np.concatenate([v for _, v in parts]), q, method="inverted_cdf"))
    assert found.low <= exact <= found.high
    assert found.n == sum(len(v) for _, v in parts)
    if found.state == "ok":
        assert found.value is not None
        assert found.low <= found.value <= found.high
    else:
        assert found.value is None
        assert found.state in ("above", "below")


@given(EDGES, VALUES, st.sampled_from([0.5, 0.99]))
@settings(deadline=None)
def test_the_value_lies_in_the_bucket_of_the_sample_quantile(
    edges: tuple[float, ...], values: list[float], q: float
) -> None:
    found = quantile([bucketed(edges, np.array(values))], q, min_n=1)
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    bucket = next(((a, b) for a, b in pairwise((0.0, *edges, math.inf)) if exact <= b), (0.0, 0.0))
    if found.value is not None:
        assert bucket[0] <= found.value <= bucket[1]
    elif found.state == "below":
        assert (found.low, found.high) == (0.0, edges[0])
    else:
        assert (found.low, found.high) == (edges[-1], math.inf)


@given(st.lists(st.tuples(EDGES, VALUES), min_size=1, max_size=4), st.integers(0, 420).map(lambda v: v / 8))
@settings(deadline=None)
def test_the_share_within_a_threshold_is_bounded_and_exact_on_an_edge(
    parts: list[tuple[tuple[float, ...], list[float]]], threshold: float
) -> None:
    share = share_within([bucketed(e, np.array(v)) for e, v in parts], threshold)
    exact = sum(x <= threshold for _, v in parts for x in v)
    assert share.low <= exact <= share.high
    if all(threshold in e for e, _ in parts):
        assert share.exact
        assert share.low == exact


def test_interpolation_inside_a_bucket_is_geometric() -> None:
    found = quantile([counts((1.0, 4.0), _0=100, _1=200, _2=100)], 0.5, min_n=1)
    assert found.value == pytest.approx(2.0)


def test_two_engines_are_never_interpolated_on_the_union_of_their_edges() -> None:
    vllm, sglang = counts(VLLM, _11=913, _12=87), counts(SGLANG, _5=15_841, _6=4_659)
    assert quantile([vllm], 0.99).value == pytest.approx(2.25, abs=0.005)
    assert quantile([sglang], 0.99).value == pytest.approx(1.94, abs=0.005)
    # What sum by (le) and a linear interpolation make of it: SGLang has an edge at 8 s where vLLM has none.
    union = sorted({*VLLM, *SGLANG})
    known = [dict(zip(edges, np.cumsum(c), strict=False)) for edges, c in (vllm, sglang)]
    summed = np.maximum.accumulate([sum(int(k.get(e, 0)) for k in known) for e in union])
    i = int(np.searchsorted(summed, rank := 0.99 * 21_500))
    wrong = union[i - 1] + (union[i] - union[i - 1]) * (rank - summed[i - 1]) / (summed[i] - summed[i - 1])
    assert wrong == pytest.approx(9.57, abs=0.005)
    both = quantile([vllm, sglang], 0.99)
    assert both.value is not None
    assert 1.9 < both.value < 2.25
    assert (both.low, both.high) == (1.0, 2.0)


def test_rank_bounds_are_those_of_the_binomial() -> None:
    n = np.concatenate([np.arange(1, 1500), [5000, 123_456, 10_000_000]])
    for q in (0.5, 0.95, 0.99, 0.999):
        low, high = rank_bounds(n, q)
        np.testing.assert_array_equal(low, binom.ppf(0.025, n, q))
        np.testing.assert_array_equal(high, binom.ppf(0.975, n, q) + 1)


def test_below_368_requests_p99_has_no_upper_bound_and_says_so() -> None:
    edges = tuple(1.01**i for i in range(1, 500))
    values = np.random.default_rng(3).lognormal(1, 0.5, 368)
    assert math.isfinite(quantile([bucketed(edges, values)], 0.99).high)
    found = quantile([bucketed(edges, values[:367])], 0.99)
    assert (found.state, found.high) == ("ok", math.inf)
    assert "≥" in found.text()


def test_the_interval_covers_the_true_quantile_as_often_as_it_promises() -> None:
    rng = np.random.default_rng(11)
    edges = tuple(0.01 * 1.02**i for i in range(500))
    true = math.exp(2.3263478740408408)
    hits = 0
    for _ in range(400):
        found = quantile([bucketed(edges, rng.lognormal(0, 1, 1000))], 0.99)
        hits += found.low <= true <= found.high
    assert 0.94 <= hits / 400 <= 1.0


def test_the_first_bucket_is_at_most_and_the_last_at_least() -> None:
    assert quantile([counts(VLLM, _0=400)], 0.99).text() == "≤ 1 ms (n 400)"
    ceiling = (*VLLM[:20], math.inf)[:-1]
    found = quantile([counts(ceiling, _3=390, _20=10)], 0.99)
    assert (found.state, found.value, found.low, found.high) == ("above", None, 160.0, math.inf)
    assert found.text() == "≥ 160 s (n 400)"


def test_too_few_requests_give_no_percentile_and_none_give_no_traffic() -> None:
    found = quantile([counts(VLLM, _12=299)], 0.99)
    assert (found.state, found.value, found.text()) == ("too_few", None, "not enough data (n 299)")
    assert quantile([counts(VLLM)], 0.99).text() == "no traffic"
    assert quantile([], 0.99).state == "no_traffic"
    assert quantile([counts(VLLM, _12=300)], 0.99).state == "ok"


@pytest.mark.parametrize(
    ("found", "unit", "text"),
    [
        (Quantile(0.99, 2.1, 1.0, 2.5, 4312, "ok"), "s", "2.1 s (1.0–2.5, n 4,312)"),
        (Quantile(0.99, 0.254, 0.1, 0.5, 400, "ok"), "s", "254 ms (100–500, n 400)"),
        (Quantile(0.99, 0.9, 0.75, 2.5, 400, "ok"), "s", "900 ms (750–2,500, n 400)"),
        (Quantile(0.99, 23.46, 20.0, math.inf, 310, "ok"), "s", "23 s (≥ 20, n 310)"),
        (Quantile(0.5, 4096.0, 2000.0, 5000.0, 400, "ok"), "tokens", "4,096 tokens (2,000–5,000, n 400)"),
        (Quantile(0.5, 0.25, 0.2, 0.5, 400, "ok"), "", "0.25 (0.2–0.5, n 400)"),
    ],
)
def test_a_percentile_is_written_with_its_interval_and_count(found: Quantile, unit: str, text: str) -> None:
    assert found.text(unit) == text


def test_edges_that_differ_by_rounding_are_the_same_edge() -> None:
    a, b = (0.1, 0.3, 1.0), (0.1, 0.1 + 0.2, 1.0)
    found = quantile([counts(a, _1=400), counts(b, _1=400)], 0.5)
    assert (found.low, found.high) == (0.1, 0.3)
    assert share_within([counts(b, _1=400)], 0.3).exact


def test_merging_adds_counts_per_layout_and_takes_no_value_as_none() -> None:
    merged = merge([((1.0,), np.array([1, 2])), ((2.0,), np.array([5, 5])), ((1.0,), np.array([-1, 3]))])
    assert {e: c.tolist() for e, c in merged.items()} == {(1.0,): [1, 5], (2.0,): [5, 5]}
    with pytest.raises(ValueError, match="counts"):
        merge([((1.0, 2.0), np.array([1, 2]))])
    with pytest.raises(ValueError, match="ascend"):
        quantile([((2.0, 1.0), np.array([1, 2, 3]))], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([((1.0,), np.array([1, 2]))], 99)


def test_a_histogram_with_only_an_overflow_bucket_says_nothing_but_its_count() -> None:
    found = quantile([((), np.array([500]))], 0.99)
    assert (found.state, found.low, found.n) == ("above", 0.0, 500)


@given(VALUES, st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200)), max_size=40))
@settings(deadline=None)
def test_a_request_given_up_counts_as_at_least_its_age(
    answered: list[float], given_up: list[tuple[int, int]]
) -> None:
    edges = tuple(i / 2 for i in range(1, 120))
    ages = np.array([age / 8 for age, _ in given_up])
    would_be = np.array([(age + more) / 8 for age, more in given_up])
    found = quantile(
        [bucketed(edges, np.array(answered))],
        0.9,
        min_n=1,
        censored=[bucketed(edges, ages)] if given_up else [],
    )
    exact = float(np.quantile(np.concatenate([answered, would_be]), 0.9, method="inverted_cdf"))
    assert found.low <= exact <= found.high


@pytest.mark.parametrize(
    ("k", "n", "K", "N"), [(5, 100, 10, 1000), (0, 10, 5, 50), (30, 1000, 100, 10_000), (1, 1, 0, 5)]
)
def test_exceedance_is_the_conditional_binomial(k: int, n: int, K: int, N: int) -> None:
    assert exceedance_p(k, n, K, N) == pytest.approx(binom.sf(k - 1, k + K, n / (n + N)), rel=1e-9)


def test_dispersion_weakens_the_evidence_and_an_unchanged_tail_is_none() -> None:
    assert exceedance_p(30, 1000, 100, 10_000) < 1e-4
    assert exceedance_p(30, 1000, 100, 10_000) < exceedance_p(30, 1000, 100, 10_000, phi=3) < 0.05
    assert exceedance_p(10, 1000, 100, 10_000) > 0.4
    assert exceedance_p(0, 1000, 100, 10_000) == exceedance_p(3, 3, 0, 0) == 1.0
    for wrong in ((5, 4, 1, 10), (-1, 4, 1, 10), (1, 4, 11, 10)):
        with pytest.raises(ValueError, match="impossible"):
            exceedance_p(*wrong)
    with pytest.raises(ValueError, match="dispersion"):
        exceedance_p(1, 2, 1, 2, phi=0.5)


def day(
    edges: tuple[float, ...], rng: np.random.Generator, per_minute: float, minutes: int = 1440
) -> np.ndarray:
    """Counts per minute of a busy class."""
    return np.array(
        [bucketed(edges, rng.lognormal(-0.5, 1, rng.poisson(per_minute)))[1] for _ in range(minutes)]
    )


def test_each_point_uses_the_shortest_window_with_enough_requests() -> None:
    rng = np.random.default_rng(5)
    quiet, busy = day(VLLM, rng, 2, 70), day(VLLM, rng, 400, 10)
    series = trailing_quantiles({VLLM: np.concatenate([quiet, busy])}, 0.99)
    assert [series[i][1] for i in (0, 40, 69, 70, 79)] == [60, 60, 60, 1, 1]
    assert series[0][0].state == "too_few"
    empty = trailing_quantiles({VLLM: np.zeros((3, 23), np.int64)}, 0.99)
    assert [point.state for point, _ in empty] == ["no_traffic"] * 3


def test_a_trailing_percentile_equals_the_percentile_of_the_summed_window() -> None:
    rng = np.random.default_rng(6)
    layouts = {VLLM: day(VLLM, rng, 30, 90), SGLANG: day(SGLANG, rng, 10, 90)}
    series = trailing_quantiles(layouts, 0.95, min_n=300)
    assert len(series) == 90
    for i, (point, window) in enumerate(series):
        begin = max(0, i + 1 - int(window))
        want = quantile([(e, c[begin : i + 1].sum(axis=0)) for e, c in layouts.items()], 0.95, min_n=300)
        assert (point.state, point.n) == (want.state, want.n)
        assert (point.low, point.high) == (want.low, want.high)
        assert point.value == (None if want.value is None else pytest.approx(want.value))


def test_only_the_steps_asked_for_are_computed_on_any_grid() -> None:
    rng = np.random.default_rng(8)
    layouts = {VLLM: day(VLLM, rng, 30, 120)}
    every, some = trailing_quantiles(layouts, 0.99), trailing_quantiles(layouts, 0.99, at=[60, 119])
    assert [some[0], some[1]] == [every[60], every[119]]
    coarse = {VLLM: layouts[VLLM].reshape(24, 5, -1).sum(axis=1)}
    assert trailing_quantiles(coarse, 0.99, step=5)[23][0] == quantile(
        [(VLLM, layouts[VLLM][105:].sum(axis=0))], 0.99
    )
    assert len(trailing_quantiles({}, 0.99)) == 0
    with pytest.raises(ValueError, match="different numbers"):
        trailing_quantiles({VLLM: layouts[VLLM], SGLANG: np.zeros((3, 19), np.int64)}, 0.99)


def test_a_day_of_minutes_for_three_classes_and_four_layouts_takes_a_fraction_of_a_second() -> None:
    rng = np.random.default_rng(9)
    layouts = {tuple(e * f for e in VLLM): day(VLLM, rng, 20) for f in (1.0, 1.1, 1.2, 1.3)}
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(3):
            trailing_quantiles(layouts, 0.99)
        best = min(best, time.perf_counter() - start)
    assert best < 0.3  # measured 36 ms on a shared core


def test_observations_known_only_to_be_late_enter_a_trailing_percentile_as_they_enter_a_single_one() -> None:
    random = np.random.default_rng(5)
    answered = random.poisson(8, (90, len(VLLM) + 1))
    gone = random.poisson(1, (90, len(VLLM) + 1))
    series = trailing_quantiles({VLLM: answered}, 0.9, min_n=300, censored={VLLM: gone})
    for end, minutes in ((89, series.window[89]), (70, series.window[70])):
        rows = slice(int(end + 1 - minutes), end + 1)
        one = quantile(
            [(VLLM, answered[rows].sum(axis=0))], 0.9, 300, censored=[(VLLM, gone[rows].sum(axis=0))]
        )
        found, _ = series[end]
        assert (found.n, found.state, found.low, found.high) == (one.n, one.state, one.low, one.high)
        assert found.value == pytest.approx(one.value)
