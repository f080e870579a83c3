"""Reads what the view of an incident is made of, and builds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.services import attention, fleet, latency
from app.services.attention import Standing
from app.services.cards import objective_for
from app.services.harm import ClassHarm, Within, missed_since, trend, within
from app.services.heat import HeatMap, natural
from app.services.incident_view import IncidentView, TrafficChange, as_seen, build
from app.services.latency import Series
from app.services.measures import Measure, measures_for
from app.services.quality import DEGRADED, QualityHarm, degraded_curves, quality_harm
from app.services.rates import exact_interval
from app.services.replica_load import load_curves, load_heat
from app.services.replicas import Curve
from app.services.similar import Similar, similar
from app.services.view import View
from app.services.wording import brief
from core.config import Config
from core.incidents import Incident
from core.kinds import KINDS
from core.lifecycle import LogEntry, shown_to_people
from core.records import Event
from sql.store import Store

BEFORE, AFTER = 1800.0, 900.0
LONGEST = 6 * 3600.0
QUALITY_BEFORE = 3 * 3600.0
"""Sampled answers from so long before the picture are the normal of an incident about quality."""
RECENT = 86400.0
SEVERITIES = {"page": 2, "ticket": 1, "info": 0}
MAX_OPEN = 5
CONTROLS = 12
"""So many unaffected replicas are drawn beside the affected ones."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An incident's view with its log, its heat map, earlier incidents like it, and how it stands with people now.

    ``log`` holds what detectors had written by ``as_of`` and all that people ever wrote. ``whole``: what it was merged into;
    ``parts``: what was merged into it. ``expired``: what it is drawn from is past its retention.
    """

    view: IncidentView
    log: tuple[LogEntry, ...]
    heat: HeatMap | None
    similar: tuple[Similar, ...]
    standing: Standing
    whole: Incident | None = None
    parts: tuple[Incident, ...] = ()
    expired: bool = False


def in_range(store: Store, view: View) -> tuple[Incident, ...]:
    """Incidents known at ``as_of`` that touch the range or were open in the day before it, as they were seen then."""
    begin = min(view.start, view.as_of - RECENT)
    found = [s for i in store.incidents(begin, view.as_of) if (s := as_seen(i, view.as_of)) is not None]
    return tuple(i for i in found if _passes(i, view))


def _passes(i: Incident, view: View) -> bool:
    return (not view.class_ or not i.classes or view.class_ in i.classes) and (
        not view.pool or not i.pools or view.pool in i.pools
    )


def open_views(
    store: Store, view: View, config: Config, incidents: Sequence[Incident]
) -> tuple[IncidentView, ...]:
    """Views of the open incidents, most harm first: severity, then late requests."""
    open_ones = [i for i in incidents if i.state != "resolved" and i.severity != "info"]
    stands = attention.load(store, config, open_ones)
    open_ones = [i for i in open_ones if stands.notifiable(i).rule != "merged"]
    open_ones.sort(key=lambda i: (-SEVERITIES.get(i.severity, 0), -(i.detected_at or i.started_at)))
    views = [view_of(store, view, config, i, with_charts=False)[0] for i in open_ones[:MAX_OPEN]]
    return tuple(
        sorted(
            views,
            key=lambda v: (
                -v.missed,
                -SEVERITIES.get(v.incident.severity, 0),
                -max((h.late or 0 for h in v.harm), default=0),
            ),
        )
    )


def load(store: Store, view: View, config: Config, incident_id: str) -> Loaded | None:
    """One incident as of the view's time."""
    stored = store.incident(incident_id)
    if stored is None:
        return None
    seen = as_seen(stored, view.as_of)
    if seen is None:
        return None
    built, heat = view_of(store, view, config, seen, with_charts=True)
    stands = attention.load(store, config, [stored])
    standing = stands.standing(stored)
    parts = [store.incident(i) for i in standing.handling.absorbed]
    return Loaded(
        built,
        shown_to_people(store.incident_log(incident_id), view.as_of),
        heat,
        similar(store, seen),
        standing,
        stands.wholes.get(standing.handling.merged_into),
        tuple(p for p in parts if p is not None),
        past_retention(store, config, built),
    )


def past_retention(store: Store, config: Config, v: IncidentView) -> bool:
    """Nothing is left to draw an incident from, and it is older than the roll-ups of its minutes are kept."""
    newest = store.newest()
    if newest is None or v.charts or any(h.n or h.series is not None for h in v.harm):
        return False
    return newest - (v.incident.ended_at or v.end) > config.retention.rollups_minute


def view_of(
    store: Store, view: View, config: Config, incident: Incident, *, with_charts: bool
) -> tuple[IncidentView, HeatMap | None]:
    """The view of one incident, and the heat map from which its direction was told."""
    end = min(view.as_of, (incident.ended_at or view.as_of) + AFTER)
    onset = min(
        t for t in (incident.started_at, incident.announced_at, incident.detected_at) if t is not None
    )
    start = max(onset - BEFORE, end - LONGEST)
    start = float(np.floor(start / 60) * 60)
    everywhere = replace(view, class_="", pool="", model="", start=start, as_of=end)
    pools = list(incident.pools) or None
    measures = measures_for(incident.kind, tuple(e.signal for e in incident.evidence))
    rows = [r for r in store.targets() if r.first_seen < end and r.last_seen >= start]
    names = {fleet.place(r)[1] for r in rows if pools is None or r.target.pool in pools}
    pool_replicas = sorted(names, key=natural)
    control = [r for r in pool_replicas if r not in incident.replicas]
    shown = {*incident.replicas, *control[:CONTROLS]}
    heat = load_heat(store, everywhere, measures[0], pools=pools, replicas=shown, before_seconds=3600.0)
    curves: dict[str, list[Curve]] = {}
    if with_charts:
        step = max(60.0, float(np.ceil((end - start) / 400 / 60) * 60))
        curves = load_curves(store, everywhere, measures, start, end, step, pools=pools, replicas=shown)
    quality: QualityHarm | None = None
    more: dict[Measure, list[Curve]] = {}
    known = KINDS.get(incident.kind)
    if known is not None and known.quality:
        outputs = store.outputs(start - QUALITY_BEFORE, end, pools=None if with_charts else pools)
        quality = quality_harm(incident, outputs, onset)
        if with_charts:
            more[DEGRADED] = degraded_curves(outputs, start, end)
    built = build(
        incident,
        view.as_of,
        harm=[
            class_harm(store, everywhere, config, incident, c, start)
            for c in classes_of(store, config, incident, everywhere)
        ],
        heat=heat,
        curves=curves,
        events=events_before(store, incident, start=onset - 3600, end=view.as_of),
        pool_replicas=pool_replicas,
        start=start,
        end=end,
        quality=quality,
        more_charts=more,
        traffic=traffic_changes(store, incident, onset, end) if with_charts else (),
        tenants=tenant_shares(store, incident, config, onset, end) if with_charts else (),
    )
    return built, heat


def classes_of(store: Store, config: Config, incident: Incident, view: View) -> list[str]:
    """The classes of an incident; where it names none, those that its pools serve."""
    if incident.classes:
        return list(incident.classes)
    found = {
        class_
        for (class_, pool, *_) in store.rollup_matrix("ttft_seconds", view.start, view.as_of, step=60)
        if not incident.pools or pool in incident.pools
    }
    return sorted(found)[:4]


def class_harm(
    store: Store, view: View, config: Config, incident: Incident, class_: str, start: float
) -> ClassHarm:
    """Late requests of a class in the incident's pools, minute by minute."""
    slo = objective_for(class_, config.slos)
    signal = slo.signal if slo is not None else "ttft_seconds"
    onset = min(
        t for t in (incident.started_at, incident.announced_at, incident.detected_at) if t is not None
    )
    begin = float(np.floor((start - latency.LOOK_BACK) / 60) * 60)
    end = float(np.floor(view.as_of / 60) * 60)
    if view.live and incident.ended_at is None:
        end = float(np.ceil(view.as_of / 60) * 60)
    matrix = store.rollup_matrix(signal, begin, end, step=60, classes=[class_])
    everywhere = latency.on_grid(matrix, begin, end, 60.0).get(class_, {})
    mine = {k: v for k, v in matrix.items() if not incident.pools or k[1] in incident.pools}
    hists = latency.on_grid(mine, begin, end, 60.0).get(class_, {})
    if not hists:
        threshold = slo.threshold if slo else None
        return ClassHarm(class_, signal, None, None, threshold, None, None, None, 0, False, None, None)
    t = latency.step_ends(begin, 60.0, latency.grid_size(begin, end, 60.0))
    now, here = latency.current(everywhere, 0.99), latency.current(hists, 0.99)
    series = latency.series_of(hists, 0.99, begin, 60.0, draw_from=start)
    if slo is None:
        return ClassHarm(
            class_, signal, now, here, None, None, None, None, here.q.n, False, None, None, series
        )
    w = within(hists, slo.threshold)
    since = t > onset
    late_least = int((w.n - w.high)[since].sum())
    late_most = int((w.n - w.low)[since].sum())
    objective = slo.objective_percent / 100
    all_of_it = within(everywhere, slo.threshold)
    steps = max(1, round(now.minutes))
    over, n = int((all_of_it.n - all_of_it.high)[-steps:].sum()), int(all_of_it.n[-steps:].sum())
    missed = incident.ended_at is None and n > 0 and exact_interval(over, n)[0] > 1 - objective
    return ClassHarm(
        class_=class_,
        signal=signal,
        now=now,
        here=here,
        threshold=slo.threshold,
        objective=objective,
        late=late_least,
        late_high=late_most,
        n=int(w.n[since].sum()),
        missed=missed,
        missed_since=missed_since(all_of_it, t, objective, onset - 900),
        trend=trend(Within(w.low, w.high, w.n)) if incident.ended_at is None else None,
        series=series,
        peak=peak(series, onset, incident.ended_at or end),
    )


def peak(series: Series, start: float, end: float) -> float | None:
    """The highest value in a range."""
    inside = series.value[(series.t > start) & (series.t <= end + 60)]
    return float(np.nanmax(inside)) if np.isfinite(inside).any() else None


def traffic_changes(store: Store, incident: Incident, onset: float, end: float) -> list[TrafficChange]:
    """Traffic per class, the hour before the onset against the last ten minutes: at the gateway where there is a log."""
    start = float(np.floor((onset - 3600) / 60) * 60)
    per_class: dict[str, dict[int, int]] = {}
    what = "requests"
    for key, cell in store.request_cells(start, end, classes=list(incident.classes) or None):
        minutes = per_class.setdefault(key.class_, {})
        minutes[key.minute] = minutes.get(key.minute, 0) + cell.n
    if not per_class:
        what = "first tokens"
        matrix = store.rollup_matrix("ttft_seconds", start, end, step=60, pools=list(incident.pools) or None)
        for (class_, *_), (ts, counts, _) in matrix.items():
            if not incident.classes or class_ in incident.classes:
                minutes = per_class.setdefault(class_, {})
                for t, n in zip(ts.tolist(), counts.clip(min=0).sum(axis=1).tolist(), strict=True):
                    minutes[t] = minutes.get(t, 0) + n
    out = []
    for class_, minutes in sorted(per_class.items()):
        before = [n for t, n in minutes.items() if t < onset]
        now = sum(n for t, n in minutes.items() if end - 600 <= t < end)
        if before:
            out.append(TrafficChange(class_, sum(before) / len(before), now / 10, what))
    return out


def events_before(store: Store, incident: Incident, *, start: float, end: float) -> list[Event]:
    """Events from an hour before the onset to ``as_of``, in the incident's pools or without one."""
    pools = set(incident.pools)
    return [e for e in store.events(start, end) if not e.pool or not pools or e.pool in pools]


def tenant_shares(
    store: Store, incident: Incident, config: Config, start: float, end: float
) -> list[tuple[str, float]]:
    """Share of the late or failed attempts per tenant, largest first; empty where the gateway log names no tenants."""
    late: dict[str, int] = {}
    for key, cell in store.request_cells(start, end, classes=list(incident.classes) or None):
        if not key.tenant:
            continue
        slo = objective_for(key.class_, config.slos)
        bad = cell.n if key.status == 499 or key.status == 429 or key.status >= 500 else 0
        if slo is not None and slo.signal == "ttft_seconds" and not bad:
            edges, counts = cell.ttft
            bad = int(
                counts[np.searchsorted(np.asarray(edges), slo.threshold * (1 + 1e-9), side="right") :].sum()
            )
        if bad:
            late[key.tenant] = late.get(key.tenant, 0) + bad
    total = sum(late.values())
    return sorted(((brief(k), v / total) for k, v in late.items()), key=lambda p: -p[1]) if total else []
