"""Any stored signal over time, by class, pool, model or replica: what the Explore page draws and hands out as CSV.

Roll-ups where the signal has them, else scrapes as far as they can be unpacked. Quantiles come from summed increments with
interval, count and window; nothing is averaged that is not an average.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.services import incident_load, latency
from app.services.measures import Measure
from app.services.replica_load import MAX_FRAMES, UNIT_STEP, load_curves
from app.services.replicas import P99_MIN_N, Curve
from app.services.view import View
from app.services.wording import listing, span, stamp
from core.frames import FloatArray, IntArray
from core.incidents import Incident
from core.records import Event
from core.signals import SIGNALS, Signal, resolve
from sql.store import Store

By = Literal["class", "pool", "model", "replica"]
BYS: tuple[By, ...] = ("class", "pool", "model", "replica")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Line:
    """One curve; ``low``, ``high``, ``n``, ``minutes`` only of quantiles (None elsewhere)."""

    name: str
    t: FloatArray
    value: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    n: FloatArray | None = None
    minutes: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """One signal. ``total`` curves were there, the :data:`MOST_LINES` that moved most are drawn; ``why_empty``: why none is."""

    signal: Signal
    stat: str
    unit: str
    by: By
    step: float
    lines: tuple[Line, ...]
    total: int
    how: str
    why_empty: str = ""


def stats_of(signal: Signal) -> tuple[str, ...]:
    """What can be drawn of a signal; the first is the default."""
    if signal.kind == "histogram":
        return ("p99", "p95", "p90", "p50", "mean", "rate")
    return ("value",) if signal.kind == "gauge" else ("rate",)


def unit_of(signal: Signal, stat: str) -> str:
    """The unit on the axis."""
    unit = "s" if signal.unit in ("seconds", "s") else signal.unit
    if stat == "rate":
        return "observations/s" if signal.kind == "histogram" else f"{unit}/s"
    return unit


def stored_signals(store: Store) -> list[str]:
    """Ids of the signals that this database has, canonical ones first, by id."""
    have = {s for s in store.signals() if s in SIGNALS}
    return sorted(have, key=lambda s: (bool(SIGNALS[s].of), s))


def draw(store: Store, view: View, name: str, stat: str, by: By) -> Drawing:
    """One signal over the view's range. ConfigError for a name or form that does not exist."""
    signal = resolve(name)
    if stat not in stats_of(signal):
        stat = stats_of(signal)[0]
    if by == "replica" or not signal.rollup:
        return _from_replicas(store, view, signal, stat, by)
    return _from_rollups(store, view, signal, stat, by)


def _from_rollups(store: Store, view: View, signal: Signal, stat: str, by: By) -> Drawing:
    step = view.step
    end = latency.last_minute(view)
    back = latency.LOOK_BACK if stat in QUANTILES else 0.0
    begin = float(np.floor((view.start - back) / step) * step)
    stop = float(np.ceil(end / step) * step)
    matrix = store.rollup_matrix(signal.id, begin, min(stop, end), step=int(step))
    groups: dict[str, dict[latency.MatrixKey, tuple[IntArray, IntArray, FloatArray]]] = {}
    for key, value in matrix.items():
        class_, pool, _, model, _ = key
        if view.has(class_=class_, pool=pool, model=model):
            label = {"class": class_, "pool": pool, "model": model}[by] or "not said"
            groups.setdefault(label, {})[key] = value
    lines = []
    for label, part in sorted(groups.items()):
        line = (
            _quantile_line(label, part, stat, view, begin, stop, step)
            if stat in QUANTILES
            else _sum_line(label, part, signal, stat, view, begin, stop, step)
        )
        if np.isfinite(line.value).any():
            lines.append(line)
    return _drawing(signal, stat, by, step, lines, view, f"roll-ups of {span(step)}")


def _quantile_line(
    label: str, part: latency.Matrix, stat: str, view: View, begin: float, stop: float, step: float
) -> Line:
    summed: dict[tuple[float, ...], IntArray] = {}
    for hists in latency.on_grid(part, begin, stop, step).values():
        for edges, counts in hists.items():
            known = summed.get(edges)
            summed[edges] = counts if known is None else known + counts
    s = latency.series_of(summed, QUANTILES[stat], begin, step, draw_from=view.start)
    # A series is drawn along its lower end where there is no upper one; here that is said.
    high = np.where(s.high <= s.low, np.inf, s.high)
    return Line(label, s.t, s.value, s.low, high, s.n, s.minutes)


def _sum_line(
    label: str,
    part: latency.Matrix,
    signal: Signal,
    stat: str,
    view: View,
    begin: float,
    stop: float,
    step: float,
) -> Line:
    size = latency.grid_size(begin, stop, step)
    top, n, seen = np.zeros(size), np.zeros(size), np.zeros(size, bool)
    gauges: list[FloatArray] = []
    for ts, counts, sums in part.values():
        at = ((ts - begin) // step).astype(np.int64)
        keep = (at >= 0) & (at < size)
        at, k, total = at[keep], counts[keep].sum(axis=1).astype(np.float64), sums[keep]
        if signal.kind == "gauge":
            one, many = np.zeros(size), np.zeros(size)
            np.add.at(one, at, total)
            np.add.at(many, at, k)
            with np.errstate(divide="ignore", invalid="ignore"):
                gauges.append(np.where(many > 0, one / many, np.nan))
            continue
        np.add.at(top, at, total if stat == "mean" or signal.kind == "sum" else k)
        np.add.at(n, at, k)
        seen[at] = True
    with np.errstate(divide="ignore", invalid="ignore"):
        if signal.kind == "gauge":
            value = _mean_of(gauges, size)
        elif stat == "mean":
            value = np.where(n > 0, top / n, np.nan)
        else:
            value = np.where(seen, top / step, np.nan)
    t = latency.step_ends(begin, step, size)
    shown = (t > view.start + 1e-6) & (t <= stop + 1e-6)
    return Line(label, t[shown], value[shown])


def _mean_of(parts: Sequence[FloatArray], size: int) -> FloatArray:
    if not parts:
        return np.full(size, np.nan)
    x = np.stack(parts)
    known = np.isfinite(x)
    n = known.sum(axis=0)
    out: FloatArray = np.where(n > 0, np.where(known, x, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)
    return out


def _measure(signal: Signal, stat: str) -> Measure:
    if signal.kind == "histogram":
        if stat in QUANTILES:
            return Measure(f"x-{signal.id}", stat, "", "p99", (signal.id,), q=QUANTILES[stat])
        return Measure(f"x-{signal.id}", stat, "", "mean" if stat == "mean" else "rate", (signal.id,))
    how: Literal["gauge", "rate"] = "gauge" if signal.kind == "gauge" else "rate"
    return Measure(f"x-{signal.id}", stat, "", how, (signal.id,))


def _from_replicas(store: Store, view: View, signal: Signal, stat: str, by: By) -> Drawing:
    step = max(60.0, view.step)
    m = _measure(signal, stat)
    found = load_curves(store, view, [m], view.start, view.as_of, step, class_=view.class_)[m.id]
    if view.model:
        models = {
            (r.target.pool, r.target.replica or r.target.address)
            for r in store.targets()
            if r.target.model == view.model
        }
        found = [c for c in found if (c.pool, c.replica) in models]
    known = [c for c in found if np.isfinite(c.value).any()]
    coarse = bool(known) and len(known[0].t) > 1 and known[0].t[1] - known[0].t[0] > step + 1
    source = f"roll-ups per replica of {span(UNIT_STEP)}" if coarse else "scrapes"
    note = ""
    if by == "replica":
        lines = [Line(f"{c.pool} / {c.replica}", c.t, c.value) for c in known]
    elif by == "pool" or not known:
        lines = _joined(known, signal, lambda c: c.pool)
        note = f" {_across(signal)} over the replicas of a pool."
    else:
        lines = _joined(known, signal, lambda _: f"all (not kept by {by})")
        note = f" {_across(signal)} over all replicas: this signal is not kept by {by}."
    used = float(known[0].t[1] - known[0].t[0]) if coarse else step
    empty = ""
    if not known and not signal.per_replica:
        empty = (
            f"{signal.id} is kept in scrapes only, of which {MAX_FRAMES:,} can be unpacked for one picture: choose a shorter "
            "range or one pool. If it is not exported at all, Data health names the flag."
        )
    return _drawing(signal, stat, by, used, lines, view, source, note, empty)


def _across(signal: Signal) -> str:
    if signal.kind == "gauge":
        return {"sum": "Sum", "max": "Largest", "mean": "Mean"}[signal.across]
    return "Sum" if signal.kind in ("counter", "sum") else "Median"


def _joined(curves: Sequence[Curve], signal: Signal, key: Callable[[Curve], str]) -> list[Line]:
    groups: dict[str, list[Curve]] = {}
    for c in curves:
        groups.setdefault(key(c), []).append(c)
    out = []
    word = _across(signal)
    for name, members in sorted(groups.items()):
        x = np.stack([c.value for c in members])
        known = np.isfinite(x).any(axis=0)
        ops: dict[str, Any] = {
            "Sum": np.nansum,
            "Largest": np.nanmax,
            "Mean": np.nanmean,
            "Median": np.nanmedian,
        }
        value = np.full(x.shape[1], np.nan)
        if known.any():
            value[known] = ops[word](x[:, known], axis=0)
        out.append(Line(name, members[0].t, value))
    return out


def _drawing(
    signal: Signal,
    stat: str,
    by: By,
    step: float,
    lines: Sequence[Line],
    view: View,
    source: str,
    note: str = "",
    empty: str = "",
) -> Drawing:
    kept = sorted(lines, key=lambda line: -_movement(line))[:MOST_LINES]
    kept.sort(key=lambda line: line.name)
    if not lines and not empty:
        empty = f"{signal.id} is not exported by anything here in this range. Data health names the flag that exports it."
    return Drawing(
        signal,
        stat,
        unit_of(signal, stat),
        by,
        step,
        tuple(kept),
        len(lines),
        _how(signal, stat, by, source) + note,
        empty,
    )


def _movement(line: Line) -> float:
    """How far a curve leaves its own median: the most moved are shown first where there are too many."""
    known = line.value[np.isfinite(line.value)]
    if len(known) < 2:
        return 0.0
    middle = abs(float(np.median(known)))
    return float(np.abs(known - np.median(known)).max() / max(middle, 1e-9))


def _how(signal: Signal, stat: str, by: By, source: str) -> str:
    """How the number came about, in words."""
    if stat in QUANTILES:
        least = P99_MIN_N if by == "replica" else latency.MIN_N
        how = (
            f"Bucket increments are summed by {by}, then the {stat} is read from the sum: never an average of percentiles. "
            f"Each point takes the shortest of 1, 5, 15{'' if by == 'replica' else ', 60'} min with {least} observations; "
            "the band joins bucket edges and the 95 % order-statistic bound. On the last edge it means at least, on the "
            "first at most."
        )
    elif stat == "mean":
        how = "Sum of the observations over their number, both as increments of the step."
    elif stat == "rate":
        how = "Increments of the step over its seconds; restarts are recognised and lose nothing."
    else:
        how = "Mean over the scrapes of the step" + ("." if by == "replica" else " and over replicas.")
    return f"{signal.meaning} {how} From {source}."


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is drawn over the curves: incidents as they were seen at ``as_of``, and events."""

    incidents: tuple[Incident, ...]
    events: tuple[Event, ...]


MOST_EVENTS = 40


def overlay(store: Store, view: View) -> Overlay:
    """Incidents and events of the range that pass the view's filters; the newest :data:`MOST_EVENTS` events."""
    incidents = tuple(
        i
        for i in incident_load.in_range(store, view)
        if (i.ended_at or view.as_of) >= view.start and i.started_at < view.as_of
    )
    events = [e for e in store.events(view.start, view.as_of) if view.has(pool=e.pool or None)]
    return Overlay(incidents, tuple(events[-MOST_EVENTS:]))


def to_csv(drawings: Sequence[Drawing]) -> bytes:
    """All curves, one row a point; cells that a spreadsheet would run as formulas are quoted."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        ["time", "signal", "stat", "unit", "by", "name", "value", "low", "high", "n", "window_min"]
    )
    for d in drawings:
        for line in d.lines:
            for i, (t, v) in enumerate(zip(line.t, line.value, strict=True)):
                more = [_cell(x, i) for x in (line.low, line.high, line.n, line.minutes)]
                writer.writerow(
                    [
                        stamp(float(t)),
                        d.signal.id,
                        d.stat,
                        d.unit,
                        d.by,
                        _inert(line.name),
                        _number(float(v)),
                        *more,
                    ]
                )
    return out.getvalue().encode()


def _cell(x: FloatArray | None, i: int) -> str:
    return "" if x is None else _number(float(x[i]))


def _number(v: float) -> str:
    return "" if np.isnan(v) else f"{v:.6g}"


def _inert(text: str) -> str:
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def file_name(drawings: Sequence[Drawing], view: View) -> str:
    """``gustfront-ttft_seconds-2026…csv``."""
    names = "-".join(d.signal.id for d in drawings)
    return f"gustfront-{names}-{stamp(view.as_of).replace(':', '')}.csv"


def described(drawing: Drawing) -> str:
    """``TTFT p99 by pool: a, b``."""
    return f"{drawing.signal.id}, {drawing.stat} by {drawing.by}: {listing([line.name for line in drawing.lines], 4)}"
