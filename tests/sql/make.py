"""Readings for tests, written as what a target said."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from core.frames import Column, Frame, Layout, Reading, Target, column

EDGES = (0.5, 1.0, 2.0)
TTFT = column("ttft_seconds", "histogram", EDGES, class_="chat")
DONE = column("request_success_total", "counter", class_="chat", finish_reason="stop")
ABORTED = column("request_success_total", "counter", class_="chat", finish_reason="abort")
PREEMPTED = column("preemptions_total", "counter", class_="chat")
RUNNING = column("requests_running", "gauge", class_="chat")
SECONDS = column("ttft_seconds_sum", "sum", class_="batch")
T0 = 1_790_000_040.0
"""The start of a minute."""

Value = float | int | tuple[tuple[int, ...], float]


def target(replica: str = "r1", *, pool: str = "p", source: str = "prom", **more: str) -> Target:
    """A target named by its replica."""
    return Target(address=f"{replica}:8000", pool=pool, replica=replica, source=source, model="m", **more)  # type: ignore[arg-type]


def reading(
    t: float,
    values: Mapping[Column, Value],
    *,
    of: Target | None = None,
    start: float | None = None,
) -> Reading:
    """A good reading ``t`` seconds after :data:`T0`. A histogram is ((counts per bucket), sum); None is not needed: a gap is
    NaN for a gauge or sum, -1 for a counter, ((-1, …), nan) for a histogram."""
    layout = Layout(tuple(values))
    g, n, s = layout.size
    gauges, counts, sums = np.full(g, math.nan), np.full(n, -1, np.int64), np.full(s, math.nan)
    for c, (dg, dn, ds) in zip(layout.columns, layout.slots, strict=True):
        value = values[c]
        if isinstance(value, tuple):
            counts[dn], sums[ds] = value
        elif c.kind == "gauge":
            gauges[dg] = value
        elif c.kind == "sum":
            sums[ds] = value
        else:
            counts[dn] = value
    return Reading(of or target(), T0 + t, layout, gauges, counts, sums, start)


def down(t: float, *, of: Target | None = None) -> Reading:
    """A failed scrape."""
    nothing = np.zeros(0)
    return Reading(of or target(), T0 + t, Layout(()), nothing, np.zeros(0, np.int64), nothing, None, False)


def said(frame: Frame) -> dict[Column, Value]:
    """A frame in the form in which readings are written; sums rounded to what is kept of them."""
    out: dict[Column, Value] = {}
    for c, (dg, dn, ds) in zip(frame.layout.columns, frame.layout.slots, strict=True):
        if c.kind == "histogram":
            out[c] = (tuple(frame.counts[dn].tolist()), round(float(frame.sums[ds][0]), 4))
        elif c.kind == "counter":
            out[c] = int(frame.counts[dn][0])
        else:
            out[c] = round(float((frame.gauges[dg] if c.kind == "gauge" else frame.sums[ds])[0]), 4)
    return out
