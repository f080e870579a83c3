"""What the app says about itself and the data it sees, for a Prometheus that watches Gustfront."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from app.services.delivery_metrics import delivery_metrics
from app.services.intake import REGISTRY
from collectors.selfmetrics import METRICS
from core.errors import GustfrontError
from sql.store import Store

UP_WITHIN = 120.0


def render_metrics(open_store: Callable[[], Store], now: float) -> bytes:
    """Gauges of this instant; ``gustfront_store_up 0`` alone where the database cannot be read."""
    registry = CollectorRegistry()
    up = Gauge("gustfront_store_up", "1 if the database can be read.", registry=registry)
    try:
        store = open_store()
        newest = store.newest()
        rows = store.targets()
        open_now = store.incidents(now - 86400, now, open_only=True)
        problems = store.problems()
        size = store.size_bytes()
        collector = store.get_cursor(METRICS)
    except GustfrontError:
        up.set(0)
        return generate_latest(registry)
    up.set(1)
    lag = Gauge(
        "gustfront_ingest_lag_seconds", "Age of the newest frame; absent without frames.", registry=registry
    )
    if newest is not None:
        lag.set(max(0.0, now - newest))
    else:
        registry.unregister(lag)
    targets = Gauge("gustfront_targets", "Targets by state: up, down, stale.", ["state"], registry=registry)
    counts = {"up": 0, "down": 0, "stale": 0}
    for row in rows:
        stale = now - row.last_seen > UP_WITHIN
        counts["stale" if stale else ("up" if row.up else "down")] += 1
    for state, n in counts.items():
        targets.labels(state).set(n)
    incidents = Gauge(
        "gustfront_open_incidents", "Open incidents by severity.", ["severity"], registry=registry
    )
    for severity in ("page", "ticket", "info"):
        incidents.labels(severity).set(sum(i.severity == severity for i in open_now))
    Gauge("gustfront_input_problems", "Distinct input problems recorded.", registry=registry).set(
        len(problems)
    )
    delivery_metrics(store, now, registry)
    Gauge("gustfront_database_bytes", "Size of the data.", registry=registry).set(size)
    Gauge(
        "gustfront_heartbeat_seconds", "Unix time of this answer: alert when it stops.", registry=registry
    ).set(now)
    # The collector runs in another process and leaves its own metrics, already as text, in the database.
    return generate_latest(registry) + generate_latest(REGISTRY) + (collector or "").encode()
