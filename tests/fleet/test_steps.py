"""Durations of steps and the closed form of a jump."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model import Speeds
from fleet.steps import Plan, accept_length, decode_seconds, prompt_seconds


@given(st.floats(1e-4, 1.0), st.floats(0.0, 1e-3), st.integers(1, 5000), st.data())
def test_a_jump_takes_as_long_as_its_steps_one_by_one(
    first: float, growth: float, count: int, data: st.DataObject
) -> None:
    plan = Plan(100.0, first, growth, count, 1, 1.0)
    k = data.draw(st.integers(1, count))
    assert plan.elapsed(k) - plan.elapsed(k - 1) == pytest.approx(
        first + growth * (k - 1), rel=1e-6, abs=1e-7
    )
    inside = plan.start + plan.elapsed(k - 1) + 0.5 * (first + growth * (k - 1))
    assert plan.done_by(inside) == k - 1


def test_a_stall_comes_before_the_first_step() -> None:
    plan = Plan(0.0, 0.01, 0.0, 1, 1, 1.0)
    plan.stall = 2.0
    assert plan.end == pytest.approx(2.01)
    assert plan.done_by(1.9) == 0


def test_accepted_tokens_follow_the_geometric_law() -> None:
    assert accept_length(0.5, 3) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert accept_length(0.0, 3) == 1.0
    assert accept_length(1.0, 3) == 4.0
    assert accept_length(0.7, 0) == 1.0


def test_a_prompt_costs_more_behind_a_long_context() -> None:
    speeds = Speeds(prefill=1e-4, attention=1e-9)
    assert prompt_seconds(speeds, 1000, 0) == pytest.approx(0.1 + 1e-9 * 1000 * 500)
    assert prompt_seconds(speeds, 1000, 100_000) == pytest.approx(0.1 + 1e-9 * 1000 * 100_500)


def test_a_step_grows_with_batch_and_context() -> None:
    speeds = Speeds(step=0.01, sequence=1e-4, context=1e-8, draft=0.002)
    assert decode_seconds(speeds, 10, 1e6, False) == pytest.approx(0.01 + 0.001 + 0.01)
    assert decode_seconds(speeds, 10, 1e6, True) == pytest.approx(0.023)
