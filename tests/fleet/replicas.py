"""Replicas made by hand: what faces, histories and answers are tested on."""

from __future__ import annotations

from fleet.model import (
    EngineName,
    EngineState,
    Finish,
    FirstToken,
    GpuState,
    PoolSpec,
    ReplicaState,
    Role,
    Steps,
    TokenGaps,
)


def pool(engine: EngineName = "vllm", **changes: object) -> PoolSpec:
    """One replica of an engine, newest version."""
    version = {"vllm": "0.32.0", "sglang": "0.5.18", "tensorrt_llm": "1.2.0", "dynamo": "0.32.0"}[engine]
    values: dict[str, object] = {"engine": engine, "version": version, "replicas": 1, **changes}
    return PoolSpec("p", **values)  # type: ignore[arg-type]


def replica(spec: PoolSpec, role: Role = "unified", start: float = 1000.0) -> ReplicaState:
    """A process that has just begun."""
    return ReplicaState(
        spec.name,
        f"{spec.name}-0",
        f"{spec.name}-0:8000",
        spec.engine,
        spec.model,
        spec.version,
        role,
        "main",
        f"node-{spec.name}-0",
        0,
        start,
        [EngineState(rank) for rank in range(spec.ranks)],
        [GpuState(0, "GPU-1", spec.gpu_model)],
        workloads=("chat",),
    )


def finish(number: int = 0, **changes: object) -> Finish:
    """A request that took two seconds: 100 + 20 tokens."""
    values: dict[str, object] = {
        "id": f"r{number}",
        "t": 1010.0,
        "workload": "chat",
        "tenant": "acme",
        "session": f"s{number}",
        "turn": 0,
        "prompt_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 40,
        "ttft": 0.2,
        "e2e": 2.0,
        "queue": 0.05,
        "prefill": 0.15,
        "decode": 1.8,
        "max_tokens": 512,
        "accept_length": 2.5,
        "preempted": 0,
        "finish_reason": "stop",
        "running": 1,
        "waiting": 0,
        "kv_usage": 0.1,
        "ordinal": number,
        **changes,
    }
    return Finish(**values)  # type: ignore[arg-type]


def serve(state: ReplicaState, requests: int = 1, aborted: int = 0, workload: str = "chat") -> None:
    """``requests`` finish and ``aborted`` clients leave after their first token; counters follow as in an engine."""
    engine, both = state.engines[0], requests + aborted
    seen, c = engine.observations, engine.counters
    seen.first_tokens += [FirstToken(1005.0, workload, 0.2, 0.05, 0.15, 100, 40) for _ in range(both)]
    seen.gaps.append(TokenGaps(1006.0, workload, 0.02, 8 * both, 20.0 * both))
    seen.steps.append(Steps(1006.0, 0.02, 24.0, 8 * both))
    seen.finishes += [finish(i, workload=workload) for i in range(requests)]
    c["prompt_tokens"] += 100 * both
    c["generation_tokens"] += 20 * both
    c["query_tokens"] += 100 * both
    c["cached_tokens"] += 40 * both
    c["prefill_computed_tokens"] += 60 * both
    c["started"] += both
    c["finished_stop"] += requests
    c["finished_abort"] += aborted
    c["drafts"] += 8 * both
    c["draft_tokens"] += 24 * both
    c["accepted_tokens"] += 12 * both
    state.http[200] = state.http.get(200, 0.0) + both
    engine.gauges["kv_capacity_tokens"] = 400_000.0
