"""Counts of requests, with what is not known about them beside what is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Edge:
    """Requests that may belong to the span or to its neighbours, ``bad`` of them at most late."""

    n: int = 0
    bad: int = 0


NO_EDGE = Edge()


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of requests.

    ``good``, ``bad``: known. ``either``: counted, but good or bad is not known (threshold between two edges, no latency logged).
    ``bad_or_excluded``: given up by the client at an unknown age. ``excluded``: given up in time, or the client's own error.
    ``good_or_excluded``: had a timely first token and may have left after it, or may have been lost with its replica.
    ``unmet`` (turned away) and ``errors`` are parts of ``bad``. ``aborts_known``: false where nothing says how many gave up.
    """

    good: int = 0
    bad: int = 0
    either: int = 0
    bad_or_excluded: int = 0
    excluded: int = 0
    unmet: int = 0
    errors: int = 0
    aborts_known: bool = True
    good_or_excluded: int = 0

    @classmethod
    def of(cls, counts: Sequence[int], aborts_known: bool = True) -> Tally:
        """From the eight counts of :attr:`counts`."""
        good, bad, either, bad_or_excluded, excluded, unmet, errors, good_or_excluded = counts
        return cls(
            good, bad, either, bad_or_excluded, excluded, unmet, errors, aborts_known, good_or_excluded
        )

    def replaced(self, **counts: int) -> Tally:
        """The same with some counts changed."""
        return replace(self, **counts)  # type: ignore[arg-type]

    @property
    def counts(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The eight counts: good, bad, either, bad_or_excluded, excluded, unmet, errors, good_or_excluded."""
        return (
            self.good,
            self.bad,
            self.either,
            self.bad_or_excluded,
            self.excluded,
            self.unmet,
            self.errors,
            self.good_or_excluded,
        )

    def __add__(self, other: Tally) -> Tally:
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        return Tally.of(counts, self.aborts_known and other.aborts_known)

    @property
    def counted(self) -> int:
        """Requests certainly in the denominator."""
        return self.good + self.bad + self.either

    @property
    def attempts(self) -> int:
        """All requests seen."""
        return self.counted + self.bad_or_excluded + self.good_or_excluded + self.excluded

    @property
    def exact(self) -> bool:
        """True where attainment is one number, not an interval."""
        return not (self.either or self.bad_or_excluded or self.good_or_excluded)

    @property
    def attainment(self) -> tuple[float, float]:
        """Lowest and highest possible share of good requests; NaN without traffic."""
        return self.within(NO_EDGE)

    def within(self, edge: Edge) -> tuple[float, float]:
        """Lowest and highest possible share of good requests where ``edge`` may fall on either side of the span's ends."""
        worst = self.counted + self.bad_or_excluded
        best = self.counted + self.good_or_excluded
        if not worst and not best:
            return (math.nan, math.nan)
        # At worst all unknown ones are bad and the good ones at the ends belong elsewhere; at best the opposite.
        good = max(0, self.good - edge.n)
        bad = self.bad + self.either + self.bad_or_excluded + edge.bad
        low = good / (good + bad) if good + bad else 1.0
        good = self.good + self.either + self.good_or_excluded + edge.n
        bad = max(0, self.bad - edge.bad)
        high = good / (good + bad) if good + bad else 1.0
        return (low, high)

    @property
    def bad_share(self) -> tuple[float, float]:
        """Lowest and highest possible share of bad requests; NaN without traffic."""
        low, high = self.attainment
        return (1.0 - high, 1.0 - low)


def total(tallies: Iterable[Tally]) -> Tally:
    """Their sum."""
    out = Tally()
    for tally in tallies:
        out += tally
    return out
