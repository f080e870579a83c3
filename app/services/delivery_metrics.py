"""Delivery and signs of life for /metrics: what waits, what fails, and how long ago each part was heard of."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from app.delivery.beats import SILENT_S, age_of, beats
from core.beats import DETECT_STANDBY
from sql.store import Store


def delivery_metrics(store: Store, now: float, registry: CollectorRegistry) -> None:
    """Add gauges of this instant to ``registry``. A part that was never heard of has no age. Raises StoreError."""
    tallies = store.delivery_tallies()
    rows = Gauge(
        "gustfront_deliveries",
        "Deliveries by receiver and state: pending, parked (refused), sent.",
        ["receiver", "state"],
        registry=registry,
    )
    failing = Gauge(
        "gustfront_deliveries_failing",
        "Deliveries that wait after a failure, by receiver.",
        ["receiver"],
        registry=registry,
    )
    oldest = Gauge(
        "gustfront_delivery_oldest_pending_seconds",
        "Age of the oldest delivery that is not sent yet, by receiver; absent where none waits.",
        ["receiver"],
        registry=registry,
    )
    for name, t in tallies.items():
        for state in ("pending", "parked", "sent"):
            rows.labels(name, state).set(getattr(t, state))
        failing.labels(name).set(t.failing)
        if t.oldest_pending is not None:
            oldest.labels(name).set(max(0.0, now - t.oldest_pending))
    age = Gauge(
        "gustfront_part_heartbeat_age_seconds",
        "Seconds since collect, detect or deliver was last heard of.",
        ["part"],
        registry=registry,
    )
    alive = Gauge(
        "gustfront_part_alive",
        f"1 if the part was heard of within {SILENT_S:.0f} s; 0 also if never.",
        ["part"],
        registry=registry,
    )
    for beat in beats(store, now):
        alive.labels(beat.part).set(beat.alive)
        if beat.age is not None:
            age.labels(beat.part).set(beat.age)
    waits = age_of(store, DETECT_STANDBY, now)
    if waits is not None:
        Gauge(
            "gustfront_detect_standby_age_seconds",
            "Seconds since a detector that stands by was last heard of; absent if there never was one.",
            registry=registry,
        ).set(waits)
