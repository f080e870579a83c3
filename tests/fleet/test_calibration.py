"""The model against measurements that come with the shared material."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench import fleet_calibration as calibration
from fleet.model import FleetSpec
from fleet.profiles import RTX4090_8B, claude_code

pytestmark = pytest.mark.shared


def test_a_small_card_saturates_as_the_measured_one_did(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "TRACES", shared / "traces")
    lines: list[calibration.Line] = []
    pool = calibration.one_engine(46_500, RTX4090_8B, max_running=256, token_budget=2_048)
    calibration.saturation(lines, "RTX4090_Llama-3.1-8B", pool)
    assert len(lines) == 11
    for line in lines:
        assert line.measured is not None
        assert abs(line.error) < math.log(1.35), line.text()
    fell = next(line for line in lines if "running, share" in line.what)
    assert fell.model < 0.8  # running falls while waiting rises: memory is what is short


def test_the_hit_rate_at_half_the_working_set_is_that_of_the_recorded_sessions(shared: Path) -> None:
    users = 16
    size = int(0.5 * users * calibration.context_of(users))
    pool = calibration.one_engine(size, calibration.NO_QUEUE)
    traffic = claude_code("p", users)
    spec = FleetSpec((pool,), (traffic,), (), calibration.START, seed=1)
    rows = calibration.minutes(spec, 40)
    assert 0.5 < sum(m.hit for m in rows) / len(rows) < 0.85
