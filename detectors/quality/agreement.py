"""What labels of two people say: how far they agree, how often a rule is right, how much the rules find.

Agreement is Cohen's kappa over the outputs that both labelled ``degraded`` or ``fine``, with a percentile interval from 4,000
multinomial draws of the table (a fixed seed). A rule's precision and each stratum's share come from outputs on which all raters
agree. Recall needs the clean outputs: hard, soft and clean are strata of known sizes of the random part, so that

    recall of hard rules = N_hard p_hard / (N_hard p_hard + N_soft p_soft + N_clean p_clean)

with p the labelled share of each; its interval puts each exact interval at the end that hurts, so it holds 95 % at least
(each at 98.3 %). With no degraded output among 200 clean ones the lower end is low: that is what 200 labels can say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from detectors.quality.rates import RateInterval, exact

DEGRADED, FINE, UNSURE = "degraded", "fine", "unsure"
LABELS = (DEGRADED, FINE, UNSURE)
DRAWS = 4000
LEAST_BOTH = 10


@dataclass(frozen=True, slots=True)
class Kappa:
    """``value`` and its 95 % interval over ``n`` outputs, ``agreed`` of them with the same label. NaN where either rater gave
    one label to everything: agreement beyond chance is then not defined."""

    value: float
    low: float
    high: float
    n: int
    agreed: int


def kappa(pairs: Iterable[tuple[str, str]]) -> Kappa | None:
    """Cohen's kappa of pairs of labels; unsure ones are left out. None below ten pairs.

    >>> d, f = "degraded", "fine"
    >>> k = kappa([(d, d)] * 20 + [(f, f)] * 15 + [(f, d)] * 5 + [(d, f)] * 10)
    >>> round(k.value, 2), k.n, k.agreed
    (0.4, 50, 35)
    """
    seen = Counter(p for p in pairs if p[0] in (DEGRADED, FINE) and p[1] in (DEGRADED, FINE))
    n = sum(seen.values())
    if n < LEAST_BOTH:
        return None
    table = np.asarray([seen[a, b] for a in (DEGRADED, FINE) for b in (DEGRADED, FINE)], float)
    draws = np.random.default_rng(11).multinomial(n, table / n, DRAWS)
    values = _kappa(draws.astype(float))
    known = values[~np.isnan(values)]
    low, high = np.quantile(known, (0.025, 0.975)) if len(known) else (float("nan"), float("nan"))
    return Kappa(float(_kappa(table[None])[0]), float(low), float(high), n, int(table[0] + table[3]))


def _kappa(tables: np.ndarray) -> np.ndarray:
    n = tables.sum(axis=1)
    same = (tables[:, 0] + tables[:, 3]) / n
    first, second = (tables[:, 0] + tables[:, 1]) / n, (tables[:, 0] + tables[:, 2]) / n
    chance = first * second + (1 - first) * (1 - second)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(chance < 1, (same - chance) / (1 - chance), np.nan)


@dataclass(frozen=True, slots=True)
class Labelled:
    """One output with what the rules and the people said. ``labels``: rater → label."""

    stratum: str
    rules: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def settled(self) -> str | None:
        """The label of all raters; None where they differ, one is unsure or fewer than two have labelled."""
        found = set(self.labels.values())
        return (
            next(iter(found)) if len(self.labels) >= 2 and len(found) == 1 and UNSURE not in found else None
        )


def precision(outputs: Sequence[Labelled]) -> dict[str, RateInterval]:
    """Share of degraded among the settled outputs in which each rule fired."""
    out: dict[str, list[int]] = {}
    for o in outputs:
        if o.settled is not None:
            for rule in o.rules:
                at = out.setdefault(rule, [0, 0])
                at[0] += o.settled == DEGRADED
                at[1] += 1
    return {rule: exact(k, n) for rule, (k, n) in sorted(out.items())}


def shares(outputs: Sequence[Labelled], level: float = 0.95) -> dict[str, RateInterval]:
    """Share of degraded among the settled outputs of each stratum."""
    out: dict[str, list[int]] = {}
    for o in outputs:
        if o.settled is not None:
            at = out.setdefault(o.stratum, [0, 0])
            at[0] += o.settled == DEGRADED
            at[1] += 1
    return {s: exact(k, n, level) for s, (k, n) in out.items()}


def recall(outputs: Sequence[Labelled], sizes: Mapping[str, int]) -> tuple[float, float, float] | None:
    """Recall of the hard rules with its interval; None where a stratum that has outputs has no settled label."""
    found = shares(outputs, 1 - 0.05 / 3)
    if any(n > 0 and s not in found for s, n in sizes.items()) or not sizes.get("hard"):
        return None

    def value(hard: float, others: Mapping[str, float]) -> float:
        caught = sizes["hard"] * hard
        missed = sum(sizes[s] * p for s, p in others.items())
        return caught / (caught + missed) if caught + missed > 0 else float("nan")

    rest = {s: r for s, r in found.items() if s != "hard"}
    h = found["hard"]
    return (
        value(h.value, {s: r.value for s, r in rest.items()}),
        value(h.low, {s: r.high for s, r in rest.items()}),
        value(h.high, {s: r.low for s, r in rest.items()}),
    )
