"""Numbers that stand still: a wedged engine, or an exposition that repeats itself while answers go out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.records import OutputRecord
from detectors.believable import still_answering, still_for
from detectors.contract import Context
from detectors.samples import Samples
from detectors.window import Window
from tests.detectors.fleet import CONTEXT, STEP, History, after, cube_of, history, on, run

FROZEN = {"frozen": True, "running": 6.0, "waiting": 3.0, "kv": 0.3}


def answers(h: History, replica: str, since: float, every: float) -> History:
    """The history with sampled answers of a replica from ``since`` (minutes) on, one each ``every`` seconds."""
    times = np.arange(h.end - h.minutes * 60 + since * 60, h.end, every)
    more = [
        OutputRecord(
            f"x{t:.0f}", float(t), float(t) - 3.0, "chat", pool="a", replica=replica, session=f"s{t:.0f}"
        )
        for t in times
    ]
    return replace(h, outputs=[*h.outputs, *more])


def test_a_replica_whose_answers_keep_coming_is_not_wedged_but_its_telemetry_is_stale() -> None:
    h = answers(history(50, fault=on(("a-1",), 40, **FROZEN)), "a-1", 0, 5.0)
    r = run(h)
    assert r.kinds == []
    (told,) = [t.incident for t in r.fold.tracker.tracked.values()]
    assert (told.kind, told.severity, told.replicas) == ("telemetry_fault", "info", ("a-1",))
    assert "stale" in told.title


def test_a_replica_without_answers_is_wedged() -> None:
    h = answers(history(50, fault=on(("a-1",), 40, **FROZEN)), "a-0", 0, 5.0)
    assert run(h).kinds == ["wedged"]


def test_what_was_under_way_when_the_numbers_stopped_proves_nothing() -> None:
    h = history(50, fault=on(("a-1",), 40, **FROZEN))
    h = replace(h, outputs=[o for o in answers(h, "a-1", 0, 5.0).outputs if o.ts < h.end - 600 + 25])
    assert run(h).kinds == ["wedged"]


def test_a_whole_pool_unseen_for_five_minutes_is_a_ticket_and_a_short_gap_is_not() -> None:
    gap = lambda m, name, n: replace(n, up=not 40 <= m < 43)  # noqa: E731
    assert run(history(60, fault=gap)).kinds == []
    assert run(history(60, fault=after(40, up=False))).kinds == ["telemetry_fault"]


def test_families_that_vanished_stay_missing_for_as_long_as_they_are() -> None:
    r = run(history(150, fault=after(70, missing=frozenset({"ttft_seconds", "kv_cache_usage_ratio"}))))
    (one,) = r.incidents
    assert one.incident.kind == "telemetry_fault"
    assert one.incident.state == "open"
    assert "ttft_seconds" in one.incident.title


@given(st.lists(st.sampled_from([0.0, 1.0, float("nan")]), min_size=1, max_size=30))
def test_standing_still_is_counted_back_from_the_last_movement(moves: list[float]) -> None:
    h = history(len(moves) * STEP / 60, ("a-0",))
    cube = cube_of(h)
    window = Window(cube, cube.cells, Context(), Samples.of([]))
    window.memo[("value", "generated", window.start)] = np.asarray([moves])
    window.memo[("value", "span", window.start)] = np.full((1, len(moves)), STEP)
    window.memo[("value", "restart", window.start)] = np.zeros((1, len(moves)))
    count, seconds = still_for(window, ("generated",), len(moves))
    tail = moves[::-1]
    upto = next((i for i, x in enumerate(tail) if x != 0.0), len(tail))
    assert count[0] == upto
    assert seconds[0] == upto * STEP


def test_no_numbers_and_no_answers_is_no_sign_of_life() -> None:
    cube = cube_of(history(10, ("a-0",)))
    window = Window(cube, cube.cells, CONTEXT, Samples.of([]))
    assert still_answering(window, np.asarray([300.0])).tolist() == [False]
