"""A score for any series of numbers: how new is each value, judged by the series' own past alone.

Three views, because a fault can show in any of them: the value (outside everything so far), the spread of the
last 52 values (unlike any stretch so far), the time of day (further from its usual than ever). Each
counts in a unit of its own (:data:`UNITS`), each speaks only of news, and the score is the highest.
Nothing is fitted to a series; there is no parameter to set per series. The alarm threshold comes from a
budget: on made-up series without a fault (``bench/series_made.py``) one false alarm a series and week.
Formula, calibration and measurements: docs/odd.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.frames import FloatArray
from detectors.series.memory import unseen_spread
from detectors.series.records import beyond_range
from detectors.series.refractory import news
from detectors.series.seasonal import odd_for_the_hour

UNITS: Mapping[str, float] = {"value": 0.01, "spread": 1.0, "hour": 0.1}
"""What counts as 1: 1 % of the range beyond it; the chi-square point of 1 %; a residual 10 % over its record."""
ALARM = 1.26
"""The score at which the made-up series without a fault raise one false alarm a series and week."""
LEARNING = 100
"""Points before anything is said."""
MOST = 100.0


@dataclass(frozen=True)
class Scores:
    """For each point: the score, and what each view gave; 0 where there is no news, where the value is NaN and while learning."""

    total: FloatArray
    views: Mapping[str, FloatArray]

    @property
    def alarms(self) -> NDArray[np.intp]:
        """Indices of the points at which an alarm is raised."""
        return np.flatnonzero(self.total >= ALARM)

    def view(self, i: int) -> str:
        """Which view gave the score of a point."""
        return max(self.views, key=lambda k: float(self.views[k][i]))


def score_series(t: FloatArray, x: FloatArray) -> Scores:
    """Score every point of a series. ``t`` Unix seconds; ``x`` in any unit, NaN for a gap.

    Causal: element i depends on elements up to i only. Neither the unit nor the zero of ``x`` matters (time of day and step do).
    A clock that goes back stands still until it is ahead again. ValueError where the lengths differ.
    """
    if len(t) != len(x):
        raise ValueError(f"{len(t)} times for {len(x)} values")
    t = np.maximum.accumulate(t) if len(t) else t
    x = np.where(np.isfinite(x), x, np.nan).astype(np.float64)
    known = ~np.isnan(x)
    spread = np.zeros(len(x))
    spread[known] = unseen_spread(x[known])
    raw = {"value": beyond_range(x), "spread": spread, "hour": odd_for_the_hour(t, x)}
    early = np.cumsum(known) <= LEARNING
    views = {}
    for name, values in raw.items():
        scaled = np.minimum(values / UNITS[name], MOST)
        scaled[early] = 0.0
        views[name] = news(t, scaled)
    total = np.max(np.stack(list(views.values())), axis=0) if len(x) else np.zeros(0)
    return Scores(total, views)
