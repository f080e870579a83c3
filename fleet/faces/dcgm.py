"""dcgm-exporter beside one replica: the default counters plus the event reasons that a throttle detector needs."""

from __future__ import annotations

from fleet.faces.numbers import go_number
from fleet.faces.page import Page
from fleet.model import GpuState, ReplicaState

BLANK = 9223372036854775794.0
_REASONS = {"power": 0x4, "hw_slowdown": 0x8, "thermal": 0x20}


class DcgmFace:
    """The GPUs of one host. A GPU that fell off the bus has no lines any more; XID codes stay."""

    def __init__(self, replica: ReplicaState) -> None:
        self.page = Page(go_number)
        self.host = replica.hostname
        self.gone: set[int] = set()
        self._held: dict[tuple[str, str], float] = {}  # throttled seconds of a GPU by cause
        self._seen: dict[str, float] = {}

    def refresh(self, replica: ReplicaState) -> None:
        """All GPUs now."""
        self.gone = set()
        for gpu in replica.gpus:
            labels = {
                "DCGM_FI_DRIVER_VERSION": "580.95.05",
                "Hostname": self.host,
                "UUID": gpu.uuid,
                "device": f"nvidia{gpu.index}",
                "gpu": str(gpu.index),
                "modelName": gpu.model,
                "pci_bus_id": f"00000000:{0x18 + 0x10 * gpu.index:02X}:00.0",
                "pod": replica.name,
            }
            if not gpu.present:
                self.gone |= {
                    i for i, (_, pairs) in enumerate(self.page.series) if ("UUID", gpu.uuid) in pairs
                }
                continue
            self._gpu(gpu, labels)

    def _gpu(self, gpu: GpuState, labels: dict[str, str]) -> None:
        page = self.page
        mask = sum(_REASONS.get(reason, 0x80) for reason in gpu.throttle) or (
            0x1 if gpu.utilisation < 0.01 else 0
        )
        cause = "power" if "power" in gpu.throttle else "thermal"
        more = max(0.0, gpu.throttle_seconds - self._seen.get(gpu.uuid, 0.0))
        self._seen[gpu.uuid] = gpu.throttle_seconds
        self._held[(gpu.uuid, cause)] = self._held.get((gpu.uuid, cause), 0.0) + more
        thermal, power = (self._held.get((gpu.uuid, c), 0.0) * 1e9 for c in ("thermal", "power"))
        mib = 1048576.0
        for name, value, help in (
            ("DCGM_FI_DEV_SM_CLOCK", round(gpu.sm_clock_hz / 1e6), "SM clock frequency (in MHz)."),
            ("DCGM_FI_DEV_MEM_CLOCK", round(gpu.memory_clock_hz / 1e6), "Memory clock frequency (in MHz)."),
            ("DCGM_FI_DEV_MEMORY_TEMP", round(gpu.temperature + 6), "Memory temperature (in C)."),
            ("DCGM_FI_DEV_GPU_TEMP", round(gpu.temperature), "GPU temperature (in C)."),
            ("DCGM_FI_DEV_POWER_USAGE", round(gpu.power, 3), "Power draw (in W)."),
            ("DCGM_FI_DEV_GPU_UTIL", round(100 * gpu.utilisation), "GPU utilization (in %)."),
            ("DCGM_FI_DEV_MEM_COPY_UTIL", round(60 * gpu.utilisation), "Memory utilization (in %)."),
            ("DCGM_FI_DEV_FB_USED", round(gpu.memory_used / mib), "Framebuffer memory used (in MiB)."),
            (
                "DCGM_FI_DEV_FB_FREE",
                round((gpu.memory_total - gpu.memory_used) / mib),
                "Framebuffer memory free.",
            ),
            ("DCGM_FI_DEV_XID_ERRORS", gpu.xid, "Value of the last XID error encountered."),
            ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", mask, "Bitmask of the reasons that hold the clocks down."),
            ("DCGM_FI_DEV_VGPU_LICENSE_STATUS", BLANK, "vGPU License status"),
        ):
            page.gauge(name, labels, float(value), help)
        for name, value, help in (
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu.energy_joules * 1000, "Energy since boot (in mJ)."),
            ("DCGM_FI_DEV_THERMAL_VIOLATION", thermal, "Throttling by heat (in ns)."),
            ("DCGM_FI_DEV_POWER_VIOLATION", power, "Throttling by power (in ns)."),
            ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", gpu.nvlink_bytes / 1000, "NVLink counters for all lanes."),
            ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu.ecc_sbe, "Single-bit volatile ECC errors."),
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu.ecc_dbe, "Double-bit volatile ECC errors."),
        ):
            page.counter(name, labels, float(int(value)), help)
