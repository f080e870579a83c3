"""Everything the Quality × load page and ``gustfront analyse quality`` say, computed once from one history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from detectors.degraded_generations import LEAST_PAST, UNKNOWN_RATE, upper_rate
from detectors.quality.cascade import Cascade, cascades
from detectors.quality.cells import Cells, rank
from detectors.quality.decision import Setting, decide
from detectors.quality.evalues import ALARM, rate_process
from detectors.quality.history import EVERYWHERE, History, Place, in_pool, read
from detectors.quality.rates import RateInterval, exact
from detectors.quality.strata import Stratum, Table, strata_of
from detectors.quality.verdict import LoadVerdict
from detectors.quality.words import Verdict, verdict_of
from sql.output_counts import BIN
from sql.store import Store

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
PAST_S = 7 * 86400.0
POINTS = 48
DECILES = 10
CHANGES = ("deploy", "restart", "release", "version")
GATEWAY_S = 7 * 86400.0
SESSIONS_S = 2 * 86400.0
"""Sessions are read one turn a row: at most of the last two days of the range."""


@dataclass(frozen=True, slots=True)
class Point:
    """A stretch of time, or a tenth of the load: rate with interval, and the mean load (1 = the pool's mean; NaN unknown)."""

    at: float
    rate: RateInterval
    load: float


@dataclass(frozen=True)
class Analysis:
    """See the module. ``baseline`` is the same place in the week before; ``evidence`` the e-value of "over ``normal``".

    ``over_time``, ``deciles`` and ``load`` are about the pool of ``focus`` where there is one, ``focus_rate`` is its rate.
    ``kinds`` are rules with the number of bad answers they fired in. ``missing`` = shares of requests that clients gave up at
    low and high load, where a gateway log tells.
    """

    start: float
    end: float
    place: Place
    history: History
    rate: RateInterval
    focus_rate: RateInterval
    baseline: RateInterval
    normal: float
    evidence: float
    step: float
    over_time: tuple[Point, ...]
    by_class: dict[str, tuple[Point, ...]]
    kinds: tuple[tuple[str, int], ...]
    strata: Table
    deciles: tuple[Point, ...]
    missing: tuple[float, float] | None
    missing_by_decile: tuple[float, ...]
    load: LoadVerdict
    verdict: Verdict
    focus: str
    """The pool that the verdict is about where one of several carries the rate; empty otherwise."""


def analyse(store: Store, start: float, end: float, place: Place = EVERYWHERE) -> Analysis:
    """The analysis of what was admitted in [start, end). A million outputs take seconds: they are read as counts."""
    h = read(store, start, end, place)
    past = store.output_counts(
        h.start - PAST_S, h.start, pools=place.pools(), classes=place.classes(), models=place.models()
    )
    before = exact(sum(c.hard for c in past), sum(c.n for c in past))
    normal = upper_rate(before.k, before.n) if before.n >= LEAST_PAST else UNKNOWN_RATE
    cells = h.cells
    rate = exact(cells.bad, cells.outputs)
    evidence = float(np.exp(min(float(rate_process(rate.k, rate.n, normal)), 300.0))) if rate.n else 1.0
    step = BIN * max(1, int(-(-(h.end - h.start) // (BIN * POINTS))))
    whole = _strata(h)
    about, focus = h, ""
    pools = [x for x in whole.carriers() if x.dimension == "pool"]
    if pools:
        focus = pools[0].level
        about = in_pool(h, focus)
    table = _strata(about) if focus else whole
    missing, by_decile = _missing(store, about, place)
    raised = evidence >= ALARM or table.evidence >= ALARM
    suspects = sorted(
        (x for x in table.carriers() if x.dimension in SETTLING), key=lambda x: SETTLING.index(x.dimension)
    )
    carried = _sentence(suspects[0]) if suspects and raised else ""
    settled = bool(suspects) and suspects[0].dimension != "last change"
    load = decide(about.cells, Setting(about.series, about.group, missing, carried, settled))
    return Analysis(
        h.start,
        h.end,
        place,
        h,
        rate,
        exact(about.cells.bad, about.cells.outputs),
        before,
        normal,
        evidence,
        step,
        _over_time(about.cells, h.start, h.end, step),
        _by_class(h, step),
        _kinds(h),
        table,
        _deciles(about.cells),
        missing,
        by_decile,
        load,
        verdict_of(rate, before, evidence, table, load, gauge=h.gauge, focus=focus),
        focus,
    )


def cascade(store: Store, start: float, end: float, place: Place = EVERYWHERE) -> list[Cascade]:
    """How likely a task of some turns stays clean, per class, over at most the last two days of the range."""
    start = max(start, end - SESSIONS_S)
    classes = place.classes()
    return cascades(
        store.turn_counts(start, end, classes=classes), store.bad_sessions(start, end, classes=classes)
    )


def _strata(h: History) -> Table:
    if not h.cells.bad:
        return Table((), 1.0)
    return strata_of(h.cells, h.labels, uptime=_uptime(h), change=_change(h))


SETTLING = ("replica", "release", "cache path", "time since start", "last change")
"""Dimensions that, where they carry a rate, speak against load."""


def _sentence(s: Stratum) -> str:
    if s.dimension == "last change":
        return f"it began with each replica's last restart or release: {s.rate.k} of {s.rate.n:,} after it"
    if s.dimension == "time since start":
        return f"processes that run longer carry it: {s.rate.k} of {s.rate.n:,} in the {s.level}"
    return f"{s.dimension} {s.level} carries it: {s.rate.k} of {s.rate.n:,}, the rest {s.rest * 1e4:.1f} per 10,000"


def _points(cells: Cells, code: I, at: F) -> tuple[Point, ...]:
    size = len(at)
    k, n = np.bincount(code, cells.k, size), np.bincount(code, cells.n, size)
    known = ~np.isnan(cells.load)
    weight = np.bincount(code[known], cells.n[known], size)
    load = np.bincount(code[known], cells.n[known] * cells.load[known], size)
    return tuple(
        Point(
            float(at[i]),
            exact(round(float(k[i])), round(float(n[i]))),
            float(load[i] / weight[i]) if weight[i] > 0 else float("nan"),
        )
        for i in range(size)
    )


def _over_time(cells: Cells, start: float, end: float, step: float) -> tuple[Point, ...]:
    size = max(1, int(-(-(end - start) // step)))
    code = np.clip(((cells.t - start) // step).astype(np.intp), 0, size - 1)
    return _points(cells, code, np.asarray(start + (np.arange(size) + 0.5) * step, np.float64))


def _by_class(h: History, step: float) -> dict[str, tuple[Point, ...]]:
    found = h.labels["class"]
    return {
        name: _over_time(h.cells.where(found.code == i), h.start, h.end, step)
        for i, name in enumerate(found.values)
    }


def _deciles(cells: Cells) -> tuple[Point, ...]:
    known = ~np.isnan(cells.load)
    part = cells.where(known)
    if not part.outputs:
        return ()
    code = np.minimum(rank(part.load, part.n) * DECILES, DECILES - 1).astype(np.intp)
    # Where the load has few values some tenths are empty: they are no points.
    return tuple(p for p in _points(part, code, np.arange(1.0, DECILES + 1)) if p.rate.n)


def _kinds(h: History) -> tuple[tuple[str, int], ...]:
    seen: Counter[str] = Counter()
    for b in h.first:
        seen.update(orjson.loads(b.rules).keys())
    return tuple(seen.most_common(8))


def _change(h: History) -> I | None:
    """0 before, 1 after the last restart or release of the cell's replica in the range; 2 where there was none."""
    last: dict[str, float] = {}
    replicas = h.labels["replica"]
    for e in h.events:
        if e.kind in CHANGES and h.start < e.ts < h.end:
            names = [e.replica.rsplit(":", 1)[0]] if e.replica else list(replicas.values)
            for name in names:
                last[name] = max(last.get(name, 0.0), e.ts)
    if not last or not len(h.cells):
        return None
    edge = np.asarray([last.get(name, np.inf) for name in replicas.values])[replicas.code]
    return np.where(np.isinf(edge), 2, (h.cells.t >= edge).astype(np.intp)).astype(np.intp)


def _uptime(h: History) -> I | None:
    """0 in the younger half of the process's known life, 1 in the older; None where starts are known of too few outputs."""
    starts: dict[str, list[float]] = {}
    for e in h.events:
        if e.kind == "restart" and e.replica:
            starts.setdefault(e.replica.rsplit(":", 1)[0], []).append(e.ts)
    if not starts or not len(h.cells):
        return None
    replicas = h.labels["replica"]
    age = np.full(len(h.cells), np.nan)
    for i, name in enumerate(replicas.values):
        for at in sorted(starts.get(name, [])):
            mine = (replicas.code == i) & (h.cells.t >= at)
            age[mine] = h.cells.t[mine] - at
    known = ~np.isnan(age)
    if h.cells.n[known].sum() < 0.5 * h.cells.n.sum():
        return None
    middle = float(np.median(age[known]))
    return np.where(known, (age > middle).astype(np.intp), 2).astype(np.intp)


def _missing(store: Store, h: History, place: Place) -> tuple[tuple[float, float] | None, tuple[float, ...]]:
    """Share of requests given up by clients, in the bottom and top quarter and in each tenth of the pool's load."""
    if h.end - h.start > GATEWAY_S:
        return None, ()
    rows = store.given_up(h.start, h.end, pools=place.pools())
    pools = h.labels["pool"].values
    known = [(b, p, n, k) for b, p, n, k in rows if n > 0 and p in pools]
    if not known:
        return None, ()
    load = np.full(len(known), np.nan)
    for g, pool in enumerate(pools):
        mine = np.asarray([i for i, u in enumerate(h.group) if u == g], np.intp)
        if not len(mine):
            continue
        part = h.series.values[mine]
        seen = (~np.isnan(part)).sum(axis=0)
        mean = np.where(seen > 0, np.nansum(part, axis=0) / np.maximum(seen, 1), np.nan)
        usual = float(np.nanmean(mean)) if (~np.isnan(mean)).any() else float("nan")
        for i, (b, p, _, _) in enumerate(known):
            at = int((b - h.start) // BIN)
            if p == pool and 0 <= at < len(mean):
                load[i] = mean[at] / usual if usual > 0 else np.nan
    ok = ~np.isnan(load)
    if not ok.any():
        return None, ()
    n = np.asarray([float(r[2]) for r in known])[ok]
    k = np.asarray([float(r[3]) for r in known])[ok]
    x = rank(load[ok], n)
    low, high = x <= 0.25, x > 0.75
    if not n[low].sum() or not n[high].sum():
        return None, ()
    code = np.minimum(x * DECILES, DECILES - 1).astype(np.intp)
    total, gone = np.bincount(code, n, DECILES), np.bincount(code, k, DECILES)
    shares = tuple(float(g / t) if t else float("nan") for g, t in zip(gone, total, strict=True))
    return (float(k[low].sum() / n[low].sum()), float(k[high].sum() / n[high].sum())), shares
