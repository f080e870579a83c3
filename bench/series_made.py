"""Made-up series without a fault, of the sorts that operations know, and the same with one: what thresholds
are set on.

Nothing here is modelled on a series of a public benchmark. Every series is random by its seed; a fault
begins at a random time of the last two thirds and lasts, with its label, a tenth of the series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.signal import lfilter

from bench.nab_data import Series
from core.frames import FloatArray

Rng = np.random.Generator
Maker = Callable[[Rng, FloatArray], FloatArray]
DAY = 86400.0


def _ar(rng: Rng, n: int, memory: float) -> FloatArray:
    """An autoregressive process with variance 1."""
    return np.asarray(lfilter([np.sqrt(1 - memory**2)], [1, -memory], rng.normal(size=n)))


def _wave(rng: Rng, t: FloatArray, weekly: float = 0.0) -> FloatArray:
    """A daily wave 0..1 with its second harmonic; ``weekly`` is how much lower two days of seven are."""
    phase = 2 * np.pi * (t / DAY + rng.random())
    wave = 0.5 + 0.35 * np.sin(phase) + 0.15 * np.sin(2 * phase + rng.random() * 6)
    return wave * (1 - weekly * ((t // DAY) % 7 >= 5))


def _levels(rng: Rng, t: FloatArray) -> FloatArray:
    """Level changes on purpose, one in four days: releases, other settings."""
    moved = rng.random(len(t)) < 0.25 * (t[1] - t[0]) / DAY
    return 40 + 6 * np.cumsum(rng.normal(size=len(t)) * moved) + rng.normal(size=len(t))


def _bursts(rng: Rng, t: FloatArray) -> FloatArray:
    """A quiet level with a peak every hundred points, some of them very high."""
    return 20 + rng.normal(size=len(t)) + (rng.random(len(t)) < 0.01) * rng.pareto(2.5, len(t)) * 20


def _counts(rng: Rng, t: FloatArray) -> FloatArray:
    """Numbers of requests with a day and more scatter than chance gives."""
    return rng.poisson(30 * _wave(rng, t) * np.exp(0.3 * _ar(rng, len(t), 0.9))).astype(np.float64)


SORTS: dict[str, Maker] = {
    "noise": lambda r, t: 50 + 5 * r.normal(size=len(t)),
    "slow noise": lambda r, t: 50 + 5 * _ar(r, len(t), 0.98),
    "heavy tail": lambda r, t: np.exp(r.normal(size=len(t))),
    "bursts": _bursts,
    "mostly zero": lambda r, t: r.poisson(0.02 * r.gamma(2.0, 1.0), len(t)).astype(np.float64),
    "daily": lambda r, t: 100 * _wave(r, t) + 4 * _ar(r, len(t), 0.7),
    "weekly": lambda r, t: 100 * _wave(r, t, 0.4) + 4 * _ar(r, len(t), 0.7),
    "counts by day": _counts,
    "steps by day": lambda r, t: 20 + 60 * ((t % DAY) < DAY / 2) + r.normal(size=len(t)),
    "saturated": lambda r, t: np.minimum(100.0, 97 + 3 * _ar(r, len(t), 0.9)),
    "wandering": lambda r, t: 10 * _ar(r, len(t), 0.9995) + r.normal(size=len(t)),
    "deploys": _levels,
}


def _spike(rng: Rng, x: FloatArray, a: int, b: int) -> None:
    x[a] += rng.choice([-1, 1]) * rng.uniform(1, 3) * np.ptp(x[:a])


def _shift(rng: Rng, x: FloatArray, a: int, b: int) -> None:
    x[a:b] += rng.choice([-1, 1]) * rng.uniform(2, 5) * x[:a].std()


def _flat(rng: Rng, x: FloatArray, a: int, b: int) -> None:
    x[a:b] = x[a]


def _noisier(rng: Rng, x: FloatArray, a: int, b: int) -> None:
    x[a:b] += rng.normal(size=b - a) * x[:a].std() * rng.uniform(1.5, 3)


def _flapping(rng: Rng, x: FloatArray, a: int, b: int) -> None:
    x[a:b] = np.where(rng.random(b - a) < 0.3, x[:a].min(), x[a:b])


def _ramp(rng: Rng, x: FloatArray, a: int, b: int) -> None:
    x[a:b] += np.linspace(0, rng.uniform(3, 6) * x[:a].std(), b - a)


FAULTS: dict[str, Callable[[Rng, FloatArray, int, int], None]] = {
    "spike": _spike,
    "shift": _shift,
    "flat": _flat,
    "noisier": _noisier,
    "flapping": _flapping,
    "ramp": _ramp,
}


def clean(seed: int, days: float = 30.0, step: float = 300.0) -> list[Series]:
    """One series of each sort, without a fault."""
    t = np.asarray(1_700_000_000.0 // DAY * DAY + np.arange(int(days * DAY / step)) * step, np.float64)
    return [
        Series(f"{name} {seed}", t, make(np.random.default_rng([seed, i]), t), ())
        for i, (name, make) in enumerate(SORTS.items())
    ]


def faulty(seed: int, days: float = 14.0, step: float = 300.0) -> list[Series]:
    """Each sort with each fault."""
    out = []
    for i, s in enumerate(clean(seed, days, step)):
        for j, (fault, put) in enumerate(FAULTS.items()):
            rng = np.random.default_rng([seed, i, j, 7])
            n = len(s.value)
            a = int(rng.uniform(1 / 3, 0.88) * n)
            x = s.value.copy()
            put(rng, x, a, min(a + n // 20, n))
            window = (max(0, a - n // 40), min(n - 1, a - n // 40 + n // 10))
            out.append(replace(s, name=f"{s.name} {fault}", value=x, windows=(window,)))
    return out
