"""Small fleets for the tests of the simulation."""

from __future__ import annotations

from dataclasses import replace

from fleet.model import FaultSpec, FleetSpec, LogNormal, Observations, PoolSpec, Speeds, TrafficSpec
from fleet.profiles import chat, chat_pool, coder_pool, coding_agents
from fleet.simulation import Simulation

START = 1_790_064_000.0


def coders(
    users: int, *faults: FaultSpec, kv: int = 1_000_000, replicas: int = 1, seed: int = 3
) -> FleetSpec:
    """Coding agents, all of one tenant, on one small pool."""
    pool = coder_pool("code", replicas, kv_tokens=kv)
    return FleetSpec(
        (pool,), (coding_agents("code", users, tenants={"acme": 1.0}),), faults, START, seed=seed
    )


def chatters(rate: float, *faults: FaultSpec, replicas: int = 2, seed: int = 3, **pool: object) -> FleetSpec:
    """Chat sessions."""
    spec = replace(chat_pool("talk", replicas), **pool)  # type: ignore[arg-type]
    return FleetSpec((spec,), (chat("talk", rate),), faults, START, seed=seed)


def single(prompt: int, output: int, rate: float = 0.5, **pool: object) -> FleetSpec:
    """One replica, equal requests of one turn, no drafts, round numbers for speeds."""
    speeds = Speeds(step=0.01, sequence=0.0, context=0.0, prefill=1e-4, attention=0.0, draft=0.0)
    spec = replace(
        PoolSpec("one", replicas=1, kv_tokens=160_000, spec_tokens=0, speeds=speeds, token_budget=2_000),
        **pool,  # type: ignore[arg-type]
    )
    traffic = TrafficSpec(
        "run",
        "one",
        rate=rate,
        tenants={"acme": 1.0},
        shared_tokens=0,
        first=LogNormal(prompt),
        output=LogNormal(output),
        turns=1.0,
        max_context=200_000,
        timeout=1e6,
        retries=0,
        abort_share=0.0,
    )
    return FleetSpec((spec,), (traffic,), (), START, lead=0.0, base_corrupt=0.0)


def drained(sim: Simulation) -> list[Observations]:
    """What every engine has to tell."""
    return [e.observations.drain() for r in sim.replicas for e in r.engines]
