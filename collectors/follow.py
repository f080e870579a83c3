"""Following one Prometheus-compatible server: a poll each interval in a thread of its own, readings through the writer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from collectors.dictionary import Dictionary
from collectors.prometheus_live import PrometheusLive, decode_cursor, encode_cursor
from collectors.writer import Writer
from core.classes import ClassRules
from core.config_models import Config, SourceConfig
from core.errors import GustfrontError
from core.records import Problem
from core.roles import Roles
from sql.store import Store

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


def follow_prometheus(
    config: Config,
    source: SourceConfig,
    dictionary: Dictionary,
    classes: ClassRules,
    roles: Roles,
    writer: Writer,
    stop: threading.Event,
) -> Callable[[], None]:
    """The thread's function: polls until ``stop``. The cursor moves only with readings that are committed or spooled."""

    def run() -> None:
        live = PrometheusLive(source, dictionary, classes, roles, stop=stop)
        try:
            live.cursor = _cursor(config, live.cursor_name, stop)
            while not stop.is_set():
                begin = time.time()
                result = live.poll(begin)
                cursor = {} if result.cursor is None else {live.cursor_name: encode_cursor(result.cursor)}
                writer.put_history(result.readings, cursor, stop)
                for problem in result.problems:
                    writer.problem(problem)
                if result.lag is not None:
                    writer.metrics.source_lag.labels(live.name).set(result.lag)
                if not result.behind:
                    stop.wait(max(0.05, live.every - (time.time() - begin)))
        finally:
            live.close()

    def guarded() -> None:
        while not stop.is_set():
            try:
                run()
            except Exception as error:
                log.exception("reading %s failed unexpectedly; it is tried again", source.name)
                writer.problem(
                    Problem(
                        time.time(),
                        source.name,
                        "internal",
                        "server",
                        f"Reading failed unexpectedly: {type(error).__name__}: {str(error)[:300]}.",
                        "Please report this; it is tried again every few seconds.",
                    )
                )
                stop.wait(RETRY_SECONDS)

    return guarded


def _cursor(config: Config, name: str, stop: threading.Event) -> float | None:
    """Up to where an earlier run read; waits for a database that is away."""
    while not stop.is_set():
        try:
            with Store.open(config.database) as store:
                return decode_cursor(store.get_cursor(name))
        except GustfrontError as error:
            log.warning("%s", error)
            stop.wait(RETRY_SECONDS)
    return None
