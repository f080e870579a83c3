"""The gateway's minutes as detectors see them: whole ones only, unknown is not quiet, memory is bounded."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from core.requests import RequestCount
from detectors import attempts
from detectors.attempts import FAILED, OK, Attempts
from detectors.facts import Facts, latest, note

T0 = 1_790_000_040
EDGES = (0.5, 1.0, 2.0)


def row(minute: int, n: int = 10, status: int = 200, **more: object) -> RequestCount:
    """Attempts of one minute after T0."""
    known = {
        "point": "gateway",
        "class_": "chat",
        "tenant": "acme",
        "pool": "a",
        "prompt_tokens": 100 * n,
        "output_tokens": 10 * n,
        "ttft_sum": 0.3 * n,
        "duration_sum": 2.0 * n,
        "edges": EDGES,
        "ttft": {0: n},
    } | more
    return RequestCount(minute=T0 // 60 * 60 + 60 * minute, status=status, n=n, **known)  # type: ignore[arg-type]


def book(rows: list[RequestCount], minutes: int = 10, **more: object) -> Attempts:
    """All of the first minutes."""
    a = Attempts(T0, **more)  # type: ignore[arg-type]
    a.add(rows, a.first * 60, (a.first + minutes) * 60)
    return a


def test_a_minute_counts_only_when_it_is_over() -> None:
    a = book([row(m) for m in range(10)])
    begin = a.first * 60
    assert a.upto(begin + 179).count("a", 5).tolist() == [10, 10]
    assert a.upto(begin + 180).count("a", 5).tolist() == [10, 10, 10]


def test_a_minute_without_any_line_is_unknown_and_one_without_failures_is_zero() -> None:
    view = book([row(0), row(2)], 3).upto(T0 + 3600)
    assert np.isnan(view.count("a", 3)).tolist() == [False, True, False]
    assert not view.known("a", 3)
    assert view.known("a", 1)
    assert view.count("a", 1, FAILED).tolist() == [0.0]


def test_statuses_tenants_and_late_first_tokens_are_counted_apart() -> None:
    rows = [row(0, 7), row(0, 2, 502, ttft={}), row(0, 3, tenant="globex", ttft={2: 1, 3: 2})]
    view = book(rows, 1, thresholds={"chat": 1.0}).upto(T0 + 3600)
    assert view.count("a", 1, OK).tolist() == [10]
    assert view.count("a", 1, FAILED).tolist() == [2]
    assert view.by_status("a", 1) == {200: 10, 502: 2}
    assert view.total("a", "late", 1).tolist() == [3], "beyond 1 s: buckets 1-2 s and over 2 s"
    assert view.total("a", "ttft_n", 1).tolist() == [10]
    assert view.tenants("a", "chat") == ("acme", "globex")
    assert view.tenant("a", "chat", "acme", 1, "failed").tolist() == [2]


def test_reading_a_minute_again_replaces_it() -> None:
    a = book([row(0), row(1)], 2)
    a.add([row(1, 25)], (a.first + 1) * 60, (a.first + 2) * 60)
    assert a.upto(T0 + 3600).count("a", 2).tolist() == [10, 25]


def test_a_log_without_pools_is_read_by_class_and_one_point_is_chosen() -> None:
    a = Attempts(T0)
    rows = [row(0, pool=""), row(0, 99, point="router", pool="")]
    a.add(rows, a.first * 60, (a.first + 1) * 60, {"chat": "b"})
    assert a.upto(T0 + 3600).count("b", 1).tolist() == [10]


def test_old_minutes_are_forgotten_and_the_rest_stays_where_it_was() -> None:
    a = Attempts(T0, depth=600)
    begin = a.first * 60
    for m in range(100):
        a.add([row(m, m + 1)], begin + m * 60, begin + (m + 1) * 60)
    assert a._sums.data.shape[1] <= 512
    assert a.upto(begin + 6000).count("a", 3).tolist() == [98, 99, 100]


def test_tenants_without_number_become_other(monkeypatch: object) -> None:
    setattr(attempts, "MOST_TENANTS", 3)  # noqa: B010
    try:
        view = book([row(0, 1, tenant=f"t{i}") for i in range(50)], 1).upto(T0 + 3600)
    finally:
        setattr(attempts, "MOST_TENANTS", 4000)  # noqa: B010
    assert "other" in view.tenants("a", "chat")
    assert len(view.tenants("a", "chat")) <= 5
    assert view.count("a", 1).tolist() == [50]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 500), st.sampled_from([200, 429, 499, 500])), max_size=40
    )
)
def test_all_attempts_are_counted_once_whatever_their_order(cells: list[tuple[int, int, int]]) -> None:
    rows = [row(m, n, s, ttft={0: n}) for m, n, s in cells]
    view = book(rows).upto(T0 + 3600)
    assert np.nansum(view.count("a", 10)) == sum(n for _, n, _ in cells)
    assert sum(view.by_status("a", 10).values()) == sum(n for _, n, _ in cells)


def test_facts_hold_from_the_start_of_the_process_that_said_them() -> None:
    history: list[Facts] = []
    note(history, Facts(100.0, version="1"))
    note(history, Facts(200.0, version="1"))
    note(history, Facts(500.0, version="2"))
    assert latest(history, 99.0) is None
    assert [f.version for t in (100.0, 499.0, 500.0) if (f := latest(history, t))] == ["1", "1", "2"]
    assert history[0].since == 100.0, "the same words again are no change"
