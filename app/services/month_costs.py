"""What a class used and what of it was wasted: tokens, GPU hours, preemptions, answers nobody read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.services.gateway import POINTS
from core.requests import RequestCell, RequestKey
from core.slo import GAVE_UP
from sql.store import Store

HOUR = 3600.0
GPU_SIGNALS = ("gpu_utilization_ratio", "gpu_power_watts", "gpu_memory_used_bytes", "gpu_sm_clock_hz")
"""Gauges that every GPU exporter has one of; how many values came in says how many GPUs were there."""


@dataclass(frozen=True, slots=True)
class Costs:
    """A class over a span; None where nothing exports it. ``gpu_hours``: its share by tokens of pools that serve several classes.

    ``aborted_tokens``: prompt and output tokens of attempts that clients gave up. ``failed_attempts``: 5xx and 429, which clients
    send again. ``preemptions``: requests thrown out of the batch, whose prompts were computed twice (of all classes of the pool).
    """

    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    gpu_hours: float | None
    preemptions: int | None
    aborted_tokens: int | None
    failed_attempts: int | None

    def per_million(self, price: float | None) -> float | None:
        """Price of a million output tokens at ``price`` for a GPU hour."""
        if price is None or self.gpu_hours is None or not self.output_tokens:
            return None
        return self.gpu_hours * price / (self.output_tokens / 1e6)


def costs(
    store: Store,
    class_: str,
    start: float,
    end: float,
    cells: Sequence[tuple[RequestKey, RequestCell]] | None = None,
) -> Costs:
    """Of one class in [start, end); whole hours."""
    first = math.floor(start / HOUR) * HOUR
    if cells is None:
        cells = store.request_cells(first, end, classes=[class_], hourly=True)
    point = next((p for p in POINTS if any(k.point == p for k, _ in cells)), None)
    mine = [(k, c) for k, c in cells if k.point == point]
    pools, share = _shares(store, class_, first, end)
    prompt, output = _tokens(store, "prompt_tokens_total", class_, first, end), None
    if mine:
        prompt = sum(c.prompt_tokens for _, c in mine)
        output = sum(c.output_tokens for _, c in mine)
    else:
        output = _tokens(store, "generation_tokens_total", class_, first, end)
    gone = [c for k, c in mine if k.status in GAVE_UP]
    return Costs(
        prompt,
        _shared(store, "prefix_cache_hit_tokens_total", pools, share, first, end),
        output,
        _gpu_hours(store, pools, share, first, end),
        _shared(store, "preemptions_total", pools, dict.fromkeys(pools, 1.0), first, end),
        sum(c.prompt_tokens + c.output_tokens for c in gone) if mine else None,
        sum(c.n for k, c in mine if k.status == 429 or k.status >= 500) if mine else None,
    )


def _tokens(store: Store, signal: str, class_: str, start: float, end: float) -> int | None:
    rows = store.rollup_matrix(signal, start, end, 3600, classes=[class_])
    return sum(int(counts.clip(min=0).sum()) for _, counts, _ in rows.values()) if rows else None


def _shares(store: Store, class_: str, start: float, end: float) -> tuple[list[str], dict[str, float]]:
    """Pools that served the class, and its share of their prompt tokens (1 where they serve nothing else)."""
    mine: dict[str, float] = {}
    whole: dict[str, float] = {}
    for (name, pool, _, _, _), (_, counts, _) in store.rollup_matrix(
        "prompt_tokens_total", start, end, 3600
    ).items():
        tokens = float(counts.clip(min=0).sum())
        whole[pool] = whole.get(pool, 0.0) + tokens
        if name == class_:
            mine[pool] = mine.get(pool, 0.0) + tokens
    pools = sorted(mine)
    return pools, {p: mine[p] / whole[p] if whole[p] else 0.0 for p in pools}


def _shared(
    store: Store, signal: str, pools: list[str], share: dict[str, float], start: float, end: float
) -> int | None:
    """A counter of the pools, shared out."""
    if not pools:
        return None
    rows = store.rollup_matrix(signal, start, end, 3600, pools=pools)
    if not rows:
        return None
    found = sum(share[key[1]] * float(counts.clip(min=0).sum()) for key, (_, counts, _) in rows.items())
    return round(found)


def _gpu_hours(
    store: Store, pools: list[str], share: dict[str, float], start: float, end: float
) -> float | None:
    """GPU hours of the pools, shared out: values of one gauge of the GPU exporter, times the time between two."""
    if not pools:
        return None
    for signal in GPU_SIGNALS:
        rows = store.rollups(signal, start, end, resolution=3600, pools=pools)
        if rows:
            every = {pool: _interval(store, pool, end) for pool in pools}
            return sum(share[r.pool] * r.n * every[r.pool] for r in rows) / HOUR
    return None


def _interval(store: Store, pool: str, end: float) -> float:
    """Seconds between two scrapes of the pool's targets."""
    seen = store.uptime(end - HOUR, end, pools=[pool])
    gaps = [float(np.median(np.diff(t))) for t, _ in seen.values() if len(t) > 1]
    return float(np.median(gaps)) if gaps else 15.0
