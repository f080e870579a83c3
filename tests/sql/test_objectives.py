"""Exclusions, versions and months of objectives, and gateway cells by the hour."""

from __future__ import annotations

import numpy as np
from sqlalchemy import text

from core.records import RequestRecord
from core.requests import RequestKey, fine_edges, fold
from sql import migrate
from sql.engine import Database
from sql.ids import edges_id
from sql.objectives import Exclusion
from sql.store import Store
from tests.sql.test_migrations import at_revision

T0 = 1_790_000_400.0
EDGES = fine_edges([1.0])
JOINTS = {"quick": (("ttft_seconds", 1.0), ("time_per_output_token_seconds", 0.05))}


def attempt(ts: float, ttft: float, duration: float, tokens: int = 11, status: int = 200) -> RequestRecord:
    return RequestRecord(
        ts=ts,
        workload_class="chat",
        status=status,
        ttft_s=ttft,
        duration_s=duration,
        prompt_tokens=100,
        output_tokens=tokens,
    )


ATTEMPTS = [attempt(T0 + 90 * i, 0.1 * i, 0.1 * i + 0.4 + 0.05 * (i % 3)) for i in range(100)]


def test_hours_are_the_sums_of_their_minutes_whatever_the_batches(store: Store) -> None:
    for first in range(0, 100, 7):
        store.add_requests(fold(ATTEMPTS[first : first + 7], EDGES, joints=JOINTS))
    minutes = store.request_cells(0, 1e11)
    hours = store.request_cells(0, 1e11, hourly=True)
    assert {k.minute % 3600 for k, _ in hours} == {0}
    for key, cell in hours:
        mine = [c for k, c in minutes if k.minute // 3600 * 3600 == key.minute]
        assert cell.n == sum(c.n for c in mine)
        assert cell.tpot is not None
        for name in ("ttft", "age", "duration"):
            expected = sum(getattr(c, name)[1] for c in mine)
            assert np.array_equal(getattr(cell, name)[1], expected)
        assert cell.joint == {"quick": (sum(c.joint["quick"][0] for c in mine), 0)}
    assert sum(c.n for _, c in hours) == 100


def test_requests_that_keep_all_thresholds_are_counted_as_they_come_in(store: Store) -> None:
    store.add_requests(fold(ATTEMPTS, EDGES, joints=JOINTS))
    kept = sum(c.joint["quick"][0] for _, c in store.request_cells(0, 1e11))
    expected = sum(
        a.ttft_s <= 1.0 and (a.duration_s - a.ttft_s) / 10 <= 0.05  # type: ignore[operator]
        for a in ATTEMPTS
    )
    assert kept == expected
    assert 0 < kept < 20


def test_a_database_of_the_last_release_gets_its_hours(empty_url: str) -> None:
    at_revision(empty_url, "0002")
    old = Database(empty_url)
    with old.write() as c:
        known = {"id": edges_id((1.0,))}
        c.execute(text("INSERT INTO edges (id, edges) VALUES (:id, '[1.0]')"), known)
        for minute, n in ((7200, 3), (7260, 4), (10800, 5)):
            c.execute(
                text(
                    "INSERT INTO requests (minute, point, class, tenant, model, pool, band, status, release, edges_id, n,"
                    " prompt_tokens, output_tokens, ttft_sum, duration_sum, ttft, age, duration) VALUES (:m, 'gateway', 'chat',"
                    """ '', '', '', '0-1k', 200, '', :id, :n, 10, 10, 1, 1, :h, '{}', '{}')"""
                ),
                known | {"m": minute, "n": n, "h": f'{{"0":{n}}}'},
            )
    old.close()
    with Store.open(empty_url) as store:
        assert store.ping()["revision"] == migrate.HEAD
        hours = store.request_cells(0, 1e11, hourly=True)
        assert [(k.minute, c.n, c.ttft[1].tolist()) for k, c in hours] == [
            (7200, 7, [7, 0]),
            (10800, 5, [5, 0]),
        ]
        assert hours[0][1].tpot is None, "what was not counted then is not known"
        # What comes in now is added to it, and stays not known.
        again = fold([attempt(7300.0, 0.5, 0.9)], (1.0,), joints=JOINTS)
        store.add_requests({RequestKey(7260, class_="chat", band="0-1k"): c for c in again.values()})
        first = store.request_cells(7200, 7201, hourly=True)[0][1]
        assert (first.n, first.tpot, first.joint) == (8, None, {})


def test_an_exclusion_holds_until_it_is_withdrawn_and_is_never_forgotten(store: Store) -> None:
    one = Exclusion(T0, T0 + 600, "mara", "network maintenance", class_="chat", made_at=T0 - 60)
    key = store.add_exclusion(one)
    assert store.add_exclusion(one) == key, "the same one twice is one"
    (found,) = store.exclusions(T0 + 599, T0 + 700)
    assert (found.author, found.reason, found.class_, found.id) == (
        "mara",
        "network maintenance",
        "chat",
        key,
    )
    assert store.exclusions(T0 + 600, T0 + 700) == []
    assert store.withdraw_exclusion(key, "noor", T0 + 900)
    assert not store.withdraw_exclusion(key, "noor", T0 + 901)
    assert store.exclusions() == []
    (kept,) = store.exclusions(withdrawn=True)
    assert (kept.withdrawn_by, kept.withdrawn_at) == ("noor", T0 + 900)


def test_a_version_of_an_objective_never_changes(store: Store) -> None:
    assert store.add_slo_version("chat", "aa", T0, {"threshold": 1.0})
    assert not store.add_slo_version("chat", "aa", T0 + 5, {"threshold": 2.0})
    store.add_slo_version("chat", "bb", T0 + 10, {"threshold": 2.0})
    assert [(v.version, v.since, v.definition["threshold"]) for v in store.slo_versions("chat")] == [
        ("aa", T0, 1.0),
        ("bb", T0 + 10, 2.0),
    ]


def test_a_frozen_month_stays_and_late_data_are_a_restatement(store: Store) -> None:
    store.add_slo_month("chat", "2026-09", "aa", T0, {"good": 10})
    store.add_slo_month("chat", "2026-09", "aa", T0 + 5, {"good": 12}, "late data")
    assert [(m.seq, m.data["good"], m.reason) for m in store.slo_months("chat", "2026-09")] == [
        (0, 10, ""),
        (1, 12, "late data"),
    ]
