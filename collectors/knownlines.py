"""The steady state of a scraped body: same lines in the same order, only values moved. Reads them with a few passes in C.

:class:`~collectors.exposition.PrefixCache` understands any body. Once it has, what each line means stays true until a line's
prefix changes, so the next body needs no look at single lines in Python: comments are compared as one tuple, known
prefixes are cut off, and the values of the series that somebody uses are read as one JSON list. Anything unusual
(another line count, another prefix, NaN or a word where a number was) is left to the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from operator import itemgetter

import numpy as np
import orjson

from core.frames import FloatArray

_NUMBERS = frozenset((float, int))

Pick = Callable[[Sequence[bytes]], tuple[bytes, ...]]


def _picker(indices: Sequence[int]) -> Pick:
    """Several items of a list at once (a plain ``itemgetter`` of one index gives no tuple, of none is an error)."""
    if not indices:
        return lambda lines: ()
    if len(indices) == 1:
        only = indices[0]
        return lambda lines: (lines[only],)
    return itemgetter(*indices)


class KnownLines:
    """What each line of a body is. ``heads[i]``: the prefix of line i, None where the line must not change at all;
    ``slots[i]``: its series, or -1; ``used``: series whose values are wanted; ``size``: number of series."""

    def __init__(
        self,
        lines: Sequence[bytes],
        heads: Sequence[bytes | None],
        slots: Sequence[int],
        used: Collection[int],
        size: int,
    ) -> None:
        self._count = len(lines)
        self._size = size
        fixed = [i for i, h in enumerate(heads) if not h]
        other = [i for i, h in enumerate(heads) if h and slots[i] not in used]
        wanted = [i for i, h in enumerate(heads) if h and slots[i] in used]
        self._pick_fixed, self._pick_other, self._pick_wanted = (
            _picker(fixed),
            _picker(other),
            _picker(wanted),
        )
        self._places = (tuple(fixed), tuple(other))
        self._fixed = self._pick_fixed(lines)
        self._other = [h for i in other if (h := heads[i])]
        self._wanted = [h for i in wanted if (h := heads[i])]
        self._wanted_size = sum(map(len, self._wanted))
        self._slots = np.array([slots[i] for i in wanted], np.intp)

    @property
    def key(self) -> Hashable:
        """Equal for two that read every body alike."""
        return (
            self._count,
            self._size,
            self._fixed,
            tuple(self._other),
            tuple(self._wanted),
            self._slots.tobytes(),
            self._places,
        )

    def read(self, body: bytes) -> FloatArray | None:
        """Values ``[size]`` of a body, NaN for series that are not used; None where the cache has to look at it."""
        lines = body.split(b"\n")
        if len(lines) != self._count or self._pick_fixed(lines) != self._fixed:
            return None
        if not all(map(bytes.startswith, self._pick_other(lines), self._other)):
            return None
        wanted = self._pick_wanted(lines)
        tails = b",".join(map(bytes.removeprefix, wanted, self._wanted))
        separators = max(0, len(wanted) - 1)
        if len(tails) - separators != len(b"".join(wanted)) - self._wanted_size:
            return None  # a prefix was not there to be removed
        try:
            # Numbers of JSON are numbers of the text format; what only one of the two allows (NaN, +Inf, 1.) goes to the cache.
            # So does whatever else would parse here: it has another type or changes the count.
            numbers = orjson.loads(b"[" + tails + b"]")
        except orjson.JSONDecodeError:
            return None
        if len(numbers) != len(wanted) or not _NUMBERS.issuperset(map(type, numbers)):
            return None
        values = np.full(self._size, np.nan)
        values[self._slots] = numbers
        return values
