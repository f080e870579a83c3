"""Bernoulli CUSUM: the fastest alarm at a stated false-alarm interval.

``S`` rises by ``ln m`` for a bad output and falls by a little for a clean one; an alarm is ``S >= h``. The restart at 0 dates the
onset. How long it runs without cause is computed, not guessed: outputs between false alarms at the normal rate, from the
Markov chain of ``S`` on a grid (Brook and Evans 1972).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log

import numpy as np

HARMS = (5.0, 30.0)
"""Multiples of the normal rate that the charts are tuned to: a slow leak, a broken part."""


def steps(p0: float, harms: tuple[float, ...] = HARMS) -> list[tuple[float, float]]:
    """Log-likelihood ratio of a bad and of a clean output, for each size of harm; rates are capped at one half."""
    out = []
    for harm in harms:
        p1 = min(harm * p0, 0.5)
        out.append((log(p1 / p0), log((1 - p1) / (1 - p0))))
    return out


def push(
    stream: list[list[float]], bad: bool, ts: float, rises: list[tuple[float, float]], alarm: float
) -> bool:
    """Advance the charts of a stream; true where one stands at or over ``alarm``. Each is [S, time of its last zero]."""
    hit = False
    for x, (up, down) in zip(stream, rises, strict=True):
        x[0] += up if bad else down
        if x[0] <= 0:
            x[0], x[1] = 0.0, ts
        hit |= x[0] >= alarm
    return hit


@lru_cache(maxsize=256)
def run_length(p: float, p0: float, harm: float, alarm: float) -> float:
    """Mean number of outputs until an alarm while the true rate is ``p``: with ``p = p0`` the false-alarm interval.

    Between two bad outputs the chart falls by a geometric number of steps, so the chain is taken at bad outputs only: that
    stays exact for rates of a few in ten thousand at a grid of a few hundred states.
    """
    return chain_length(p, *steps(p0, (harm,))[0], alarm)


@lru_cache(maxsize=256)
def chain_length(p: float, up: float, down: float, alarm: float) -> float:
    """The same for a chart that rises by ``up`` at a bad output and by ``down`` (below 0) at another."""
    size = 240
    level = (np.arange(size) + 0.5) / size * alarm
    # From S = 0 a bad output lifts the chart to ``up``; chain over S just after each bad output.
    grid = np.linspace(0.0, alarm, size + 1)
    turn = np.zeros((size, size))
    for i, s in enumerate(level):
        # after m clean ones: max(0, s + m down); then + up. P(m = j) = (1-p)^j p
        edges = grid - up
        # S before the bad output lies in [0, s]; its survival: P(S >= v) = P(m <= (s - v) / -down)
        reach = np.where(edges <= 0, np.inf, edges)
        runs = np.floor((s - reach) / -down)
        at_least = np.where(edges <= 0, 1.0, np.where(runs < 0, 0.0, -np.expm1((runs + 1) * np.log1p(-p))))
        turn[i] = at_least[:-1] - at_least[1:]
    first = np.zeros(size)
    if up >= alarm:
        return 1.0 / p
    first[min(int(up / alarm * size), size - 1)] = 1.0
    bad_until = 1.0 + float(first @ np.linalg.solve(np.eye(size) - turn, np.ones(size)))
    return bad_until / p


def false_alarms_per(outputs: float, p0: float, alarm: float, charts: int = 1) -> float:
    """Upper bound of false alarms expected over ``outputs`` outputs: each chart alone, times ``charts`` streams."""
    return charts * sum(outputs / run_length(p0, p0, harm, alarm) for harm in HARMS)


def more_until(p0: float, p1: float, alarm: float) -> int:
    """Outputs that an alarm takes on average where the rate is ``p1``: the fastest of the charts."""
    return ceil(min(run_length(p1, p0, harm, alarm) for harm in HARMS))
