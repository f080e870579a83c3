"""Reads what curves per replica need: frames where that is affordable, roll-ups per replica where it is not."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

from app.services import fleet
from app.services.health import exportable
from app.services.heat import HeatMap, heat_map, step_for_heat
from app.services.latency import step_ends, usable_windows
from app.services.measures import Measure
from app.services.replicas import P99_MIN_N, P99_WINDOWS, Curve, curves
from app.services.view import View
from collectors.dictionary import load_dictionary
from core.buckets import trailing_quantiles
from sql.store import Store

MAX_FRAMES = 6000
"""Frames that may be unpacked for one picture; beyond that the five-minute roll-ups are read."""
SCRAPE = 15.0
LEAD = 900.0
"""Percentiles look back a quarter of an hour: the first points of a picture need it."""
NORMAL_SECONDS = 6 * 3600.0
UNIT_STEP = 300.0


def can_show(components: tuple[str, ...], signals: Collection[str]) -> bool:
    """Whether a target may export one of the signals; its frames need not be unpacked otherwise."""
    if not components:
        return True
    can = _exportable(components)
    return not can or any(s in can for s in signals)


@lru_cache(maxsize=256)
def _exportable(components: tuple[str, ...]) -> frozenset[str]:
    return frozenset(exportable(load_dictionary(), components))


def load_curves(
    store: Store,
    view: View,
    measures: Sequence[Measure],
    start: float,
    end: float,
    step: float,
    *,
    pools: Sequence[str] | None = None,
    replicas: Collection[str] | None = None,
    class_: str = "",
) -> dict[str, list[Curve]]:
    """Curves of the measures per replica in [start, end) on steps of ``step`` seconds (coarser where roll-ups are read)."""
    wanted = {s for m in measures for s in m.top}
    rows = [
        r
        for r in store.targets()
        if r.first_seen < end
        and r.last_seen >= start
        and view.has(pool=r.target.pool)
        and (pools is None or r.target.pool in pools)
        and (replicas is None or fleet.place(r)[1] in replicas)
        and can_show(r.target.components, wanted)
    ]
    if not rows:
        return {m.id: [] for m in measures}
    lead = math.ceil(LEAD / step) if any(m.how == "p99" for m in measures) else 0
    begin = start - lead * step
    if len(rows) * (end - begin) / SCRAPE <= MAX_FRAMES:
        frames = store.frames(begin + 1e-3, end + 1e-3, target_ids=[r.id for r in rows])
        found = curves(frames, fleet.places(rows), measures, begin, end, step, class_=class_)
        return {
            m: [Curve(c.replica, c.pool, c.t[lead:], c.value[lead:]) for c in cs] for m, cs in found.items()
        }
    known = sorted({r.target.pool for r in rows})
    coarse = max(step, UNIT_STEP)
    return {
        m.id: [
            c
            for c in rollup_curves(store, m, start, end, coarse, known, class_)
            if replicas is None or c.replica in replicas
        ]
        for m in measures
    }


def rollup_curves(
    store: Store,
    measure: Measure,
    start: float,
    end: float,
    step: float,
    pools: Sequence[str],
    class_: str = "",
) -> list[Curve]:
    """Curves of one measure from the roll-ups per replica."""
    step = float(np.ceil(step / UNIT_STEP) * UNIT_STEP)
    begin = float(np.floor(start / step) * step)
    size = max(1, int(np.ceil((end - begin) / step - 1e-9)))
    t = step_ends(begin, step, size)
    top = parts(store, measure.top, measure, begin, end, step, size, pools, class_)
    minus: dict[tuple[str, str], Part] = {}
    if measure.how == "ratio":
        minus = parts(store, measure.minus, measure, begin, end, step, size, pools, class_)
        bottom = parts(store, measure.bottom, measure, begin, end, step, size, pools, class_)
    else:
        bottom = {}
    out = []
    for place, part in sorted(top.items()):
        if measure.how == "p99":
            windows = usable_windows(P99_WINDOWS, step)
            found = trailing_quantiles(
                part.hists, measure.q, windows=windows, min_n=P99_MIN_N, step=step / 60
            )
            value = np.where(found.state == 1, found.low, np.where(found.state == 2, found.high, found.value))
            value = np.where(found.state <= 2, value, np.nan)
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                if measure.how in ("gauge", "mean"):
                    value = np.where(part.n > 0, part.total / part.n, np.nan)
                elif measure.how == "rate":
                    value = np.where(part.seen, part.n / step, np.nan)
                else:
                    below = bottom[place].n if place in bottom else np.zeros(size)
                    above = part.n - (minus[place].n if place in minus else 0.0)
                    value = np.where(below > 0, above / below, np.nan)
        out.append(Curve(place[1], place[0], t, value))
    return out


class Part:
    """Sums of one signal of one replica per step."""

    def __init__(self, size: int) -> None:
        self.n = np.zeros(size)
        self.total = np.zeros(size)
        self.seen = np.zeros(size, bool)
        self.hists: dict[tuple[float, ...], np.ndarray] = {}


def parts(
    store: Store,
    signals: Sequence[str],
    measure: Measure,
    begin: float,
    end: float,
    step: float,
    size: int,
    pools: Sequence[str],
    class_: str,
) -> dict[tuple[str, str], Part]:
    """The first of the alternatives that a replica has, per replica."""
    out: dict[tuple[str, str], Part] = {}
    for signal in signals:
        found: dict[tuple[str, str], Part] = {}
        matrix = store.rollup_matrix(signal, begin, end, step=int(step), pools=list(pools), per_unit=True)
        for (cls, pool, unit, _, edges), (ts, counts, sums) in matrix.items():
            if (pool, unit) in out or (class_ and cls and cls != class_):
                continue
            part = found.setdefault((pool, unit), Part(size))
            at = ((ts - begin) // step).astype(np.int64)
            keep = (at >= 0) & (at < size)
            at, counts, sums = at[keep], counts[keep], sums[keep]
            np.add.at(part.n, at, counts.sum(axis=1))
            np.add.at(part.total, at, sums)
            part.seen[at] = True
            if measure.how == "p99" and edges:
                hist = part.hists.setdefault(edges, np.zeros((size, len(edges) + 1), np.int64))
                np.add.at(hist, at, counts)
        out.update(found)
    return out


def load_heats(
    store: Store,
    view: View,
    measures: Sequence[Measure],
    *,
    pools: Sequence[str] | None = None,
    replicas: Collection[str] | None = None,
    before_seconds: float = NORMAL_SECONDS,
) -> dict[str, HeatMap]:
    """Heat maps of the view's range against the hours before it; frames are unpacked once for all measures."""
    begin, stop = view.start, view.as_of
    found = load_curves(
        store,
        view,
        measures,
        begin,
        stop,
        step_for_heat(stop - begin),
        pools=pools,
        replicas=replicas,
        class_=view.class_,
    )
    before_end = float(np.floor(begin / UNIT_STEP) * UNIT_STEP)
    out: dict[str, HeatMap] = {}
    for m in measures:
        during = found[m.id]
        known = sorted({c.pool for c in during})
        before: list[Curve] = []
        if known:
            before = rollup_curves(
                store, m, before_end - before_seconds, before_end, UNIT_STEP, known, view.class_
            )
        out[m.id] = heat_map(m, during, before)
    return out


def load_heat(
    store: Store,
    view: View,
    measure: Measure,
    *,
    pools: Sequence[str] | None = None,
    replicas: Collection[str] | None = None,
    before_seconds: float = NORMAL_SECONDS,
) -> HeatMap:
    """The heat map of one measure."""
    found = load_heats(store, view, [measure], pools=pools, replicas=replicas, before_seconds=before_seconds)
    return found[measure.id]
