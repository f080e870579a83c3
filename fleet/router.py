"""Which replica a request goes to."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from fleet.model import RouterName
from fleet.replica import Replica
from fleet.sequence import Request

AFFINITY_SLACK = 6  # how many requests more than the mean the replica with the prefix may have


class Router:
    """One pool's router. ``favourites``: a fault that sends everything to these indices."""

    def __init__(self, policy: RouterName) -> None:
        self.policy = policy
        self.favourites: tuple[int, ...] = ()
        self._next = 0

    def pick(self, replicas: Sequence[Replica], request: Request) -> Replica | None:
        """A replica that takes requests, or None."""
        ready = [r for r in replicas if r.state.ready and not r.draining]
        if not ready:
            return None
        if self.favourites:
            few = [r for r in ready if r.index in self.favourites]
            if few:
                ready = few
        if len(ready) == 1:
            return ready[0]
        session = request.session
        if self.policy == "round_robin":
            self._next += 1
            return ready[self._next % len(ready)]
        if self.policy == "least_loaded":
            return self._least(ready)
        home = session.replica
        chosen = next((r for r in ready if r.index == home), None)
        if self.policy == "pinned":
            if chosen is None:
                # Sessions are spread by hash, as a consistent-hash ring does: evenly in the long run only.
                chosen = ready[zlib.crc32(session.id.encode()) % len(ready)]
                session.replica = chosen.index
            return chosen
        mean = sum(r.load for r in ready) / len(ready)
        if chosen is None or chosen.load > 1.5 * mean + AFFINITY_SLACK:
            chosen = self._least(ready)
            session.replica = chosen.index
        return chosen

    def _least(self, ready: Sequence[Replica]) -> Replica:
        self._next += 1  # ties go round
        turn = self._next
        n = len(ready)
        return min(ready, key=lambda r: (r.load, (r.index + turn) % n))
