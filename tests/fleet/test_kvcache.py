"""The cache of extents behaves as single blocks with LRU and tail-first eviction would."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.kvcache import Chain, KVCache

SHARED = 3


class Blocks:
    """The same memory block by block, as vLLM keeps it: a queue of free blocks, reused from its head."""

    def __init__(self, total: int) -> None:
        self.empty = total
        self.queue: OrderedDict[tuple[object, int], None] = OrderedDict()

    def request(self, wanted: list[tuple[object, int]]) -> int:
        hits = 0
        while hits < len(wanted) and wanted[hits] in self.queue:
            hits += 1
        for block in wanted[:hits]:
            del self.queue[block]
        for block in wanted[hits:]:
            self.queue.pop(block, None)  # a later copy behind a hole is of no use and is overwritten
        for _ in wanted[hits:]:
            if self.empty:
                self.empty -= 1
            else:
                self.queue.popitem(last=False)
        for block in reversed(wanted):
            self.queue[block] = None
        return hits


def serve(cache: KVCache, chain: Chain, now: float) -> int:
    total = sum(n for _, n in chain)
    hits, _ = cache.match(chain)
    held = cache.pin(chain, hits, now)
    assert cache.allocate(total - hits, now)
    own, held = cache.store(chain, total, total - hits, held, now)
    cache.check()
    cache.unpin(held, now)
    cache.release(own)
    cache.check()
    return hits


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=60), st.integers(24, 60))
def test_extents_hit_as_often_as_single_blocks_do(turns: list[tuple[int, int]], total: int) -> None:
    cache, blocks = KVCache(total), Blocks(total)
    length = dict.fromkeys(range(6), 1)
    for now, (session, more) in enumerate(turns):
        length[session] = min(length[session] + more, 20)
        chain: Chain = (("shared", SHARED), (session, length[session]))
        wanted: list[tuple[object, int]] = [("shared", i) for i in range(SHARED)]
        wanted += [(session, i) for i in range(length[session])]
        assert serve(cache, chain, float(now)) == blocks.request(wanted)


def test_the_tail_of_the_oldest_session_goes_first_and_the_shared_prompt_last() -> None:
    cache = KVCache(20)
    serve(cache, (("shared", 4), ("old", 8)), 0.0)
    serve(cache, (("shared", 4), ("new", 6)), 1.0)
    assert cache.allocate(5, 2.0)  # two are free, three have to go
    assert cache.evicted == 3
    assert cache.match((("shared", 4), ("old", 8))) == (9, 0)
    assert cache.match((("shared", 4), ("new", 6))) == (10, 0)


def test_pinned_blocks_are_never_evicted() -> None:
    cache = KVCache(10)
    serve(cache, (("a", 6),), 0.0)
    held = cache.pin((("a", 6),), 6, 1.0)
    assert cache.available == 4
    assert not cache.fits((("b", 5),), 0, 5)
    assert not cache.allocate(5, 1.0)
    cache.unpin(held, 1.0)
    assert cache.allocate(5, 1.0)
    cache.check()


def test_a_prompt_that_uses_cached_blocks_cannot_evict_them_to_make_room_for_itself() -> None:
    cache = KVCache(10)
    serve(cache, (("a", 6),), 0.0)
    assert not cache.fits((("a", 11),), 6, 5)
    assert cache.fits((("a", 10),), 6, 4)


def test_what_the_device_evicts_can_be_read_back_from_host_memory() -> None:
    cache = KVCache(10, host_total=20)
    serve(cache, (("a", 8),), 0.0)
    serve(cache, (("b", 8),), 1.0)
    assert cache.match((("a", 8),)) == (2, 6)
    assert cache.host_stored == 8


def test_leaked_blocks_stay_lost() -> None:
    cache = KVCache(10)
    assert cache.leak(4, 0.0) == 4
    assert not cache.allocate(7, 0.0)
    cache.flush()
    assert cache.available == 6
    cache.check()


def test_a_disabled_cache_never_hits() -> None:
    cache = KVCache(10)
    cache.enabled = False
    assert serve(cache, (("a", 4),), 0.0) == 0
    assert serve(cache, (("a", 4),), 1.0) == 0
    assert cache.free == 10


def test_a_lost_block_is_noticed() -> None:
    cache = KVCache(10)
    cache.free -= 1
    with pytest.raises(AssertionError):
        cache.check()
