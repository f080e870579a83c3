"""Roll-ups: what is summed, what stays apart, what arrays come back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.errors import ConfigError
from core.frames import Column
from sql.store import Store
from tests.sql.make import ABORTED, DONE, EDGES, RUNNING, T0, TTFT, reading, target


def test_minutes_and_hours_add_up_over_replicas(store: Store) -> None:
    for name in ("a", "b"):
        store.append(
            [reading(15.0 * i, {TTFT: ((i, 0, 2 * i, 0), 1.5 * i)}, of=target(name)) for i in range(9)]
        )
    rows = store.rollups("ttft_seconds", T0, T0 + 1000)
    assert [(r.ts - T0, r.n, r.counts.tolist(), r.total) for r in rows] == [
        (0, 18, [6, 0, 12, 0], 9.0),
        (60, 24, [8, 0, 16, 0], 12.0),
        (120, 6, [2, 0, 4, 0], 3.0),
    ]
    assert rows[0].edges == EDGES
    assert (rows[0].class_, rows[0].pool, rows[0].unit, rows[0].model) == ("chat", "p", "", "m")
    hour = T0 // 3600 * 3600
    (row,) = store.rollups("ttft_seconds", hour, hour + 3600, resolution=3600)
    assert (row.ts, row.n, row.total, row.mean) == (hour, 48, 24.0, 0.5)


def test_a_replica_has_five_minute_rows_of_the_signals_marked_for_it(store: Store) -> None:
    for name, k in (("a", 1), ("b", 3)):
        store.append([reading(15.0 * i, {TTFT: ((k * i, 0, 0, 0), 0.0)}, of=target(name)) for i in range(5)])
    rows = store.rollups("ttft_seconds", 0, 1e11, per_unit=True)
    assert [(r.ts - T0, r.unit, r.n) for r in rows] == [
        (-240, "a", 3),
        (-240, "b", 9),
        (60, "a", 1),
        (60, "b", 3),
    ]
    assert {r.resolution for r in rows} == {300}


def test_a_gauge_keeps_mean_and_maximum(store: Store) -> None:
    store.append([reading(0, {RUNNING: 1.0}), reading(15, {RUNNING: 4.0}), reading(30, {RUNNING: 2.0})])
    store.append([reading(45, {RUNNING: 3.0})])
    (row,) = store.rollups("requests_running", 0, 1e11)
    assert (row.n, row.mean, row.max_) == (3, 3.0, 4.0)


def test_a_gauge_without_a_value_has_no_row(store: Store) -> None:
    store.append([reading(0, {RUNNING: math.nan, DONE: 0}), reading(15, {RUNNING: math.nan, DONE: 0})])
    assert store.rollups("requests_running", 0, 1e11) == []
    (row,) = store.rollups("request_success_total", 0, 1e11)
    assert row.n == 0


def test_labels_of_a_signal_stay_apart_and_can_be_chosen(store: Store) -> None:
    store.append([reading(15.0 * i, {DONE: 5 * i, ABORTED: i}) for i in range(4)])
    assert [(dict(r.labels), r.n) for r in store.rollups("request_success_total", 0, 1e11)] == [
        ({"finish_reason": "abort"}, 3),
        ({"finish_reason": "stop"}, 15),
    ]
    ((_, counts, _),) = store.rollup_matrix("request_success_total", 0, 1e11).values()
    assert counts.tolist() == [[18]]
    some = store.rollup_matrix("request_success_total", 0, 1e11, labels={"finish_reason": "abort"})
    assert [c.tolist() for _, c, _ in some.values()] == [[[3]]]
    assert store.rollup_matrix("request_success_total", 0, 1e11, labels={"finish_reason": "none"}) == {}


def test_different_bucket_layouts_stay_apart(store: Store) -> None:
    other = Column("ttft_seconds", (("class", "chat"),), "histogram", (1.0, 4.0))
    store.append([reading(15.0 * i, {TTFT: ((i, 0, 0, 0), 0.0)}, of=target("a")) for i in range(3)])
    store.append([reading(15.0 * i, {other: ((i, i, 0), 0.0)}, of=target("b")) for i in range(3)])
    matrix = store.rollup_matrix("ttft_seconds", 0, 1e11)
    assert {k[4]: c.sum(axis=0).tolist() for k, (_, c, _) in matrix.items()} == {
        EDGES: [2, 0, 0, 0],
        (1.0, 4.0): [2, 2, 0],
    }


def test_the_matrix_sums_to_the_step_and_leaves_out_times_without_data(store: Store) -> None:
    readings = [reading(15.0 * i, {TTFT: ((i, 0, 0, i), 2.0 * i)}) for i in [*range(13), *range(60, 65)]]
    store.append(readings)
    ((key, (ts, counts, sums)),) = store.rollup_matrix("ttft_seconds", T0, T0 + 3600).items()
    assert key == ("chat", "p", "", "m", EDGES)
    assert (ts - T0).tolist() == [0, 60, 120, 180, 900, 960]
    assert counts[:, 0].tolist() == [3, 4, 4, 1, 51, 1]
    assert sums.tolist() == [6.0, 8.0, 8.0, 2.0, 102.0, 2.0]
    start = T0 // 300 * 300
    ((_, (coarse, by_five, _)),) = store.rollup_matrix("ttft_seconds", start, start + 7200, 300).items()
    assert (coarse % 300 == 0).all()
    assert by_five.sum() == counts.sum() == 128
    hour = T0 // 3600 * 3600
    ((_, (hours, by_hour, _)),) = store.rollup_matrix("ttft_seconds", hour, hour + 7200, 3600).items()
    assert (hours.tolist(), by_hour.sum()) == ([hour], 128)
    assert counts.dtype == ts.dtype == np.int64


def test_the_matrix_can_be_narrowed_by_class_pool_and_model(store: Store) -> None:
    for name, pool, model in (("a", "x", "m1"), ("b", "y", "m2")):
        t = type(target())(address=name, pool=pool, replica=name, model=model)
        store.append([reading(15.0 * i, {TTFT: ((i, 0, 0, 0), 0.0)}, of=t) for i in range(2)])
    every = store.rollup_matrix("ttft_seconds", 0, 1e11)
    assert sorted(k[1] for k in every) == ["x", "y"]
    assert [k[1] for k in store.rollup_matrix("ttft_seconds", 0, 1e11, pools=["y"])] == ["y"]
    assert [k[3] for k in store.rollup_matrix("ttft_seconds", 0, 1e11, models=["m1"])] == ["m1"]
    assert store.rollup_matrix("ttft_seconds", 0, 1e11, classes=["batch"]) == {}
    per_unit = store.rollup_matrix("ttft_seconds", 0, 1e11, 300, per_unit=True)
    assert sorted(k[2] for k in per_unit) == ["a", "b"]


def test_a_column_without_class_gets_the_pools_name(store: Store) -> None:
    bare = Column("ttft_seconds", (), "histogram", EDGES)
    store.append([reading(15.0 * i, {bare: ((i, 0, 0, 0), 0.0)}) for i in range(2)])
    assert [r.class_ for r in store.rollups("ttft_seconds", 0, 1e11)] == ["p"]


def test_ranks_of_a_replica_are_added(store: Store) -> None:
    ranks = [
        Column("ttft_seconds", (("class", "chat"), ("rank", str(i))), "histogram", EDGES) for i in range(3)
    ]
    store.append([reading(15.0 * i, dict.fromkeys(ranks, ((i, 0, 0, 0), 0.0))) for i in range(2)])
    (row,) = store.rollups("ttft_seconds", 0, 1e11)
    assert row.n == 3


def test_a_signal_that_is_not_known_is_kept_in_frames_only(store: Store) -> None:
    odd = Column("no_such_signal", (("class", "chat"),), "counter")
    store.append([reading(15.0 * i, {odd: i}) for i in range(2)])
    assert store.rollups("no_such_signal", 0, 1e11) == []
    assert len(list(store.frames(0, 1e11))) == 1


def test_nonsense_resolutions_and_steps_are_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="60, 300 or 3600"):
        store.rollups("ttft_seconds", 0, 1, resolution=61)
    with pytest.raises(ConfigError, match="multiple of 60"):
        store.rollup_matrix("ttft_seconds", 0, 1, 90)
    with pytest.raises(ConfigError, match="multiple of 300"):
        store.rollup_matrix("ttft_seconds", 0, 1, 60, per_unit=True)
