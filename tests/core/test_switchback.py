"""The switchback experiment: balanced plans, a test of the right size, and effects that it sees."""

from __future__ import annotations

import random

import pytest

from core.errors import InputError
from core.switchback import Plan, analyse

REPLICAS = [f"r{i}" for i in range(6)]


def drawn(seed: int, pairs: int = 8) -> Plan:
    return Plan.draw(REPLICAS, 0.0, 3600.0, pairs, 300.0, seed)


def outputs(
    plan: Plan, rng: random.Random, capped: float, free: float, n: int = 40
) -> list[tuple[float, str, bool]]:
    """``n`` outputs a replica and block; the hour of the day has an effect of its own on everybody."""
    out = []
    for i in range(2 * len(plan.coins)):
        hour = 1.0 + (i % 5)
        for r in REPLICAS:
            p = (capped if r in plan.capped(i) else free) * hour
            out += [
                (plan.start + i * plan.block + rng.uniform(0, plan.block), r, rng.random() < p)
                for _ in range(n)
            ]
    return out


def test_each_group_is_capped_once_in_every_pair() -> None:
    plan = drawn(3)
    assert set(plan.group_a) | set(plan.group_b) == set(REPLICAS)
    assert not set(plan.group_a) & set(plan.group_b)
    for p in range(len(plan.coins)):
        assert {plan.capped(2 * p), plan.capped(2 * p + 1)} == {plan.group_a, plan.group_b}
    assert Plan.from_json(plan.as_json()) == plan
    assert drawn(3) == plan
    assert drawn(4).coins != plan.coins or drawn(4).group_a != plan.group_a


def test_without_an_effect_one_in_twenty_is_below_five_percent() -> None:
    rng = random.Random(1)
    found = [analyse(plan, outputs(plan, rng, 0.03, 0.03, 12)).p for plan in (drawn(s) for s in range(120))]
    assert sum(p is not None and p <= 0.05 for p in found) <= 13


def test_a_cap_that_helps_is_seen() -> None:
    plan = drawn(5)
    effect = analyse(plan, outputs(plan, random.Random(2), 0.01, 0.05))
    assert effect.p is not None
    assert effect.p <= 0.01
    assert effect.difference == pytest.approx(0.04 * 2.9, abs=0.05)
    assert "capping helps" in effect.words()


def test_too_few_pairs_say_so_and_no_outputs_are_not_enough_data() -> None:
    plan = drawn(6, pairs=3)
    assert "seven are needed" in analyse(plan, outputs(plan, random.Random(3), 0.0, 0.1)).words()
    empty = analyse(plan, [])
    assert (empty.p, empty.difference) == (None, None)
    assert "Not enough data" in empty.words()


def test_washout_other_replicas_and_other_times_do_not_count() -> None:
    plan = drawn(7)
    assert (
        analyse(plan, [(10.0, "r0", True), (400.0, "x", True), (-5.0, "r0", True), (plan.end, "r0", True)]).p
        is None
    )
    kept = analyse(plan, [(400.0, "r0", True)])
    assert kept.capped_n + kept.uncapped_n == 1


def test_a_plan_that_cannot_be_is_refused() -> None:
    for bad in (lambda: Plan.draw(["a"], 0, 60, 3, 0, 1), lambda: Plan.draw(REPLICAS, 0, 60, 3, 60, 1)):
        with pytest.raises(InputError):
            bad()
    for data in ({}, [], None, {"group_a": []}):
        with pytest.raises(InputError):
            Plan.from_json(data)


def test_many_pairs_are_sampled_rather_than_enumerated() -> None:
    plan = drawn(8, pairs=16)
    effect = analyse(plan, outputs(plan, random.Random(4), 0.01, 0.05, 6))
    assert effect.p is not None
    assert effect.p <= 0.01
