"""A clock that is wrong, whose ever, costs nobody else anything."""

from __future__ import annotations

import time

import pytest

from core.config import RetentionConfig
from core.records import OutputRecord, RequestRecord
from core.requests import fine_edges, fold
from sql.store import Store
from tests.sql.make import DONE, T0, down, reading, target

FAR = 4_000_000_000.0 - T0
"""In the year 2096."""


def test_a_reading_from_the_future_is_refused_by_name_and_blocks_nobody(store: Store) -> None:
    store.append([reading(0, {DONE: 5}), reading(0, {DONE: 7}, of=target("r2"))])
    result = store.append([reading(FAR, {DONE: 6}), reading(15, {DONE: 9}, of=target("r2"))])
    assert (result.inserted, result.skipped) == (1, 1)
    store.append([down(FAR)])
    assert store.append([reading(30, {DONE: 8})]).inserted == 1
    assert store.newest() == T0 + 30
    assert {t.target.replica: t.last_seen for t in store.targets()} == {"r1": T0 + 30, "r2": T0 + 15}
    (problem,) = store.problems()
    assert (problem.source, problem.code, problem.subject, problem.count) == (
        "prom",
        "future_time",
        "r1:8000",
        2,
    )
    assert abs(problem.ts - time.time()) < 60


def test_a_back_fill_does_not_take_what_a_server_dates_into_the_future(store: Store) -> None:
    result = store.append(
        [reading(0, {DONE: 5}), reading(15, {DONE: 6}), reading(FAR, {DONE: 9})], stream="b"
    )
    assert (result.inserted, result.skipped) == (1, 1)


def test_this_machine_may_have_believed_in_the_future_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock jumps ahead and comes back: what follows is stored as ever."""
    store.append([reading(0, {DONE: 5})])
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: T0 + FAR)
        store.append([reading(FAR, {DONE: 6})])
        store.append([reading(FAR + 15, {DONE: 7})])
        assert store.newest() == T0 + FAR + 15
    store.append([reading(45, {DONE: 9})])
    assert store.append([reading(60, {DONE: 12})]).inserted == 1
    assert store.newest() == T0 + 60
    assert [t.last_seen for t in store.targets()] == [T0 + 60]


def test_one_date_in_the_future_does_not_make_everything_else_old(store: Store) -> None:
    """Retention counts from the newest data, but not from data that cannot be."""
    edges = fine_edges()
    records = [RequestRecord(t, 200, "chat", ttft_s=0.1) for t in (T0, T0 + FAR)]
    store.add_requests(fold(records, edges))
    store.add_outputs(OutputRecord(f"o{t}", t, t, "chat") for t in (T0, T0 + FAR))
    store.append([reading(0, {DONE: 5}), reading(15, {DONE: 6})])
    kept = RetentionConfig.model_validate({"requests": "36500d", "outputs": "36500d"})
    # the age of the whole history on this machine's clock: nothing of it is old
    done = store.apply_retention(kept)
    assert (done.requests, done.outputs, done.frames, done.rollups) == (0, 0, 0, 0)
