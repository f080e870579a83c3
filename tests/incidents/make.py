"""Incidents for tests."""

from __future__ import annotations

from typing import Any

from core.incidents import Incident

T = 1_790_000_000.0


def incident(name: str = "aa11", **changes: Any) -> Incident:
    """An open page on pool ``coder``, begun at :data:`T`."""
    values: dict[str, Any] = {
        "id": name,
        "kind": "kv_eviction_storm",
        "severity": "page",
        "state": "open",
        "title": "KV eviction storm on coder",
        "started_at": T,
        "detected_at": T + 60,
        "diagnosed_at": T + 60,
        "classes": ("coding-agent",),
        "pools": ("coder",),
        "replicas": ("coder-0", "coder-1"),
        "cause": "Sessions outgrew the cache",
        "confidence": 0.9,
        "updated_at": T + 60,
        "detail": {"harm": {"requests_late": 100, "requests": 1000, "share_late": 0.1}},
    }
    return Incident(**{**values, **changes})
