"""The quality half of the simulator over seeds: faults named, load never wrongly blamed or cleared, calm ones silent."""

from __future__ import annotations

import pytest

from bench.quality_seeds import judged

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("scenario", "allowed"),
    [
        ("garble_replica", {"right"}),
        ("garble_release", {"right"}),
        ("garble_load", {"right", "open"}),
        ("tool_calls", {"right", "open"}),
        ("calm", {"right"}),
    ],
)
def test_one_seed_of_each_is_judged_as_the_truth_has_it_or_not_yet(scenario: str, allowed: set[str]) -> None:
    one = judged(scenario, 21)
    assert one.found in allowed, one.said
