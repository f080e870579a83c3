"""The KV cache page's numbers: they are the detectors' own, and the answer follows from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services import kv_cache
from app.services.kv_rows import recomputed
from app.services.view import make_view
from core.frames import Layout, Reading, Target, column
from core.records import OutputRecord
from detectors.contract import Context
from detectors.kv_eviction_storm import KvEvictionStorm
from detectors.measures import now
from detectors.source import fill, new_cube
from detectors.storm_warning import learn_room, room
from detectors.window import Window
from sql.store import Store
from tests.app.history import END, START, STORM, History

shares = st.floats(0, 1)
amounts = st.floats(0, 1e6)


def view_at(t: float, **more: object):  # type: ignore[no-untyped-def]
    return make_view(t + 1e6, END, length=1800.0, as_of=t, **more)  # type: ignore[arg-type]


def test_in_a_storm_the_cache_is_what_is_wrong_and_before_it_is_not(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        during = {p.pool: p for p in kv_cache.load(store, view_at(END)).pools}
        before = {p.pool: p for p in kv_cache.load(store, view_at(STORM - 60)).pools}
    assert during["coder"].state == "wrong"
    assert during["coder"].incident is not None
    assert during["mixed"].state == "fine"
    assert before["coder"].state == "fine"
    assert before["coder"].hit == pytest.approx(0.95)


def test_without_sessions_block_ages_or_keys_there_is_no_early_warning_and_it_says_so(
    storm_history: History,
) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        (pool,) = [p for p in kv_cache.load(store, view_at(STORM - 60)).pools if p.pool == "coder"]
    assert pool.room is None
    assert "No early warning" in pool.said
    assert pool.helps == ()


def test_the_stalled_replicas_compute_again_what_the_others_find(storm_history: History) -> None:
    with Store.open(storm_history.url, read_only=True) as store:
        (pool,) = [p for p in kv_cache.load(store, view_at(END)).pools if p.pool == "coder"]
    rows = {r.replica: r for r in pool.rows}
    # 20 requests of 1,000 prompt tokens each 15 s; 95 % were found before, none now.
    assert rows["coder-0"].recomputed == pytest.approx(0.95 * 20_000 / 15, rel=0.01)
    assert rows["coder-2"].recomputed == pytest.approx(0.0, abs=1e-6)
    assert rows["coder-0"].normal_hit == pytest.approx(0.95)
    assert pool.recomputed == pytest.approx(2 * 0.95 * 20_000 / 15, rel=0.01)


@given(shares, shares, amounts, st.floats(0, 10), st.floats(0, 100))
def test_recomputed_work_is_never_negative_and_never_more_than_what_was_computed(
    hit: float, normal: float, computed: float, prefill: float, requests: float
) -> None:
    again, wasted = recomputed(
        hit=hit, normal_hit=normal, computed=computed, prefill_s=prefill, requests_s=requests
    )
    if hit < 1:
        assert 0 <= again <= computed * (1 + 1e-9)
        assert 0 <= wasted <= 1 + 1e-9
    else:
        assert np.isnan(again)


def session_history(folder: Path) -> str:
    """Two hours and a half of one pool whose sessions treble in the last ten minutes."""
    url = f"sqlite:///{folder / 'sessions.db'}"
    layout = Layout(
        (
            column("requests_running", class_="agents"),
            column("kv_cache_capacity"),
            column("kv_cache_usage_ratio", class_="agents"),
            column("prefix_cache_queries_tokens_total", "counter", class_="agents"),
            column("prefix_cache_hit_tokens_total", "counter", class_="agents"),
            column("ttft_seconds", "histogram", (0.5, 1.0, 5.0), class_="agents"),
        )
    )
    rows, outputs = [], []
    ticks = int(9600 / 15)
    for replica in range(2):
        target = Target(
            f"a-{replica}:8000", pool="a", replica=f"a-{replica}", source="t", components=("vllm",), model="m"
        )
        counts = np.zeros(6, np.int64)
        for k in range(ticks):
            counts = counts + np.array([40_000, 36_000, 0, 10, 0, 0])
            rows.append(
                Reading(
                    target,
                    START + 15.0 * (k + 1),
                    layout,
                    np.array([5.0, 500_000.0, 0.5]),
                    counts.copy(),
                    np.array([7.0 * (k + 1)]),
                    start=START - 60,
                )
            )
    for second in range(0, 9600, 2):
        many = 60 if second > 9000 else 20
        for k in range(1 if second <= 9000 else 3):
            i = second * 3 + k
            outputs.append(
                OutputRecord(
                    id=f"o{i}",
                    ts=START + second + 1,
                    admitted=START + second,
                    workload_class="agents",
                    pool="a",
                    replica=f"a-{i % 2}",
                    session=f"s{i % many}",
                    turn=second,
                    prompt_tokens=19_000,
                    output_tokens=1_000,
                    cached_tokens=17_000,
                    verdict="clean",
                )
            )
    with Store.open(url) as store:
        rows.sort(key=lambda r: r.t)
        store.append(rows, stream="backfill")
        store.add_outputs(outputs)
    return url


def test_room_and_measures_are_those_that_the_detector_judges_by(tmp_path: Path) -> None:
    url = session_history(tmp_path)
    end = START + 9600
    view = replace(view_at(end), start=end - 900.0)
    with Store.open(url, read_only=True) as store:
        (pool,) = kv_cache.load(store, view).pools
        detector = KvEvictionStorm()
        cube = new_cube((detector,), START, None, Context())
        fill(cube, store, end)
        from detectors.samples import Samples

        w = Window(cube, cube.cells, Context(), Samples.of(store.outputs(START, end)))
    learnt = learn_room(w, w.pools["a"], np.floor((end - 900) / 900) * 900)
    expected = room(w, w.pools["a"], learnt)
    assert expected is not None
    assert pool.room is not None
    assert pool.room.source == expected.source == "sessions"
    assert pool.room.r == pytest.approx(expected.r, rel=0.02)
    assert pool.room.usual == pytest.approx(expected.usual, rel=0.02)
    m = now(w, 16, "hit", "work")
    assert pool.hit == pytest.approx(float(np.mean(m["hit"])))
    assert pool.rows[0].work == pytest.approx(float(m["work"][0]))
    assert pool.sampled_hit == pytest.approx(17 / 19)
    assert pool.trend.r[-1] < 0.6 * pool.trend.r[0]
