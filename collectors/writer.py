"""The one thread that writes to the database: readings in batches, about one commit a second; a spool while the database is away.

Scrapers hand in readings and problems from any thread and never wait. A commit that fails because the database is away sends
its batch to the spool; from then on everything goes through the spool, so that order holds, until it is empty again. A reading
that the database refuses for itself (not because it is away) is put aside alone, with a problem.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from collectors.problem_board import ProblemBoard
from collectors.selfmetrics import HEARTBEAT, SelfMetrics
from collectors.spool import Spool
from core.errors import GustfrontError, StoreError
from core.frames import Reading
from core.records import Problem
from sql.store import RowsRefused

log = logging.getLogger(__name__)

WAIT_PER_COMMIT = 100.0
"""A commit is followed by a pause of this many times its duration (commits then take a hundredth of the time) ..."""
STRETCH = 4.0
"""... but at least ``every`` seconds and at most this many times ``every``."""
FIRST_MAINTENANCE = 60.0
"""Seconds after the start before old data is looked for."""
BATCH = 2_000
"""Readings in one commit at most."""


class Sink(Protocol):
    """What the writer needs of ``sql.store.Store``."""

    def append(self, readings: Sequence[Reading], *, stream: str = "live", events: bool = True) -> object: ...
    def add_problems(self, problems: Sequence[Problem]) -> object: ...
    def set_cursor(self, name: str, value: str) -> object: ...
    def close(self) -> object: ...


def _is_away(error: Exception) -> bool:
    """Whether the database as a whole cannot take anything now (rather than refusing these rows)."""
    if isinstance(error, RowsRefused):
        return False
    return isinstance(error, StoreError | OSError)


class Writer:
    """Queue, spool and writer thread. ``open_store`` is called in the thread and again after the database was away.

    ``memory_limit`` bounds the readings held in memory between two commits; what exceeds it goes to the spool.
    """

    def __init__(
        self,
        open_store: Callable[[], Sink],
        spool: Spool,
        metrics: SelfMetrics | None = None,
        *,
        every: float = 1.0,
        heartbeat: float = 10.0,
        memory_limit: int = 20_000,
        maintenance: Callable[[Sink], None] | None = None,
        maintenance_every: float = 3600.0,
    ) -> None:
        self.metrics = metrics or SelfMetrics()
        self._open_store = open_store
        self._spool = spool
        self._every, self._heartbeat_every, self._memory_limit = every, heartbeat, memory_limit
        self._maintenance, self._maintenance_every = maintenance, maintenance_every
        self._lock = threading.Lock()
        self._queue: list[Reading] = []
        self._cursors: dict[str, str] = {}
        self._cursors_taken: dict[str, str] = {}
        self.board = ProblemBoard()
        self.problem = self.board.put
        self._stop = threading.Event()
        self._store: Sink | None = None
        self._retry_at = 0.0
        self._retry_wait = 0.5
        self._next_heartbeat = 0.0
        self._next_maintenance = time.monotonic() + FIRST_MAINTENANCE
        self._dropped_told = 0
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    # -- any thread ------------------------------------------------------------------------------------------------------------
    def put(self, reading: Reading) -> None:
        """Queue one reading for the next commit."""
        with self._lock:
            self._queue.append(reading)
            if len(self._queue) > self._memory_limit:  # the thread hangs in a commit
                del self._queue[0]
                self._lost += 1

    def put_history(
        self, readings: Sequence[Reading], cursors: Mapping[str, str], stop: threading.Event
    ) -> None:
        """Queue many readings that can wait, and cursors to be set once they are safe; returns when they fit.

        Not for scrapers: this blocks while more than half of the memory limit is queued.
        """
        for at in range(0, len(readings), BATCH):
            while not stop.wait(0.0) and len(self._queue) > self._memory_limit // 2:
                stop.wait(0.2)
            with self._lock:
                self._queue.extend(readings[at : at + BATCH])
        with self._lock:
            self._cursors.update(cursors)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 4.0) -> None:
        """Commit (or spool) what is queued and end the thread; returns after at most ``timeout`` seconds."""
        self._stop.set()
        self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    # -- writer thread -----------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                self.step()
            except Exception:
                log.exception("the writer failed unexpectedly; it goes on")
            took = time.monotonic() - begin
            # Larger batches cost less a reading: where a commit takes longer, the next one waits longer, within limits.
            pause = min(max(self._every, WAIT_PER_COMMIT * took), self._every * STRETCH)
            self._stop.wait(max(0.0, pause - took))
        with contextlib.suppress(Exception):
            self.step(last=True)
        self._close()

    def step(self, *, last: bool = False) -> None:
        """One round: commit the queue, replay the spool, tell problems and the heartbeat."""
        with self._lock:
            batch, self._queue = self._queue, []
            lost, self._lost = self._lost, 0
            self._cursors_taken.update(self._cursors)
            self._cursors = {}
        if lost:
            self._spool.dropped += lost
            self.board.own(
                "writer_slow",
                "database",
                f"A commit took so long that {lost} readings were given up. Counts are kept, only their time is coarser.",
                "Look after the database server or the disk.",
                count=lost,
            )
        self.metrics.queued.set(0)
        for at in range(0, len(batch), BATCH):
            part = batch[at : at + BATCH]
            if self._spool or not self._ready() or not self._commit(part):
                self._to_spool(part)
        if self._spool and self._ready():
            self._replay(until=time.monotonic() + (0.5 if last else 5.0))
        if self._store is None:
            self._ready()  # for the heartbeat and problems, also when there is nothing to write
        self.metrics.spool_bytes.set(self._spool.size)
        self.metrics.spool_dropped.set(self._spool.dropped)
        if self._store is not None:
            self._side_work(last)

    def _ready(self) -> bool:
        """Whether there is a store to write to; opens it, at most once per back-off."""
        if time.monotonic() < self._retry_at:
            return False
        if self._store is None:
            try:
                self._store = self._open_store()
            except Exception as error:
                if not _is_away(error):
                    log.exception("the database cannot be opened")
                self._away(error)
                return False
        return True

    def _away(self, error: Exception) -> None:
        self.metrics.commit_failures.inc()
        if self._retry_wait == 0.5:
            log.warning("the database is away, readings go to %s: %s", self._spool.folder, error)
        self._close()
        self._retry_at = time.monotonic() + self._retry_wait
        self._retry_wait = min(30.0, self._retry_wait * 2)
        self.board.own(
            "database_away",
            "database",
            f"The database could not be written: {str(error)[:300]}",
            "Readings are kept on disk and replayed in order when it is back; look after the database server or the disk.",
        )

    def _commit(self, batch: Sequence[Reading]) -> bool:
        """True when the batch is dealt with; False when the database is away, or takes nothing at all."""
        begin = time.monotonic()
        try:
            refused = self._append(batch)
        except Exception as error:
            self._away(error)
            return False
        if len(refused) == len(batch) > 1:
            # Not these readings are at fault: keep them until somebody has repaired what is.
            self._away(refused[0][1])
            return False
        for reading, why in refused:
            self._refuse(reading, why)
        if self._retry_wait != 0.5:
            self._retry_wait = 0.5
            log.info("the database is back")
        self.metrics.commit_seconds.observe(time.monotonic() - begin)
        self.metrics.written.inc(len(batch))
        self.metrics.lag.set(max(0.0, time.time() - min(r.t for r in batch)))
        return True

    def _append(self, batch: Sequence[Reading]) -> list[tuple[Reading, Exception]]:
        """Store a batch; what is refused for itself is found by halving. Raises what says that the database is away."""
        assert self._store is not None
        try:
            self._store.append(batch)
        except Exception as error:
            if _is_away(error):
                raise
            if len(batch) == 1:
                return [(batch[0], error)]
            half = len(batch) // 2
            return self._append(batch[:half]) + self._append(batch[half:])
        return []

    def _refuse(self, reading: Reading, error: Exception) -> None:
        log.error("the database refused a reading of %s: %r", reading.target.address, error)
        self.metrics.rejected.inc()
        self.board.own(
            "reading_refused",
            reading.target.address,
            f"The database refused a reading: {type(error).__name__}: {str(error)[:300]}",
            "Please report this with the target's /metrics text; other targets are not affected.",
        )

    def _to_spool(self, batch: Sequence[Reading]) -> None:
        try:
            self._spool.put(batch)
        except OSError as error:
            # Neither database nor disk: keep the newest in memory, as far as it goes.
            with self._lock:
                self._queue[:0] = batch
                lost = max(0, len(self._queue) - self._memory_limit)
                del self._queue[:lost]
                self.metrics.queued.set(len(self._queue))
            self._spool.dropped += lost
            self.board.own(
                "spool_unwritable",
                str(self._spool.folder),
                f"Neither database nor spool can be written ({error.strerror or error}); {lost} readings given up.",
                "Free disk space or make the folder writable.",
            )
            return
        if self._spool.dropped > self._dropped_told:
            lost, self._dropped_told = self._spool.dropped - self._dropped_told, self._spool.dropped
            self.board.own(
                "spool_full",
                str(self._spool.folder),
                f"The spool is full; the oldest {lost} readings were given up. Counts are kept, only their time is coarser.",
                "Bring the database back.",
                count=lost,
            )

    def _replay(self, until: float) -> None:
        while time.monotonic() < until:
            batch = self._spool.peek()
            if batch is None:
                return
            if not self._commit(batch):
                return
            self._spool.pop()

    def _side_work(self, last: bool) -> None:
        assert self._store is not None
        now = time.monotonic()
        if now < self._next_heartbeat and not last:
            return
        self._next_heartbeat = now + self._heartbeat_every
        problems = self.board.take()
        try:
            while self._cursors_taken and not self._spool:
                name, value = next(iter(self._cursors_taken.items()))
                self._store.set_cursor(name, value)
                del self._cursors_taken[name]
            if problems:
                self._store.add_problems(problems)
                problems = []
            self.metrics.heartbeat.set(time.time())
            self._store.set_cursor(self.metrics.cursor, self.metrics.text())
            self._store.set_cursor(HEARTBEAT, f"{time.time():.3f}")
            if not self._spool:
                self._retry_wait = 0.5
            if self._maintenance is not None and now >= self._next_maintenance and not last:
                self._next_maintenance = now + self._maintenance_every
                self._maintenance(self._store)
        except Exception as error:
            self.board.give_back(problems)
            if _is_away(error):
                self._away(error)
            elif isinstance(error, GustfrontError):
                log.warning("%s", error)
            else:
                log.exception("heartbeat failed")

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):
                store.close()
