"""Paged KV memory of one engine with a prefix cache: extents of blocks, LRU, tail blocks evicted first.

A prompt is a chain of segments ``(key, blocks)``: a shared system prompt, perhaps a document, the session's
own context. What is cached of a segment is always a prefix of it, so one number per segment says everything
that single blocks would; a session of 100,000 tokens costs one object. Requests pin the segments that they
use. Parents are touched after their children, so a chain gives up its tail first, as real engines do.

Every block is in exactly one place: ``free + owned + cached + leaked == total``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

Chain = tuple[tuple[Hashable, int], ...]
BlockListener = Callable[[Literal["evict", "reuse"], float, float, int], None]


class Segment:
    """``blocks`` are on the device, ``host`` of its first blocks are in host memory."""

    __slots__ = ("blocks", "created", "host", "key", "refs", "used")

    def __init__(self, key: Hashable, now: float) -> None:
        self.key = key
        self.blocks = 0
        self.host = 0
        self.refs = 0
        self.created = now
        self.used = now


class KVCache:
    """``total`` and ``host_total`` in blocks. ``listener(event, lifetime, idle, blocks)`` hears of evictions
    and of reuse."""

    def __init__(self, total: int, host_total: int = 0, listener: BlockListener | None = None) -> None:
        self.total = total
        self.free = total
        self.owned = 0
        self.cached = 0
        self.leaked = 0
        self.held = 0  # cached blocks in segments that some request pins
        self.host_total = host_total
        self.host_used = 0
        self.enabled = True
        self.evicted = 0
        self.host_stored = 0
        self.listener = listener
        self._segments: dict[Hashable, Segment] = {}
        self._lru: OrderedDict[Segment, None] = OrderedDict()
        self._host_lru: OrderedDict[Segment, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that an allocation could get: free ones and cached ones that nobody pins."""
        return self.free + self.cached - self.held

    @property
    def in_use(self) -> int:
        """Blocks that requests (or a leak) hold."""
        return self.total - self.free - self.cached + self.held

    def match(self, chain: Chain) -> tuple[int, int]:
        """Blocks of the chain's beginning that are reusable: (on the device, in addition from host memory)."""
        if not self.enabled:
            return 0, 0
        device = host = 0
        for key, blocks in chain:
            segment = self._segments.get(key)
            if segment is None:
                break
            here = min(segment.blocks, blocks) if not host else 0
            total = max(here, min(segment.host, blocks))
            device += here
            host += total - here
            if total < blocks:
                break
        return device, host

    def fits(self, chain: Chain, device: int, need: int) -> bool:
        """Whether ``need`` blocks could be had after pinning the chain's first ``device`` blocks."""
        lost = 0
        for key, length in chain:
            if device <= 0:
                break
            segment = self._segments[key]
            if segment.refs == 0:
                lost += segment.blocks
            device -= length
        return self.available - lost >= need

    def pin(self, chain: Chain, blocks: int, now: float) -> tuple[Segment, ...]:
        """Hold the segments that carry the chain's first ``blocks`` blocks on the device."""
        pinned = []
        for key, length in chain:
            if blocks <= 0:
                break
            segment = self._segments[key]
            take = min(length, blocks)
            if self.listener is not None and now > segment.used:
                self.listener("reuse", now - segment.created, now - segment.used, take)
            self._hold(segment)
            segment.used = now
            pinned.append(segment)
            blocks -= take
        return tuple(pinned)

    def _hold(self, segment: Segment) -> None:
        if segment.refs == 0:
            self._lru.pop(segment, None)
            self.held += segment.blocks
        segment.refs += 1

    def allocate(self, blocks: int, now: float) -> bool:
        """Take blocks for a request, evicting the least recently used; False and no change if there are not
        enough."""
        if blocks > self.free:
            if blocks > self.available:
                return False
            self._evict(blocks - self.free, now)
        self.free -= blocks
        self.owned += blocks
        return True

    def release(self, blocks: int) -> None:
        """Give back blocks that a request owned and that hold nothing reusable."""
        self.owned -= blocks
        self.free += blocks

    def leak(self, blocks: int, now: float) -> int:
        """Lose blocks for good; returns how many there were to lose."""
        blocks = min(blocks, self.available)
        if blocks > self.free:
            self._evict(blocks - self.free, now)
        self.free -= blocks
        self.leaked += blocks
        return blocks

    def store(
        self, chain: Chain, blocks: int, own: int, held: Sequence[Segment], now: float
    ) -> tuple[int, tuple[Segment, ...]]:
        """Make the chain's first ``blocks`` blocks reusable, out of ``own`` blocks of the request; it keeps
        them pinned. Returns what it still owns and all it pins now.
        """
        if not self.enabled:
            return own, tuple(held)
        pinned = list(held)
        for key, length in chain:
            if blocks <= 0:
                break
            want = min(length, blocks)
            blocks -= want
            segment = self._segments.get(key)
            if segment is None:
                segment = self._segments[key] = Segment(key, now)
            if segment not in pinned:
                self._hold(segment)
                pinned.append(segment)
                # Computed twice by two requests at once: one copy stays.
                twice = min(own, min(segment.blocks, want))
                own -= twice
                self.release(twice)
            grow = min(own, want - segment.blocks)
            if grow > 0:
                own -= grow
                self.owned -= grow
                segment.blocks += grow
                self.cached += grow
                self.held += grow
                segment.created = now
            segment.used = now
        return own, tuple(pinned)

    def unpin(self, held: Sequence[Segment], now: float) -> None:
        """Let go; the last user makes a segment evictable, parents later than children."""
        for segment in reversed(held):
            segment.refs -= 1
            segment.used = now
            if segment.refs == 0:
                self.held -= segment.blocks
                if segment.blocks:
                    self._lru[segment] = None
                elif not segment.host:
                    self._segments.pop(segment.key, None)

    def _evict(self, blocks: int, now: float) -> None:
        while blocks > 0:
            segment = next(iter(self._lru))
            take = min(blocks, segment.blocks)
            if self.host_total:
                self._to_host(segment)
            segment.blocks -= take
            self.cached -= take
            self.free += take
            self.evicted += take
            blocks -= take
            if self.listener is not None:
                self.listener("evict", now - segment.created, now - segment.used, take)
            if segment.blocks == 0:
                del self._lru[segment]
                if not segment.host:
                    self._segments.pop(segment.key, None)

    def _to_host(self, segment: Segment) -> None:
        grow = min(segment.blocks, self.host_total) - segment.host
        self._host_lru.pop(segment, None)
        if grow > 0:
            self.host_stored += grow
            segment.host += grow
            self.host_used += grow
        self._host_lru[segment] = None
        while self.host_used > self.host_total:
            old = next(iter(self._host_lru))
            del self._host_lru[old]
            self.host_used -= old.host
            old.host = 0
            if old.blocks == 0 and old.refs == 0:
                self._segments.pop(old.key, None)

    def flush(self) -> None:
        """Forget everything reusable that nobody pins, on the device and on the host."""
        for segment in list(self._lru):
            self.cached -= segment.blocks
            self.free += segment.blocks
            segment.blocks = 0
            self._segments.pop(segment.key, None)
        self._lru.clear()
        for segment in self._host_lru:
            segment.host = 0
            if segment.refs == 0:
                self._segments.pop(segment.key, None)
        self._host_lru.clear()
        self.host_used = 0

    def check(self) -> None:
        """Raise AssertionError if a block is lost or counted twice."""
        device = sum(s.blocks for s in self._segments.values())
        held = sum(s.blocks for s in self._segments.values() if s.refs)
        if device != self.cached or held != self.held:
            raise AssertionError(f"cached {self.cached} != {device} or held {self.held} != {held}")
        if self.free + self.owned + self.cached + self.leaked != self.total:
            raise AssertionError(f"{self.free}+{self.owned}+{self.cached}+{self.leaked} != {self.total}")
        if min(self.free, self.owned, self.cached, self.leaked, self.held, self.host_used) < 0:
            raise AssertionError("a negative number of blocks")
