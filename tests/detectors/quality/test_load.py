"""Is it load? Size and power in small; the parts of the decision one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.load_verdict import WORLDS, setting, world
from detectors.quality.cells import Cells, codes, rank
from detectors.quality.conditional import fit
from detectors.quality.decision import bounds_with_missing, decide
from detectors.quality.load import LoadSeries, episodes, neighbour, rotation_p, trend
from detectors.quality.ratio import adjusted, quarters
from detectors.quality.verdict import LoadVerdict


def cells(k: np.ndarray, n: np.ndarray, load: np.ndarray, stratum: np.ndarray | None = None) -> Cells:
    """Cells of one replica, ten minutes each."""
    zero = np.zeros(len(k), np.intp)
    stratum = zero if stratum is None else stratum
    blank = np.zeros(len(k))
    return Cells(
        k.astype(float),
        n.astype(float),
        np.arange(len(k)) * 600.0,
        stratum,
        stratum,
        zero,
        load,
        blank,
        blank,
    )


def test_regression_finds_the_rate_ratio_that_made_the_counts() -> None:
    x = np.tile([0.0, 1.0], 50)
    n = np.full(100, 1000.0)
    found = fit(np.where(x > 0, 30.0, 10.0), n, np.zeros(100, np.intp), x[:, None])
    assert found is not None
    assert np.exp(found.beta[0]) == pytest.approx(3.0, rel=0.01)


def test_a_class_that_is_worse_and_meets_more_load_confounds_nothing() -> None:
    """Class 1 has ten times the rate and only high load: crude says ten, adjusted says one."""
    load = np.r_[np.linspace(0.5, 1.0, 100), np.linspace(0.9, 1.5, 100)]
    stratum = np.repeat([0, 1], 100)
    n = np.full(200, 500.0)
    c = cells(np.where(stratum == 1, 10.0, 1.0), n, load, stratum)
    crude = adjusted(replace(c, stratum=np.zeros(200, np.intp)))
    held = adjusted(c)
    assert crude is not None
    assert held is not None
    assert crude.value > 4
    assert held.low < 1 < held.high


def test_load_of_two_values_has_a_bottom_and_a_top() -> None:
    x = rank(np.array([2.0, 2.0, 100.0]), np.ones(3))
    assert [m.tolist() for m in quarters(x)] == [[True, True, False], [False, False, True]]
    assert not quarters(np.ones(4))[0].any()


def test_codes_join_columns() -> None:
    a, b = np.array([0, 0, 1, 1]), np.array([5, 6, 5, 5])
    assert codes(a, b).tolist() == [0, 1, 2, 2]


def test_waves_are_episodes_with_a_block_each() -> None:
    t = np.arange(0, 5 * 1500, 15.0)
    found = episodes(1 + 0.5 * np.sin(2 * np.pi * t / 1500 - 1.5), 0.0, 15.0)
    assert found.count == 5
    assert len(found.edges) == 6
    assert episodes(np.ones(500), 0.0, 15.0).count == 0


def test_what_happened_in_one_surge_is_not_rare_under_rotation() -> None:
    w = world(5, 30_000)
    blocks = episodes(w.series.total(), w.series.start, w.series.step)
    one = w.cells(np.where(blocks.block(w.t) == 2, w.n * (w.x > 0.75) * 0.02, 0.0))
    every = w.cells(w.n * (w.x > 0.75) * 0.02)
    p_one, p_every = rotation_p(one, w.series, blocks), rotation_p(every, w.series, blocks)
    assert p_one is not None
    assert p_every is not None
    assert p_every <= 0.01 < p_one


def test_the_load_of_another_replica_is_that_of_its_neighbour() -> None:
    series = LoadSeries(0.0, np.array([[1.0, 1.0], [2.0, 2.0], [5.0, 5.0]]), 600.0)
    c = replace(cells(np.ones(3), np.ones(3), np.ones(3)), t=np.zeros(3), unit=np.arange(3))
    got = neighbour(c, series, np.array([0, 0, 1]))
    assert got[:2].tolist() == [2.0, 1.0]
    assert np.isnan(got[2]), "a pool of one replica has no other"


def test_trend_is_flat_where_rates_are() -> None:
    w = world(3, 50_000)
    assert abs(trend(w.cells(w.n * 1e-3), w.x)) < 0.1
    assert trend(w.cells(w.n * (1e-4 + 4e-3 * w.x)), w.x) > 5


def test_a_verdict_survives_json() -> None:
    v = LoadVerdict(None, "why", 3.0, 1.0, float("inf"), bottom=(1, 2), crude=(1.0, 0.5, float("inf")))
    assert LoadVerdict.from_json(v.as_json()) == v


def test_missing_outputs_widen_the_ratio_both_ways() -> None:
    v = LoadVerdict(True, "", 5.0, 3.0, 8.0)
    assert bounds_with_missing(v, (0.0, 0.5)) == pytest.approx((1.5, 16.0))


def test_missing_outputs_that_could_undo_the_ratio_leave_it_open() -> None:
    w = world(2, 60_000)
    c = w.cells(w.n * np.where(w.x > 0.5, 40e-4, 8e-4))
    assert decide(c, setting(w)).verdict is True
    open_ = decide(c, setting(w, (0.0, 0.6)))
    assert open_.verdict is None
    assert "missing" in open_.why


def test_what_else_carries_it_settles_it() -> None:
    w = world(2, 60_000)
    c = w.cells(w.n * np.where(w.x > 0.5, 40e-4, 8e-4))
    v = decide(c, replace(setting(w), carried="replica a-1 carries it"))
    assert (v.verdict, v.why) == (False, "replica a-1 carries it")
    assert decide(c, replace(setting(w), carried="it began with a restart", final=False)).verdict is True


@pytest.mark.parametrize("name", [n for n, (kind, _, _) in WORLDS.items() if kind != "effect"])
def test_without_a_load_effect_or_without_enough_of_it_nobody_says_load(name: str) -> None:
    """Two simulated weeks of each world; ``python -m bench.load_verdict`` runs as many as one likes."""
    assert [WORLDS[name][2](s).verdict for s in (11, 12)].count(True) == 0


@pytest.mark.parametrize("name", ["step_3_15", "line_3_300", "top_3_300"])
def test_a_load_effect_is_found(name: str) -> None:
    assert [WORLDS[name][2](s).verdict for s in (21, 22, 23)].count(True) >= 2
