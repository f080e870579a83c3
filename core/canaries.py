"""Judging canaries: whether load makes answers wrong, or different, by a permutation test with prompts as blocks.

Statistic for accuracy: share right at low load less share right at high load. For sameness: share of equal pairs within low
load less share of equal pairs between low and high load. Null: the load does not matter, so that within each prompt the
labels low and high can be dealt anew (seeded, 4,000 times). One-sided, 1 % each. An engine whose kernels depend on the batch
fails the second test without any fault: it is a fact about the deployment, to be known before somebody debugs an
"irreproducible" agent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOW, HIGH = "low", "high"
ALPHA, DEALS = 0.01, 4000
FAILING = 0.1


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and, where one is known, what a right answer contains (case and white space do not matter)."""

    id: str
    text: str
    expect: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer: ``ts`` is when it ended; ``text`` is None and ``error`` a short word where there is none."""

    prompt: Prompt
    load: str
    number: int
    ts: float
    seconds: float
    text: str | None
    finish_reason: str = ""
    tokens: int | None = None
    error: str = ""

    @property
    def right(self) -> bool:
        """Whether it contains what was expected."""
        if self.text is None or self.prompt.expect is None:
            return False
        return _plain(self.prompt.expect) in _plain(self.text)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


@dataclass(frozen=True, slots=True)
class Judgement:
    """Shares are None where nothing was comparable, p-values likewise (a prompt needs two answers under low load and one
    under high)."""

    answers: Mapping[str, int]
    errors: Mapping[str, int]
    right: Mapping[str, float | None]
    same_within_low: float | None
    same_between: float | None
    p_right: float | None
    p_same: float | None
    changed: Sequence[str]
    same_as_reference: Mapping[str, str] = field(repr=False)

    @property
    def less_right(self) -> bool:
        """Answers are wrong more often under high load, beyond chance."""
        return self.p_right is not None and self.p_right <= ALPHA

    @property
    def less_same(self) -> bool:
        """Answers depend on the load, beyond chance."""
        return self.p_same is not None and self.p_same <= ALPHA

    @property
    def failing(self) -> bool:
        """More than a tenth of the canaries got no answer: that is a finding of its own, and spoils the comparison."""
        failed = sum(self.errors.values())
        return failed > FAILING * (failed + sum(self.answers.values()))

    @property
    def worse(self) -> bool:
        """Any of these."""
        return self.less_right or self.less_same or self.failing

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "answers": dict(self.answers),
            "errors": dict(self.errors),
            "right": dict(self.right),
            "same_within_low": self.same_within_low,
            "same_between": self.same_between,
            "p_right": self.p_right,
            "p_same": self.p_same,
            "less_right": self.less_right,
            "less_same": self.less_same,
            "failing": self.failing,
            "changed": list(self.changed),
        }

    def words(self) -> list[str]:
        """Sentences."""
        out = [f"{self.answers.get(LOW, 0)} answers at low load, {self.answers.get(HIGH, 0)} at high load."]
        if self.errors:
            out.append("Failed: " + ", ".join(f"{k} {v}" for k, v in sorted(self.errors.items())) + ".")
        low, high = self.right.get(LOW), self.right.get(HIGH)
        if low is not None and high is not None:
            out.append(f"Right: {low:.1%} at low load, {high:.1%} at high load (p {_p(self.p_right)}).")
        if self.same_within_low is None or self.same_between is None:
            out.append("Sameness: not enough answers; ask each prompt at least twice under each load.")
        else:
            out.append(
                f"The same: {self.same_within_low:.1%} of pairs at low load, {self.same_between:.1%} of pairs across loads "
                f"(p {_p(self.p_same)})."
            )
        if self.less_right:
            out.append("Load makes answers wrong.")
        elif self.less_same:
            out.append(
                "Answers depend on the load: at temperature 0 a prompt gets other words with others beside it."
            )
        elif self.failing:
            out.append("Too many failed to compare what was answered.")
        else:
            out.append("No effect of load beyond chance.")
        if self.changed:
            out.append("Changed most: " + ", ".join(self.changed[:5]) + ".")
        return out


def _p(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


Group = tuple[list[str], list[bool], list[bool]]
"""Of one prompt: texts, whether each was asked under high load, whether each is right."""


def judge(asked: Sequence[Asked], *, seed: int = 1, deals: int = DEALS) -> Judgement:
    """Judge all answers; failed ones count as errors and are left out of the tests."""
    groups: dict[str, Group] = {}
    expected: set[str] = set()
    for a in asked:
        if a.text is None:
            continue
        texts, high, right = groups.setdefault(a.prompt.id, ([], [], []))
        texts.append(a.text)
        high.append(a.load == HIGH)
        right.append(a.right)
        if a.prompt.expect is not None:
            expected.add(a.prompt.id)
    tried = [g for g in groups.values() if sum(g[1]) >= 1 and len(g[1]) - sum(g[1]) >= 2]
    known = [g for k, g in groups.items() if k in expected and 0 < sum(g[1]) < len(g[1])]
    rng = random.Random(seed)
    within, between = _pairs(tried)
    return Judgement(
        answers=dict(Counter(a.load for a in asked if a.text is not None)),
        errors=dict(Counter(f"{a.error} ({a.load})" for a in asked if a.error)),
        right={load: _share(known, load == HIGH) for load in (LOW, HIGH)},
        same_within_low=within,
        same_between=between,
        p_right=_chance(known, _accuracy_gap, rng, deals) if known else None,
        p_same=_chance(tried, _sameness_gap, rng, deals) if tried else None,
        changed=_changed(groups),
        same_as_reference={k: _reference(g) for k, g in groups.items() if not all(g[1])},
    )


def _share(groups: Sequence[Group], high: bool) -> float | None:
    hits = [r for _, h, right in groups for flag, r in zip(h, right, strict=True) if flag == high]
    return sum(hits) / len(hits) if hits else None


def _accuracy_gap(group: Group, high: Sequence[bool]) -> float:
    low_n = len(high) - sum(high)
    low = sum(r for r, h in zip(group[2], high, strict=True) if not h)
    return low / low_n - (sum(group[2]) - low) / sum(high)


def _agreement(group: Group, high: Sequence[bool]) -> tuple[float, float]:
    """Share of equal pairs (within low, between low and high) of one prompt."""
    low = Counter(t for t, h in zip(group[0], high, strict=True) if not h)
    up = Counter(t for t, h in zip(group[0], high, strict=True) if h)
    n, m = low.total(), up.total()
    within = sum(k * (k - 1) for k in low.values()) / (n * (n - 1))
    return within, sum(k * up[t] for t, k in low.items()) / (n * m)


def _sameness_gap(group: Group, high: Sequence[bool]) -> float:
    within, between = _agreement(group, high)
    return within - between


def _pairs(groups: Sequence[Group]) -> tuple[float | None, float | None]:
    if not groups:
        return None, None
    found = [_agreement(g, g[1]) for g in groups]
    return sum(f[0] for f in found) / len(found), sum(f[1] for f in found) / len(found)


def _chance(groups: Sequence[Group], gap: Any, rng: random.Random, deals: int) -> float:
    """One-sided p-value of the mean gap, labels dealt anew within each prompt."""
    seen = sum(gap(g, g[1]) for g in groups)
    # prompts whose answers are all alike contribute nothing however the labels are dealt
    live = [g for g in groups if len(set(g[0])) > 1 or len(set(g[2])) > 1]
    fixed = sum(gap(g, g[1]) for g in groups if g not in live)
    reached = 0
    for _ in range(deals):
        total = fixed
        for g in live:
            labels = list(g[1])
            rng.shuffle(labels)
            total += gap(g, labels)
        reached += total >= seen - 1e-12
    return (1 + reached) / (1 + deals)


def _reference(group: Group) -> str:
    """The commonest answer under low load."""
    return Counter(t for t, h in zip(group[0], group[1], strict=True) if not h).most_common(1)[0][0]


def _changed(groups: Mapping[str, Group]) -> list[str]:
    """Prompts by how often high load gave another answer than low load's commonest."""
    out = []
    for key, g in groups.items():
        if all(g[1]) or not any(g[1]):
            continue
        reference = _reference(g)
        n = sum(h and t != reference for t, h in zip(g[0], g[1], strict=True))
        if n:
            out.append((n, key))
    return [key for _, key in sorted(out, key=lambda p: (-p[0], p[1]))]
