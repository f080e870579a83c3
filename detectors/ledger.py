"""The ledger of requests: what runs, less what is accounted for by requests that finished, were aborted or were transferred.

Little's law: over a span much longer than a request, the mean number that run equals the seconds that finished requests ran,
divided by the span. Requests that run and never finish are what is left. Clients that left are granted the time that a finished
request takes, which is more than they held a slot for. Where KV is transferred, requests run while they wait for it and no
histogram says so: there they must also reside ten times as long as usual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.answers import NEEDS as ANSWERS
from detectors.answers import engines
from detectors.contract import Json
from detectors.measures import QUEUE, TRANSFER, needs
from detectors.normal import GAP_S, MIN_BLOCKS
from detectors.stats import centre_spread, zeroed
from detectors.window import Window

F = NDArray[np.float64]
INFERENCE, LATENCY = "inference_time_seconds", "request_latency_seconds"
SPAN_S = 300.0
LEAST = 2.0
SHARE = 0.5
RESIDES = 10.0
NEEDS = tuple(dict.fromkeys((*ANSWERS, *needs("running", "generated", "live_decode"))))
HISTS = (f"{INFERENCE}:mean", f"{LATENCY}:mean", f"{QUEUE}:mean", f"{TRANSFER}:mean")


@dataclass(frozen=True)
class Ledger:
    """Per replica over one span: requests that run, those that finished and left requests account for, the rest (``gap``),
    the mean seconds of a finished one, seconds that a request resides here (running over completions) over the usual seconds of
    one, whether KV is transferred, and whether work was done in the last 90 s. NaN where an engine does not say."""

    running: F
    finishing: F
    leaving: F
    gap: F
    mean_s: F
    resides: F
    moves: NDArray[np.bool_]
    progress: NDArray[np.bool_]

    @property
    def stuck(self) -> NDArray[np.bool_]:
        """Whether requests are unaccounted for and no transfer explains them."""
        with np.errstate(invalid="ignore"):
            out: NDArray[np.bool_] = self.unaccounted & (~self.moves | (self.resides >= RESIDES))
        return out

    @property
    def unaccounted(self) -> NDArray[np.bool_]:
        """Whether at least two requests, and half of those that run, are unaccounted for."""
        with np.errstate(invalid="ignore"):
            out: NDArray[np.bool_] = self.gap >= np.maximum(LEAST, SHARE * self.running)
        return out


def ledger(window: Window, usual_s: F, ago: NDArray[np.intp] | None = None, span_s: float = SPAN_S) -> Ledger:
    """The ledger of the span that ended ``ago`` cells before the end of the window (now where None).

    ``usual_s`` is the past mean of a request's seconds, for a span in which too few finish.
    """
    cells = int(span_s // window.step)
    units = len(window.units)
    back = np.zeros(units, np.intp) if ago is None else np.minimum(ago, window.stop - window.start)
    depth = min(cells + int(back.max(initial=0)), window.stop - window.start)
    parts = _parts(window, depth)
    stop = depth - back
    start = np.maximum(stop - cells, 0)
    row = np.arange(units)

    def total(x: F) -> F:
        sums = np.concatenate([np.zeros((units, 1)), np.cumsum(zeroed(x), axis=1)], axis=1)
        out: F = sums[row, stop] - sums[row, start]
        return out

    known = total(~np.isnan(parts["span"]))
    whole = known >= 0.8 * cells
    seconds, span = total(parts["seconds"]), total(parts["span"])
    finished, running = total(parts["n"]), total(parts["running"])
    seen = total(~np.isnan(parts["n"])) > 0.5 * cells
    recent = np.maximum(stop - int(90 // window.step), 0)
    sums = np.cumsum(zeroed(parts["n"]) + zeroed(parts["work"]), axis=1)
    sums = np.concatenate([np.zeros((units, 1)), sums], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_s = np.where(finished >= 5, seconds / finished, usual_s)
        runs = running / np.maximum(total(~np.isnan(parts["running"])), 1)
        finishing = seconds / span
        resides = runs / (finished / span) / usual_s
        leaving = total(parts["left"]) / span * zeroed(np.fmax(mean_s, usual_s))
        gap = np.where(whole & seen & (total(parts["restart"]) == 0), runs - finishing - leaving, np.nan)
    return Ledger(
        runs,
        finishing,
        leaving,
        gap,
        mean_s,
        np.where(np.isnan(resides), np.inf, resides),
        total(parts["transfer"]) > 0,
        sums[row, stop] - sums[row, recent] > 0,
    )


def _parts(window: Window, depth: int | None = None) -> dict[str, F]:
    """Cell by cell: seconds of finished requests, how many finished and left, seconds of transfers, tokens made."""
    key = ("ledger", depth)
    found = window.memo.get(key)
    if found is None:
        inference, latency = window.value(f"{INFERENCE}:sum", depth), window.value(f"{LATENCY}:sum", depth)
        queue = zeroed(window.value(f"{QUEUE}:sum", depth))
        n, other = window.value(f"{INFERENCE}:n", depth), window.value(f"{LATENCY}:n", depth)
        found = window.memo[key] = {
            "seconds": np.where(np.isnan(inference), np.maximum(latency - queue, 0.0), inference),
            "n": np.where(np.isnan(n), other, n),
            "left": zeroed(engines(window, depth, each=True).left),
            "transfer": zeroed(window.value(f"{TRANSFER}:n", depth)),
            "running": window.value("running", depth),
            "span": window.value("span", depth),
            "restart": (window.value("restart", depth) > 0).astype(np.float64),
            "work": zeroed(window.value("generated", depth)) + zeroed(window.value("live_decode", depth)),
        }
    return found


def learn_ledger(window: Window, as_of: float) -> Json:
    """Past mean seconds of a request, and centre and spread of the gap over blocks of five minutes, per replica."""
    cells, gap = int(SPAN_S // window.step), int(GAP_S // window.step)
    parts = _parts(window)
    width = max(0, parts["span"].shape[1] - gap) // cells * cells
    units, count = len(window.units), width // cells

    def blocks(x: F, how: str = "sum") -> F:
        y = np.where(window.usable[:, :width], x[:, :width], np.nan).reshape(units, count, cells)
        known = ~np.isnan(y)
        total = np.where(known, y, 0.0).sum(axis=2)
        few = known.sum(axis=2) < cells // 2
        with np.errstate(invalid="ignore", divide="ignore"):
            out = total / known.sum(axis=2) if how == "mean" else total
        return np.where(few, np.nan, out)

    seconds, n, span = blocks(parts["seconds"]), blocks(parts["n"]), blocks(parts["span"])
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = np.nansum(seconds, axis=1) / np.nansum(n, axis=1)
        left = blocks(parts["left"]) / span * zeroed(usual)[:, None]
        rest = blocks(parts["running"], "mean") - seconds / span - left
    centre, spread = centre_spread(rest, 0.2)
    few = (~np.isnan(rest)).sum(axis=1) < max(2, MIN_BLOCKS // 2)
    centre[few], spread[few] = np.nan, np.nan
    for idx in window.pools.values():
        pooled = rest[idx][~np.isnan(rest[idx])]
        young = idx[few[idx]]
        if len(young) and len(pooled) >= MIN_BLOCKS:
            c, s = centre_spread(pooled[None, :], 0.2)
            centre[young], spread[young] = c[0], s[0]
    return {
        "as_of": as_of,
        "units": [u.key for u in window.units],
        "usual": [_j(x) for x in usual],
        "centre": [_j(x) for x in centre],
        "spread": [_j(x) for x in spread],
    }


def usual_of(baseline: Json, window: Window, name: str = "usual") -> F:
    """One column of what :func:`learn_ledger` learnt, aligned to the window's replicas; a new one takes its pool's median."""
    at = dict(zip(baseline.get("units", []), baseline.get(name, []), strict=True))
    rows = (at.get(u.key) for u in window.units)
    out = np.asarray([np.nan if v is None else v for v in rows], np.float64)
    for idx in window.pools.values():
        known = out[idx][~np.isnan(out[idx])]
        if len(known):
            out[idx] = np.where(np.isnan(out[idx]), np.median(known), out[idx])
    return out


def _j(x: float) -> float | None:
    return None if x != x or abs(x) == np.inf else round(float(x), 6)
