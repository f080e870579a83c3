"""Fleets to put faults into: the standard one, and those with the parts that some faults need."""

from __future__ import annotations

from dataclasses import replace

from fleet.model import FleetSpec, LogNormal, PoolSpec, TrafficSpec
from fleet.profiles import (
    H100_1,
    H100_8,
    WORKDAY,
    batch,
    chat,
    chat_pool,
    coder_pool,
    coding_agents,
    mixed_pool,
    rag,
)


def standard(seed: int = 0) -> FleetSpec:
    """Coding agents on vLLM, chat on vLLM, three classes on SGLang: 11 replicas."""
    return FleetSpec(
        (coder_pool(), chat_pool(), mixed_pool()),
        (
            coding_agents("coder-a", 52),
            chat("chat-a", 2.2),
            chat("mixed-s", 0.7),
            coding_agents("mixed-s", 11),
            batch("mixed-s", 0.25),
        ),
        seed=seed,
    )


def roomy_chat(seed: int = 0) -> FleetSpec:
    """Chat with memory to spare, limited by its batch size and compute."""
    pool = chat_pool(kv_tokens=700_000, max_running=24, router="round_robin")
    return FleetSpec((pool, coder_pool()), (chat("chat-a", 2.2), coding_agents("coder-a", 52)), seed=seed)


def disaggregated(seed: int = 0) -> FleetSpec:
    """Prefill and decode apart on Dynamo, next to a chat pool."""
    slow_prefill = replace(H100_8, prefill=4.0e-5, transfer_bytes_per_second=1.2e10)
    prefill = PoolSpec(
        "docs-p",
        "dynamo",
        3,
        model="glm-5",
        version="0.7.0",
        gpus_per_replica=2,
        kv_tokens=700_000,
        max_running=64,
        token_budget=16_384,
        speeds=slow_prefill,
        router="prefix_affine",
        role="prefill",
        decode_pool="docs-d",
        spec_tokens=0,
    )
    decode = PoolSpec(
        "docs-d",
        "dynamo",
        3,
        model="glm-5",
        version="0.7.0",
        gpus_per_replica=2,
        kv_tokens=140_000,
        max_running=96,
        speeds=slow_prefill,
        router="least_loaded",
        role="decode",
        prefix_cache=False,
        spec_tokens=3,
        accept_rate=0.6,
    )
    return FleetSpec(
        (prefill, decode, chat_pool()), (rag("docs-p", 5.0, max_tokens=4_096), chat("chat-a", 2.2)), seed=seed
    )


def adapters(seed: int = 0) -> FleetSpec:
    """Chat with LoRA adapters, of which a few are used most."""
    return FleetSpec(
        (chat_pool(max_loras=6), coder_pool()),
        (chat("chat-a", 1.6, loras=16, think=LogNormal(12.0, 0.8, 2.0, 200.0)), coding_agents("coder-a", 52)),
        seed=seed,
    )


def data_parallel(seed: int = 0) -> FleetSpec:
    """Two replicas of four data-parallel ranks each."""
    pool = PoolSpec(
        "moe-a",
        "vllm",
        2,
        model="glm-5",
        version="0.11.0",
        gpus_per_replica=4,
        kv_tokens=260_000,
        max_running=48,
        token_budget=4_096,
        speeds=H100_1,
        router="least_loaded",
        ranks=4,
    )
    return FleetSpec((pool, coder_pool()), (chat("moe-a", 6.0), coding_agents("coder-a", 52)), seed=seed)


def tiered(seed: int = 0) -> FleetSpec:
    """Coding agents over a host-memory KV tier that carries a good part of the working set."""
    pool = coder_pool(kv_tokens=400_000, host_cache_tokens=2_500_000)
    return FleetSpec((pool, chat_pool()), (coding_agents("coder-a", 52), chat("chat-a", 2.2)), seed=seed)


def demo(seed: int = 0) -> FleetSpec:
    """24 replicas, four pools, three classes: what ``gustfront demo`` shows."""
    pools = (
        coder_pool(replicas=8),
        chat_pool(replicas=7),
        mixed_pool(replicas=5),
        PoolSpec(
            "chat-t",
            "tensorrt_llm",
            4,
            model="glm-5-air",
            version="1.2.0",
            kv_tokens=220_000,
            max_running=96,
            token_budget=4_096,
            speeds=H100_1,
            router="round_robin",
        ),
    )
    traffic: tuple[TrafficSpec, ...] = (
        coding_agents("coder-a", 68, shape=WORKDAY),
        chat("chat-a", 3.4, shape=WORKDAY),
        chat("mixed-s", 0.9, shape=WORKDAY),
        coding_agents("mixed-s", 16, shape=WORKDAY),
        batch("mixed-s", 0.35),
        chat("chat-t", 1.6, shape=WORKDAY),
    )
    return FleetSpec(pools, traffic, seed=seed, name="demo")


def merged(a: FleetSpec, b: FleetSpec) -> FleetSpec:
    """Both fleets' pools and traffic; where a pool is in both, the first fleet's counts, traffic included."""
    names = {p.name for p in a.pools}
    pools = a.pools + tuple(p for p in b.pools if p.name not in names)
    traffic = a.traffic + tuple(t for t in b.traffic if t.pool not in names)
    return replace(a, pools=pools, traffic=traffic)
