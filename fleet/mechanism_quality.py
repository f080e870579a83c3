"""Texts that go wrong, and why: load, one replica, host cache, uptime, a release, poisoned sessions, aborts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.corruption import Rule
from fleet.engine_base import EngineBase
from fleet.sequence import Sequence

if TYPE_CHECKING:
    from fleet.faults import Active
    from fleet.simulation import Simulation

Undo = Callable[[float], None] | None
Share = Callable[[EngineBase, Sequence, float], float]


def pressure(engine: EngineBase, seq: Sequence) -> float:
    """How loaded an engine was at a request's admission, 0..1: memory, or requests against ``busy`` of them."""
    return max(seq.kv_usage, min(1.0, (seq.running + seq.waiting) / max(1.0, engine.busy_at)))


def corrupt(sim: Simulation, active: Active, now: float) -> Undo:
    """Break ``share`` of the texts of the targets, of ``kinds``, multiplied by what ``by`` says:

    - nothing: always; ``load``: rising from 0 at pressure ``low`` to 1 at ``high``;
    - ``host``: only where KV came from the host tier; ``cached``: only where the prefix cache hit;
    - ``ordinal``: rising with the requests since the process began, full after ``full`` of them;
    - ``release``: only on replicas of release ``release``; ``aborts``: while aborts of the last minute are many.

    ``poison``: probability that a session stays bad. ``busy``: requests that count as full load.
    """
    params = active.spec.params
    share = float(params.get("share", 0.002))
    by = str(params.get("by", ""))
    names = {r.state.name for r in sim.faults.targets(active)}
    everywhere = active.spec.replicas is None
    pool = active.spec.pool
    low, high = float(params.get("low", 0.3)), float(params.get("high", 0.8))
    full = float(params.get("full", 4000.0))
    release = str(params.get("release", "r2"))
    busy = params.get("busy")
    classes = active.spec.classes
    if busy:
        for replica in sim.faults.targets(active):
            for engine in replica.engines:
                engine.busy_at = float(busy)

    def shares(engine: EngineBase, seq: Sequence, t: float) -> float:
        owner = engine.owner
        if owner is None or (pool and owner.spec.name != pool):
            return 0.0
        if not everywhere and owner.state.name not in names:
            return 0.0
        if classes is not None and seq.request.workload not in classes:
            return 0.0
        if by == "load":
            x = pressure(engine, seq)
            return share * min(1.0, max(0.0, (x - low) / (high - low)))
        if by == "host":
            return share if seq.source == "host" else 0.0
        if by == "cached":
            return share if seq.cached > 0.5 * seq.request.prompt else 0.0
        if by == "ordinal":
            return share * min(1.0, seq.ordinal / full)
        if by == "release":
            return share if owner.state.release == release else 0.0
        if by == "aborts":
            return share * min(1.0, engine.recent_aborts(t) / 6.0)
        return share

    rule = Rule(
        shares, tuple(params.get("kinds", ("garble", "foreign", "loop"))), float(params.get("poison", 0.0))
    )
    sim.corruption.rules.append(rule)

    def undo(_: float) -> None:
        sim.corruption.rules.remove(rule)

    return undo


MECHANISMS = {"corrupt": corrupt}
