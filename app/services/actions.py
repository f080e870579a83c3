"""For each kind of incident: the first thing that is safe to do tonight, and what belongs to tomorrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Action:
    """``now``: the first safe step. ``risk``: what it costs. ``restart``: whether it needs one. ``tomorrow``: the real fix.

    ``avoid``: what makes it worse.
    """

    now: str
    risk: str
    restart: bool
    tomorrow: str
    avoid: str = ""


_TABLE: dict[str, Action] = {
    "kv_eviction_storm": Action(
        "Admit fewer sessions on the pool: answer new ones with 503 and Retry-After at the gateway, or send them to a pool "
        "with room. Running sessions keep their cache.",
        "Some new sessions are turned away; nothing that runs is lost.",
        False,
        "More replicas, a larger KV cache or host offload; sticky routing by session. Each needs a restart.",
        "A restart now empties the caches and makes it worse.",
    ),
    "wedged": Action(
        "Take the wedged replicas out of routing, keep one of them for a stack dump, restart the others.",
        "Requests in flight on them are lost; they were not going to finish.",
        True,
        "A liveness check on generated tokens instead of /health; report the dump to the engine's developers.",
        "Waiting: an engine that stands still with work does not come back by itself.",
    ),
    "tail_latency_spike": Action(
        "No cause is established. Compare the affected replicas with the grey ones below before touching anything; if one "
        "replica stands out, drain it.",
        "Draining one replica moves its load to the others.",
        False,
        "Read which look-alikes could not be tested and export the signals they need (Data health names the flags).",
    ),
    "degraded_generations": Action(
        "If one replica carries it, drain that replica. If the rate follows load, lower admission on the pool until the rate "
        "is back; if it began with a release, roll that back.",
        "Less capacity while drained; texts already sent stay as they are.",
        False,
        "Find the code path: cache tier, speculative decoding, KV transfer, release. Keep the sampled ids below.",
        "Retrying on the same replica: the retry meets the same fault.",
    ),
    "telemetry_fault": Action(
        "Nothing to do on the fleet. Restore the telemetry named below; until then numbers carry the coverage shown.",
        "None.",
        False,
        "Alert on coverage, not only on values.",
    ),
    "capacity_shortfall": Action(
        "Slow the traffic that grew (limit its tenant or class), or add replicas if they start in minutes.",
        "The limited clients wait or get 429.",
        False,
        "Raise the limit or the minimum of the scaler; agree a quota with the owner of the traffic.",
    ),
    "prefix_cache_loss": Action(
        "Undo the last change of routing, prompt template or release on this pool.",
        "Whatever the change was for is gone until it is fixed.",
        False,
        "Pin the salt and the template in tests; watch the hit rate at each release.",
        "Adding replicas: it spreads sessions further and lowers hits again.",
    ),
    "slow_replica": Action(
        "Drain the replica; its sessions move to healthy ones.",
        "One replica less.",
        False,
        "Check clocks, throttling, neighbours and uptime of its node before it comes back.",
    ),
}

ACTIONS: Mapping[str, Action] = MappingProxyType(_TABLE)


def action_for(kind: str) -> Action | None:
    """The action for a kind; None where none is known to be safe."""
    return ACTIONS.get(kind)
