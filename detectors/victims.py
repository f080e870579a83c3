"""Whom a finding has hurt: sessions by the sampled answers, and how much it matters for paging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, Severity
from detectors.late import harm
from detectors.window import Window

Units = NDArray[np.intp]
LATE_KINDS = frozenset(
    {
        "kv_eviction_storm",
        "prefix_cache_loss",
        "slow_replica",
        "replica_skew",
        "head_of_line",
        "host_stall",
        "capacity_shortfall",
        "kv_transfer_slow",
        "prefill_decode_imbalance",
        "offload_thrash",
        "lora_thrash",
        "throughput_regression",
    }
)
"""Kinds that hurt by lateness: they wake nobody while requests are in time."""
LEAST_LATE = 5
LATELY_S = 300.0


def units_of(window: Window, f: Finding) -> Units:
    """Rows of the finding's replicas; those of its pools where it names none."""
    out: list[int] = []
    for pool in f.scope.pools:
        idx = window.pools.get(pool, ())
        out += [int(i) for i in idx if not f.scope.replicas or window.units[i].replica in f.scope.replicas]
    return np.asarray(out, np.intp)


def sessions_hurt(window: Window, f: Finding, since: float) -> dict[str, int]:
    """Sessions among the sampled answers that the finding's replicas gave since ``since``: ``{"sessions_sampled": n}``.

    A lower bound: a session is only seen when one of its answers was sampled. Empty without samples.
    """
    s = window.samples
    a, b = s.since(since), s.upto(window.end)
    if b <= a or not f.scope.replicas:
        return {}
    pools = [c for p in f.scope.pools if (c := s.code(p)) >= 0]
    replicas = [c for r in f.scope.replicas if (c := s.code(r)) >= 0]
    here = np.isin(s.replica[a:b], replicas) & np.isin(s.pool[a:b], pools)
    known = s.session[a:b][here]
    known = known[known != s.code("")]
    return {"sessions_sampled": len(np.unique(known))} if len(known) else {}


def severity(window: Window, f: Finding, units: Units, hurt: Mapping[str, Any]) -> Severity:
    """A page for lateness needs late requests: at least five, and a larger share of them than the strictest budget allows,
    since the onset (``hurt``) or in the last five minutes."""
    if f.severity != "page" or f.kind not in LATE_KINDS or "requests_late" not in hurt:
        return f.severity
    budget = min(
        (o.budget for o in window.context.objectives if o.workload_class in f.scope.classes), default=0.0
    )
    lately = harm(window, units, window.end - LATELY_S)
    for x in (hurt, lately):
        if x.get("requests_late", 0) >= LEAST_LATE and x["share_late"] > budget:
            return "page"
    return "ticket"
