"""Of several detectors over one database one leads: it holds a lease that a thread renews, while the others stand by.

The lease lasts one tick (three seconds at least), so that a detector that stands by and asks at each tick has taken over two
ticks after the leader's death.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid

from core.errors import StoreError
from sql.store import Store

log = logging.getLogger(__name__)

LEASE = "detect"
LEAST_S = 3.0
"""A lease of less could run out while the database is busy."""


class Leader:
    """This process's claim to lead. ``every`` is the time between ticks, in seconds."""

    def __init__(self, store: Store, every: float, holder: str = "") -> None:
        self.store, self.seconds = store, max(every, LEAST_S)
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self._until = 0.0
        self.term = 0.0
        """Since when this process leads without another in between, by the database's clock."""
        self._state = ""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def lead(self) -> bool:
        """Take or renew the lease; whether this process leads now. Raises StoreError."""
        if self._renew():
            if self._state != "leads":
                log.info("this detector leads (%s)", self.holder)
            self._state = "leads"
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
                self._thread.start()
            return True
        if self._state != "stands by":
            held = self.store.lease(LEASE)
            who = held.holder if held is not None else "another process"
            log.info("another detector leads (%s); this one stands by", who)
        self._state = "stands by"
        return False

    def _renew(self) -> bool:
        asked = time.monotonic()
        held = self.store.acquire_lease(LEASE, self.holder, self.seconds)
        self._until = 0.0 if held is None else asked + self.seconds
        self.term = 0.0 if held is None else held.taken_at
        return held is not None

    def _keep(self) -> None:
        """A long tick must not cost the lease; one that was lost is not taken back here, since memory is then another's."""
        while not self._end.wait(self.seconds / 4):
            if time.monotonic() >= self._until:
                continue
            try:
                self._renew()
            except StoreError as error:
                log.debug("the lease was not renewed: %s", error)

    def close(self) -> None:
        """Give the lease back, so that another detector leads at its next tick."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(10)
        try:
            self.store.release_lease(LEASE, self.holder)
        except StoreError as error:
            log.warning("the lease was not given back: %s", error)
