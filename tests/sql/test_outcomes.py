"""Outcomes are stored once, found by time, and go with the outputs that are erased."""

from __future__ import annotations

from dataclasses import replace

from core.records import Outcome, OutputRecord
from sql.retention import Retention
from sql.store import Store
from tests.sql.make import T0

OUTPUT = OutputRecord("r-1", T0, T0, "chat", tenant="t-a", session="s-1")
PASSED = Outcome("y-1", T0 + 1, "tests_passed", True, request="r-1", value=0.75)


def test_an_outcome_is_stored_once(store: Store) -> None:
    assert store.add_outcomes([PASSED, PASSED]) == 1
    assert store.add_outcomes([replace(PASSED, ok=False)]) == 0
    assert store.outcomes(T0, T0 + 10) == [PASSED]
    assert store.outcomes(T0, T0 + 1) == []
    assert store.outcomes(T0, T0 + 10, kinds=["abandoned"]) == []


def test_a_session_is_erased_with_its_outcomes_and_others_stay(store: Store) -> None:
    other = replace(OUTPUT, id="r-2", session="s-2")
    store.add_outputs([OUTPUT, other])
    store.add_outcomes([PASSED, Outcome("y-2", T0, "abandoned", False, session="s-1")])
    store.add_outcomes([Outcome("y-3", T0, "abandoned", False, session="s-2")])
    assert store.erase(session="s-1") == (1, 2)
    assert store.outputs(T0, T0 + 1) == [other]
    assert [y.id for y in store.outcomes(T0, T0 + 10)] == ["y-3"]


def test_a_tenant_is_erased_with_outcomes_that_name_only_its_sessions(store: Store) -> None:
    other = replace(OUTPUT, id="r-2", tenant="t-b", session="s-2")
    store.add_outputs([OUTPUT, other])
    store.add_outcomes([Outcome("y-2", T0, "abandoned", False, session="s-1")])
    store.add_outcomes([Outcome("y-3", T0, "abandoned", False, session="s-2")])
    assert store.erase(tenant="t-a") == (1, 1)
    assert [r.id for r in store.outputs(T0, T0 + 1)] == ["r-2"]
    assert [y.id for y in store.outcomes(T0, T0 + 10)] == ["y-3"]


def test_no_name_erases_nothing(store: Store) -> None:
    store.add_outputs([replace(OUTPUT, tenant="", session="")])
    assert store.erase() == (0, 0)
    assert store.erase(tenant="", session="") == (0, 0)
    assert len(store.outputs(T0, T0 + 1)) == 1


def test_outcomes_grow_old_with_outputs(store: Store) -> None:
    class Keep:
        frames = rollups_minute = rollups_hour = rollups_replica = requests = 1e9
        outputs = 86_400.0
        max_bytes = None

    keep: Retention = Keep()
    days = [Outcome(str(i), T0 + i * 86_400, "abandoned", False, session="s") for i in range(4)]
    store.add_outcomes(days)
    store.apply_retention(keep)
    assert [y.id for y in store.outcomes(0, 1e11)] == ["2", "3"]
