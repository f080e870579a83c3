"""The fleet as plain data: its replicas against their own normal, and what is known of it now."""

from __future__ import annotations

from typing import Any

from app.services.api_views import clean
from app.services.replica_table import ReplicaRow, ReplicaTable
from core.incidents import iso


def replicas(table: ReplicaTable) -> dict[str, Any]:
    """All replicas, the oddest first."""
    return {"end": iso(table.end), "replicas": [replica(r) for r in table.rows]}


def replica(row: ReplicaRow) -> dict[str, Any]:
    """One replica: each measure now, its own normal and the median of its pool; null where not exported."""
    told: dict[str, Any] = clean(
        {
            "pool": row.pool,
            "replica": row.replica,
            "components": list(row.components),
            "version": row.version,
            "model": row.model,
            "release": row.release,
            "role": row.role,
            "seen": row.seen,
            "started": iso(row.started),
            "odd": row.odd().replace("\u00a0", " "),
            "measures": {
                name: {"now": v.now, "normal": v.normal, "pool": v.pool, "deviation": v.own}
                for name, v in row.values.items()
            },
            "errors_per_s": row.errors,
            "aborts_per_s": row.aborts,
            "temperature_celsius": row.temperature,
            "xid": row.xid,
        }
    )
    return told
