"""Soft rules as alarms: malformed tool calls, empty or broken-off answers, answers cut by the limit, as rates.

A soft rule also fires when all is well, so its outputs are never counted as degraded. What can alarm is their *rate* within one
stratum (pool and class), judged against what that stratum has learnt, never against zero or against another stratum::

    S <- max(0, S + ln(p1 / p0))              for a faulty answer, p1 = the rate whose odds are m times those of p0, m in (5, 30)
    S <- max(0, S + ln((1 - p1) / (1 - p0)))  for one that is not          alarm: S >= 14, and 5 faulty answers since the onset

``p0`` is the 95 % upper bound of the learnt rate (Gamma prior worth 500 answers at 1 in 1,000), and there is no alarm before a
stratum has 300 answers of its own past, nor where the bound is above 5 %: the usual rate of soft rules differs between
models by a factor of a hundred.
How many answers lie between two false alarms is computed, see :func:`false_alarm_after`.
The unit is the first faulty turn of a session; malformed calls are counted among calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy import special

from detectors.contract import Json
from detectors.quality.cusum import HARMS, chain_length
from detectors.samples import GROUPS, Samples
from detectors.window import Window

I = NDArray[np.intp]  # noqa: E741
B = NDArray[np.bool_]
ALARM = 14.0
LEAST_FAULTY = 5
LEAST_PAST = 300
MOST_USUAL = 0.05
"""A rule that fires on more than a twentieth of normal answers says something else there than that an answer is faulty."""
PRIOR_A, PRIOR_B = 0.5, 500.0
RECENT_S = 900.0
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Stratum:
    """A group of soft rules in one pool and class."""

    group: str
    pool: str
    workload_class: str

    @property
    def key(self) -> str:
        """For the detector's state."""
        return f"{self.group}|{self.pool}|{self.workload_class}"

    @classmethod
    def parse(cls, key: str) -> Stratum:
        """The inverse of :attr:`key`."""
        group, pool, workload_class = key.split("|", 2)
        return cls(group, pool, workload_class)


def learn(s: Samples, keep: B, hi: int) -> dict[str, list[int]]:
    """(faulty, answers) per stratum among the first ``hi`` samples that ``keep`` says may teach."""
    out: dict[str, list[int]] = {}
    for g, group in enumerate(GROUPS):
        at = keep & ~s.soft_aside[g, :hi]
        pair = s.pool[:hi][at].astype(np.int64) * len(s.names) + s.workload_class[:hi][at]
        faulty = s.soft[g, :hi][at]
        for code in np.unique(pair):
            mine = pair == code
            where = Stratum(group, s.names[code // len(s.names)], s.names[code % len(s.names)])
            out[where.key] = [int(faulty[mine].sum()), int(mine.sum())]
    return out


def upper_rate(faulty: int, n: int) -> float:
    """The upper bound that a stratum is judged against.

    >>> round(upper_rate(0, 1000) * 1e4, 1), round(upper_rate(100, 1000) * 1e4)
    (12.8, 789)
    """
    return min(0.5, float(special.gammaincinv(PRIOR_A + faulty, LEVEL) / (PRIOR_B + n)))


def steps(p0: float) -> list[tuple[float, float]]:
    """Log-likelihood ratio of a faulty answer and of another one, for each size of harm: odds, since rates end at 1."""
    out = []
    for harm in HARMS:
        p1 = harm * p0 / (1 - p0 + harm * p0)
        out.append((log(p1 / p0), log((1 - p1) / (1 - p0))))
    return out


def false_alarm_after(p0: float) -> float:
    """Answers of a stratum between two false alarms while its true rate is ``p0``, the bound it is judged against: both charts
    together, at least (that five faulty answers are needed besides makes it longer).

    >>> round(false_alarm_after(0.001) / 1e6), round(false_alarm_after(0.01) / 1e6, 1)
    (3, 0.8)
    """
    return 1.0 / sum(1.0 / chain_length(p0, up, down, ALARM) for up, down in steps(p0))


def advance(s: Samples, lo: int, hi: int, learnt: dict[str, list[int]], state: Json) -> Json:
    """Charts and alarms after the samples ``lo`` to ``hi``; ``state`` is not altered."""
    streams = {k: [list(x) for x in v] for k, v in state.get("streams", {}).items()}
    alarms = {k: dict(v) for k, v in state.get("alarms", {}).items()}
    bounds: dict[str, float] = {}
    rises: dict[str, list[tuple[float, float]]] = {}
    for i, g in _at_risk(s, lo, hi):
        where = Stratum(GROUPS[g], s.names[s.pool[i]], s.names[s.workload_class[i]])
        key = where.key
        faulty, n = learnt.get(key, (0, 0))
        if n < LEAST_PAST:
            continue
        if key not in bounds:
            bounds[key] = upper_rate(faulty, n)
            rises[key] = steps(bounds[key])
        if bounds[key] > MOST_USUAL:
            continue
        # Each chart is [S, time of its last zero, faulty since then].
        stream = streams.setdefault(key, [[0.0, float(s.ts[i]), 0] for _ in HARMS])
        bad, hit = bool(s.soft[g, i]), False
        for x, (up, down) in zip(stream, rises[key], strict=True):
            x[0], x[2] = x[0] + (up if bad else down), x[2] + bad
            if x[0] <= 0:
                x[0], x[1], x[2] = 0.0, float(s.ts[i]), 0
            hit |= x[0] >= ALARM and x[2] >= LEAST_FAULTY
        if hit and key not in alarms:
            onset = min(x[1] for x in stream if x[0] >= ALARM)
            alarms[key] = {"onset": onset, "at": float(s.ts[i]), "p0": bounds[key]}
    return {"streams": streams, "alarms": alarms}


def _at_risk(s: Samples, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """(row, group) of what counts, in order of time."""
    groups, rows = np.nonzero(~s.soft_aside[:, lo:hi])
    order = np.lexsort((groups, rows))
    for j in order:
        yield lo + int(rows[j]), int(groups[j])


def seen_through(window: Window, where: Stratum) -> Window:
    """The window in which the faulty answers of the stratum are the bad ones, and only the stratum is at risk."""
    s = window.samples
    g = GROUPS.index(where.group)
    aside = s.soft_aside[g] | (s.workload_class != s.code(where.workload_class))
    return replace(window, samples=replace(s, bad=s.soft[g] & ~aside, aside=aside), memo={})
