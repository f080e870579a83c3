"""Samples that rates may be computed from: who is in is decided by the request's id alone, never by what was answered.

A share keeps every request whose id hashes below it, so that two collectors, a replay or an import of the same log keep the same
ones. A reservoir keeps a fixed number a window: the ids with the smallest hashes (bottom-k), and how many each stands for.
What is suspicious is kept besides, marked as not random.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")


def fraction(request_id: str) -> float:
    """A number in [0, 1) that depends on the id alone, uniform over ids."""
    digest = blake2b(
        request_id.encode("utf-8", "surrogatepass"), digest_size=8, person=b"gustfrontsample"
    ).digest()
    return int.from_bytes(digest) / 2**64


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """One item of a reservoir: ``random`` ones stand for ``weight`` requests each; others are there only for being suspicious."""

    item: T
    random: bool
    weight: float


@dataclass
class Reservoir(Generic[T]):
    """At most ``size`` random items and every suspicious one of one window and group; :meth:`items` empties it."""

    size: int
    seen: int = 0
    _random: list[tuple[float, int, T]] = field(default_factory=list, repr=False)
    _suspicious: list[tuple[float, T]] = field(default_factory=list, repr=False)

    def add(self, request_id: str, item: T, *, suspicious: bool) -> None:
        """Offer one item; each id once."""
        u = fraction(request_id)
        self.seen += 1
        # a heap of the largest first: negated, so that the one to go stands at its head
        entry = (-u, -self.seen, item)
        if len(self._random) < self.size:
            heapq.heappush(self._random, entry)
        elif self.size and entry > self._random[0]:
            heapq.heapreplace(self._random, entry)
        if suspicious:
            self._suspicious.append((u, item))

    def items(self) -> Iterator[Kept[T]]:
        """What is kept; the reservoir is empty afterwards."""
        limit = -self._random[0][0] if self._random else -1.0
        weight = self.seen / len(self._random) if self._random else 1.0
        for _, _, item in sorted(self._random, key=lambda e: -e[1]):
            yield Kept(item, True, weight)
        for u, item in self._suspicious:
            if u > limit:
                yield Kept(item, False, 1.0)
        self.seen, self._random, self._suspicious = 0, [], []
