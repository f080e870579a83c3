"""From a condition over time to alerts as Alertmanager would send them: one for each rule and pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.judged import LAG

REPEAT = 900.0
"""What fires again within a quarter of an hour is the same alert: the rule that Gustfront's own incidents follow."""
KIND = "alert"


def firing(condition: NDArray[np.bool_], step: float, hold: float) -> list[tuple[float, float]]:
    """Spans (from, to) in seconds in which an alert with ``for: hold`` fires, for a condition evaluated every ``step``.

    >>> firing(np.array([0, 1, 1, 1, 0], bool), 60.0, 60.0)
    [(120.0, 240.0)]
    """
    out = []
    edges = np.flatnonzero(np.diff(np.concatenate(([0], condition.astype(np.int8), [0]))))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        fired = begin * step + hold
        # It fires at the first evaluation that is `hold` after the one at which it became pending.
        if fired <= (end - 1) * step:
            out.append((float(fired), float(end * step)))
    return out


def alerts(
    start: float, pool: str, spans: Iterable[tuple[str, float, float]], rule: str
) -> list[dict[str, Any]]:
    """Alerts of one rule in one pool from the firing spans (replica, from, to) of its series, joined where they are near."""
    out: list[dict[str, Any]] = []
    for replica, begin, end in sorted(spans, key=lambda s: s[1]):
        if out and begin <= out[-1]["to"] + REPEAT:
            last = out[-1]
            last["to"] = max(last["to"], end)
            last["replicas"] = sorted({*last["replicas"], replica})
        else:
            out.append({"from": begin, "to": end, "replicas": [replica]})
    return [
        {
            "kind": KIND, "severity": "page", "rule": rule, "pools": [pool], "replicas": a["replicas"],
            "detected_at": start + a["from"] + LAG, "ended_at": start + a["to"] + LAG,
        }
        for a in out
    ]  # fmt: skip
