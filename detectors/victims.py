"""Whom a finding has hurt: sessions by the sampled answers, and how much it matters for paging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from core.incidents import Finding, Severity
from detectors.window import Window

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


def severity(window: Window, f: Finding, hurt: Mapping[str, Any]) -> Severity:
    """A page for lateness needs late requests: at least five, and a larger share of them than the strictest budget allows."""
    if f.severity != "page" or f.kind not in LATE_KINDS or "requests_late" not in hurt:
        return f.severity
    budgets = [o.budget for o in window.context.objectives if o.workload_class in f.scope.classes]
    if hurt["requests_late"] >= LEAST_LATE and hurt["share_late"] > min(budgets, default=0.0):
        return "page"
    return "ticket"
