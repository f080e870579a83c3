"""The dispatcher: leads by a lease in the database, fills the outbox, and lets each receiver's channel empty it, each in a thread
of its own so that a slow receiver holds up no other.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event as StopEvent

from app.delivery.channel import Channel
from app.delivery.outbox import Outbox
from app.delivery.timer import Timer
from app.services.deliveries import STATUS
from core.beats import DELIVER
from core.config import Config
from core.errors import StoreError
from sql.store import Store

log = logging.getLogger(__name__)

LEASE, LEASE_S = "deliver", 30.0
TICK_S, RETRY_S, NOTE_S = 2.0, 5.0, 10.0
KEEP_S = 90 * 86400.0


class Dispatcher:
    """Delivery from one store. :meth:`tick` may be called at any time; only the process that leads does anything.

    ``parallel`` False sends in the caller's thread. ``lease_clock`` stands in for the database's clock in tests.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        holder: str = "",
        parallel: bool = True,
        lease_clock: Callable[[], float] | None = None,
    ) -> None:
        self.store, self.config, self.clock = store, config, clock
        self._monotonic, self._lease_clock = monotonic, lease_clock
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self.outbox = Outbox(store, config)
        self.channels = [Channel(r, store, clock, self.leads) for r in config.receivers]
        self._pool = (
            ThreadPoolExecutor(len(self.channels), thread_name_prefix="deliver")
            if parallel and self.channels
            else None
        )
        self._running: dict[str, Future[int]] = {}
        self._led_until = -1.0
        self._led = False
        self._note, self._clean = Timer(NOTE_S), Timer(86400.0)
        self._lock = threading.Lock()

    def leads(self) -> bool:
        """Whether this process held the lease a moment ago: asked before each request."""
        return self._monotonic() < self._led_until

    def tick(self) -> int:
        """Make what is missing and send what is due; returns messages sent (of the caller's thread). Raises StoreError."""
        if not self._lead():
            return 0
        now = self.clock()
        made = self.outbox.fill(now)
        for d in made:
            log.info("%s %s for %s (%s)", d.action, d.subject, d.receiver, d.reason or "known")
        self._park_strangers(now)
        sent = self._send()
        if self._note.due(now):
            self._note.last = now
            self.outbox.done(now)
            self.store.set_cursor(DELIVER, repr(now))
            self.store.set_cursor(STATUS, json.dumps(self.status(now)))
        if self._clean.due(now):
            self._clean.last = now
            self.store.forget_deliveries(now - KEEP_S)
        return sent

    def _lead(self) -> bool:
        if self._monotonic() < self._led_until - LEASE_S / 2:
            return True
        asked = self._monotonic()
        at = self._lease_clock() if self._lease_clock is not None else None
        held = self.store.acquire_lease(LEASE, self.holder, LEASE_S, at)
        if held is None:
            if self._led or self._led_until < 0:
                log.info("another process delivers; this one waits")
            self._led, self._led_until = False, 0.0
            return False
        # A little less than the lease, so that we stop before anybody else begins.
        self._led, self._led_until = True, asked + 0.9 * LEASE_S
        return True

    def _send(self) -> int:
        if self._pool is None:
            return sum(c.work() for c in self.channels)
        for c in self.channels:
            before = self._running.get(c.name)
            if before is not None:
                if not before.done():
                    continue
                error = before.exception()
                if isinstance(error, StoreError):
                    del self._running[c.name]
                    raise error
                if error is not None:
                    log.error("receiver %s: %s", c.name, error, exc_info=error)
            self._running[c.name] = self._pool.submit(c.work)
        return 0

    def _park_strangers(self, now: float) -> None:
        """Deliveries of receivers that are not configured any more wait for nobody."""
        known = {r.name for r in self.config.receivers}
        if not self._note.due(now):
            return
        gone = [d.id for d in self.store.pending_deliveries() if d.receiver not in known]
        if gone:
            self.store.deliveries_failed(gone, now, "this receiver is not configured any more", None)

    def status(self, now: float) -> dict[str, object]:
        """What pages and metrics show of the dispatcher itself."""
        return {
            "at": now,
            "holder": self.holder,
            "receivers": {c.name: {"error": c.error} for c in self.channels if c.error},
        }

    def close(self) -> None:
        """Wait for what is being sent, and let another process lead."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._led_until = 0.0
        try:
            self.store.release_lease(LEASE, self.holder)
        except StoreError as error:
            log.warning("the lease was not given back: %s", error)


def run_deliver(config: Config, stop_event: StopEvent) -> None:
    """Deliver until ``stop_event`` is set. A store that is away is tried again; its error is logged once."""
    if not config.receivers:
        log.warning(
            "no receiver is configured: nobody is told of anything. Fix: add receivers (docs/delivery.md)"
        )
    away = ""
    store: Store | None = None
    dispatcher: Dispatcher | None = None
    try:
        while not stop_event.is_set():
            try:
                if store is None:
                    store = Store.open(config.database)
                if dispatcher is None:
                    dispatcher = Dispatcher(store, config)
                dispatcher.tick()
                if away:
                    log.info("the database is back")
                    away = ""
                stop_event.wait(TICK_S)
            except StoreError as error:
                if str(error) != away:
                    log.warning("delivery waits for the database: %s", error)
                    away = str(error)
                stop_event.wait(RETRY_S)
    finally:
        if dispatcher is not None:
            dispatcher.close()
        if store is not None:
            store.close()
