"""GPUs of a replica: clocks, heat and power that follow what the engine does."""

from __future__ import annotations

import math
from random import Random

from fleet.model import GpuState, PoolSpec

NOMINAL_CLOCK = 1.98e9
IDLE_WATTS = 95.0
BUSY_WATTS = 640.0
AMBIENT = 31.0
DEGREES_PER_WATT = 0.058
HEAT_SECONDS = 40.0


def new_gpus(spec: PoolSpec, name: str, rng: Random) -> list[GpuState]:
    """The GPUs of one pod; the identifiers follow from the pod's name."""
    seed = Random(f"gpu:{name}")
    return [
        GpuState(
            i,
            f"GPU-{seed.getrandbits(32):08x}-{seed.getrandbits(16):04x}-{seed.getrandbits(48):012x}",
            spec.gpu_model,
            temperature=AMBIENT + 6 + rng.random(),
        )
        for i in range(spec.gpus_per_replica)
    ]


def tick(
    gpu: GpuState, seconds: float, busy: float, memory: float, clock: float, heat: float, rng: Random
) -> None:
    """Advance one GPU by ``seconds`` with ``busy`` (0..1) of them working, at ``clock`` (share of nominal),
    ``heat`` degrees more than the power explains."""
    gpu.utilisation = min(1.0, max(0.0, busy))
    gpu.sm_clock_hz = round(NOMINAL_CLOCK * clock * (1.0 - 0.01 * rng.random()) / 1.5e7) * 1.5e7
    watts = IDLE_WATTS + (BUSY_WATTS - IDLE_WATTS) * gpu.utilisation * clock**1.5
    gpu.power = watts * (1.0 + 0.02 * rng.gauss(0.0, 1.0))
    goal = AMBIENT + DEGREES_PER_WATT * watts + heat
    gpu.temperature += (goal - gpu.temperature) * (1.0 - math.exp(-seconds / HEAT_SECONDS))
    gpu.energy_joules += gpu.power * seconds
    gpu.memory_used = gpu.memory_total * memory
    gpu.nvlink_bytes += gpu.utilisation * seconds * 4.0e10
    gpu.pcie_bytes += gpu.utilisation * seconds * 6.0e8
    if gpu.throttle:
        gpu.throttle_seconds += seconds
