"""Grafana's anomaly bands (promql-anomaly-detection, rules ``adaptive`` and ``robust``), with the constants of that repository.

Tagged are what its own example tags: request rate, p95 latency and errors, here by pool and class. Rules are evaluated
once a minute, both alert ``for: 5m``. Bands from a day or a week before do not exist in short histories: the rules leave
them out then, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.peers.alerts import alerts, firing
from bench.peers.series import MINUTE, RATE, F, Series, histogram_quantile, minutely, trailing_sum

HOUR = 60
LONG = 26 * HOUR
DAY = 24 * HOUR
HOW: dict[str, Callable[[F], F]] = {
    "avg": lambda rows: np.asarray(np.nanmean(rows, axis=1)),
    "stddev": lambda rows: np.asarray(np.nanstd(rows, axis=1)),
    "median": lambda rows: np.asarray(np.nanmedian(rows, axis=1)),
}
MULTIPLIER, MARGIN, BY_COVARIANCE, SPARSE, HOLD = 2.0, 0.5, 0.5, 5.0 / 60.0, 300.0


def _windows(x: F, n: int) -> F:
    padded = np.concatenate((np.full(n - 1, np.nan), x))
    return np.lib.stride_tricks.sliding_window_view(padded, n)


def _over(x: F, n: int, how: str) -> F:
    """``avg``, ``stddev`` or ``median`` over the last ``n`` points that exist; NaN where none does."""
    rows = _windows(x, min(n, len(x)))
    none = np.asarray(np.isnan(rows).all(axis=1))
    rows = np.where(none[:, None], 0.0, rows)
    return np.where(none, np.nan, HOW[how](rows))


def selected(x: F, requests: bool) -> F:
    """Values over 0, and for request rates only where the mean of the last hour is not sparse."""
    x = np.where(x > 0, x, np.nan)
    return np.where(_over(x, HOUR, "avg") < SPARSE, np.nan, x) if requests else x


def adaptive(x: F) -> tuple[F, F, F]:
    """Level, lower and upper band of selected values, a minute a point."""
    mean = _over(x, HOUR, "avg")
    spread = _over(x, HOUR, "stddev")
    spread = _over(np.where(spread > mean * BY_COVARIANCE, spread, np.nan), LONG, "avg")
    lower = np.fmin(mean - MULTIPLIER * spread, mean * (1.0 - MARGIN))
    upper = np.fmax(mean + MULTIPLIER * spread, mean * (1.0 + MARGIN))
    return x, np.maximum(lower, 0.0), upper


def robust(x: F) -> tuple[F, F, F]:
    """Level (the hour's median), lower and upper band of selected values, a minute a point."""
    centre = _over(x, DAY, "median")
    spread = _over(np.abs(x - centre), DAY, "median")
    lower = np.fmin(centre - MULTIPLIER * spread, centre * (1.0 - MARGIN))
    upper = np.fmax(centre + MULTIPLIER * spread, centre * (1.0 + MARGIN))
    return _over(x, HOUR, "median"), np.maximum(lower, 0.0), upper


def tagged(series: Series) -> list[tuple[str, str, F]]:
    """(pool, name, values a minute) of request rates, p95 latencies and error rates."""
    out: list[tuple[str, str, F]] = []
    for (pool, workload), (edges, counts) in series.buckets("ttft_seconds").items():
        window = trailing_sum(counts, RATE)
        out.append((pool, f"requests {workload}", minutely(window.sum(axis=1)) / 300.0))
        out.append((pool, f"latency {workload}", minutely(histogram_quantile(0.95, edges, window))))
    for pool, row in series.errors.items():
        if pool in series.pools:
            out.append((pool, "errors", trailing_sum(row, 5) / 300.0))
    return out


def judge(series: Series) -> dict[str, list[dict[str, Any]]]:
    """Alerts of both strategies."""
    out: dict[str, list[dict[str, Any]]] = {"Grafana adaptive bands": [], "Grafana robust bands": []}
    for pool, name, values in tagged(series):
        x = selected(values, name.startswith("requests"))
        everyone = [replica for p, replica in series.units if p == pool]
        for who, (level, lower, upper) in zip(out, (adaptive(x), robust(x)), strict=True):
            spans = firing((level < lower) | (level > upper), MINUTE, HOLD)
            out[who] += alerts(
                series.start + MINUTE, pool, [(r, a, b) for a, b in spans for r in everyone], name
            )
    return out
