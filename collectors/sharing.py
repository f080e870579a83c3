"""One copy of what is equal: a hundred replicas of one engine have the same lines and the same index arrays.

Shared, they stay in the processor's cache from one target to the next, which halves the cost of reading a body, and memory grows
with the number of different engines rather than of targets.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

KEPT = 4096


def content(value: Any) -> Hashable:
    """A hashable with the same content: equal for equal arrays, dataclasses, sequences, sets and mappings."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(content(getattr(value, f.name)) for f in fields(value)))
    if isinstance(value, list | tuple):
        return tuple(map(content, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(content, value))
    if isinstance(value, dict):
        return tuple((k, content(v)) for k, v in value.items())
    if isinstance(value, Hashable):
        return value
    raise TypeError(f"{type(value).__name__} has no content key")


class Pool:
    """Gives back an equal earlier object where there is one. Bounded: the least recently asked for go first. Thread-safe.

    Only for objects that nobody changes.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def one(self, value: T, key: Hashable) -> T:
        """The first object that was given with an equal ``key``."""
        with self._lock:
            known: T = self._found.setdefault(key, value)
            self._found.move_to_end(key)
            while len(self._found) > self._kept:
                self._found.popitem(last=False)
        return known
