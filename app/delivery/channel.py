"""One receiver at work: what waits for it is sent in order, failures wait longer each time, alerts that fire are repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.delivery.alertmanager import Alertmanager
from app.delivery.annotations import Annotations
from app.delivery.batching import GIVE_UP_S, Limits, backoff, batches, jitter
from app.delivery.beats import silent
from app.delivery.grafana import Grafana
from app.delivery.receivers import sender_of
from app.delivery.sender import Batch, alone
from app.delivery.timer import Timer
from app.delivery.transport import SendError
from app.delivery.webhook import Webhook
from core.config_delivery import ReceiverConfig
from core.errors import StoreError
from sql.store import Store

log = logging.getLogger(__name__)
ROUNDS = 100
BLOCK_S = 30.0
"""A receiver that does not answer is left alone for at most so long, so that a page after its return is not late."""


class Channel:
    """Sends to one receiver. Not thread-safe: one call at a time.

    ``may_send`` is asked before each request: whether this process still leads.
    """

    def __init__(
        self,
        receiver: ReceiverConfig,
        store: Store,
        clock: Callable[[], float],
        may_send: Callable[[], bool],
        draw: Callable[[], float] = jitter,
    ) -> None:
        self.name, self._store, self._clock = receiver.name, store, clock
        self._may_send, self._draw = may_send, draw
        self.sender = sender_of(receiver.spec)
        s = self.sender
        self._limits = Limits(s.groups, s.limited, s.hold, receiver.max_messages, receiver.per)
        self._blocked: tuple[float, float] | None = None
        self._failures = 0
        self.error = ""
        """What went wrong with the last request that is no delivery (repeats, heartbeats, reading); "" if nothing."""
        spec = receiver.spec
        self._resend = Timer(float(getattr(spec, "resend", 0.0)))
        beat = getattr(spec, "heartbeat", None)
        self._beat = Timer(float(beat)) if beat else None
        self._was_silent = False
        self._failed_now: set[str] = set()
        self._taken: list[tuple[list[str], float, str, str]] = []
        self._reader = (
            Annotations(self.sender, receiver, store)
            if isinstance(self.sender, Grafana) and getattr(spec, "read", False)
            else None
        )
        self._read = Timer(float(getattr(spec, "read_every", 60.0)))

    def work(self) -> int:
        """Send what can be sent now; returns how many messages went out. Raises StoreError."""
        now = self._clock()
        if self._is_blocked(now):
            return 0
        sent = self._deliver()
        if not self._is_blocked(self._clock()):
            self._besides()
        return sent

    def _is_blocked(self, now: float) -> bool:
        return self._blocked is not None and self._blocked[0] <= now < self._blocked[1]

    def _deliver(self) -> int:
        sent = 0
        self._failed_now = set()
        self._note_taken()
        for _ in range(ROUNDS):
            now = self._clock()
            waiting = self._store.pending_deliveries(self.name)
            if not waiting:
                return sent
            told = self._store.last_sent(self.name, list({d.subject for d in waiting}))
            recent = (
                self._store.sent_batches(self.name, now - self._limits.per, now)
                if self._limits.limited
                else ()
            )
            todo = batches(waiting, told, recent, self._limits, now, self._failed_now if sent else None)
            good = 0
            for batch in todo:
                if not self._may_send():
                    return sent
                good += self._send(batch, first=sent + good == 0)
                if self._is_blocked(self._clock()):
                    return sent + good
            sent += good
            if not good:
                return sent
        return sent

    def _send(self, batch: Batch, *, first: bool) -> int:
        """1 if the receiver has taken it. ``first``: nothing has gone through in this round, so a failure stops the rest."""
        ids = [i.delivery.id for i in batch.items]
        now = self._clock()
        try:
            reference = self.sender.send(batch, now)
        except SendError as error:
            if not error.again and len(batch.items) > 1 and not batch.digest:
                # One of them may be what it refuses: the others shall not suffer.
                return max(self._send(alone(i), first=False) for i in batch.items)
            self._failed(batch, error, now, first=first)
            return 0
        except StoreError:
            raise
        except Exception as error:
            log.exception("receiver %s: a delivery could not be made into a message", self.name)
            self._store.deliveries_failed(ids, now, f"internal error: {type(error).__name__}: {error}", None)
            return 0
        self._blocked, self._failures = None, 0
        self._taken.append((ids, self._clock(), batch.id, reference))
        self._note_taken()
        return 1

    def _note_taken(self) -> None:
        """Write down what was taken; while the database is away it is remembered, so that nothing is sent again for that."""
        while self._taken:
            self._store.deliveries_sent(*self._taken[0])
            del self._taken[0]

    def _failed(self, batch: Batch, error: SendError, now: float, *, first: bool) -> None:
        rows = [i.delivery for i in batch.items]
        self._failed_now |= {d.id for d in rows}
        tried = max(d.attempts for d in rows) + 1
        wait = backoff(tried, self._draw(), error.wait)
        for d in rows:
            late = now - d.made_at > GIVE_UP_S
            text = (
                f"{error}; given up after {GIVE_UP_S / 86400:.0f} days"
                if error.again and late
                else str(error)
            )
            self._store.deliveries_failed([d.id], now, text, None if late or not error.again else now + wait)
        news = self._failures == 0 or not error.again
        if error.again and (first or error.wait is not None):
            self._block(now, error.wait)
        level = log.warning if news else log.debug
        level("receiver %s: %s", self.name, error)

    def _block(self, now: float, wait: float | None) -> None:
        """Leave the receiver alone for a while: what fails for one message fails for all."""
        self._failures += 1
        pause = min(BLOCK_S, backoff(self._failures, self._draw()))
        self._blocked = (now, now + max(pause, wait or 0.0))

    # --- what is no delivery

    def _besides(self) -> None:
        now = self._clock()
        errors = []
        if isinstance(self.sender, Alertmanager) and self._resend.due(now) and self._may_send():
            errors.append(self._try(self._resend, self._repeat, now))
        if self._beat is not None and self._beat.due(now) and self._alive(now) and self._may_send():
            errors.append(self._try(self._beat, self._heartbeat, now))
        if self._reader is not None and self._read.due(now) and self._may_send():
            errors.append(self._try(self._read, self._reader.read, now))
        if errors:
            self.error = "; ".join(e for e in errors if e)

    def _try(self, timer: Timer, what: Callable[[float], object], now: float) -> str:
        try:
            what(now)
        except SendError as error:
            self._block(now, error.wait)
            return str(error)
        timer.last = now
        self._failures = 0
        return ""

    def _repeat(self, now: float) -> None:
        assert isinstance(self.sender, Alertmanager)
        self.sender.resend(self._store.last_sent(self.name).values(), now)

    def _alive(self, now: float) -> bool:
        """Whether all parts live; said once when it changes."""
        dead = silent(self._store, now)
        if bool(dead) != self._was_silent:
            self._was_silent = bool(dead)
            log.warning(
                "receiver %s %s", self.name, f"gets no heartbeat: {dead}" if dead else "gets heartbeats again"
            )
        return not dead

    def _heartbeat(self, now: float) -> None:
        if isinstance(self.sender, Alertmanager | Webhook):
            self.sender.heartbeat(now)
