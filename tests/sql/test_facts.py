"""Requests, outputs, events, problems, cursors, incidents, baselines: what goes in comes out, once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.incidents import Evidence, Incident, RuledOut
from core.records import Event, OutputRecord, Problem, RequestRecord
from core.requests import RequestCell, RequestKey, add_cells, fine_edges, fold
from sql.store import Store

M = 1_790_000_040.0
EDGES = fine_edges([5.0])


def attempts(first: int, n: int) -> list[RequestRecord]:
    return [
        RequestRecord(
            ts=M + i,
            status=499 if i % 7 == 0 else 200,
            workload_class="chat" if i % 2 else "batch",
            duration_s=0.5 + i,
            ttft_s=None if i % 7 == 0 else 0.01 * i + 0.02,
            prompt_tokens=i * 300,
            output_tokens=i,
            tenant=f"t{i % 3}",
            pool="p",
        )
        for i in range(first, first + n)
    ]


def plain(
    cells: dict[RequestKey, RequestCell] | list[tuple[RequestKey, RequestCell]],
) -> dict[RequestKey, object]:
    pairs = cells.items() if isinstance(cells, dict) else cells
    return {
        k: (
            c.n,
            c.prompt_tokens,
            c.output_tokens,
            *(h[1].tolist() for h in (c.ttft, c.age, c.duration)),
            round(c.ttft_sum, 6),
            round(c.duration_sum, 6),
            c.edges,
        )
        for k, c in pairs
    }


def test_request_cells_add_up_over_calls(store: Store) -> None:
    a, b = fold(attempts(0, 150), EDGES), fold(attempts(100, 150), EDGES)
    store.add_requests(a, cursor=("requests:x", "150"))
    store.add_requests(b, cursor=("requests:x", "300"))
    whole = dict(a)
    add_cells(whole, b)
    assert plain(store.request_cells(0, 1e11)) == plain(whole)
    assert store.get_cursor("requests:x") == "300"


def test_cells_are_refused_where_somebody_else_moved_the_cursor(store: Store) -> None:
    cells = fold(attempts(0, 10), EDGES)
    assert store.add_requests(cells, cursor=("requests:x", "10"), expected=None)
    for stale in (None, "5"):
        assert not store.add_requests(cells, cursor=("requests:x", "20"), expected=stale)
    assert sum(c.n for _, c in store.request_cells(0, 1e11)) == 10
    assert store.get_cursor("requests:x") == "10"
    assert store.add_requests(cells, cursor=("requests:x", "20"), expected="10")
    assert sum(c.n for _, c in store.request_cells(0, 1e11)) == 20


def test_request_cells_of_other_edges_stay_apart(store: Store) -> None:
    store.add_requests(fold(attempts(0, 10), EDGES))
    store.add_requests(fold(attempts(0, 10), fine_edges([7.0])))
    cells = store.request_cells(0, 1e11)
    assert sum(c.n for _, c in cells) == 20
    assert {c.edges for _, c in cells} == {EDGES, fine_edges([7.0])}


def test_request_cells_are_selected_by_minute_class_pool_and_point(store: Store) -> None:
    store.add_requests(fold(attempts(0, 150), EDGES))
    assert {k.minute for k, _ in store.request_cells(M + 60, M + 120)} == {int(M) + 60}
    assert {k.class_ for k, _ in store.request_cells(0, 1e11, classes=["chat"])} == {"chat"}
    assert store.request_cells(0, 1e11, points=["client"]) == []
    assert store.request_cells(0, 1e11, pools=["other"]) == []


OUTPUT = OutputRecord(
    id="a",
    ts=M + 5,
    admitted=M,
    workload_class="chat",
    pool="p",
    replica="r1",
    session="s",
    turn=3,
    prompt_tokens=10,
    e2e_s=5.0,
    verdict="hard",
    rules={"loop": 12.0},
    features={"n": 3.5},
    text="héllo \x00".replace("\x00", "·"),
)


def test_an_output_comes_back_as_it_was_and_only_once(store: Store) -> None:
    assert store.add_outputs([OUTPUT, replace(OUTPUT, id="b", ts=M + 1)], cursor=("outputs", "2")) == 2
    assert store.add_outputs([OUTPUT, replace(OUTPUT, id="c", ts=M + 9, verdict="clean"), OUTPUT]) == 1
    assert [o.id for o in store.outputs(M, M + 100)] == ["b", "a", "c"]
    assert store.outputs(M + 5, M + 6) == [OUTPUT]
    assert [o.id for o in store.outputs(0, 1e11, verdicts=["clean"])] == ["c"]
    assert store.outputs(0, 1e11, pools=["q"]) == []
    assert store.get_cursor("outputs") == "2"


def test_text_with_a_nul_or_a_lone_surrogate_costs_only_that_character(store: Store) -> None:
    odd = replace(OUTPUT, id="\x00x", session="a\ud800b", text="a\x00b", rules={"r\x00": 1.0})
    assert store.add_outputs([odd]) == 1
    (back,) = store.outputs(0, 1e11)
    assert (back.id, back.session, back.text) == ("\ufffdx", "a\ufffdb", "a\ufffdb")
    assert list(back.rules) == ["r\ufffd"]


def test_more_outputs_than_the_parameters_of_one_statement(store: Store) -> None:
    many = [replace(OUTPUT, id=str(i), ts=M + i) for i in range(2500)]
    assert store.add_outputs(many) == 2500
    assert store.add_outputs(many) == 0
    assert len(store.outputs(0, 1e11)) == 2500


def test_an_event_is_kept_once(store: Store) -> None:
    deploy = Event(M, "deploy", "v2", pool="p", data={"commit": "abc", "n": np.int64(3)})
    note = Event(M + 60, "note", "hm")
    assert store.add_events([deploy, note]) == 2
    assert store.add_events([deploy]) == 0
    back = store.events()
    assert [(e.kind, e.text) for e in back] == [("deploy", "v2"), ("note", "hm")]
    assert back[0].data == {"commit": "abc", "n": 3}
    assert [e.kind for e in store.events(M + 1)] == ["note"]
    assert [e.kind for e in store.events(kinds=["deploy"])] == ["deploy"]
    assert [e.kind for e in store.events(pools=["q"])] == ["note"]


def test_problems_of_one_kind_are_counted(store: Store) -> None:
    store.add_problems(
        [Problem(M, "prom", "bad_line", "x", "first"), Problem(M + 9, "prom", "bad_line", "x", "last")]
    )
    store.add_problems([Problem(M + 5, "prom", "bad_line", "x", "middle", count=10)])
    store.add_problems([Problem(M + 1, "prom", "bad_line", "y", "other", fix="do")])
    x, y = store.problems()
    assert (x.subject, x.message, x.count, x.ts) == ("x", "last", 12, M + 9)
    assert (y.fix, y.count) == ("do", 1)
    assert [p.subject for p in store.problems(since=M + 2)] == ["x"]
    assert store.problem_history()[0][1] == M


def test_a_cursor_is_replaced(store: Store) -> None:
    assert store.get_cursor("a") is None
    store.set_cursor("a", "1")
    store.set_cursor("a", "2")
    assert store.get_cursor("a") == "2"


INCIDENT = Incident(
    "i1",
    "wedged",
    "page",
    "open",
    "stuck",
    M,
    detected_at=M + 60,
    pools=("p",),
    replicas=("r1", "r2"),
    evidence=(Evidence("kv_cache_usage_ratio", "r1", 0.4, float("nan"), at=M),),
    ruled_out=(RuledOut("traffic_shift", "arrivals", "flat"),),
    detail={"x": (1, 2), "n": np.float64(2.5)},
    updated_at=M + 60,
)


def test_an_incident_comes_back_and_is_replaced(store: Store) -> None:
    store.save_incident(INCIDENT)
    back = store.incident("i1")
    assert back is not None
    assert back.as_json() | {"evidence": [], "detail": {}} == INCIDENT.as_json() | {
        "evidence": [],
        "detail": {},
    }
    assert (back.evidence[0].before, back.evidence[0].now) == (0.4, None)
    assert back.detail == {"x": [1, 2], "n": 2.5}
    assert back.load_correlated is None
    store.save_incident(replace(INCIDENT, state="resolved", ended_at=M + 600, load_correlated=np.bool_(True)))
    after = store.incident("i1")
    assert after is not None
    assert (after.state, after.ended_at, after.load_correlated) == ("resolved", M + 600, True)
    assert store.incident("none") is None


def test_incidents_are_selected_by_what_they_touch(store: Store) -> None:
    store.save_incidents(
        [
            INCIDENT,
            replace(INCIDENT, id="i2", state="resolved", started_at=M - 100, ended_at=M - 50),
            replace(INCIDENT, id="i3", kind="slo_burn", started_at=M + 500),
        ]
    )
    assert [i.id for i in store.incidents()] == ["i2", "i1", "i3"]
    assert [i.id for i in store.incidents(M, M + 100)] == ["i1"]
    assert [i.id for i in store.incidents(end=M)] == ["i2"]
    assert [i.id for i in store.incidents(open_only=True)] == ["i1", "i3"]
    assert [i.id for i in store.incidents(kinds=["slo_burn"])] == ["i3"]


def test_the_log_of_an_incident_only_grows(store: Store) -> None:
    assert store.log_incident("i1", M, "opened") == 1
    assert store.log_incident("i1", M + 5, "note", "looks like X", "ann") == 2
    assert store.log_incident("i2", M, "opened") == 1
    assert [(e.seq, e.action, e.text, e.who) for e in store.incident_log("i1")] == [
        (1, "opened", "", ""),
        (2, "note", "looks like X", "ann"),
    ]


def test_a_baseline_is_never_newer_than_asked(store: Store) -> None:
    store.save_baseline("d", "p/r", M, b"one")
    store.save_baseline("d", "p/r", M + 100, b"two")
    assert store.baseline("d", "p/r", M - 1) is None
    assert store.baseline("d", "p/r", M + 99) == b"one"
    assert store.baseline("d", "p/r", M + 100) == b"two"
    store.save_baseline("d", "p/r", M, b"one again")
    assert store.baseline("d", "p/r", M) == b"one again"


def test_detector_state_is_replaced(store: Store) -> None:
    assert store.load_state("d") is None
    store.save_state("d", b"\x00\x01")
    store.save_state("d", b"\x02")
    assert store.load_state("d") == b"\x02"
