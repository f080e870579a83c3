"""R1: exact periodic runs, the signature of a decoder caught in a loop.

``loop`` (R1, soft): at least 240 characters, at least 3 repeats. ``loop_long`` (R1s, hard): at least 500 characters and 5
repeats, or 400 characters and 3 repeats that the text ends in. ``echo`` (soft): the text ends in a second copy of 200
characters or more. The unit must be at least 25 % letters and digits and not one single character (that is R2's matter).

Hash all 16-grams, take the most frequent distances to the previous occurrence (and that of the last 48-gram), verify each
distance d by comparing the text with itself shifted by d: total = longest agreement + d, repeats = total / d. A loop of 240
characters repeats at least 160 - 15 16-grams, so that counting repeated hashes rejects nearly every text at once, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.text.view import CodeArray, View

MIN_TOTAL, MIN_REPEATS = 240, 3.0
LONG_TOTAL, LONG_REPEATS = 500, 5.0
TAIL_TOTAL, TAIL_SLACK = 400, 2
"""A loop in which the text ends (but for two characters) counts as hard from 400 characters and 3 repeats on."""
ECHO_LENGTH = 200
_GRAM, _TAIL, _TOP = 16, 48, 6
_MIN_DUPLICATES = MIN_TOTAL * 2 // 3 - (_GRAM - 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Loop:
    """A periodic stretch ``text[start:end]`` with its primitive ``period`` in characters."""

    start: int
    end: int
    period: int

    @property
    def total(self) -> int:
        """Length in characters."""
        return self.end - self.start

    @property
    def repeats(self) -> float:
        """How many times the unit fits."""
        return self.total / self.period


class Grams:
    """The 16-grams of a text as hashes, and how many of them occurred before; nearly every rule about loops starts here."""

    def __init__(self, text: str, codes: CodeArray) -> None:
        self.text, self.codes = text, codes
        self.hashes = _hashes(codes) if codes.size >= MIN_TOTAL else np.empty(0, dtype=np.uint64)
        ordered = np.sort(self.hashes)
        self.repeated = int(np.count_nonzero(ordered[1:] == ordered[:-1]))

    def candidates(self) -> list[int]:
        """Distances worth verifying: the most frequent ones to a previous occurrence, and that of the last 48 characters."""
        order = np.argsort(self.hashes, kind="stable")
        same = np.flatnonzero(self.hashes[order[1:]] == self.hashes[order[:-1]])
        distance = order[same + 1] - order[same]
        counts = np.bincount(distance)
        top = np.argsort(counts, kind="stable")[::-1][:_TOP]
        found = [int(d) for d in top if counts[d] > 0]
        tail = self.last_distance()
        if tail and tail not in found:
            found.append(tail)
        return found

    def last_distance(self) -> int:
        """Distance from the last 48 characters to their previous occurrence, 0 if there is none."""
        at = self.text.rfind(self.text[-_TAIL:], 0, len(self.text) - 1)
        return len(self.text) - _TAIL - at if at >= 0 and len(self.text) > _TAIL else 0


def _hashes(codes: CodeArray) -> NDArray[np.uint64]:
    """A hash of every window of 16 characters, by doubling."""
    h = codes.astype(np.uint64) + np.uint64(1)
    width = 1
    while width < _GRAM:
        h = (h[:-width] * _MIX) ^ (h[width:] + (h[:-width] >> np.uint64(29)))
        width *= 2
    return h


def _longest(codes: CodeArray, d: int) -> Loop | None:
    if d <= 0 or d >= codes.size:
        return None
    breaks = np.flatnonzero(codes[d:] != codes[:-d])
    bounds = np.concatenate(([-1], breaks, [codes.size - d]))
    lengths = np.diff(bounds) - 1
    i = int(lengths.argmax())
    start = int(bounds[i]) + 1
    return Loop(start, start + int(lengths[i]) + d, d)


def _primitive(codes: CodeArray, loop: Loop) -> Loop:
    """The same stretch with its smallest period (a loop of ``abab`` with period 4 has period 2)."""
    unit = codes[loop.start : loop.start + loop.period]
    for d in range(1, loop.period // 2 + 1):
        if loop.period % d == 0 and np.array_equal(unit[d:], unit[:-d]):
            return Loop(loop.start, loop.end, d)
    return loop


def find_loop(grams: Grams) -> Loop | None:
    """The strongest exact loop of at least 240 characters and 3 repeats with a unit of two characters or more, or None."""
    if grams.repeated < _MIN_DUPLICATES:
        return None
    best: Loop | None = None
    for d in grams.candidates():
        loop = _longest(grams.codes, d)
        if loop is None or loop.total < MIN_TOTAL or loop.repeats < MIN_REPEATS:
            continue
        loop = _primitive(grams.codes, loop)
        if loop.period > 1 and (best is None or _rank(loop) > _rank(best)):
            best = loop
    return best


def find_echo(grams: Grams) -> Loop | None:
    """A text that ends in a second copy of something: the last 200 characters or more stand word for word before them.

    Fewer than three repeats; whoever finds a loop first need not ask.
    """
    if grams.repeated < ECHO_LENGTH - (_GRAM - 1):
        return None
    codes, d = grams.codes, grams.last_distance()
    if d < 2:
        return None
    breaks = np.flatnonzero(codes[d:] != codes[:-d])
    start = int(breaks[-1]) + 1 if breaks.size else 0
    echo = Loop(start, codes.size, d)
    return echo if echo.total - d >= ECHO_LENGTH else None


def _rank(loop: Loop) -> tuple[bool, int, float]:
    return (loop.total >= LONG_TOTAL and loop.repeats >= LONG_REPEATS, loop.total, loop.repeats)


def unit_of(view: View, loop: Loop) -> str:
    """The repeated unit as text."""
    return view.text[loop.start : loop.start + loop.period]
