"""The collector: every configured source at once, one writer, until told to stop.

Scrape sources run as tasks of one event loop; Prometheus servers and followed files each in a thread, since their clients
block; the :class:`~collectors.writer.Writer` thread alone writes readings. Without any source it still keeps the heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from collectors.bodies import BodyTools
from collectors.dictionary import load_dictionary
from collectors.follow import follow_prometheus
from collectors.scrape_source import SourceScraper
from collectors.selfmetrics import SelfMetrics
from collectors.shards import ALL, Shard
from collectors.spool import open_spool
from collectors.tail import follow_files
from collectors.writer import Sink, Writer
from core.classes import ClassRules
from core.config_models import Config
from core.roles import Roles
from sql.store import Store, database_file, database_name

log = logging.getLogger(__name__)

STOP_POLL = 0.1


def spool_folder(database: str, shard: Shard = ALL) -> Path:
    """Where readings wait while the database is away: beside a SQLite file, else in the working directory; one a shard."""
    end = f"-{shard.number}-of-{shard.of}" if shard.name else ""
    if (file := database_file(database)) is not None:
        return file.with_name(f"{file.name}-spool{end}")
    digest = blake2b(database_name(database).encode(), digest_size=6).hexdigest()
    return Path(f"gustfront-spool-{digest}{end}").absolute()


def raise_file_limit() -> None:
    """Allow as many open connections as the system lets us: one a target."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            log.debug("the limit of open files stays at %d: %s", soft, error)


async def run_collect(
    config: Config, stop: asyncio.Event | threading.Event | None = None, shard: Shard = ALL
) -> None:
    """Collect until ``stop`` is set (or, without one, until SIGINT or SIGTERM); what was read is committed or spooled first.

    Of the sources only those of ``shard`` are read.
    Raises ConfigError for a dictionary or rule that cannot be used. A database that is away is waited for, not raised.
    """
    stop = _on_signals() if stop is None else stop
    raise_file_limit()
    dictionary = load_dictionary()
    classes, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
    metrics = SelfMetrics(shard.name)
    spool, lock = open_spool(spool_folder(config.database, shard))

    def retain(store: Sink) -> None:
        if isinstance(store, Store):
            store.apply_retention(config.retention)

    writer = Writer(lambda: Store.open(config.database), spool, metrics, maintenance=retain)
    writer.start()
    ending = threading.Event()
    tasks: list[asyncio.Task[None]] = []
    threads: list[threading.Thread] = []

    def in_thread(name: str, target: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=target, name=name, daemon=True))

    tools = BodyTools(dictionary, classes, roles)
    files = []
    for source in filter(shard.has_source, config.sources):
        if source.scrape is not None:
            scraper = SourceScraper(
                source.scrape,
                tools,
                emit=writer.put,
                problem=writer.problem,
                metrics=metrics,
                shard=shard,
            )
            tasks.append(asyncio.create_task(scraper.run(), name=source.name))
        elif source.prometheus is not None:
            in_thread(
                source.name, follow_prometheus(config, source, dictionary, classes, roles, writer, ending)
            )
        else:
            files.append(source)
    if files:
        in_thread("files", follow_files(config, files, classes, roles, writer, ending))
    for thread in threads:
        thread.start()
    try:
        while not stop.is_set():
            for task in tasks:
                if task.done():
                    task.result()  # raises what ended it: the supervisor starts us again
            if not writer.alive:
                raise RuntimeError("the writer thread has ended")
            await asyncio.sleep(STOP_POLL)
    finally:
        ending.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(writer.stop)
        for thread in threads:
            thread.join(0.5)
        lock.close()


def _on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def main() -> None:
    """``python -m collectors.service [CONFIG]``: collect alone."""
    import sys

    from core.config import load_config

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(run_collect(load_config(sys.argv[1] if len(sys.argv) > 1 else None)))


if __name__ == "__main__":
    main()
