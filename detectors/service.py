"""Live detection: the same fold as a back-test, once a tick, on what has arrived.

A tick judges the time ``now - lag``, where ``lag`` is what data really need to arrive (measured) or what the configuration says.
Memory is kept in the store after each tick, so that a restart of the service goes on where it stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Event as StopEvent

import orjson

from core.beats import DETECT, DETECT_STANDBY, EVERY_S
from core.config_models import Config
from core.errors import StoreError
from core.incidents import Incident
from core.records import OutputRecord
from detectors.contract import Detector
from detectors.cube import Cube
from detectors.fold import Fold
from detectors.incidents import Change
from detectors.leading import LEASE, Leader
from detectors.registry import detectors as all_detectors
from detectors.samples import Samples
from detectors.source import context_of, fill, new_cube
from sql.store import Store

log = logging.getLogger(__name__)

STATE = "fold"
DEPTH_S = 6 * 3600.0
LEAST_LAG_S = 5.0
MOST_LAG_S = 120.0
KEEP_STATE_S = 60.0
BASELINE_S = 3600.0
RETRY_S = 5.0


class LeaseLost(Exception):
    """Another detector leads by now: what this one remembers is out of date, and nothing of it was stored."""


class Live:
    """Detection over one store. :meth:`tick` may be called at any time; it does nothing twice.

    With ``holder`` it stores only while that process holds the lease.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        detectors: tuple[Detector, ...] | None = None,
        depth: float = DEPTH_S,
        holder: str = "",
    ) -> None:
        self.lease = (LEASE, holder) if holder else None
        self.store, self.config = store, config
        self.items = detectors if detectors is not None else all_detectors()
        self.depth = depth
        saved = store.load_state(STATE)
        self.fold = Fold(context_of(config), self.items, orjson.loads(saved) if saved else None)
        newest = store.newest()
        self.cube: Cube | None = None if newest is None else self._cube(newest)
        self.records: list[OutputRecord] = []
        self.samples = Samples.of([])
        self.seen_outputs = 0.0
        self.saved = 0.0
        self.kept: dict[str, float] = {}
        self.seconds = 0.0
        self.lag = LEAST_LAG_S if config.detect.lag == "auto" else float(config.detect.lag)

    def _cube(self, newest: float) -> Cube:
        return new_cube(self.items, newest - self.depth, self.depth, context_of(self.config))

    def measure_lag(self, now: float) -> float:
        """How far behind ``now`` the data of all living targets are complete: the oldest of the newest scrapes, smoothed.

        A target that has been away for two minutes does not hold up the others.
        """
        if self.config.detect.lag != "auto":
            return float(self.config.detect.lag)
        ages = [now - row.last_seen for row in self.store.targets() if now - row.last_seen < MOST_LAG_S]
        if not ages:
            return self.lag
        want = min(max(max(ages), LEAST_LAG_S), MOST_LAG_S)
        # Up at once, down slowly: an instant that was judged is never judged again.
        self.lag = want if want > self.lag else 0.9 * self.lag + 0.1 * want
        return self.lag

    def tick(self, now: float) -> list[Change]:
        """Judge the newest complete instant; returns what changed. Raises StoreError where the store is away, LeaseLost."""
        began = time.perf_counter()
        newest = self.store.newest()
        if newest is None:
            return []
        step = self.fold.context.step
        as_of = (now - self.measure_lag(now)) // step * step
        if self.cube is None:
            self.cube = self._cube(as_of)
        if as_of <= self.cube.end and self.cube.cells:
            return []
        fill(self.cube, self.store, as_of)
        self._outputs(as_of)
        changes = self.fold.tick(
            self.cube, self.samples, self.store.events(as_of - self.depth, as_of), now, as_of
        )
        self._save(changes, now)
        self.seconds = time.perf_counter() - began
        return changes

    def _outputs(self, as_of: float) -> None:
        since = self.seen_outputs or as_of - self.depth
        new = self.store.outputs(since, as_of)
        self.seen_outputs = as_of
        if new:
            known = {r.id for r in self.records[-5000:]}
            self.records = [r for r in self.records if r.ts > as_of - self.depth]
            self.records.extend(r for r in new if r.id not in known)
            self.samples = Samples.of(self.records)

    def _save(self, changes: list[Change], now: float) -> None:
        alive = [t.incident for t in self.fold.tracker.tracked.values()]
        changed = {c.incident.id for c in changes}
        found = [i for i in alive if i.id in changed or (i.state != "resolved" and i.updated_at == now)]
        keep = bool(changes) or now - self.saved >= KEEP_STATE_S
        if not (found or keep):
            return
        # One transaction: whoever takes over from a process that died here knows all of this tick, or nothing of it.
        self._store(found, [(c.incident.id, now, c.action, c.text) for c in changes], keep)
        if keep:
            self.save_baselines()
            self.saved = now

    def _store(
        self, found: Sequence[Incident], entries: Sequence[tuple[str, float, str, str]], keep: bool
    ) -> None:
        state = (STATE, orjson.dumps(self.fold.dump())) if keep else None
        if not self.store.save_detection(found, entries, state, self.lease):
            raise LeaseLost

    def save_state(self) -> None:
        """Keep the memory of detection, and what each detector has learnt. Raises LeaseLost."""
        self._store([], [], True)
        self.save_baselines()

    def save_baselines(self) -> None:
        """Keep once an hour what each detector has learnt."""
        for kind, baseline in self.fold.baselines.items():
            as_of = float(baseline["as_of"])
            if as_of // BASELINE_S > self.kept.get(kind, 0.0) // BASELINE_S:
                self.store.save_baseline(kind, "fleet", as_of, orjson.dumps(baseline))
                self.kept[kind] = as_of


def run_detect(config: Config, stop_event: StopEvent, *, clock: Callable[[], float] = time.time) -> None:
    """Detect until ``stop_event`` is set; of several processes that do, one detects and the others stand by.

    A store that is away is tried again; its error is logged once.
    """
    away = ""
    live: Live | None = None
    store: Store | None = None
    leader: Leader | None = None
    every = float(config.detect.every)
    beat, term = -EVERY_S, 0.0
    try:
        while not stop_event.is_set():
            try:
                if store is None:
                    store = Store.open(config.database)
                if leader is None:
                    leader = Leader(store, every)
                if not leader.lead():
                    live = None  # what another leader remembers is read when it is needed
                elif live is None or term != leader.term:
                    live, term = Live(store, config, holder=leader.holder), leader.term
                for change in live.tick(clock()) if live is not None else ():
                    i = change.incident
                    log.info(
                        "%s %s (%s, %s): %s", change.action, i.id, i.kind, i.severity, change.text or i.title
                    )
                if time.monotonic() - beat >= EVERY_S:
                    beat = time.monotonic()
                    store.set_cursor(DETECT if live is not None else DETECT_STANDBY, f"{clock():.3f}")
                if away:
                    log.info("the database is back")
                    away = ""
                stop_event.wait(max(0.05, every - clock() % every))
            except LeaseLost:
                log.warning("another detector has taken over; what this one found last was not stored")
                live = None
            except StoreError as error:
                if str(error) != away:
                    log.warning("detection waits for the database: %s", error)
                    away = str(error)
                stop_event.wait(RETRY_S)
    finally:
        if store is not None:
            if live is not None:
                try:
                    live.save_state()
                except StoreError as error:
                    log.warning("the memory of detection was not saved: %s", error)
                except LeaseLost:
                    log.warning("another detector has taken over; its memory stays")
            if leader is not None:
                leader.close()
            store.close()
