"""How often one sender may ask: a token bucket each, in memory, for as many senders as are remembered."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict

_REMEMBERED = 10_000


class RateLimit:
    """At most ``per_minute`` in the long run and as many at once, for each key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, per_minute: int, now: float) -> int:
        """0 where the request may pass, else after how many whole seconds the next one may."""
        with self._lock:
            left, then = self._left.pop(key, (float(per_minute), now))
            left = min(float(per_minute), left + max(0.0, now - then) * per_minute / 60)
            wait = 0 if left >= 1 else math.ceil((1 - left) * 60 / per_minute)
            self._left[key] = (left - 1 if not wait else left, now)
            while len(self._left) > _REMEMBERED:
                self._left.popitem(last=False)
            return wait
