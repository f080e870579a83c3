"""Requests that clients gave up, from an engine that hides them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.services.aborts import hidden

counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=40)


def test_a_success_that_lands_in_the_next_step_is_not_an_abort() -> None:
    assert hidden(np.array([10, 10, 10]), np.array([9, 11, 10])).tolist() == [0, 0, 0]


def test_what_never_succeeded_is_found_in_its_step() -> None:
    assert hidden(np.array([10, 14, 10, 10]), np.array([10, 10, 10, 10])).tolist() == [0, 4, 0, 0]


@given(counts)
def test_hidden_aborts_are_never_negative_and_never_more_than_the_totals_allow(
    rows: list[tuple[int, int]],
) -> None:
    answered, succeeded = (np.array(column) for column in zip(*rows, strict=True))
    found = hidden(answered, succeeded)
    assert (found >= 0).all()
    assert found.sum() == max(0, int(answered.sum() - succeeded.sum()))
