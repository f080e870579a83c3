"""Agreement of two raters, precision of rules and recall hold the numbers they promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.quality.agreement import LABELS, Labelled, kappa, precision, recall, shares

D, F, U = LABELS


def both(stratum: str, a: str, b: str, rules: tuple[str, ...] = ()) -> Labelled:
    return Labelled(stratum, rules, {"ann": a, "bob": b})


def test_kappa_is_that_of_the_textbook_and_its_interval_that_of_the_normal_theory() -> None:
    k = kappa([(D, D)] * 200 + [(F, F)] * 150 + [(F, D)] * 50 + [(D, F)] * 100)
    assert k is not None
    assert k.value == pytest.approx(0.4)
    # large-sample standard error 0.0405 for this table (Fleiss, Cohen and Everitt)
    assert (k.low, k.high) == pytest.approx((0.4 - 1.96 * 0.0405, 0.4 + 1.96 * 0.0405), abs=0.01)


def test_raters_who_say_the_same_of_everything_have_no_agreement_beyond_chance() -> None:
    k = kappa([(F, F)] * 30)
    assert k is not None
    assert k.value != k.value
    assert (k.n, k.agreed) == (30, 30)


def test_unsure_counts_for_nothing_and_nine_pairs_are_too_few() -> None:
    assert kappa([(D, D)] * 5 + [(F, F)] * 4 + [(U, F)] * 50) is None


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=60))
def test_kappa_does_not_depend_on_who_is_first(pairs: list[tuple[str, str]]) -> None:
    a, b = kappa(pairs), kappa([(y, x) for x, y in pairs])
    assert (a is None) == (b is None)
    if a is not None and b is not None and a.value == a.value:
        assert a.value == pytest.approx(b.value)
        assert a.low <= a.value + 1e-9
        assert a.value <= a.high + 1e-9


def test_a_rules_precision_counts_only_what_both_settled() -> None:
    rows = [
        both("hard", D, D, ("loop_long",)),
        both("hard", D, D, ("loop_long", "truncated")),
        both("hard", F, F, ("loop_long",)),
        both("hard", D, F, ("loop_long",)),
        Labelled("hard", ("loop_long",), {"ann": D}),
    ]
    found = precision(rows)
    assert (found["loop_long"].k, found["loop_long"].n) == (2, 3)
    assert found["truncated"].n == 1


def test_recall_weighs_each_stratum_by_its_size() -> None:
    rows = [both("hard", D, D)] * 20 + [both("soft", D, D)] * 5 + [both("soft", F, F)] * 15
    rows += [both("clean", F, F)] * 100
    found = recall(rows, {"hard": 30, "soft": 40, "clean": 9930})
    assert found is not None
    value, low, high = found
    assert value == pytest.approx(30 / (30 + 10))
    # nothing missed among 100 clean ones still allows 4.3 % of 9,930: the lower end must say so
    assert low < 0.1
    assert value < high <= 1.0
    assert shares(rows)["clean"].k == 0


def test_recall_is_not_known_while_a_stratum_has_no_labels() -> None:
    assert recall([both("hard", D, D)] * 20, {"hard": 30, "soft": 0, "clean": 1000}) is None
    assert recall([both("clean", F, F)] * 20, {"hard": 0, "clean": 1000}) is None
