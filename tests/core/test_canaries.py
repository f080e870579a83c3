"""Judging canaries: right size under the null, and sees what it should."""

from __future__ import annotations

import random

import pytest

from core.canaries import HIGH, LOW, Asked, Prompt, judge


def asked(
    prompt: str, load: str, number: int, text: str | None, expect: str | None = "yes", error: str = ""
) -> Asked:
    return Asked(Prompt(prompt, "?", expect), load, number, 1000.0 + number, 0.1, text, error=error)


def run(
    rng: random.Random, other: dict[str, float], wrong: dict[str, float], n: int = 20, rounds: int = 3
) -> list[Asked]:
    """Answers where ``other[load]`` is the chance of another wording and ``wrong[load]`` that of a wrong answer."""
    out = []
    for i in range(n):
        for load in (LOW, HIGH):
            for k in range(rounds):
                text = "no" if rng.random() < wrong[load] else "yes"
                if rng.random() < other[load]:
                    text += f" {rng.randrange(1000)}"
                out.append(asked(f"p{i}", load, k, text))
    return out


def test_answers_that_never_change_are_the_same() -> None:
    found = judge(run(random.Random(1), {LOW: 0, HIGH: 0}, {LOW: 0, HIGH: 0}))
    assert (found.same_within_low, found.same_between) == (1.0, 1.0)
    assert (found.p_same, found.p_right, found.worse) == (1.0, 1.0, False)
    assert found.right == {LOW: 1.0, HIGH: 1.0}


def test_answers_that_change_only_with_load_depend_on_it() -> None:
    found = judge(run(random.Random(2), {LOW: 0, HIGH: 0.5}, {LOW: 0, HIGH: 0}))
    assert found.less_same
    assert not found.less_right
    assert found.same_within_low == 1.0
    assert found.same_between == pytest.approx(0.5, abs=0.15)
    assert found.changed


def test_answers_that_are_wrong_under_load_are_wrong_because_of_it() -> None:
    found = judge(run(random.Random(3), {LOW: 0, HIGH: 0}, {LOW: 0.02, HIGH: 0.5}))
    assert found.less_right
    assert "Load makes answers wrong." in found.words()


def test_an_engine_that_is_never_deterministic_is_not_blamed_on_load() -> None:
    rng = random.Random(4)
    alarms = [
        judge(run(rng, {LOW: 0.4, HIGH: 0.4}, {LOW: 0.2, HIGH: 0.2}), seed=i, deals=400) for i in range(100)
    ]
    assert sum(a.less_same for a in alarms) <= 4
    assert sum(a.less_right for a in alarms) <= 4


def test_one_round_is_not_enough_to_tell() -> None:
    found = judge(run(random.Random(5), {LOW: 0, HIGH: 1}, {LOW: 0, HIGH: 0}, rounds=1))
    assert found.p_same is None
    assert not found.worse
    assert any("not enough answers" in w for w in found.words())


def test_failures_are_counted_and_left_out() -> None:
    found = judge(
        [asked("a", LOW, 0, "yes"), asked("a", LOW, 1, "yes"), asked("a", HIGH, 0, None, error="http_503")]
    )
    assert found.errors == {"http_503 (high)": 1}
    assert found.p_same is None
    assert found.failing
    assert found.worse
    assert "Too many failed to compare what was answered." in found.words()
    assert judge([]).answers == {}
