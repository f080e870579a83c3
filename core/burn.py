"""Burn rates: how fast an objective's error budget is being used, over two windows at once.

Policy as data (``burn_rules.yaml``; SRE workbook, table 5-8): a rule fires while both its long and its short window (a twelfth)
burn faster than its factor, so that it is neither late to end nor set off by one bad minute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from core.errors import ConfigError
from core.frames import IntArray
from core.incidents import Severity
from core.slo import Objective, Tally
from core.times import format_duration, parse_duration

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class BurnRule:
    """``factor``: pace of burning over ``long`` seconds, 1 = even. ``min_bad``: bad requests below which the rule is silent."""

    severity: Severity
    factor: float
    long: float
    short: float
    min_bad: int


RULES_FILE = Path(__file__).with_name("burn_rules.yaml")
_KEYS = {"severity", "budget_percent", "factor", "long", "short", "min_bad"}


def read_rules(text: str, name: str = "burn rules") -> tuple[BurnRule, ...]:
    """The rules of a file such as ``burn_rules.yaml``. ConfigError names the rule and what is wrong with it."""
    data = yaml.safe_load(text)
    if not isinstance(data, dict) or set(data) != {"window", "rules"} or not isinstance(data["rules"], list):
        raise ConfigError(name, "must hold window and rules", "see core/burn_rules.yaml")
    whole = parse_duration(str(data["window"]), f"{name}: window")
    out = []
    for i, rule in enumerate(data["rules"]):
        path = f"{name}: rules[{i}]"
        if not isinstance(rule, dict) or set(rule) != _KEYS:
            raise ConfigError(path, f"must hold {', '.join(sorted(_KEYS))}", "see core/burn_rules.yaml")
        if rule["severity"] not in ("page", "ticket"):
            raise ConfigError(f"{path}.severity", "is neither page nor ticket", "write one of them")
        long = parse_duration(str(rule["long"]), f"{path}.long")
        short = parse_duration(str(rule["short"]), f"{path}.short")
        factor, budget = float(rule["factor"]), float(rule["budget_percent"])
        if not 60 <= short < long <= whole or long % 60 or short % 60:
            raise ConfigError(path, "needs 1m ≤ short < long ≤ window, in whole minutes", "correct them")
        if abs(factor * long / whole * 100 - budget) > 0.01 * budget:
            used = factor * long / whole * 100
            raise ConfigError(path, f"factor uses up {used:g} % in long, not {budget:g} %", "correct one")
        out.append(BurnRule(rule["severity"], factor, long, short, int(rule["min_bad"])))
    if not out:
        raise ConfigError(name, "has no rule", "see core/burn_rules.yaml")
    return tuple(out)


RULES: tuple[BurnRule, ...] = read_rules(RULES_FILE.read_text("utf-8"), RULES_FILE.name)


@dataclass(frozen=True, slots=True)
class Burn:
    """State of one rule. Rates are (low, high) in units of the even pace, NaN without traffic; ``firing`` uses the low ends."""

    rule: BurnRule
    long: tuple[float, float]
    short: tuple[float, float]
    bad: int
    firing: bool
    gone_in: float

    def text(self) -> str:
        """``14.4×: gone in 3h at this pace``."""
        if math.isnan(self.long[0]):
            return "no traffic"
        pace = f"{self.long[0]:.1f}×"
        if self.gone_in == 0:
            return f"{pace}: the budget is gone"
        return (
            f"{pace}: gone in {format_duration(_round(self.gone_in))} at this pace"
            if math.isfinite(self.gone_in)
            else pace
        )


class MinuteTallies:
    """Tallies per minute with running sums: any window costs the same. ``minutes`` are Unix seconds of their starts."""

    def __init__(self, tallies: Mapping[int, Tally]) -> None:
        self.minutes: IntArray = np.array(sorted(tallies), dtype=np.int64)
        rows = [tallies[int(m)].counts for m in self.minutes]
        self._sums = np.zeros((len(rows) + 1, 8), dtype=np.int64)
        if rows:
            np.cumsum(np.array(rows, dtype=np.int64), axis=0, out=self._sums[1:])
        self._silent = np.concatenate(
            [[0], np.cumsum([not tallies[int(m)].aborts_known for m in self.minutes])]
        )

    def window(self, start: float, end: float) -> Tally:
        """The sum over minutes that start in ``[start, end)``."""
        a, b = self._range(start, end)
        return Tally.of((self._sums[b] - self._sums[a]).tolist(), bool(self._silent[b] == self._silent[a]))

    def covered(self, start: float, end: float) -> int:
        """Minutes with a tally in ``[start, end)``."""
        a, b = self._range(start, end)
        return b - a

    def _range(self, start: float, end: float) -> tuple[int, int]:
        a, b = np.searchsorted(self.minutes, [start, end], side="left")
        return int(a), max(int(a), int(b))


def burn_rate(objective: Objective, tally: Tally) -> tuple[float, float]:
    """Bad share over budget, (low, high): 1 uses the budget up exactly over the objective's window. NaN without traffic."""
    low, high = tally.bad_share
    return (low / objective.budget, high / objective.budget)


def burns(
    objective: Objective,
    minutes: MinuteTallies,
    now: float,
    *,
    left: float = 1.0,
    rules: Sequence[BurnRule] = RULES,
) -> list[Burn]:
    """Each rule at ``now`` (end of the last complete minute). ``left``: share of the budget left, for ``gone_in`` seconds."""
    out = []
    for rule in rules:
        long = minutes.window(now - rule.long, now)
        rate, recent = burn_rate(objective, long), burn_rate(objective, minutes.window(now - rule.short, now))
        # a pace that is the factor exactly fires, however 1 - 0.99 is rounded
        limit = rule.factor * (1 - 1e-9)
        firing = long.bad >= rule.min_bad and rate[0] >= limit and recent[0] >= limit
        gone_in = max(0.0, left) * objective.window / rate[0] if rate[0] > 0 else math.inf
        out.append(Burn(rule, rate, recent, long.bad, firing, gone_in))
    return out


def _round(seconds: float) -> float:
    """To two units at most, as people say it."""
    for size in (DAY, HOUR, 60.0):
        if seconds >= size:
            return round(seconds / size) * size
    return round(seconds)
