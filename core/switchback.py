"""A switchback experiment: does capping concurrency on half of the replicas, in turns, make outputs better? Plan and analysis.

Replicas are dealt into two groups once. Time is cut into pairs of blocks; a coin a pair says which group is capped in its
first block, and the other group is in its second: each group is capped half of the time, at every time of day alike. Analysis
by randomisation: the statistic (bad share uncapped less bad share capped) is compared with what every other sequence of coins
would have given. That needs no model of load, day or clustering; its smallest p-value is 2^-pairs, so that 7 pairs can reach
1 %.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import InputError

EXACT_PAIRS, DEALS = 14, 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """``coins[p]`` is true where group A is capped in the first block of pair p. Times in Unix seconds."""

    group_a: tuple[str, ...]
    group_b: tuple[str, ...]
    start: float
    block: float
    coins: tuple[bool, ...]
    washout: float
    seed: int

    @classmethod
    def draw(
        cls, replicas: Sequence[str], start: float, block: float, pairs: int, washout: float, seed: int
    ) -> Plan:
        """Deal groups and coins. ``InputError`` for fewer than two replicas, no pairs, or a washout that leaves nothing."""
        names = sorted(set(replicas))
        if len(names) < 2 or pairs < 1 or not 0 <= washout < block:
            raise InputError(
                "experiment",
                "needs two replicas, a pair of blocks and a washout shorter than a block",
                "change the plan",
            )
        rng = random.Random(seed)
        rng.shuffle(names)
        half = (len(names) + 1) // 2
        coins = tuple(rng.random() < 0.5 for _ in range(pairs))
        return cls(
            tuple(sorted(names[:half])), tuple(sorted(names[half:])), start, block, coins, washout, seed
        )

    @property
    def end(self) -> float:
        """When the last block ends."""
        return self.start + 2 * len(self.coins) * self.block

    def capped(self, number: int) -> tuple[str, ...]:
        """Replicas to be capped in block ``number``."""
        first_is_a = self.coins[number // 2]
        return self.group_a if first_is_a == (number % 2 == 0) else self.group_b

    def as_json(self) -> dict[str, Any]:
        """The plan with every block spelt out, to be acted on and to be analysed later."""
        blocks = [
            {
                "start": self.start + i * self.block,
                "end": self.start + (i + 1) * self.block,
                "capped": list(self.capped(i)),
            }
            for i in range(2 * len(self.coins))
        ]
        return {
            "group_a": list(self.group_a),
            "group_b": list(self.group_b),
            "start": self.start,
            "block": self.block,
            "washout": self.washout,
            "seed": self.seed,
            "coins": list(self.coins),
            "blocks": blocks,
        }

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """The inverse; ``InputError`` where it is no plan."""
        try:
            plan = cls(
                tuple(map(str, data["group_a"])),
                tuple(map(str, data["group_b"])),
                float(data["start"]),
                float(data["block"]),
                tuple(bool(c) for c in data["coins"]),
                float(data["washout"]),
                int(data["seed"]),
            )
        except (KeyError, TypeError, ValueError):
            raise InputError(
                "plan", "is no plan of an experiment", "make one with gustfront experiment plan"
            ) from None
        if not plan.coins or plan.block <= 0 or not plan.group_a or not plan.group_b:
            raise InputError("plan", "is no plan of an experiment", "make one with gustfront experiment plan")
        return plan


@dataclass(frozen=True, slots=True)
class Effect:
    """Bad shares (None without outputs), their difference uncapped less capped, and the one-sided p-value that capping
    helps."""

    capped_n: int
    capped_bad: int
    uncapped_n: int
    uncapped_bad: int
    difference: float | None
    p: float | None
    pairs: int
    smallest_p: float

    def words(self) -> str:
        """One sentence."""
        if self.difference is None or self.p is None:
            return "Not enough data: both arms need outputs."
        shares = (
            f"{1e4 * self.uncapped_bad / self.uncapped_n:.1f} per 10,000 uncapped (n {self.uncapped_n:,}), "
            f"{1e4 * self.capped_bad / self.capped_n:.1f} capped (n {self.capped_n:,})"
        )
        if self.smallest_p > 0.01:
            return f"{shares}. With {self.pairs} pairs of blocks p cannot fall below {self.smallest_p:.3f}: seven are needed."
        verdict = "capping helps: load is a cause" if self.p <= 0.01 else "no effect of the cap beyond chance"
        return f"{shares}: {verdict} (p {self.p:.4f})."


def analyse(plan: Plan, outputs: Iterable[tuple[float, str, bool]]) -> Effect:
    """``outputs``: (admitted, replica, bad) of the random part. Those of other replicas, other times and the washout are left
    out."""
    pairs = len(plan.coins)
    # per pair, per group, per block of the pair: [n, bad]
    cells = [[[[0, 0], [0, 0]] for _ in range(2)] for _ in range(pairs)]
    group = dict.fromkeys(plan.group_a, 0) | dict.fromkeys(plan.group_b, 1)
    for ts, replica, bad in outputs:
        g = group.get(replica)
        if g is None or not plan.start <= ts < plan.end:
            continue
        number, into = divmod(ts - plan.start, plan.block)
        if into < plan.washout:
            continue
        cell = cells[int(number) // 2][g][int(number) % 2]
        cell[0] += 1
        cell[1] += bad
    # of a pair, if A is capped first: (n, bad) capped and uncapped; the other coin swaps them
    arms = []
    for (a1, a2), (b1, b2) in cells:
        arms.append(((a1[0] + b2[0], a1[1] + b2[1]), (a2[0] + b1[0], a2[1] + b1[1])))

    def total(coins: Sequence[bool]) -> tuple[int, int, int, int]:
        n = [0, 0, 0, 0]
        for coin, (first, second) in zip(coins, arms, strict=True):
            capped, free = (first, second) if coin else (second, first)
            n[0] += capped[0]
            n[1] += capped[1]
            n[2] += free[0]
            n[3] += free[1]
        return n[0], n[1], n[2], n[3]

    def gap(coins: Sequence[bool]) -> float:
        cn, cb, un, ub = total(coins)
        return ub / un - cb / cn if cn and un else 0.0

    cn, cb, un, ub = total(plan.coins)
    smallest = 2.0**-pairs
    if not cn or not un:
        return Effect(cn, cb, un, ub, None, None, pairs, smallest)
    seen = gap(plan.coins)
    if pairs <= EXACT_PAIRS:
        every = list(itertools.product((False, True), repeat=pairs))
        p = sum(gap(c) >= seen - 1e-15 for c in every) / len(every)
    else:
        rng = random.Random(plan.seed + 1)
        reached = sum(gap([rng.random() < 0.5 for _ in range(pairs)]) >= seen - 1e-15 for _ in range(DEALS))
        p = (1 + reached) / (1 + DEALS)
    return Effect(cn, cb, un, ub, seen, p, pairs, smallest)
