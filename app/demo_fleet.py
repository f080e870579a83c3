"""The fleet of ``gustfront demo`` as a process: ``python -m app.demo_fleet FOLDER``, its orders in FOLDER/demo.json.

It writes the past into the database once (FOLDER/history.done says so), then serves the fleet and keeps it going.
Started again after a crash or a long sleep it begins a new fleet, whose processes have just started, as a real one would.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aiohttp import web

from app.demo_history import FRESH, WARM, HistoryMaker, faces_of
from app.fleet_ingest import Gather, tools_of
from collectors.outputs import import_outputs
from collectors.requests import import_requests
from core.classes import ClassRules
from core.config import load_config
from core.config_models import Config
from core.records import Event
from core.roles import Roles
from fleet import scenarios
from fleet.director import STORY, Director, Scene, scripted
from fleet.faces.targets import Seen
from fleet.fleets import demo as demo_fleet
from fleet.history import EVERY
from fleet.model import Attempt, FleetSpec
from fleet.outputs.files import Rolling, Sampler, attempt, line
from fleet.serve import Asleep, LiveFleet, application
from fleet.simulation import Simulation
from sql.store import Store

log = logging.getLogger("demo")

ORDERS = "demo.json"
DONE = "history.done"
STORY_NAME = "story"


@dataclass(frozen=True, slots=True)
class Orders:
    """What the process is to do."""

    port: int
    scenario: str = STORY_NAME
    speed: float = 1.0
    seed: int = 7
    share: float = 0.25

    def write(self, folder: Path) -> None:
        """Into the folder, for the process to read."""
        (folder / ORDERS).write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Orders:
        """The inverse."""
        return cls(**json.loads((folder / ORDERS).read_text("utf-8")))

    def fleet(self, start: float) -> tuple[FleetSpec, tuple[Scene, ...]]:
        """The fleet, without faults of its own, and the story to be played with it."""
        if self.scenario == STORY_NAME:
            return replace(demo_fleet(self.seed), start=start, lead=WARM), STORY
        spec = scenarios.build(self.scenario, self.seed, start=start)
        return replace(spec, faults=(), end=None, start=start, lead=WARM), scripted(spec)


class Logs:
    """The two growing logs of the fleet, and operators' events into the database."""

    def __init__(self, folder: Path, orders: Orders, store: Store) -> None:
        self._answers, self._attempts = Rolling(folder / "requests.jsonl"), Rolling(folder / "gateway.jsonl")
        self._sampler, self._store, self._told = Sampler(orders.seed, orders.share), store, 0
        self.sim: Simulation | None = None

    def answers(self, lines: list[str]) -> None:
        """Sampled answers."""
        self._answers.write(lines)

    def attempts(self, attempts: list[Attempt]) -> None:
        """Gateway attempts."""
        self._attempts.write([line(attempt(a, tenants=True)) for a in attempts])

    def sink(self, seen: Seen) -> None:
        """All that a tick brought."""
        self.answers(self._sampler.lines(seen.finishes))
        self.attempts(seen.attempts)
        events = self.sim.events if self.sim is not None else []
        if len(events) > self._told:
            self._store.add_events(
                [Event(e.ts, e.kind, e.text, e.pool, source="demo") for e in events[self._told :]]
            )
            self._told = len(events)

    def close(self) -> None:
        """Close the files."""
        self._answers.close()
        self._attempts.close()


def take_in(config: Config, store: Store) -> None:
    """Import both logs as far as they are written; the collector goes on from there."""
    rules, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
    for source in config.sources:
        if source.requests is not None:
            import_requests(store, source.requests.file, rules, roles, config=config)
        if source.outputs is not None:
            import_outputs(store, source.outputs.file, rules, roles, config=config)


def begin(folder: Path, orders: Orders, config: Config, store: Store, logs: Logs) -> LiveFleet:
    """The simulation with its past written, at about now."""
    now = time.time() // EVERY * EVERY
    first = not (folder / DONE).exists()
    spec, story = orders.fleet(now - (FRESH if first else 30.0))
    sim = Simulation(spec)
    logs.sim = sim
    source = next(s.scrape for s in config.sources if s.scrape is not None)
    if first:
        gather = Gather(tools_of(config), source, f"127.0.0.1:{orders.port}")
        maker = HistoryMaker(store, config, sim, gather, log_answers=logs.answers, log_attempts=logs.attempts)
        maker.write()
        maker.catch_up(time.time(), logs.sink)
        take_in(config, store)  # so that the first baselines know of it
        (folder / DONE).write_text(f"{time.time():.0f}\n", "utf-8")
        faces = maker.faces
    else:
        faces = faces_of(sim)
        sim.run(spec.start)
        faces.observe()
    director = Director(story, sim.now + 20.0, orders.speed)
    return LiveFleet(sim, faces, director, logs.sink)


async def serve(folder: Path, stop: threading.Event) -> None:
    """Serve until ``stop``."""
    orders = Orders.read(folder)
    config = load_config(folder / "gustfront.yaml")
    with Store.open(config.database) as store:
        logs = Logs(folder, orders, store)
        try:
            fleet = await asyncio.to_thread(begin, folder, orders, config, store, logs)
            runner = web.AppRunner(application(fleet, orders.port), access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", orders.port).start()
                log.info("the fleet is up: http://127.0.0.1:%d/sd", orders.port)
                running = asyncio.create_task(fleet.keep_up())
                while not stop.is_set() and not running.done():
                    await asyncio.sleep(0.1)
                if running.done():
                    running.result()
                running.cancel()
            finally:
                await runner.cleanup()
        finally:
            logs.close()


def main() -> None:
    """Entry point of the process."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    stop = threading.Event()
    folder = Path(sys.argv[1])

    def leave(*_: object) -> None:
        # Writing the past is not waited for: each of its transactions is whole, and the next start begins anew.
        if not (folder / DONE).exists():
            os._exit(0)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    try:
        asyncio.run(serve(folder, stop))
    except Asleep as reason:
        log.warning("%s: a new fleet is begun", reason)
        raise SystemExit(75) from None


if __name__ == "__main__":
    main()
