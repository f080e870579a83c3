"""Slots of an interval: whose turn it is when, and answers of one slot turned into readings together."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from collectors.bodies import BodyReader, read_together
from core.frames import FloatArray, Reading

SLOT_SECONDS = 1.0
Done = Callable[[Reading | Exception], None]


class Gathering:
    """The scrapes of one slot. ``expect`` one more answer, ``add`` its values or ``miss`` it; when none is awaited any more, or
    after :meth:`close`, the gathered values become readings and each ``done`` is called once."""

    def __init__(self) -> None:
        self._awaited = 0
        self._open = True
        self._items: list[tuple[BodyReader, FloatArray, float]] = []
        self._done: list[Done] = []

    def expect(self) -> None:
        """One more answer is under way."""
        self._awaited += 1

    def miss(self) -> None:
        """One of them will not come, or came as something else."""
        self._awaited -= 1
        self._flush_if_complete()

    def add(self, reader: BodyReader, values: FloatArray, t: float, done: Done) -> None:
        """One of them has come."""
        self._awaited -= 1
        self._items.append((reader, values, t))
        self._done.append(done)
        self._flush_if_complete()

    def close(self) -> None:
        """Wait no longer: what comes from now on is turned into a reading at once."""
        self._open = False
        self._flush_if_complete()

    def _flush_if_complete(self) -> None:
        if self._items and (self._awaited <= 0 or not self._open):
            items, self._items = self._items, []
            done, self._done = self._done, []
            outcomes: list[Reading | Exception]
            try:
                outcomes = list(read_together(items))
            except Exception:  # one of them is to blame; the others must not pay
                outcomes = [_alone(item) for item in items]
            for call, outcome in zip(done, outcomes, strict=True):
                call(outcome)


def _alone(item: tuple[BodyReader, FloatArray, float]) -> Reading | Exception:
    reader, values, t = item
    try:
        return reader.reading(values, t)
    except Exception as error:
        return error


def slots_of(every: float) -> int:
    """Into how many slots an interval is divided: of about ``SLOT_SECONDS``, at least 10.

    Targets of one slot are scraped together: waking up once for a dozen of them costs half the CPU of a dozen wake-ups.
    """
    return max(10, round(every / SLOT_SECONDS))


def slot_of(key: str, slots: int) -> int:
    """The slot of a target: stable over restarts, evenly spread."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") * slots >> 64
