"""Importing sampled outputs into a real store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.outputs import UNSCORED, import_outputs
from core.errors import InputError, StoreError
from core.records import OutputRecord
from sql.store import Store
from tests.collectors.intake import configured, write_lines
from tests.core.text_samples import PROSE

T0 = 1_789_999_200.0


def output(i: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"req-{i}",
        "ts": T0 + i,
        "instance": "chat-a-1:8000",
        "pool": "chat-a",
        "engine": "vllm",
        "model": "glm-5-air",
        "workload": "chat",
        "session": f"user-{i // 3}",
        "turn": i % 3,
        "prompt_tokens": 500 + i,
        "output_tokens": 90,
        "ttft_s": 0.03,
        "e2e_s": 1.5,
        "queue_s": 0.0,
        "cached_tokens": 128,
        "finish_reason": "stop",
        "accept_length": 2.7,
        "output": PROSE,
    } | more


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(f"sqlite:///{tmp_path}/g.db") as opened:
        yield opened


def run(store: Any, path: Path, tmp_path: Path, extra: str = "") -> Any:
    config, classes, roles = configured(tmp_path, extra)
    return import_outputs(store, path, classes, roles, config=config)


def all_outputs(store: Any) -> list[OutputRecord]:
    return list(store.outputs(0, 4e9))


def test_a_record_keeps_its_features_and_loses_its_text(store: Any, tmp_path: Path) -> None:
    result = run(store, write_lines(tmp_path / "o.jsonl", [output(7)]), tmp_path)
    assert (result.read, result.imported, result.bad) == (1, 1, 0)
    (r,) = all_outputs(store)
    assert (r.id, r.ts, r.admitted) == ("req-7", T0 + 7, T0 + 5.5)
    assert (r.workload_class, r.pool, r.replica, r.model) == ("chat", "chat-a", "chat-a-1", "glm-5-air")
    assert (r.turn, r.prompt_tokens, r.output_tokens, r.cached_tokens) == (1, 507, 90, 128)
    assert (r.ttft_s, r.e2e_s, r.queue_s, r.accept_length) == (0.03, 1.5, 0.0, 2.7)
    assert (r.finish_reason, r.verdict, r.text) == ("stop", "clean", None)
    assert r.features["chars"] == len(PROSE)


def test_broken_outputs_are_scored_when_they_come_in(store: Any, tmp_path: Path) -> None:
    lines = [output(0), output(1, output="!" * 400), output(2, output=""), output(3, output=None)]
    result = run(store, write_lines(tmp_path / "o.jsonl", lines), tmp_path)
    assert result.verdicts == {"clean": 1, "hard": 1, "soft": 1, UNSCORED: 1}
    by_id = {r.id: r for r in all_outputs(store)}
    assert by_id["req-1"].rules == {"char_run": 400.0}
    assert by_id["req-2"].rules == {"empty": 1.0}
    assert by_id["req-3"].features == {}


def test_importing_twice_adds_nothing_and_a_grown_file_goes_on(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "o.jsonl", map(output, range(40)))
    assert run(store, path, tmp_path).imported == 40
    again = run(store, path, tmp_path)
    assert (again.read, again.imported, again.resumed_at) == (0, 0, 40)
    write_lines(path, map(output, range(40, 55)))
    more = run(store, path, tmp_path)
    assert (more.read, more.imported) == (15, 15)
    assert len(all_outputs(store)) == 55


def test_ids_are_imported_once_whatever_file_they_come_in(store: Any, tmp_path: Path) -> None:
    run(store, write_lines(tmp_path / "a.jsonl", map(output, range(10))), tmp_path)
    result = run(store, write_lines(tmp_path / "b.jsonl", map(output, range(5, 15))), tmp_path)
    assert (result.imported, result.known) == (5, 5)
    assert len(all_outputs(store)) == 15


def test_bad_lines_are_problems_with_numbers_and_never_stop_the_rest(store: Any, tmp_path: Path) -> None:
    lines: list[Any] = [
        output(0),
        "not json at all, secret-token-123",
        "[1, 2]",
        "",
        output(1) | {"id": None},
        {"id": "x"},
        output(2, ts="yesterday"),
        output(3, ts=1789999200000),
        output(4, prompt_tokens="many"),
        output(5, ttft_s=True),
        output(6, output={"a": 1}),
        output(7, accept_length=1e300),
        json.dumps(output(8)).replace("2.7", "NaN"),
        output(9, session={"a": 1}),
        output(10, turn=1.5),
        b'{"id": "\xff\xfe"}',
        output(11, model="m" * 5000),
        output(12),
    ]
    result = run(store, write_lines(tmp_path / "o.jsonl", lines), tmp_path)
    assert (result.read, result.imported, result.blank, result.bad) == (18, 2, 1, 15)
    assert {r.id for r in all_outputs(store)} == {"req-0", "req-12"}
    codes = {p.code for p in result.problems}
    assert codes == {"not_json", "not_an_object", "no_id", "no_time", "bad_time", "bad_value"}
    not_json = next(p for p in result.problems if p.code == "not_json")
    assert not_json.count == 3
    assert not_json.message == "lines 2, 13, 16: is not JSON"
    stored = store.problems()
    assert sum(p.count for p in stored) == 15
    assert all(p.fix for p in result.problems)
    assert "secret" not in repr(stored) + repr(result)


def test_sentinels_below_zero_are_unknown_not_zero(store: Any, tmp_path: Path) -> None:
    run(
        store,
        write_lines(tmp_path / "o.jsonl", [output(0, ttft_s=-1, cached_tokens=-1, e2e_s=None)]),
        tmp_path,
    )
    (r,) = all_outputs(store)
    assert (r.ttft_s, r.cached_tokens, r.e2e_s, r.admitted) == (None, None, None, r.ts)


def test_a_last_line_still_being_written_is_read_when_it_is_whole(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "o.jsonl", [output(0)])
    whole = json.dumps(output(1)).encode()
    with path.open("ab") as file:
        file.write(whole[:50])
    first = run(store, path, tmp_path)
    assert (first.imported, [p.code for p in first.problems]) == (1, ["cut_off"])
    with path.open("ab") as file:
        file.write(whole[50:])
    assert run(store, path, tmp_path).imported == 1
    with path.open("ab") as file:
        file.write(b"\n" + json.dumps(output(2)).encode() + b"\n")
    assert run(store, path, tmp_path).imported == 1
    assert len(all_outputs(store)) == 3


def test_text_is_kept_only_if_configured_and_capped(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "o.jsonl", [output(0, output="abc\x00" + PROSE)])
    run(store, path, tmp_path, "outputs: {store_text: true, text_cap: 10}\n")
    assert all_outputs(store)[0].text == "abc\ufffd" + PROSE[:6]


def test_sessions_and_tenants_are_pseudonyms_that_stay_the_same(store: Any, tmp_path: Path) -> None:
    run(
        store,
        write_lines(tmp_path / "a.jsonl", [output(0, tenant="acme"), output(1, tenant="globex")]),
        tmp_path,
    )
    run(store, write_lines(tmp_path / "b.jsonl", [output(3, session="user-0", tenant="acme")]), tmp_path)
    a, b, c = all_outputs(store)
    assert a.session == b.session == c.session != ""
    assert a.tenant == c.tenant != b.tenant
    raw = (tmp_path / "g.db").read_bytes() + b"".join(p.read_bytes() for p in tmp_path.glob("g.db-wal"))
    assert b"user-0" not in raw
    assert b"acme" not in raw


def test_pseudonyms_of_two_databases_differ(tmp_path: Path) -> None:
    seen = set()
    for name in ("one", "two"):
        with Store.open(f"sqlite:///{tmp_path}/{name}.db") as store:
            run(store, write_lines(tmp_path / f"{name}.jsonl", [output(0)]), tmp_path)
            seen.add(all_outputs(store)[0].session)
    assert len(seen) == 2


def test_classes_follow_the_rules_then_the_record_then_nothing(store: Any, tmp_path: Path) -> None:
    lines = [
        output(0, workload="x", pool="coder-a"),
        output(1, workload="x", pool="p", **{"class": "search"}),
        output(2, workload="x", pool="p"),
    ]
    run(store, write_lines(tmp_path / "o.jsonl", lines), tmp_path)
    assert [r.workload_class for r in all_outputs(store)] == ["coding-agent", "search", "unclassified"]


def test_prompt_tools_and_content_parts_reach_the_rules_and_are_not_stored(
    store: Any, tmp_path: Path
) -> None:
    line = "This is the line that was asked for many times. "
    tools = [
        {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "required": ["c"]}}}
    ]
    lines = [
        output(0, output=line * 20, prompt="Repeat the line 20 times"),
        output(1, output=line * 20),
        output(2, output=None, tool_calls=[{"function": {"name": "run", "arguments": "{}"}}], tools=tools),
        output(3, output="{", structured=True),
        output(
            4,
            output=[
                {"type": "text", "text": "!" * 40},
                {"type": "image"},
                {"type": "text", "text": "!" * 60},
            ],
        ),
    ]
    run(store, write_lines(tmp_path / "o.jsonl", lines), tmp_path)
    asked, looped, call, cut, parts = all_outputs(store)
    assert "loop_asked" in asked.rules
    assert looped.verdict == "hard"
    assert call.rules == {"tool_schema": 1.0}
    assert cut.rules == {"not_json": 1.0}
    assert parts.rules == {"char_run": 100.0}
    assert b"Repeat the line" not in b"".join(p.read_bytes() for p in tmp_path.glob("g.db*"))


def test_a_stop_in_the_middle_loses_and_doubles_nothing(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.outputs.BATCH", 10)
    path = write_lines(tmp_path / "o.jsonl", map(output, range(95)))
    real, calls = store.add_outputs, []

    def failing(records: Any, *, cursor: Any = None) -> int:
        calls.append(len(records))
        if len(calls) == 4:
            raise StoreError("database away")
        return int(real(records, cursor=cursor))

    monkeypatch.setattr(store, "add_outputs", failing)
    with pytest.raises(StoreError):
        run(store, path, tmp_path)
    monkeypatch.setattr(store, "add_outputs", real)
    assert len(all_outputs(store)) == 30
    rest = run(store, path, tmp_path)
    assert (rest.resumed_at, rest.imported) == (30, 65)
    assert len(all_outputs(store)) == 95


def test_a_missing_file_is_an_input_error(store: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: no such file or directory\. Fix:"):
        run(store, tmp_path / "none.jsonl", tmp_path)


def test_progress_ends_at_the_size_of_the_file(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "o.jsonl", map(output, range(3)))
    config, classes, roles = configured(tmp_path)
    seen: list[tuple[float, float]] = []
    import_outputs(store, path, classes, roles, config=config, progress=lambda d, t, _: seen.append((d, t)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


@pytest.mark.shared
def test_a_labelled_history_shows_its_broken_replica_and_nothing_else(
    store: Any, tmp_path: Path, scenario: Callable[[str], Any]
) -> None:
    history = scenario("garble_replica-11")
    config, classes, roles = configured(tmp_path)
    result = import_outputs(store, history.requests, classes, roles, config=config)
    assert result.read == result.imported > 50_000
    fault = history.truth["incidents"][0]
    hit = [r for r in all_outputs(store) if r.verdict == "hard"]
    inside = [r for r in hit if r.replica in fault["replicas"] and r.admitted >= fault["start"]]
    outside = [r for r in hit if r not in inside]
    assert len(inside) > 100
    assert len(outside) < 6e-4 * result.read
    garbled = [r.accept_length for r in inside if r.accept_length is not None and r.accept_length < 1.5]
    assert len(garbled) >= 0.97 * len(inside)
