"""Importing gateway logs into a real store: folded, exact, never twice."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from collectors.requests import import_requests
from core.errors import InputError, StoreError
from sql.store import Store
from tests.collectors.intake import configured, write_lines

T0 = 1_789_999_200


def attempt(i: int, **more: Any) -> dict[str, Any]:
    return {
        "ts": T0 + i * 0.5,
        "workload": "chat",
        "pool": "chat-a",
        "upstream": f"chat-a-{i % 3}:8000",
        "status": 200,
        "ttft_s": 0.1 + (i % 10) * 0.2,
        "duration_s": 2.0,
        "prompt_tokens": 500,
        "output_tokens": 100,
        "session": f"user-{i}",
    } | more


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(f"sqlite:///{tmp_path}/g.db") as opened:
        yield opened


def run(store: Any, path: Path, tmp_path: Path, **options: Any) -> Any:
    config, classes, roles = configured(tmp_path)
    return import_requests(store, path, classes, roles, config=config, **options)


def cells(store: Any) -> list[Any]:
    return list(store.request_cells(0, 4e9))


def total(store: Any) -> int:
    return sum(cell.n for _, cell in cells(store))


def test_attempts_are_counted_per_minute_class_and_status(store: Any, tmp_path: Path) -> None:
    lines = [attempt(i) for i in range(240)] + [attempt(5, status=499, ttft_s=None, duration_s=7.0)]
    result = run(store, write_lines(tmp_path / "g.jsonl", lines), tmp_path)
    assert (result.read, result.imported, result.bad) == (241, 241, 0)
    got = {(k.minute, k.class_, k.status, k.pool, k.band, k.point): c for k, c in cells(store)}
    assert set(got) == {
        (T0, "chat", 200, "chat-a", "0-1k", "gateway"),
        (T0 + 60, "chat", 200, "chat-a", "0-1k", "gateway"),
        (T0, "chat", 499, "chat-a", "0-1k", "gateway"),
    }
    cell = got[(T0, "chat", 200, "chat-a", "0-1k", "gateway")]
    assert (cell.n, cell.prompt_tokens, cell.output_tokens) == (120, 60_000, 12_000)
    assert got[(T0, "chat", 499, "chat-a", "0-1k", "gateway")].age[1].sum() == 1


def test_counts_at_a_configured_threshold_are_exact(store: Any, tmp_path: Path) -> None:
    values = [1.0999, 1.1, 1.1000001, 1.2, 0.4]
    lines = [attempt(i, ttft_s=v) for i, v in enumerate(values)]
    run(store, write_lines(tmp_path / "g.jsonl", lines), tmp_path)
    ((_, cell),) = cells(store)
    edges, counts = cell.ttft
    assert 1.1 in edges
    assert counts[: edges.index(1.1) + 1].sum() == 3


@pytest.mark.parametrize("kind", ["plain", "gz", "zst"])
def test_a_repeat_adds_nothing_and_a_grown_file_goes_on(store: Any, tmp_path: Path, kind: str) -> None:
    def save(n: int) -> Path:
        data = b"".join(json.dumps(attempt(i)).encode() + b"\n" for i in range(n))
        packed = {"plain": bytes, "gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}[kind](data)
        (tmp_path / "g.log").write_bytes(packed)
        return tmp_path / "g.log"

    assert run(store, save(100), tmp_path).imported == 100
    assert run(store, save(100), tmp_path).imported == 0
    assert total(store) == 100
    more = run(store, save(130), tmp_path)
    assert (more.resumed_at, more.imported) == (100, 30)
    assert run(store, save(90), tmp_path).imported == 0
    assert total(store) == 130


def test_the_same_log_renamed_or_compressed_is_not_counted_again(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", map(attempt, range(50)))
    run(store, path, tmp_path)
    other = tmp_path / "g.jsonl.1.gz"
    other.write_bytes(gzip.compress(path.read_bytes()))
    assert run(store, other, tmp_path).imported == 0
    assert total(store) == 50


def test_the_same_log_measured_at_another_point_is_another_log(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", map(attempt, range(5)))
    run(store, path, tmp_path)
    run(store, path, tmp_path, point="client")
    assert Counter(k.point for k, _ in cells(store)) == {"gateway": 1, "client": 1}


def test_a_stop_at_any_batch_neither_loses_nor_doubles(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.requests.BATCH", 7)
    path = write_lines(tmp_path / "g.jsonl", map(attempt, range(100)))
    real = store.add_requests
    for stop in (1, 2, 5):
        calls: list[int] = []

        def failing(new: Any, *, calls: list[int] = calls, stop: int = stop, **more: Any) -> bool:
            calls.append(1)
            if len(calls) == stop:
                raise StoreError("database away")
            return bool(real(new, **more))

        monkeypatch.setattr(store, "add_requests", failing)
        with pytest.raises(StoreError):
            run(store, path, tmp_path)
    monkeypatch.setattr(store, "add_requests", real)
    run(store, path, tmp_path)
    assert total(store) == 100


def test_two_imports_of_one_file_at_the_same_moment_count_each_line_once(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.requests.BATCH", 7)
    path = write_lines(
        tmp_path / "g.jsonl", [*map(attempt, range(50)), "nonsense", *map(attempt, range(50, 100))]
    )
    real = store.add_requests
    calls: list[int] = []

    def overtaken(new: Any, **more: Any) -> bool:
        calls.append(1)
        if (
            len(calls) == 3
        ):  # between our reading of the third batch and its commit, somebody else reads on to the end
            with Store.open(f"sqlite:///{tmp_path}/g.db") as other:
                assert run(other, path, tmp_path).imported == 100 - 2 * 7
        return bool(real(new, **more))

    monkeypatch.setattr(store, "add_requests", overtaken)
    result = run(store, path, tmp_path)
    assert (result.imported, result.read, result.bad) == (14, 14, 0)
    assert total(store) == 100
    assert [p.count for p in store.problems()] == [1]


def test_many_imports_of_one_growing_file_count_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.requests.BATCH", 3)
    url = f"sqlite:///{tmp_path}/g.db"
    path = write_lines(tmp_path / "g.jsonl", [attempt(0)])
    with Store.open(url) as one, Store.open(url) as two, ThreadPoolExecutor(3) as threads:
        grow = threads.submit(
            lambda: [write_lines(path, map(attempt, range(i, i + 5))) for i in range(1, 101, 5)]
        )
        imports = [
            threads.submit(lambda s: [run(s, path, tmp_path) for _ in range(6)], s) for s in (one, two)
        ]
        grow.result()
        counted = sum(r.imported for done in imports for r in done.result())
        counted += run(one, path, tmp_path).imported
        assert (total(one), counted) == (101, 101)


def test_duplicate_and_unordered_lines_are_attempts_like_any_other(store: Any, tmp_path: Path) -> None:
    """A gateway writes one line an attempt; two equal lines are two attempts, and they come in the order they end or not."""
    order = [5, 400, 3, 3, 399, 0]
    run(store, write_lines(tmp_path / "g.jsonl", map(attempt, order)), tmp_path)
    run(store, write_lines(tmp_path / "g.jsonl", map(attempt, [1, 3])), tmp_path)
    minutes: Counter[int] = Counter()
    for key, cell in cells(store):
        minutes[key.minute] += cell.n
    assert minutes == Counter(int((T0 + i * 0.5) // 60) * 60 for i in [*order, 1, 3])


def test_bad_lines_are_skipped_with_a_reason(store: Any, tmp_path: Path) -> None:
    lines: list[Any] = [
        attempt(0),
        "{",
        attempt(1, status=None),
        attempt(2, status="ok"),
        attempt(3, status=99999),
        attempt(4, ts=None),
        attempt(5, ts=-5),
        attempt(6, duration_s="long"),
        attempt(7, pool=["a"]),
        attempt(8, status="503", ttft_s=None),
        attempt(9, ts="2026-09-21T14:00:09Z"),
        attempt(10, ttft_s=-1, duration_s=3.0),
    ]
    result = run(store, write_lines(tmp_path / "g.jsonl", lines), tmp_path)
    assert (result.imported, result.bad) == (4, 8)
    assert {p.code for p in result.problems} == {"not_json", "no_status", "bad_value", "no_time", "bad_time"}
    assert {k.status for k, _ in cells(store)} == {200, 503}
    assert total(store) == 4


def test_tenants_are_pseudonyms_and_bounded(store: Any, tmp_path: Path) -> None:
    config, classes, roles = configured(tmp_path, "limits: {tenants: 5}\n")
    path = write_lines(tmp_path / "g.jsonl", [attempt(i, tenant=f"corp-{i}") for i in range(20)])
    import_requests(store, path, classes, roles, config=config)
    tenants = Counter(k.tenant for k, c in cells(store) for _ in range(c.n))
    assert len(tenants) == 6
    assert tenants["other"] == 15
    assert not any("corp" in t for t in tenants)


def test_broken_compression_keeps_what_came_before(store: Any, tmp_path: Path) -> None:
    data = b"".join(json.dumps(attempt(i, session=str(np.pi * i))).encode() + b"\n" for i in range(20_000))
    whole = gzip.compress(data)
    (tmp_path / "g.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="broken or cut off"):
        run(store, tmp_path / "g.gz", tmp_path)
    kept = total(store)
    assert 1000 < kept < 20_000
    (tmp_path / "g.gz").write_bytes(whole)
    run(store, tmp_path / "g.gz", tmp_path)
    assert total(store) == 20_000


@pytest.mark.shared
def test_a_labelled_gateway_log_is_counted_line_by_line(
    store: Any, tmp_path: Path, scenario: Callable[[str], Any]
) -> None:
    history = scenario("overload-11")
    config, classes, roles = configured(tmp_path)
    result = import_requests(store, history.gateway, classes, roles, config=config)
    with history.gateway.open("rb") as packed:
        raw = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed).read()
    records = [json.loads(line) for line in raw.splitlines()]
    assert result.imported == len(records) == total(store)
    by_status: Counter[int] = Counter()
    within = 0
    for k, c in cells(store):
        by_status[k.status] += c.n
        if k.class_ == "chat":
            edges, counts = c.ttft
            within += int(counts[: edges.index(1.1) + 1].sum())
    assert by_status == Counter(r["status"] for r in records)
    chat = [r for r in records if r["workload"] == "chat" and r["ttft_s"] is not None]
    assert within == sum(r["ttft_s"] <= 1.1 for r in chat)


def test_a_line_from_the_future_is_refused_by_name(store: Any, tmp_path: Path) -> None:
    lines = [
        attempt(0),
        attempt(1, ts=time.time() + 2 * 86_400),
        attempt(2, ts="2096-10-02T07:06:40Z"),
        attempt(3),
    ]
    result = run(store, write_lines(tmp_path / "g.jsonl", lines), tmp_path)
    assert (result.imported, result.bad) == (2, 2)
    assert [(p.code, p.count) for p in result.problems] == [("future_time", 2)]
    assert result.last < time.time()
