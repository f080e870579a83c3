"""The KV cache of each replica: now by the detectors' measures, normal by the median of earlier roll-ups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.services.measures import MEASURES
from app.services.replica_load import UNIT_STEP, rollup_curves
from app.services.replicas import Curve
from app.services.view import View
from core.frames import FloatArray
from detectors.window import Window
from sql.store import Store

NORMAL_S = 3 * 3600.0
LEAST = 6


@dataclass(frozen=True, slots=True)
class KvRow:
    """One replica; NaN where not exported. ``recomputed``: prompt tokens a second computed beyond what the normal hit rate
    leaves; ``wasted_s``: GPU seconds a second that costs, at this replica's own prefill time a token."""

    pool: str
    replica: str
    usage: float
    normal_usage: float
    hit: float
    normal_hit: float
    work: float
    evicted: float
    preempted: float
    running: float
    waiting: float
    recomputed: float
    wasted_s: float


def kv_rows(store: Store, view: View, w: Window, m: Mapping[str, FloatArray]) -> dict[tuple[str, str], KvRow]:
    """Every replica of the window by (pool, replica)."""
    until = float(np.floor(view.start / UNIT_STEP) * UNIT_STEP)
    pools = list(w.pools)
    normal = {}
    for name in ("hit_rate", "kv_usage"):
        found = rollup_curves(store, MEASURES[name], until - NORMAL_S, until, UNIT_STEP, pools)
        if not any(np.isfinite(c.value).sum() >= LEAST for c in found):
            # Nothing before the range: its own first half is the next best.
            half = float(np.floor((view.start + view.as_of) / 2 / UNIT_STEP) * UNIT_STEP)
            if half > until:
                found = rollup_curves(store, MEASURES[name], until, half, UNIT_STEP, pools)
        normal[name] = _medians(found)
    out = {}
    for i, u in enumerate(w.units):
        place = (u.pool, u.replica)
        usual = normal["hit_rate"].get(place, float("nan"))
        again, wasted = recomputed(
            hit=float(m["hit"][i]),
            normal_hit=usual,
            computed=float(m["compute"][i]),
            prefill_s=float(m["prefill_seconds"][i]),
            requests_s=float(m["n"][i] / m["span"][i]) if m["span"][i] > 0 else float("nan"),
        )
        out[place] = KvRow(
            pool=u.pool,
            replica=u.replica,
            usage=float(m["kv"][i]),
            normal_usage=normal["kv_usage"].get(place, float("nan")),
            hit=float(m["hit"][i]),
            normal_hit=usual,
            work=float(m["work"][i]),
            evicted=float(m["evicted"][i]),
            preempted=float(m["preempted_per_finished"][i]),
            running=float(m["running"][i]),
            waiting=float(m["waiting"][i]),
            recomputed=again,
            wasted_s=wasted,
        )
    return out


def recomputed(
    *, hit: float, normal_hit: float, computed: float, prefill_s: float, requests_s: float
) -> tuple[float, float]:
    """(prompt tokens a second computed beyond what the normal hit rate would leave, GPU seconds a second they cost).

    ``computed``: prompt tokens a second not found in the cache. Of them ``(normal_hit − hit) ÷ (1 − hit)`` would normally have
    been found; that share of the time spent on prefill (``prefill_s`` a request, at most the replica's whole time) was spent
    twice.
    """
    if not np.isfinite([hit, normal_hit, computed]).all() or hit >= 1:
        return float("nan"), float("nan")
    share = max(0.0, (normal_hit - hit) / (1 - hit))
    busy = min(1.0, prefill_s * requests_s) if np.isfinite(prefill_s * requests_s) else float("nan")
    return share * computed, share * busy


def _medians(found: list[Curve]) -> dict[tuple[str, str], float]:
    return {
        (c.pool, c.replica): float(np.nanmedian(c.value))
        for c in found
        if np.isfinite(c.value).sum() >= LEAST
    }
