"""Every detector that runs, in order of precedence."""

from __future__ import annotations

from detectors.capacity_lost import CapacityLost
from detectors.capacity_shortfall import CapacityShortfall
from detectors.config_drift import ConfigDrift
from detectors.contract import Detector, Need
from detectors.degraded_generations import DegradedGenerations
from detectors.error_burst import ErrorBurst
from detectors.gateway_fault import GatewayFault
from detectors.gpu_fault import GpuFault
from detectors.head_of_line import HeadOfLine
from detectors.host_stall import HostStall
from detectors.kv_eviction_storm import KvEvictionStorm
from detectors.kv_leak import KvLeak
from detectors.kv_transfer_slow import KvTransferSlow
from detectors.lora_thrash import LoraThrash
from detectors.offload_thrash import OffloadThrash
from detectors.prefill_decode_imbalance import PrefillDecodeImbalance
from detectors.prefix_cache_loss import PrefixCacheLoss
from detectors.replica_skew import ReplicaSkew
from detectors.retry_storm import RetryStorm
from detectors.slo_burn import SloBurn
from detectors.slow_replica import SlowReplica
from detectors.spec_decode_collapse import SpecDecodeCollapse
from detectors.stuck_requests import StuckRequests
from detectors.tail_latency_spike import TailLatencySpike
from detectors.telemetry_fault import TelemetryFault
from detectors.throughput_regression import ThroughputRegression
from detectors.traffic_shift import TrafficShift
from detectors.warm_up import WarmUp
from detectors.wedged import Wedged


def detectors() -> tuple[Detector, ...]:
    """Fresh detectors with their default parameters."""
    return (
        TelemetryFault(),
        GpuFault(),
        Wedged(),
        CapacityLost(),
        ErrorBurst(),
        GatewayFault(),
        StuckRequests(),
        ConfigDrift(),
        ThroughputRegression(),
        ReplicaSkew(),
        PrefixCacheLoss(),
        KvLeak(),
        HeadOfLine(),
        KvEvictionStorm(),
        OffloadThrash(),
        LoraThrash(),
        SpecDecodeCollapse(),
        SlowReplica(),
        HostStall(),
        KvTransferSlow(),
        RetryStorm(),
        PrefillDecodeImbalance(),
        CapacityShortfall(),
        DegradedGenerations(),
        TailLatencySpike(),
        SloBurn(),
        WarmUp(),
        TrafficShift(),
    )


def wanted(items: tuple[Detector, ...]) -> tuple[tuple[Need, ...], tuple[str, ...]]:
    """All scalar needs and all histogram signals of some detectors, each once."""
    needs = dict.fromkeys(n for d in items for n in d.needs)
    hists = dict.fromkeys(h for d in items for h in d.hists)
    return tuple(needs), tuple(hists)
