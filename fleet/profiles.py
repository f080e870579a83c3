"""Workloads and machines in numbers, fitted to public traces (the numbers only).

Coding agents: Claude Code session traces (kv-cache-tester): new tokens a turn log-normal with median 800 and
sigma 1.06, output 242 and 0.86, tool time 9 s with 5 % above 150 s, 2.1 % context resets to a median of 86,000,
tools and system prompt 14,000 tokens. Chat: Azure 2023 conversations (prompt 1,020 and 0.98, output 130 and 0.88).
Completion: Azure 2023 code (prompt 1,469 and 1.35, output 13 and 0.84, bursts of minutes with silences between).
Long documents: Mooncake (prompt 6,900 and 1.2). Day and bursts: ServeGen. Speeds: vLLM 0.19 on an RTX 4090
and AIBrix on L20-class GPUs for the calibration, an H100-class guess for the demo fleet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fleet.model import LogNormal, PoolSpec, Shape, Speeds, TrafficSpec

H100_8 = Speeds(
    step=0.011,
    sequence=0.00012,
    context=1.2e-8,
    prefill=4.5e-5,
    attention=1.2e-10,
    draft=0.0025,
    kv_bytes_per_token=163_840.0,
)
H100_1 = replace(H100_8, step=0.009, prefill=5.5e-5, context=2.0e-8)
RTX4090_8B = Speeds(
    step=0.0185,
    sequence=0.00010,
    context=1.3e-7,
    prefill=1.0e-4,
    attention=1.0e-9,
    draft=0.0,
    kv_bytes_per_token=131_072.0,
)
L20_8B = Speeds(
    step=0.0125,
    sequence=0.0004,
    context=4.0e-8,
    prefill=8.0e-5,
    attention=6.0e-10,
    draft=0.0,
    kv_bytes_per_token=131_072.0,
)
RTXPRO6000_30B = Speeds(
    step=0.0090,
    sequence=0.000115,
    context=2.6e-8,
    prefill=6.0e-5,
    attention=4.0e-10,
    draft=0.0,
    kv_bytes_per_token=98_304.0,
)

WORKDAY = Shape(day_amplitude=0.35, peak_hour=14.5, weekend=0.55)
TENANTS = {"acme": 0.4, "globex": 0.25, "initech": 0.2, "umbrella": 0.15}


def coding_agents(pool: str, users: int, **changes: Any) -> TrafficSpec:
    """``users`` busy agents: tool-call loops over a context that grows to 100,000 tokens and is compacted."""
    spec = TrafficSpec(
        workload="coding-agent",
        pool=pool,
        mode="closed",
        users=users,
        tenants=TENANTS,
        shared_tokens=14_000,
        first=LogNormal(24_000, 0.7, 2_000, 90_000),
        new=LogNormal(800, 1.06, 20, 30_000),
        output=LogNormal(242, 0.86, 8, 8_000),
        think=LogNormal(6.0, 0.9, 0.3, 120.0),
        pause_share=0.03,
        pause=LogNormal(110.0, 0.9, 30.0, 900.0),
        off=LogNormal(40.0, 0.8, 5.0, 400.0),
        turns=45.0,
        max_context=100_000,
        reset_share=0.006,
        compact_to=LogNormal(22_000, 0.4, 8_000, 60_000),
        max_tokens=8_192,
        timeout=120.0,
        retries=2,
        backoff=3.0,
        objective_ttft=5.0,
    )
    return replace(spec, **changes)


def chat(pool: str, rate: float, **changes: Any) -> TrafficSpec:
    """``rate`` sessions a second of people who talk: short turns, an early end."""
    spec = TrafficSpec(
        workload="chat",
        pool=pool,
        rate=rate,
        tenants=TENANTS,
        shared_tokens=320,
        first=LogNormal(360, 0.95, 10, 12_000),
        new=LogNormal(140, 1.0, 5, 8_000),
        output=LogNormal(230, 0.8, 2, 2_048),
        think=LogNormal(22.0, 0.9, 2.0, 600.0),
        turns=4.0,
        max_context=16_000,
        compact_to=LogNormal(6_000, 0.3, 2_000, 10_000),
        max_tokens=2_048,
        timeout=60.0,
        retries=1,
        abort_share=0.012,
        objective_ttft=1.0,
    )
    return replace(spec, **changes)


def rag(pool: str, rate: float, **changes: Any) -> TrafficSpec:
    """Questions about documents, the popular ones again and again."""
    spec = TrafficSpec(
        workload="rag",
        pool=pool,
        rate=rate,
        tenants={"acme": 0.6, "globex": 0.4},
        shared_tokens=640,
        first=LogNormal(900, 0.8, 50, 12_000),
        output=LogNormal(180, 0.7, 5, 1_024),
        turns=1.0,
        documents=400,
        document=LogNormal(5_000, 0.7, 400, 30_000),
        max_context=40_000,
        max_tokens=1_024,
        timeout=60.0,
        retries=1,
        objective_ttft=2.0,
    )
    return replace(spec, **changes)


def batch(pool: str, rate: float, **changes: Any) -> TrafficSpec:
    """Jobs: single requests with long answers, nobody waits."""
    spec = TrafficSpec(
        workload="batch",
        pool=pool,
        rate=rate,
        tenants={"initech": 1.0},
        shared_tokens=200,
        first=LogNormal(1_500, 0.9, 50, 30_000),
        output=LogNormal(650, 0.7, 20, 4_096),
        turns=1.0,
        max_context=40_000,
        max_tokens=4_096,
        timeout=300.0,
        retries=3,
        backoff=10.0,
        abort_share=0.0,
        objective_ttft=5.0,
    )
    return replace(spec, **changes)


def completion(pool: str, rate: float, **changes: Any) -> TrafficSpec:
    """Editor completions: tiny answers, in bursts of a minute or two with silences between (Azure's code trace)."""
    spec = TrafficSpec(
        workload="completion",
        pool=pool,
        rate=rate * 1.6,  # while it is on
        tenants={"acme": 1.0},
        shared_tokens=0,
        first=LogNormal(1_469, 1.0, 20, 7_400),
        output=LogNormal(16, 0.84, 1, 1_000),
        turns=1.0,
        max_context=8_000,
        max_tokens=1_024,
        timeout=20.0,
        retries=0,
        shape=Shape(on=85.0, off=55.0, on_sigma=0.5, off_share=0.004),
        objective_ttft=1.0,
    )
    return replace(spec, **changes)


def coder_pool(name: str = "coder-a", replicas: int = 5, **changes: Any) -> PoolSpec:
    """vLLM for coding agents: much KV memory, sessions stay where their prefix is."""
    spec = PoolSpec(
        name,
        "vllm",
        replicas,
        model="glm-5-coder",
        version="0.11.0",
        gpus_per_replica=2,
        kv_tokens=1_000_000,
        max_running=64,
        token_budget=8_192,
        speeds=H100_8,
        router="prefix_affine",
        accept_rate=0.68,
    )
    return replace(spec, **changes)


def chat_pool(name: str = "chat-a", replicas: int = 3, **changes: Any) -> PoolSpec:
    """vLLM for chat: one GPU, little context."""
    spec = PoolSpec(
        name,
        "vllm",
        replicas,
        model="glm-5-air",
        version="0.11.0",
        kv_tokens=160_000,
        max_running=128,
        token_budget=4_096,
        speeds=H100_1,
        router="least_loaded",
        accept_rate=0.6,
    )
    return replace(spec, **changes)


def mixed_pool(name: str = "mixed-s", replicas: int = 3, **changes: Any) -> PoolSpec:
    """SGLang shared by several classes."""
    spec = PoolSpec(
        name,
        "sglang",
        replicas,
        model="glm-5",
        version="0.5.6",
        gpus_per_replica=2,
        kv_tokens=900_000,
        max_running=96,
        token_budget=8_192,
        speeds=H100_8,
        router="prefix_affine",
        accept_rate=0.62,
        port=30000,
    )
    return replace(spec, **changes)


def claude_code(pool: str, users: int, **changes: Any) -> TrafficSpec:
    """Busy users as in the recorded sessions: contexts to 250,000 tokens, think time with idle capped at 300 s."""
    spec = coding_agents(
        pool,
        users,
        tenants={"all": 1.0},
        first=LogNormal(62_000, 0.95, 14_000, 240_000),
        output=LogNormal(242, 0.86, 8, 18_000),
        think=LogNormal(13.0, 1.55, 1.0, 300.0),
        pause_share=0.03,
        pause=LogNormal(170.0, 0.8, 60.0, 300.0),
        off=LogNormal(60.0, 0.8, 5.0, 300.0),
        turns=60.0,
        max_context=250_000,
        reset_share=0.021,
        compact_to=LogNormal(70_000, 0.6, 16_000, 200_000),
        max_tokens=20_000,
        timeout=3_600.0,
        retries=0,
        abort_share=0.0,
    )
    return replace(spec, **changes)
