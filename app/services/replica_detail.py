"""One replica, or two beside each other: curves against the median of its pool, and what happened to it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.services import incident_load
from app.services.heat import step_for_heat
from app.services.measures import MEASURES, Measure
from app.services.replica_load import load_curves
from app.services.replicas import Curve
from app.services.view import View
from core.frames import FloatArray
from core.incidents import Incident
from core.records import Event
from sql.store import Store

SHOWN = (
    "ttft_p99",
    "ttft_p50",
    "itl_p99",
    "running",
    "waiting",
    "kv_usage",
    "hit_rate",
    "recomputed_per_request",
    "preemptions_per_request",
    "generation_rate",
    "finished_rate",
    "accept_rate",
    "sm_clock",
    "gpu_temperature",
)
LEAST_PEERS = 2


@dataclass(frozen=True, slots=True)
class DetailChart:
    """One measure: curves of the chosen replicas in their order, and the median of the pool's others."""

    measure: Measure
    chosen: tuple[Curve, ...]
    t: FloatArray
    peers: FloatArray


@dataclass(frozen=True, slots=True)
class ReplicaDetail:
    """``missing``: titles of measures that none of the chosen replicas exports."""

    charts: tuple[DetailChart, ...]
    missing: tuple[str, ...]
    events: tuple[Event, ...]
    incidents: tuple[Incident, ...]


def load(store: Store, view: View, pool: str, names: Sequence[str]) -> ReplicaDetail:
    """Charts, events and incidents of some replicas (``pool / replica``) over the view's range."""
    places = [tuple(n.split(" / ", 1)) for n in names]
    pools = sorted({p for p, _ in places})
    measures = [MEASURES[m] for m in SHOWN]
    step = step_for_heat(view.length)
    found = load_curves(store, view, measures, view.start, view.as_of, step, pools=pools, class_=view.class_)
    charts, missing = [], []
    for m in measures:
        by_place = {(c.pool, c.replica): c for c in found[m.id] if np.isfinite(c.value).any()}
        chosen = tuple(by_place[p] for p in places if p in by_place)
        if not chosen:
            missing.append(m.title)
            continue
        others = [c.value for p, c in by_place.items() if p not in places and p[0] == pool]
        charts.append(DetailChart(m, chosen, chosen[0].t, _median(others, len(chosen[0].t))))
    replicas = {r for _, r in places}
    events = tuple(
        e
        for e in store.events(view.start, view.as_of)
        if (e.replica in replicas) or (not e.replica and (e.pool in pools or not e.pool))
    )
    incidents = tuple(
        i
        for i in incident_load.in_range(store, view)
        if replicas & set(i.replicas) or (not i.replicas and set(pools) & set(i.pools))
    )
    return ReplicaDetail(tuple(charts), tuple(missing), events, incidents)


def _median(curves: Sequence[FloatArray], size: int) -> FloatArray:
    if len(curves) < LEAST_PEERS:
        return np.full(size, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        out: FloatArray = np.nanmedian(np.stack(curves), axis=0)
    return out


def split(name: str) -> tuple[str, str]:
    """(pool, replica) of ``pool / replica``."""
    pool, _, replica = name.partition(" / ")
    return pool, replica
