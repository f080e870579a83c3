"""From the store to cells, without reading a million rows: counts by five minutes, the few bad outputs, roll-ups of load.

Load at admission is the mean of running and waiting requests of the replica over those five minutes, without the request
itself: its own time in the span is taken off. Where an engine does not export running requests, the sampled requests in flight
stand in (their time divided by the span). Joined by replica and time when it is read, so outputs that arrive late count as well.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.records import Event
from detectors.quality.cells import Cells, codes
from detectors.quality.load import LoadSeries
from detectors.stats import zeroed
from sql.output_counts import BIN, BadOutput, OutputCount, band, cache
from sql.store import Store

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741


@dataclass(frozen=True)
class Place:
    """Filters: empty means everything."""

    pool: str = ""
    class_: str = ""
    model: str = ""

    def pools(self) -> list[str] | None:
        """For reads of the store."""
        return [self.pool] if self.pool else None

    def classes(self) -> list[str] | None:
        """For reads of the store."""
        return [self.class_] if self.class_ else None

    def models(self) -> list[str] | None:
        """For reads of the store."""
        return [self.model] if self.model else None


EVERYWHERE = Place()


@dataclass(frozen=True)
class Labels:
    """Names of the codes of each cell, per dimension: ``values[code]`` and ``code`` per cell."""

    values: tuple[str, ...]
    code: I


@dataclass(frozen=True)
class History:
    """Outputs of a span as cells, with the names of their strata, and the bad ones themselves (first turn of a session).

    ``rows`` counts outputs (not weights); ``aside`` were kept only because they look suspicious; ``later`` are later turns of
    sessions that had gone bad. ``gauge``: load is from the engines' own gauges, else from sampled requests in flight.
    """

    start: float
    end: float
    cells: Cells
    labels: dict[str, Labels]
    series: LoadSeries
    group: I
    first: tuple[BadOutput, ...]
    all_bad: tuple[BadOutput, ...]
    events: tuple[Event, ...]
    rows: int
    aside: int
    later: int
    even: bool
    gauge: bool
    counts: tuple[OutputCount, ...]


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: a hundred thousand small tuples set it off again and again, and it finds nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read(store: Store, start: float, end: float, place: Place = EVERYWHERE) -> History:
    """Everything admitted in [start, end) (whole five minutes)."""
    with _uncollected():
        return _read(store, start, end, place)


def _read(store: Store, start: float, end: float, place: Place) -> History:
    start, end = start // BIN * BIN, -(-end // BIN) * BIN
    pools, classes, models = place.pools(), place.classes(), place.models()
    counts = store.output_counts(start, end, pools=pools, classes=classes, models=models)
    bad = store.bad_outputs(start, end, pools=pools, classes=classes, models=models)
    first, later = first_bad(bad)
    units = sorted({(c.pool, c.replica) for c in counts})
    at = {u: i for i, u in enumerate(units)}
    series, gauge = load_of(store, start, end, units, counts)
    total, squares = float(sum(c.weight for c in counts)), float(sum(c.weight2 for c in counts))
    rows = sum(c.n for c in counts)
    even = rows == 0 or abs(squares * rows - total * total) <= 1e-6 * total * total
    cells, labels = _cells(counts, first, bad, at, series, 1.0 if even else total / squares, even)
    events = [e for e in store.events(start - 3600, end, pools=place.pools()) if e.kind != "note"]
    return History(
        start,
        end,
        cells,
        labels,
        series,
        np.unique([p for p, _ in units], return_inverse=True)[1].astype(np.intp)
        if units
        else np.zeros(0, np.intp),
        tuple(first),
        tuple(bad),
        tuple(events),
        rows,
        sum(c.aside for c in counts),
        later,
        even,
        gauge,
        tuple(counts),
    )


def first_bad(bad: Sequence[BadOutput]) -> tuple[list[BadOutput], int]:
    """The first bad turn of each session that is part of the random sample, and how many later ones there were."""
    gone: set[tuple[str, str]] = set()
    first, later = [], 0
    for b in bad:
        key = (b.pool, b.session or b.id)
        if key in gone:
            later += b.random
        elif b.random:
            first.append(b)
        gone.add(key)
    return first, later


def load_of(
    store: Store, start: float, end: float, units: Sequence[tuple[str, str]], counts: Sequence[OutputCount]
) -> tuple[LoadSeries, bool]:
    """Load per replica and five minutes relative to the pool's mean, and whether the engines of all pools exported it.

    Pool by pool: one that exports nothing has its sampled requests in flight, whatever its neighbours export.
    """
    size = int((end - start) // BIN)
    at = {u: i for i, u in enumerate(units)}
    pools = sorted({p for p, _ in units})
    value = np.full((len(units), size), np.nan)
    for signal in ("requests_running", "requests_waiting"):
        matrix = store.rollup_matrix(signal, start, end, BIN, pools=pools, per_unit=True) if pools else {}
        for (_, pool, unit, _, _), (ts, n, sums) in matrix.items():
            i = at.get((pool, unit))
            k = ((ts - start) // BIN).astype(np.int64)
            ok = (k >= 0) & (k < size) & (n[:, 0] > 0)
            if i is None or not ok.any():
                continue
            mean = np.zeros(size)
            mean[k[ok]] = sums[ok] / n[ok, 0]
            seen = np.zeros(size, bool)
            seen[k[ok]] = True
            known = ~np.isnan(value[i])
            if signal == "requests_waiting":
                value[i] = np.where(known, value[i] + mean, np.nan)
            else:
                value[i] = np.where(seen, zeroed(value[i]) + mean, value[i])
    exported = {p for i, (p, _) in enumerate(units) if not np.isnan(value[i]).all()}
    dark = [i for i, (p, _) in enumerate(units) if p not in exported]
    value[dark] = 0.0
    for c in counts:
        if c.pool not in exported:
            value[at[c.pool, c.replica], int((c.bin - start) // BIN)] += c.seconds / BIN
    return LoadSeries(start, value, float(BIN)), not dark and bool(units)


def _cells(
    counts: Sequence[OutputCount],
    first: Sequence[BadOutput],
    bad: Sequence[BadOutput],
    at: dict[tuple[str, str], int],
    series: LoadSeries,
    factor: float,
    even: bool,
) -> tuple[Cells, dict[str, Labels]]:
    """One cell per count without its bad outputs, and one for each first bad turn."""
    gone: Counter[tuple[object, ...]] = Counter()
    gone_w: dict[tuple[object, ...], float] = {}
    for b in bad:
        if b.random:
            gone[_key(b)] += 1
            gone_w[_key(b)] = gone_w.get(_key(b), 0.0) + b.weight
    rows: list[tuple[tuple[object, ...], float, float, float]] = []
    for c in counts:
        key = tuple(c[:9])
        n = float(c.n - gone[key]) if even else (c.weight - gone_w.get(key, 0.0)) * factor
        if n > 1e-9:
            rows.append((key, 0.0, float(n), c.seconds / max(c.n, 1)))
    for b in first:
        w = 1.0 if even else b.weight * factor
        own = min(b.e2e_s or 0.0, _key(b)[0] + BIN - b.admitted)  # type: ignore[operator]
        rows.append((_key(b), w, w, float(own)))
    # By columns: a week of a large fleet has a hundred thousand rows.
    column: list[Sequence[Any]] = list(zip(*(r[0] for r in rows), strict=True)) if rows else [()] * 9
    labels = {
        name: _labels(column[i])
        for i, name in ((1, "class"), (2, "pool"), (3, "replica"), (4, "model"), (5, "release"))
    }
    labels["prompt length"] = _named(column[6], ("under 1k", "1k–8k", "8k–32k", "over 32k", "not known"))
    labels["cache path"] = _named(
        column[7], ("nothing cached", "GPU cache", "host or remote cache", "not known")
    )
    labels["structured"] = _named(column[8], ("free text", "structured", "not known"))
    unit = np.asarray([at.get(u, -1) for u in zip(column[2], column[3], strict=True)], np.intp)
    t = np.asarray(column[0], np.float64) + BIN / 2
    stay = np.asarray([r[3] for r in rows], np.float64)
    raw = series.at(unit, t) - np.minimum(stay, BIN) / BIN
    group = labels["pool"].code
    load = _relative(np.maximum(raw, 0.0), np.asarray([r[2] for r in rows], np.float64), group)
    return (
        Cells(
            k=np.asarray([r[1] for r in rows], np.float64),
            n=np.asarray([r[2] for r in rows], np.float64),
            t=t,
            class_=labels["class"].code,
            stratum=codes(
                labels["class"].code,
                labels["prompt length"].code,
                labels["model"].code,
                labels["release"].code,
                group,
            )
            if rows
            else np.zeros(0, np.intp),
            unit=unit,
            load=load,
            host=(labels["cache path"].code == 2).astype(np.float64),
            preempt=np.zeros(len(rows)),
        ),
        labels,
    )


def _key(b: BadOutput) -> tuple[object, ...]:
    structured = -1 if b.structured is None else int(b.structured)
    return (
        int(b.admitted // BIN * BIN),
        b.class_,
        b.pool,
        b.replica,
        b.model,
        b.release,
        band(b.prompt_tokens),
        cache(b.cached_tokens, b.cache_source),
        structured,
    )


def _labels(values: Sequence[str]) -> Labels:
    names = sorted(set(values))
    place = {name: i for i, name in enumerate(names)}
    return Labels(tuple(names), np.fromiter((place[v] for v in values), np.intp, len(values)))


def _named(values: Sequence[int], names: tuple[str, ...]) -> Labels:
    """Codes as they are; −1 is the last name."""
    code = np.asarray(values, np.intp)
    return Labels(names, np.where(code < 0, len(names) - 1, code))


def _relative(load: F, n: F, group: I) -> F:
    """Load over the mean that an output of the same pool met."""
    out = load.copy()
    for g in np.unique(group):
        mine = (group == g) & ~np.isnan(load)
        mean = float((load[mine] * n[mine]).sum() / max(n[mine].sum(), 1e-12)) if mine.any() else 0.0
        out[group == g] = load[group == g] / mean if mean > 0 else np.nan
    return out


def in_pool(h: History, pool: str) -> History:
    """The part of a history that is in one pool, load relative to that pool."""
    code = h.labels["pool"].values.index(pool)
    keep = h.labels["pool"].code == code
    values = h.series.values.copy()
    values[h.group != code] = np.nan
    return replace(
        h,
        cells=h.cells.where(keep),
        labels={name: Labels(one.values, one.code[keep]) for name, one in h.labels.items()},
        series=LoadSeries(h.series.start, values, h.series.step),
        first=tuple(b for b in h.first if b.pool == pool),
        all_bad=tuple(b for b in h.all_bad if b.pool == pool),
        counts=tuple(c for c in h.counts if c.pool == pool),
    )
