"""The registry covers every kind of incident and names nothing that does not exist."""

from __future__ import annotations

import pytest

from core.errors import ConfigError
from core.kinds import KINDS
from fleet import scenarios
from fleet.mechanisms import MECHANISMS
from fleet.simulation import Simulation

CANNOT_STAND_ALONE = {"warm_up", "traffic_shift"}  # info: the calm scenarios hold them


def test_every_kind_of_incident_has_a_scenario() -> None:
    covered = {s.kind for s in scenarios.scenarios().values() if s.kind}
    assert covered == set(KINDS) - CANNOT_STAND_ALONE
    accepted = {k for s in scenarios.scenarios().values() for k in s.accept}
    assert accepted <= set(KINDS)


def test_what_must_stay_silent_is_there() -> None:
    calm = {n for n, s in scenarios.scenarios().items() if s.kind is None}
    assert all(n.startswith("calm") for n in calm)
    assert {
        "calm_surge",
        "calm_deploy",
        "calm_scale_up",
        "calm_scale_down",
        "calm_mix",
        "calm_quiet",
        "calm_scrape_gap",
        "calm_compaction",
        "calm_customer",
    } <= calm


@pytest.mark.parametrize("name", scenarios.names())
def test_a_scenario_speaks_of_pools_replicas_and_mechanisms_that_exist(name: str) -> None:
    spec = scenarios.build(name, seed=5)
    pools = {p.name: p for p in spec.pools}
    assert spec.name == name
    assert scenarios.about(name)
    assert spec.end is not None
    assert spec.end - spec.start == scenarios.HOURS * 3600
    for fault in spec.faults:
        assert fault.kind in MECHANISMS
        assert fault.pool == "" or fault.pool in pools
        assert spec.start < fault.start < spec.end - 1800
        for index in fault.replicas or ():
            assert index < pools[fault.pool].replicas
    for traffic in spec.traffic:
        assert traffic.pool in pools
    for pool in spec.pools:
        assert pool.decode_pool is None or pool.decode_pool in pools
    Simulation(spec)


def test_an_unknown_scenario_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(ConfigError, match="storm_load"):
        scenarios.build("strom_load")


def test_the_seed_moves_the_fault_and_a_given_time_does_not() -> None:
    starts = {scenarios.build("overload", seed=s).faults[0].start for s in range(6)}
    assert len(starts) > 3
    fixed = {scenarios.build("overload", seed=s, fault_at=600.0).faults[0].start for s in range(6)}
    assert fixed == {scenarios.START + 600.0}


def test_quality_faults_say_whether_load_is_the_cause() -> None:
    for scenario in scenarios.scenarios().values():
        assert (scenario.load_correlated is not None) == (scenario.kind == "degraded_generations"), (
            scenario.name
        )


def test_a_pair_holds_both_truths_in_order() -> None:
    spec = scenarios.build("pair_slow_stall")
    labels = [f.label for f in spec.faults]
    assert labels == ["slow_replica", "host_stall"]
    first, second = spec.faults
    assert first.duration is not None
    assert first.start + first.duration <= second.start
