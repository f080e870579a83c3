import pytest

from core.errors import ConfigError
from core.kinds import KINDS, kind


def test_the_kinds_are_those_of_the_design() -> None:
    assert set(KINDS) == {
        "telemetry_fault",
        "wedged",
        "stuck_requests",
        "capacity_lost",
        "error_burst",
        "gateway_fault",
        "capacity_shortfall",
        "slow_replica",
        "replica_skew",
        "host_stall",
        "head_of_line",
        "kv_eviction_storm",
        "prefix_cache_loss",
        "kv_leak",
        "offload_thrash",
        "lora_thrash",
        "kv_transfer_slow",
        "prefill_decode_imbalance",
        "retry_storm",
        "spec_decode_collapse",
        "throughput_regression",
        "config_drift",
        "gpu_fault",
        "warm_up",
        "traffic_shift",
        "tail_latency_spike",
        "degraded_generations",
        "slo_burn",
    }


def test_causes_come_before_their_symptoms() -> None:
    order = [
        "telemetry_fault",
        "wedged",
        "capacity_lost",
        "config_drift",
        "kv_eviction_storm",
        "capacity_shortfall",
        "tail_latency_spike",
        "slo_burn",
    ]
    assert [KINDS[k].precedence for k in order] == sorted(KINDS[k].precedence for k in order)
    assert len({k.precedence for k in KINDS.values()}) == len(KINDS)
    assert list(KINDS) == sorted(KINDS, key=lambda k: KINDS[k].precedence)


def test_info_and_symptoms_absorb_nothing() -> None:
    assert {k.id for k in KINDS.values() if not k.absorbs} == {
        "telemetry_fault",
        "warm_up",
        "traffic_shift",
        "tail_latency_spike",
        "slo_burn",
    }
    assert [k.id for k in KINDS.values() if k.quality] == ["degraded_generations"]


def test_every_kind_says_what_it_is() -> None:
    for entry in KINDS.values():
        assert entry.title
        assert entry.meaning.endswith(".")


def test_an_unknown_kind_suggests_the_nearest() -> None:
    assert kind("wedged").title == "Engine wedged"
    with pytest.raises(ConfigError, match="kv_leak"):
        kind("kv_leek", "detect.shadow[0]")
