"""All replicas beside each other: each against its own normal and its pool, from roll-ups per replica and the last scrapes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.services import fleet
from app.services.heat import natural, score
from app.services.measures import MEASURES, Measure
from app.services.recent import affordable, engines, window
from app.services.replica_load import UNIT_STEP, Part, parts
from app.services.replicas import P99_MIN_N
from app.services.view import View
from app.services.wording import percent, quantity, significant
from core.buckets import trailing_quantiles
from core.frames import FloatArray, IntArray
from detectors.contract import Need
from detectors.window import Window, nanmean, nansum
from sql.store import Store, TargetRow

NOW_STEPS, BEFORE_STEPS = 3, 36
"""Five-minute steps that are *now* (a quarter of an hour), and before them *normal* (three hours)."""
LEAST_STEPS = 6
"""A normal needs half an hour of values."""
LEAST_PEERS = 3
MEASURED = (
    "ttft_p50",
    "ttft_p99",
    "itl_p99",
    "running",
    "waiting",
    "kv_usage",
    "hit_rate",
    "accept_rate",
    "generation_rate",
    "sm_clock",
)
JUDGED = ("ttft_p99", "itl_p99", "waiting", "kv_usage", "hit_rate", "accept_rate", "sm_clock")
"""Measures whose deviation makes a replica stand out."""
PLACE = tuple[str, str]
"""(pool, replica)."""
SEEN_S = 60.0
LAST_S = 300.0
NEEDS = (
    Need("errors", "errors_total"),
    Need("finished_bad", "request_success_total", where=("finish_reason", ("error",))),
    Need("aborted", "aborted_total"),
    Need("finished_aborted", "request_success_total", where=("finish_reason", ("abort",))),
    Need("temperature", "gpu_temperature_celsius", "max"),
    Need("xid", "gpu_xid", "max"),
)


@dataclass(frozen=True, slots=True)
class Value:
    """One measure of one replica: now, its own normal, the median of its pool; NaN where not known. ``own`` and ``peers``: how
    far it is from them in the bad direction, 0 to 1 (the scale of the heat map)."""

    now: float
    normal: float
    pool: float
    own: float
    peers: float


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica. ``values`` by measure; errors, aborts (a second), temperature, Xid and rank spread of the last scrapes, None
    where not exported. ``started``: start of its process or its last restart that was seen."""

    pool: str
    replica: str
    components: tuple[str, ...]
    version: str
    model: str
    release: str
    role: str
    seen: bool
    started: float | None
    values: Mapping[str, Value]
    errors: float | None = None
    aborts: float | None = None
    temperature: float | None = None
    xid: float | None = None
    rank_spread: float | None = None

    @property
    def place(self) -> PLACE:
        """(pool, replica)."""
        return (self.pool, self.replica)

    @property
    def worst(self) -> tuple[str, float]:
        """The measure that is furthest from its own normal, and how far (0 to 1); ("", 0.0) where none is known."""
        known = [
            (self.values[m].own, m) for m in JUDGED if m in self.values and np.isfinite(self.values[m].own)
        ]
        return max(((m, v) for v, m in known), key=lambda x: x[1], default=("", 0.0))

    def odd(self) -> str:
        """``TTFT p99 ×6.1 its normal``; empty where nothing stands out."""
        name, far = self.worst
        if far < 0.15:
            return ""
        return deviation(MEASURES[name], self.values[name].now, self.values[name].normal, "its normal")


@dataclass(frozen=True, slots=True)
class ReplicaTable:
    """All replicas, the oddest first. ``recent_s`` seconds of scrapes are what errors and hardware come from; ``end`` is the
    end of the last five minutes that count."""

    rows: tuple[ReplicaRow, ...]
    end: float
    recent_s: float

    def row(self, pool: str, replica: str) -> ReplicaRow | None:
        """One replica."""
        return next((r for r in self.rows if r.place == (pool, replica)), None)

    def names(self) -> list[str]:
        """``pool / replica`` of all, in natural order."""
        return [name_of(r) for r in sorted(self.rows, key=lambda r: (natural(r.pool), natural(r.replica)))]


def name_of(row: ReplicaRow) -> str:
    """``pool / replica``: what a person and the URL call it."""
    return f"{row.pool} / {row.replica}"


def deviation(measure: Measure, now: float, normal: float, of: str) -> str:
    """How far ``now`` is from ``normal``, in words."""
    if not (np.isfinite(now) and np.isfinite(normal)):
        return ""
    if measure.unit == "ratio":
        points = (now - normal) * 100
        side = "below" if points < 0 else "above"
        return f"{measure.title} {significant(abs(points))} points {side} {of}"
    if normal > 0 and now > 0 and not measure.as_difference:
        return f"{measure.title} ×{significant(now / normal)} {of}"
    return f"{measure.title} {quantity(now, measure.unit)}, {of} {quantity(normal, measure.unit)}"


def table(store: Store, view: View) -> ReplicaTable:
    """Every replica that the view has."""
    rows = fleet.known_at(list(store.targets()), view)
    end = (
        float(np.ceil(view.as_of / UNIT_STEP) if view.live else np.floor(view.as_of / UNIT_STEP)) * UNIT_STEP
    )
    places = sorted({fleet.place(r) for r in rows}, key=lambda p: (natural(p[0]), natural(p[1])))
    values = measured(store, view, places, end)
    last = _last(store, view)
    starts = _starts(store, rows, view)
    by_place: dict[PLACE, list[TargetRow]] = {}
    for r in rows:
        by_place.setdefault(fleet.place(r), []).append(r)
    found = []
    for place in places:
        mine = by_place[place]
        first = _first(mine)
        found.append(
            ReplicaRow(
                pool=place[0],
                replica=place[1],
                components=tuple(dict.fromkeys(c for r in mine for c in r.target.components)),
                version=_said(mine, "version", first),
                model=_said(mine, "model", first),
                release=_said(mine, "release", first),
                role=_said(mine, "role", first),
                seen=any(r.last_seen >= view.as_of - SEEN_S for r in mine),
                started=starts.get(place),
                values={m: v[place] for m, v in values.items() if place in v},
                **last.values.get(place, {}),
            )
        )
    found.sort(key=lambda r: (-r.worst[1], natural(r.pool), natural(r.replica)))
    return ReplicaTable(tuple(found), end, last.seconds)


def _first(rows: Sequence[TargetRow]) -> TargetRow:
    """The target that says most of itself: the engine, not its GPU exporter."""
    return max(rows, key=lambda r: (bool(r.target.model), bool(r.target.version), r.last_seen))


def _said(rows: Sequence[TargetRow], name: str, first: TargetRow) -> str:
    own = str(getattr(first.target, name))
    return own or next((str(v) for r in rows if (v := getattr(r.target, name))), "")


def measured(store: Store, view: View, places: Sequence[PLACE], end: float) -> dict[str, dict[PLACE, Value]]:
    """Every measure of every replica that exports it, from five-minute roll-ups up to ``end``."""
    pools = sorted({p for p, _ in places})
    begin, size = end - (BEFORE_STEPS + NOW_STEPS) * UNIT_STEP, BEFORE_STEPS + NOW_STEPS
    kept: dict[tuple[str, ...], dict[PLACE, Part]] = {}

    def read(signals: tuple[str, ...], measure: Measure) -> dict[PLACE, Part]:
        if signals not in kept:
            kept[signals] = parts(store, signals, measure, begin, end, UNIT_STEP, size, pools, view.class_)
        return kept[signals]

    out: dict[str, dict[PLACE, Value]] = {}
    for name in MEASURED if places else ():
        m = MEASURES[name]
        top = {p: x for p, x in read(m.top, m).items() if p in set(places)}
        if not top:
            continue
        at = list(top)
        if m.how == "p99":
            now, normal = _quantiles(m, [top[p] for p in at])
        else:
            below = read(m.bottom, m) if m.how == "ratio" else {}
            curves = np.stack([_values(m, top[p], below.get(p)) for p in at])
            now = _ratio_now(m, [top[p] for p in at], [below.get(p) for p in at])
            normal = _median(curves[:, :BEFORE_STEPS], LEAST_STEPS)
        out[name] = _judge(m, at, now, normal)
    return out


def _values(m: Measure, top: Part, below: Part | None) -> FloatArray:
    """One value a step."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if m.how == "rate":
            return np.where(top.seen, top.n / UNIT_STEP, np.nan)
        if m.how == "ratio":
            n = below.n if below is not None else np.zeros_like(top.n)
            return np.where(n > 0, top.n / n, np.nan)
        return np.where(top.n > 0, top.total / top.n, np.nan)


def _ratio_now(m: Measure, tops: Sequence[Part], belows: Sequence[Part | None]) -> FloatArray:
    """The value of the last quarter of an hour: sums over sums, not a mean of ratios."""
    out = np.full(len(tops), np.nan)
    for i, (top, below) in enumerate(zip(tops, belows, strict=True)):
        n = top.n[BEFORE_STEPS:].sum()
        if m.how == "rate":
            steps = int(top.seen[BEFORE_STEPS:].sum())
            out[i] = n / (steps * UNIT_STEP) if steps else np.nan
        elif m.how == "ratio":
            under = below.n[BEFORE_STEPS:].sum() if below is not None else 0.0
            out[i] = n / under if under > 0 else np.nan
        else:
            out[i] = top.total[BEFORE_STEPS:].sum() / n if n > 0 else np.nan
    return out


def _quantiles(m: Measure, found: Sequence[Part]) -> tuple[FloatArray, FloatArray]:
    """The quantile of each replica now and over the hours before: replicas stand where time stands elsewhere."""
    layouts = {e for part in found for e in part.hists}
    out = []
    for part_of in (slice(BEFORE_STEPS, None), slice(0, BEFORE_STEPS)):
        hists: dict[tuple[float, ...], IntArray] = {
            edges: np.stack(
                [
                    p.hists[edges][part_of].sum(axis=0)
                    if edges in p.hists
                    else np.zeros(len(edges) + 1, np.int64)
                    for p in found
                ]
            )
            for edges in layouts
        }
        series = trailing_quantiles(hists, m.q, windows=[1.0], min_n=P99_MIN_N)
        value = np.where(
            series.state == 1, series.low, np.where(series.state == 2, series.high, series.value)
        )
        known = np.where(series.state <= 2, value, np.nan)
        out.append(known if len(known) else np.full(len(found), np.nan))
    return out[0], out[1]


def _judge(m: Measure, places: Sequence[PLACE], now: FloatArray, normal: FloatArray) -> dict[PLACE, Value]:
    own = np.array([score(m, now[i : i + 1], float(normal[i]))[0] for i in range(len(places))])
    pools: dict[str, list[int]] = {}
    for i, (pool, _) in enumerate(places):
        pools.setdefault(pool, []).append(i)
    middle, peers = np.full(len(places), np.nan), np.full(len(places), np.nan)
    for members in pools.values():
        known = [i for i in members if np.isfinite(now[i])]
        for i in known:
            others = [now[k] for k in known if k != i]
            if len(others) >= LEAST_PEERS - 1:
                middle[i] = float(np.median(others))
                peers[i] = score(m, now[i : i + 1], middle[i])[0]
    return {
        p: Value(float(now[i]), float(normal[i]), float(middle[i]), float(own[i]), float(peers[i]))
        for i, p in enumerate(places)
    }


def _median(x: FloatArray, least: int) -> FloatArray:
    """Median of each row; NaN under ``least`` values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.where(np.isfinite(x).sum(axis=1) >= least, np.nanmedian(x, axis=1), np.nan)


@dataclass(frozen=True, slots=True)
class _Last:
    values: Mapping[PLACE, dict[str, float | None]]
    seconds: float


def _last(store: Store, view: View) -> _Last:
    """Errors, hardware and ranks of the last scrapes."""
    signals = [n.signal for n in NEEDS] + ["requests_running"]
    rows = engines(store, view, signals, LAST_S)
    seconds = affordable(2 * len(rows), LAST_S, SEEN_S)
    w = window(store, rows, view.as_of - seconds, view.as_of, NEEDS)
    if not w.units:
        return _Last({}, seconds)
    span = nansum(w.value("span"))
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.fmax(nansum(w.value("errors")), nansum(w.value("finished_bad"))) / span
        aborts = np.fmax(nansum(w.value("aborted")), nansum(w.value("finished_aborted"))) / span
    temperature, xid = nanmean(w.value("temperature")), _newest(w.value("xid"))
    return _Last(
        {
            (u.pool, u.replica): {
                "errors": _known(errors[i]),
                "aborts": _known(aborts[i]),
                "temperature": _known(temperature[i]),
                "xid": _known(xid[i]),
                "rank_spread": _spread(w, i),
            }
            for i, u in enumerate(w.units)
        },
        seconds,
    )


def _newest(x: FloatArray) -> FloatArray:
    """The last known value of each row."""
    out = np.full(len(x), np.nan)
    for i, row in enumerate(x):
        known = row[~np.isnan(row)]
        if len(known):
            out[i] = known[-1]
    return out


def _spread(w: Window, unit: int) -> float | None:
    """The busiest rank's running requests over the ranks' mean; None without ranks."""
    if not w.ranks.names(unit):
        return None
    mean = nanmean(w.ranks.values("requests_running", unit))
    known = mean[~np.isnan(mean)]
    return float(known.max() / known.mean()) if len(known) > 1 and known.mean() > 0 else None


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _starts(store: Store, rows: Sequence[TargetRow], view: View) -> dict[PLACE, float]:
    """When each replica's process started, as far as it was known at ``as_of``: its own word, or a restart that was seen."""
    out: dict[PLACE, float] = {}
    for r in rows:
        if r.process_start is not None and r.process_start <= view.as_of:
            place = fleet.place(r)
            out[place] = max(out.get(place, r.process_start), r.process_start)
    for e in store.events(view.as_of - 14 * 86400, view.as_of):
        if e.kind == "restart" and e.replica:
            place = (e.pool, e.replica)
            out[place] = max(out.get(place, e.ts), e.ts)
    return out


def own_share(found: ReplicaTable) -> str:
    """``12 of 200 replicas stand out``."""
    odd = sum(r.worst[1] >= 0.3 for r in found.rows)
    share = f" ({percent(odd / len(found.rows), 0)})" if odd and len(found.rows) >= 20 else ""
    return f"{odd} of {len(found.rows)} replicas stand out{share}" if odd else "no replica stands out"
