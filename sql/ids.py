"""Identifiers and times as the tables hold them.

Identities are hashes of what they name, so that two collectors which meet a new target or series at once agree without a
sequence. Times of frames are whole milliseconds: exact to compare, and six bytes on disk where a double takes eight.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

_BITS = (1 << 47) - 1
"""47 bits: SQLite keeps such a number in six bytes; ten thousand names collide with a probability below 1e-6."""


@lru_cache(maxsize=65_536)
def number(*parts: str) -> int:
    """A stable positive 47-bit number for a tuple of strings."""
    raw = json.dumps(parts, separators=(",", ":"), ensure_ascii=True).encode()
    return int.from_bytes(blake2b(raw, digest_size=6).digest(), "big") & _BITS


def digest(*parts: str) -> str:
    """A stable word of 16 hexadecimal digits for a tuple of strings."""
    raw = json.dumps(parts, separators=(",", ":"), ensure_ascii=True).encode()
    return blake2b(raw, digest_size=8).hexdigest()


def to_ms(t: float) -> int:
    """Unix seconds as whole milliseconds."""
    return round(t * 1000)


def edges_id(edges: Sequence[float]) -> int:
    """The number under which a list of bucket edges is stored; 0 for none."""
    return number(*(repr(float(e)) for e in edges)) if edges else 0
