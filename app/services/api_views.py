"""Answers of the REST API as plain dictionaries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from app.services import latency
from core.errors import ConfigError
from core.frames import FloatArray
from core.incidents import iso
from core.signals import resolve
from core.times import parse_duration, parse_time
from sql.store import Store

DEFAULT_RANGE = 3600.0
MAX_STEPS = 11_000
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
STATS = (*QUANTILES, "mean", "rate")


def number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity: both are null."""
    return None if value is None or not math.isfinite(value) else float(value)


def targets_json(store: Store, query: Mapping[str, str]) -> dict[str, Any]:
    """``{"targets": [...]}``; ``pool`` filters."""
    pool = query.get("pool")
    rows = [r for r in store.targets() if pool is None or r.target.pool == pool]
    return {
        "targets": [
            {
                "id": str(r.id),
                **{
                    k: v for k, v in asdict(r.target).items() if k not in ("labels", "components", "gpu_host")
                },
                "components": list(r.target.components),
                "up": r.up,
                "first_seen": iso(r.first_seen),
                "last_seen": iso(r.last_seen),
                "process_start": iso(r.process_start),
            }
            for r in rows
        ]
    }


def time_range(store: Store, query: Mapping[str, str]) -> tuple[float, float]:
    """[start, end) of a query; by default the hour up to the newest data."""
    if "end" in query:
        end = parse_time(query["end"], "end")
    else:
        newest = store.newest()
        end = math.floor(newest / 60) * 60 + 60 if newest is not None else 0.0
    start = parse_time(query["start"], "start") if "start" in query else end - DEFAULT_RANGE
    if start >= end:
        raise ConfigError("start", "must be before end", "give a start earlier than end", query.get("start"))
    return start, end


def series_json(store: Store, query: Mapping[str, str]) -> dict[str, Any]:
    """``{"signal", "unit", "stat", "step", "series": [{"class", "pool", "points": [...]}]}``.

    A point of a quantile has ``value``, ``low``, ``high``, ``n``, ``state`` and ``window_s``; others ``value`` and ``n``.
    """
    if "signal" not in query:
        raise ConfigError("signal", "is missing", "add ?signal=ttft_seconds")
    signal = resolve(query["signal"])
    default = "p99" if signal.kind == "histogram" else ("mean" if signal.kind == "gauge" else "rate")
    stat = query.get("stat", default)
    if stat not in STATS or (stat in QUANTILES and signal.kind != "histogram"):
        raise ConfigError(
            "stat", f"cannot be computed of a {signal.kind}", f"use one of {', '.join(STATS)}", stat
        )
    step = parse_duration(query.get("step", "60s"), "step")
    if step < 60 or step % 60:
        raise ConfigError("step", "must be whole minutes", "write 60s, 5m or 1h", query.get("step"))
    start, end = time_range(store, query)
    start = math.floor(start / step) * step
    if (end - start) / step > MAX_STEPS:
        raise ConfigError("step", f"more than {MAX_STEPS} points", "ask for a longer step or a shorter range")
    back = latency.LOOK_BACK if stat in QUANTILES else 0.0
    begin = math.floor((start - back) / step) * step
    matrix = store.rollup_matrix(
        signal.id,
        begin,
        end,
        step=int(step),
        classes=[query["class"]] if "class" in query else None,
        pools=[query["pool"]] if "pool" in query else None,
    )
    groups: dict[tuple[str, str], latency.Matrix] = {}
    for key, value in matrix.items():
        groups.setdefault((key[0], key[1]), {})[key] = value  # type: ignore[index]
    return {
        "signal": signal.id,
        "unit": signal.unit,
        "stat": stat,
        "step": step,
        "start": iso(start),
        "end": iso(end),
        "series": [
            {"class": c, "pool": p, "points": points(part, stat, begin, start, end, step)}
            for (c, p), part in sorted(groups.items())
        ],
    }


def points(
    matrix: latency.Matrix, stat: str, begin: float, start: float, end: float, step: float
) -> list[dict[str, Any]]:
    """The points of one class and pool. ``t`` is the end of the step."""
    size = latency.grid_size(begin, end, step)
    ends = latency.step_ends(begin, step, size)
    if stat in QUANTILES:
        hists = next(iter(latency.on_grid(matrix, begin, end, step).values()))
        found = latency.trailing(hists, QUANTILES[stat], step)
        return [
            {
                "t": iso(float(ends[i])),
                "value": number(q.value),
                "low": number(q.low),
                "high": number(q.high),
                "n": q.n,
                "state": q.state,
                "window_s": minutes * 60,
            }
            for i, (q, minutes) in enumerate(found)
            if ends[i] > start
        ]
    n, total, seen = np.zeros(size), np.zeros(size), np.zeros(size, bool)
    for ts, counts, sums in matrix.values():
        at = ((ts - begin) // step).astype(np.int64)
        np.add.at(n, at, counts.sum(axis=1))
        np.add.at(total, at, sums)
        seen[at] = True
    value = _mean(total, n) if stat == "mean" else n / step
    return [
        {"t": iso(float(ends[i])), "value": number(float(value[i])), "n": int(n[i])}
        for i in range(size)
        if seen[i] and ends[i] > start
    ]


def _mean(total: FloatArray, n: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(n > 0, total / n, np.nan)


def clean(value: Any) -> Any:
    """The same with NaN and infinity as null, so that it is JSON."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return value
