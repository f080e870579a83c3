"""Objectives proposed: seeded from public practice where there is no history, from the class's own last days where there is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.services import latency
from app.services.gateway import POINTS
from app.services.view import View
from app.services.wording import seconds, span
from core.buckets import quantile
from core.config_slo import SloConfig
from core.objective import END_TO_END, TPOT, TTFT
from core.requests import Hist
from core.slo import GAVE_UP
from sql.store import Store

MIN_N = 1_000
"""Requests below which a 99th percentile rests on ten of them: no proposal."""
SIGNALS = (TTFT, TPOT, END_TO_END)
ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
SEEDS: dict[str, tuple[tuple[str, float], ...]] = {
    # GuideLLM's and MLPerf's interactive and offline targets, rounded up: where nothing is known of a class.
    "chat": ((TTFT, 1.0), (TPOT, 0.05)),
    "coding": ((TTFT, 3.0), (TPOT, 0.05)),
    "agent": ((TTFT, 5.0), (TPOT, 0.08)),
    "rag": ((TTFT, 3.0), (TPOT, 0.06)),
    "batch": ((END_TO_END, 300.0),),
}
GENERAL = ((TTFT, 5.0), (END_TO_END, 120.0))


@dataclass(frozen=True, slots=True)
class Proposal:
    """An objective and why. ``n`` requests of ``days`` seen; 0 where it is a seed."""

    slo: SloConfig
    reason: str
    n: int
    days: float
    configured: bool


def propose(store: Store, slos: tuple[SloConfig, ...], end: float, *, days: float = 14.0) -> list[Proposal]:
    """For every class seen in the last ``days`` up to ``end`` and every latency known of it: what 99 % of its requests kept,
    rounded up to a number people can remember."""
    start = end - days * 86400
    out = []
    for class_, signals in sorted(_histograms(store, start, end).items()):
        for signal in SIGNALS:
            hists, waiting, source = signals.get(signal, ([], [], ""))
            found = quantile(hists, 0.99, MIN_N, censored=waiting)
            known = any(s.class_ == class_ and s.signal == signal and s.sli == "latency" for s in slos)
            if found.state != "ok" or found.value is None:
                continue
            limit = rounded_up(found.high if math.isfinite(found.high) else found.value)
            label = {TTFT: "ttft", TPOT: "tpot", END_TO_END: "latency"}[signal]
            made = SloConfig.model_validate(
                {
                    "name": f"{class_}-{label}",
                    "class": class_,
                    "signal": signal,
                    "threshold": f"{limit * 1000:.9g}ms",
                    "objective_percent": 99,
                }
            )
            seen = (end - max(start, _first(store, start, end, source, class_))) / 86400
            reason = (
                f"99 % of the last {span(min(days, max(seen, 1 / 24)) * 86400)} were under {seconds(found.value)}"
                f" (n {found.n:,}, measured at the {source})"
            )
            out.append(Proposal(made, reason, found.n, min(days, seen), known))
    return out


def seeds(class_: str) -> list[SloConfig]:
    """Objectives for a class nobody has seen yet, by its name."""
    key = next((k for k in SEEDS if k in class_.lower()), None)
    return [
        SloConfig.model_validate(
            {
                "name": f"{class_}-{signal.split('_seconds')[0].replace('request_latency', 'latency')}",
                "class": class_,
                "signal": signal,
                "threshold": f"{limit * 1000:.9g}ms",
                "objective_percent": 99,
            }
        )
        for signal, limit in (SEEDS[key] if key else GENERAL)
    ]


def rounded_up(value: float) -> float:
    """The next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10 times a power of ten at or above ``value``.

    >>> rounded_up(3.2), rounded_up(0.041)
    (4.0, 0.05)
    """
    power = 10 ** math.floor(math.log10(value))
    step = next(r for r in ROUND if r * power >= value * (1 - 1e-9))
    return float(f"{step * power:.6g}")


_Found = dict[str, dict[str, tuple[list[Hist], list[Hist], str]]]


def _histograms(store: Store, start: float, end: float) -> _Found:
    """Class → signal → (histograms, those still waiting, point): of the gateway log where there is one, else of the engines."""
    out: _Found = {}
    best: dict[str, str] = {}
    cells = store.request_cells(math.floor(start / 3600) * 3600, end, hourly=True)
    for key, _ in cells:
        rank = POINTS.index(key.point) if key.point in POINTS else len(POINTS)
        if key.class_ not in best or rank < POINTS.index(best[key.class_]):
            best[key.class_] = key.point
    for key, cell in cells:
        if key.point != best[key.class_]:
            continue
        mine = out.setdefault(key.class_, {})
        if 200 <= key.status < 300 or key.status in GAVE_UP:
            first = mine.setdefault(TTFT, ([], [], key.point))
            first[0].append(cell.ttft)
            if key.status in GAVE_UP:
                first[1].append(cell.age)
        if 200 <= key.status < 300:
            mine.setdefault(END_TO_END, ([], [], key.point))[0].append(cell.duration)
            if cell.tpot is not None:
                mine.setdefault(TPOT, ([], [], key.point))[0].append(cell.tpot)
    view = View(start, end, live=False)
    for signal in SIGNALS:
        matrix = store.rollup_matrix(signal, math.floor(start / 3600) * 3600, end, 3600)
        for class_, hists in latency.on_grid(matrix, start, end, 3600.0, view=view).items():
            if signal not in out.get(class_, {}) and class_ not in best:
                pooled = [(edges, counts.sum(axis=0)) for edges, counts in hists.items()]
                out.setdefault(class_, {})[signal] = (pooled, [], "engine")
    return {c: s for c, s in out.items() if c not in ("unclassified", "shared", "other", "")}


def _first(store: Store, start: float, end: float, source: str, class_: str) -> float:
    """When the class was first seen in the span."""
    if source == "engine":
        rows = store.rollup_matrix(
            "ttft_seconds", math.floor(start / 3600) * 3600, end, 3600, classes=[class_]
        )
        return min((float(ts[0]) for ts, _, _ in rows.values() if len(ts)), default=start)
    keys = store.request_cells(math.floor(start / 3600) * 3600, end, classes=[class_], hourly=True)
    return min((float(k.minute) for k, _ in keys), default=start)
