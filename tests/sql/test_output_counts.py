"""Outputs counted by what they share: always what the rows say, however they came and went."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from core.records import OutputRecord
from sql.output_counts import BIN, KEYS, SUMS, OutputCount, fill
from sql.store import Store

T0 = 1_790_000_100.0


def made(count: int, seed: int = 1) -> list[OutputRecord]:
    """Outputs of every sort over two hours."""
    r = random.Random(seed)
    out = []
    for i in range(count):
        ts = T0 + r.uniform(0, 7200)
        e2e = r.choice([None, r.uniform(0.1, 40)])
        out.append(
            OutputRecord(
                f"{seed}-{i}",
                ts,
                ts - (e2e or 0.0),
                r.choice(["chat", "batch"]),
                pool=r.choice(["a", "b"]),
                replica=r.choice(["a-0", "a-1"]),
                release=r.choice(["", "r2"]),
                tenant=r.choice(["t1", "t2"]),
                session=f"s{i // 4}",
                turn=i % 4,
                prompt_tokens=r.choice([None, 10, 1024, 8191, 40000]),
                cached_tokens=r.choice([None, 0, 900]),
                cache_source=r.choice(["", "gpu", "cpu"]),
                e2e_s=e2e,
                verdict=r.choice(["clean"] * 8 + ["hard", "soft"]),
                random=r.random() < 0.9,
                weight=r.choice([1.0, 20.0]),
                structured=r.choice([None, True, False]),
            )
        )
    return out


def counts(store: Store) -> dict[tuple[object, ...], tuple[float, ...]]:
    """All counts by key, rounded."""
    rows = store.output_counts(0.0, 1e11)
    return {r[: len(KEYS)]: tuple(round(float(x), 6) for x in r[len(KEYS) :]) for r in rows}


def recounted(store: Store) -> dict[tuple[object, ...], tuple[float, ...]]:
    """The same from the rows themselves, by the SQL that fills an old database."""
    with store.database.write() as c:
        fill(c)
    return counts(store)


def test_counts_kept_while_writing_are_those_of_the_rows(store: Store) -> None:
    store.add_outputs(made(300))
    store.add_outputs(made(300, seed=2))
    kept = counts(store)
    assert sum(v[SUMS.index("n")] + v[SUMS.index("aside")] for v in kept.values()) == 600
    assert kept == recounted(store)


def test_the_same_output_twice_counts_once(store: Store) -> None:
    store.add_outputs(made(50))
    once = counts(store)
    store.add_outputs(made(50))
    assert counts(store) == once


def test_erasing_a_tenant_takes_its_outputs_out_of_the_counts(store: Store) -> None:
    store.add_outputs(made(200))
    gone, _ = store.erase(tenant="t1")
    kept = counts(store)
    assert 0 < gone < 200
    assert sum(v[SUMS.index("n")] + v[SUMS.index("aside")] for v in kept.values()) == 200 - gone
    assert kept == recounted(store)


def test_what_was_kept_only_because_it_looks_bad_is_in_no_rate(store: Store) -> None:
    one = replace(made(1)[0], verdict="hard", random=False)
    store.add_outputs([one])
    (row,) = store.output_counts(0.0, 1e11)
    assert (row.n, row.hard, row.aside) == (0, 0, 1)
    assert [b.id for b in store.bad_outputs(0.0, 1e11)] == [one.id]


def test_bad_outputs_are_found_without_reading_the_others(store: Store) -> None:
    store.add_outputs(made(400))
    hard = store.bad_outputs(0.0, 1e11)
    both = store.bad_outputs(0.0, 1e11, soft=True)
    assert {b.verdict for b in hard} == {"hard"}
    assert {b.verdict for b in both} == {"hard", "soft"}
    assert len(hard) < len(both) < 200
    if store.database.sqlite:
        with store.database.read() as c:
            plan = c.exec_driver_sql(
                "EXPLAIN QUERY PLAN SELECT id FROM outputs WHERE verdict IN ('hard', 'soft') AND ts >= 5"
            ).all()
        assert any("ix_outputs_bad" in str(row) for row in plan), plan


@pytest.mark.parametrize(("at", "bins"), [(0.0, 1), (BIN - 0.001, 1), (BIN, 1)])
def test_an_output_counts_in_the_five_minutes_of_its_admission(store: Store, at: float, bins: int) -> None:
    first = T0 // BIN * BIN
    store.add_outputs([replace(made(1)[0], ts=first + at + 30, admitted=first + at, random=True)])
    rows: list[OutputCount] = store.output_counts(first, first + 2 * BIN)
    assert len(rows) == bins
    assert rows[0].bin == first + (BIN if at >= BIN else 0)
