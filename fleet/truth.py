"""The truth about a run: incidents as they really were, in the form of truth.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

LOAD_KINDS = frozenset(
    {
        "capacity_shortfall",
        "kv_eviction_storm",
        "head_of_line",
        "retry_storm",
        "tail_latency_spike",
        "slo_burn",
    }
)


def truth(sim: Simulation) -> dict[str, Any]:
    """Scenario, seed, start and end, incidents, events. Times are whole Unix seconds."""
    incidents = [_incident(sim, active) for active in sim.faults.active if active.spec.label]
    return {
        "scenario": sim.spec.name,
        "seed": sim.spec.seed,
        "start": int(sim.spec.start),
        "end": int(sim.spec.end if sim.spec.end is not None else sim.now),
        "incidents": incidents,
        "events": [
            {"kind": e.kind, "pool": e.pool, "ts": int(e.ts), "text": e.text}
            for e in sorted(sim.events, key=lambda e: e.ts)
        ],
    }


def _incident(sim: Simulation, active: Active) -> dict[str, Any]:
    spec = active.spec
    end = active.ended if active.ended is not None else (sim.spec.end or sim.now)
    classes = list(spec.classes) if spec.classes is not None else active.classes
    pool = spec.pool
    traffic_pool = next((p.name for p in sim.spec.pools if p.decode_pool == pool), pool)
    span = sim.impact.span(active.started, end, sim.now, traffic_pool, tuple(classes))
    replicas = list(active.replicas)
    if spec.label in LOAD_KINDS and spec.replicas is None and span is not None:
        hurt = [
            name
            for name in replicas
            if sim.impact.windows(active.started, span[1], traffic_pool, tuple(classes), name)
        ]
        replicas = hurt or replicas
    return {
        "kind": spec.label,
        "pool": pool,
        "replicas": replicas,
        "classes": classes,
        "start": int(active.started),
        "end": int(end),
        "load_correlated": spec.load_correlated,
        "note": spec.note,
        "accept": list(spec.accept),
        "ttft_impact": None if span is None else [int(span[0]), int(span[1])],
    }
