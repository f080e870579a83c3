"""The spool: order, bounds, crashes, damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.spool import Spool, open_spool, pack_batch, unpack_batch
from core.frames import Layout, Reading, Target, column

LAYOUT = Layout(
    (column("queue"), column("tokens", "counter"), column("ttft", "histogram", (0.1, 1.0), class_="chat"))
)


def reading(t: float, address: str = "a:1", up: bool = True) -> Reading:
    target = Target(address, pool="p", components=("vllm",), labels={"zone": "ü"})
    if not up:
        return Reading(target, t, Layout(()), np.empty(0), np.empty(0, np.int64), np.empty(0), up=False)
    return Reading(
        target, t, LAYOUT, np.array([np.nan]), np.array([7, 1, 2, 2**62]), np.array([0.1 + t]), start=12.5
    )


def same(a: Reading, b: Reading) -> bool:
    return (
        (a.target, a.t, a.layout, a.start, a.up) == (b.target, b.t, b.layout, b.start, b.up)
        and np.array_equal(a.gauges, b.gauges, equal_nan=True)
        and np.array_equal(a.counts, b.counts)
        and np.array_equal(a.sums, b.sums)
    )


def drain(spool: Spool) -> list[float]:
    out: list[float] = []
    while (batch := spool.peek()) is not None:
        out += [r.t for r in batch]
        spool.pop()
    return out


def test_a_batch_comes_back_exactly() -> None:
    batch = [reading(1.25), reading(2.5, "b:2"), reading(3.0, up=False)]
    got = unpack_batch(pack_batch(batch))
    assert len(got) == 3
    assert all(map(same, batch, got))


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack_batch(data)


def test_batches_come_back_in_order_across_segments_and_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", segment_bytes=2000)
    for t in range(30):
        spool.put([reading(float(t)), reading(t + 0.5)])
    assert len(list((tmp_path / "s").iterdir())) > 3
    assert spool.peek() is not None
    spool.pop()
    again = Spool(tmp_path / "s", segment_bytes=2000)
    assert again
    # The batch that was popped from a segment still on disk may come again: the store knows it already.
    times = drain(again)
    assert times[-58:] == [t / 2 for t in range(2, 60)]
    assert times == sorted(times)
    assert not again
    assert list((tmp_path / "s").iterdir()) == []


def test_writing_goes_on_while_replaying(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    spool.put([reading(1)])
    spool.put([reading(2)])
    assert [r.t for r in spool.peek() or []] == [1]
    spool.pop()
    spool.put([reading(3)])
    assert drain(spool) == [2, 3]
    spool.put([reading(4)])
    assert drain(spool) == [4]


def test_a_full_spool_gives_up_the_oldest_and_counts_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", max_bytes=6000, segment_bytes=1500)
    for t in range(100):
        spool.put([reading(float(t))])
        assert sum(p.stat().st_size for p in (tmp_path / "s").iterdir()) <= 6000
    kept = drain(spool)
    assert kept == [float(t) for t in range(100 - len(kept), 100)]
    assert 0 < len(kept) < 100
    assert spool.dropped == 100 - len(kept)


def test_a_record_cut_off_by_a_crash_costs_only_itself(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    for t in range(3):
        spool.put([reading(float(t))])
    (segment,) = (tmp_path / "s").iterdir()
    segment.write_bytes(segment.read_bytes()[:-5])
    again = Spool(tmp_path / "s")
    again.put([reading(9)])
    assert drain(again) == [0, 1, 9]
    assert again.damaged == 1


def test_damage_in_the_middle_never_yields_wrong_numbers(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", segment_bytes=1)
    for t in range(3):
        spool.put([reading(float(t))])
    second = sorted((tmp_path / "s").iterdir())[1]
    raw = bytearray(second.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    second.write_bytes(raw)
    again = Spool(tmp_path / "s")
    assert drain(again) == [0, 2]
    assert again.damaged == 1


def test_two_collectors_never_share_a_spool(tmp_path: Path) -> None:
    first, lock = open_spool(tmp_path / "s")
    second, lock2 = open_spool(tmp_path / "s")
    assert first.folder != second.folder
    lock.close()
    third, lock3 = open_spool(tmp_path / "s")
    assert third.folder == first.folder
    lock2.close()
    lock3.close()
