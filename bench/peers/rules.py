"""Static alert rules that dashboards and runbooks recommend, each with the limit that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.alerts import alerts, firing
from bench.peers.series import MINUTE, RATE, F, Series, histogram_quantile, minutely, trailing_sum
from core.config import Config

LATE = "p99 above objective for 5 min"
RULES: dict[str, Callable[[Series], NDArray[np.bool_]]] = {
    "KV usage > 90 %": lambda s: minutely(s.gauge("kv_cache_usage_ratio")) > 0.9,
    "waiting > 0": lambda s: minutely(s.gauge("requests_waiting")) > 0,
    "preemptions > 0": lambda s: minutely(_increase(s)) > 0,
}


def _increase(series: Series) -> F:
    """``increase(preemptions[5m])`` (retractions on SGLang) per replica."""
    both = np.nan_to_num(series.counter("preemptions_total")) + np.nan_to_num(series.counter("retractions"))
    return trailing_sum(both.T, RATE).T


def judge(series: Series, config: Config) -> dict[str, list[dict[str, Any]]]:
    """Alerts by rule."""
    start = series.start + MINUTE
    out: dict[str, list[dict[str, Any]]] = {LATE: []}
    limits = {s.class_: float(s.threshold) for s in config.slos if s.signal in ("ttft", "ttft_seconds")}
    for (pool, workload), (edges, counts) in series.buckets("ttft_seconds").items():
        p99 = minutely(histogram_quantile(0.99, edges, trailing_sum(counts, RATE)))
        everyone = [replica for p, replica in series.units if p == pool]
        if workload in limits:
            spans = firing(p99 > limits[workload], MINUTE, 300.0)
            out[LATE] += alerts(start, pool, [(r, a, b) for a, b in spans for r in everyone], LATE)
    for rule, condition in RULES.items():
        rows = condition(series)
        out[rule] = []
        for pool in series.pools:
            spans_of = [
                (series.units[u][1], a, b)
                for u in series.members(pool)
                for a, b in firing(rows[u], MINUTE, 0.0)
            ]
            out[rule] += alerts(start, pool, spans_of, rule)
    return out
