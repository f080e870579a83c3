"""Ranks inside a replica and coarse histograms in the cube."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.frames import Frame, Layout, Target, column
from detectors.cube import Cube
from detectors.marks import MARKS, join, joined
from detectors.ranks import MOST, Ranks, RankView
from tests.detectors.fleet import START

ITL = "inter_token_latency_seconds"


def ranked(values: list[float], t: float, ranks: tuple[str, ...] = ("0", "1", "2", "3")) -> Frame:
    layout = Layout(tuple(column("requests_running", rank=r) for r in ranks))
    return Frame(1, t - 15, t, layout, np.asarray(values), np.zeros(0, np.int64), np.zeros(0), False)


def test_gauges_of_ranks_are_kept_apart_and_the_replica_has_their_sum() -> None:
    from detectors.contract import Need

    cube = Cube((Need("running", "requests_running"),), (), start=START)
    frames = [ranked([8, 8, 8, 8], START + 15), ranked([27, 5, 0, 0], START + 30)]
    cube.extend(frames, {1: Target("a-0:8000", pool="a", replica="a-0")}, START + 45)
    view = RankView(cube.ranks, 0, cube.cells)
    assert view.names(0) == ["0", "1", "2", "3"]
    got = view.values("requests_running", 0)
    assert got[:, ~np.isnan(got).all(axis=0)].tolist() == [[8, 27], [8, 5], [8, 0], [8, 0]]
    assert np.nansum(cube.scalar("running")[0]) == 64


def test_a_replica_without_ranks_has_none() -> None:
    r = Ranks()
    r.add(
        Layout((column("requests_running"),)),
        np.ones((1, 1)),
        np.zeros(1, np.intp),
        np.zeros(1, np.intp),
        [""],
    )
    assert r.names(0) == []


def test_ranks_may_also_be_targets_of_their_own() -> None:
    r = Ranks()
    layout = Layout((column("requests_running"),))
    zero = np.zeros(2, np.intp)
    r.add(layout, np.asarray([[3.0], [4.0]]), zero, zero, ["1", "0"])
    assert r.names(0) == ["0", "1"]
    assert r.values("requests_running", 0, 0, 1).tolist() == [[4.0], [3.0]]


def test_the_number_of_ranks_is_bounded() -> None:
    r = Ranks()
    layout = Layout((column("requests_running"),))
    n = MOST + 50
    r.add(layout, np.ones((n, 1)), np.arange(n), np.zeros(n, np.intp), ["0"] * n)
    assert sum(len(v) for v in r.rows.values()) == MOST


def test_oldest_cells_can_be_dropped() -> None:
    r = Ranks()
    layout = Layout((column("requests_running", rank="0"),))
    r.add(layout, np.arange(5.0)[:, None], np.zeros(5, np.intp), np.arange(5), [""] * 5)
    r.drop(2)
    assert r.values("requests_running", 0, 0, 3).tolist() == [[2, 3, 4]]


@settings(deadline=None)
@given(
    st.sets(st.floats(0.001, 60), min_size=1, max_size=25),
    st.lists(st.integers(0, 1000), min_size=26, max_size=26),
)
def test_joined_buckets_keep_every_count_on_its_side_of_every_kept_edge(
    edges: set[float], n: list[int]
) -> None:
    old = tuple(sorted(edges))
    counts = np.asarray(n[: len(old) + 1], float)
    kept, starts = joined(ITL, old)
    new = join(counts[None, :], starts)[0]
    assert set(kept) <= set(old)
    assert len(new) == len(kept) + 1
    for i, e in enumerate(kept):
        assert new[: i + 1].sum() == counts[: old.index(e) + 1].sum()
        assert new[i + 1 :].sum() == counts[old.index(e) + 1 :].sum()


@pytest.mark.parametrize("signal", MARKS)
def test_each_mark_is_stood_in_for_by_the_first_edge_at_or_beyond_it(signal: str) -> None:
    marks = MARKS[signal]
    assert joined(signal, marks)[0] == marks
    assert joined(signal, (marks[0] * 1.5,))[0] == (marks[0] * 1.5,)
    assert joined(signal, (marks[0] / 2,))[0] == ()
