"""Following ``requests`` and ``outputs`` files: whatever was appended is imported every few seconds.

The importers remember in the database how far they came, so this only looks whether a file has changed. Compressed files are
imported once complete, as their size stops changing.
"""

from __future__ import annotations

import glob
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from collectors.imports import ImportResult
from collectors.outputs import import_outputs
from collectors.requests import import_requests
from collectors.writer import Writer
from core.classes import ClassRules
from core.config_models import Config, SourceConfig
from core.errors import GustfrontError, InputError, StoreError
from core.records import Problem
from core.roles import Roles
from sql.store import Store

log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
PACKED = (".gz", ".zst")

Version = tuple[int, int, int]


def _version(path: str) -> Version | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


class Tail:
    """The files of all ``requests`` and ``outputs`` sources. ``look`` is called by one thread."""

    def __init__(
        self,
        config: Config,
        sources: Sequence[SourceConfig],
        classes: ClassRules,
        roles: Roles,
        problem: Callable[[Problem], None],
    ) -> None:
        self._config, self._sources, self._classes, self._roles, self._problem = (
            config,
            sources,
            classes,
            roles,
            problem,
        )
        self._done: dict[tuple[str, str], Version] = {}
        self._seen: dict[tuple[str, str], Version] = {}

    def look(self, store: Store) -> list[ImportResult]:
        """Import what has changed. A file that cannot be read costs the others nothing. Raises StoreError."""
        out = []
        for source in self._sources:
            for path in self._paths(source):
                key = (source.name, path)
                version = _version(path)
                before, self._seen[key] = self._seen.get(key), version or (0, 0, 0)
                if version is None or version == self._done.get(key):
                    continue
                if path.endswith(PACKED) and version != before:
                    continue  # still being written
                result = self._import(store, source, path)
                self._done[key] = version
                if result is not None:
                    out.append(result)
        return out

    def _paths(self, source: SourceConfig) -> list[str]:
        spec = source.requests or source.outputs
        assert spec is not None
        found = sorted(glob.glob(spec.file, recursive=True))  # noqa: PTH207 - may be absolute
        if not found and not any(c in spec.file for c in "*?["):
            self._tell(
                source, spec.file, "missing", "The file does not exist (yet).", "Create it or correct `file`."
            )
        return found

    def _import(self, store: Store, source: SourceConfig, path: str) -> ImportResult | None:
        try:
            if source.requests is not None:
                result = import_requests(
                    store,
                    Path(path),
                    self._classes,
                    self._roles,
                    config=self._config,
                    point=source.requests.point,
                )
            else:
                assert source.outputs is not None
                result = import_outputs(
                    store,
                    Path(path),
                    self._classes,
                    self._roles,
                    config=self._config,
                    format_name=source.outputs.format,
                )
        except StoreError:
            raise
        except (InputError, OSError) as error:
            self._tell(
                source,
                path,
                "unreadable",
                f"The file cannot be read: {error}.",
                "Check its format and permissions.",
            )
            return None
        return result

    def _tell(self, source: SourceConfig, path: str, code: str, message: str, fix: str) -> None:
        self._problem(Problem(time.time(), source.name, f"file_{code}", path, message, fix))


def follow_files(
    config: Config,
    sources: Sequence[SourceConfig],
    classes: ClassRules,
    roles: Roles,
    writer: Writer,
    stop: threading.Event,
) -> Callable[[], None]:
    """The thread's function: looks every few seconds until ``stop``; waits for a database that is away."""
    tail = Tail(config, sources, classes, roles, writer.problem)

    def run() -> None:
        while not stop.is_set():
            try:
                with Store.open(config.database) as store:
                    while not stop.is_set():
                        for result in tail.look(store):
                            writer.metrics.imported.labels(Path(result.file).name).inc(result.imported)
                        stop.wait(LOOK_SECONDS)
            except GustfrontError as error:
                log.warning("%s", error)
                stop.wait(LOOK_SECONDS)
            except Exception as error:
                log.exception("following files failed unexpectedly; it is tried again")
                writer.problem(
                    Problem(
                        time.time(),
                        "files",
                        "internal",
                        "files",
                        f"Following files failed unexpectedly: {type(error).__name__}: {str(error)[:300]}.",
                        "Please report this; it is tried again every few seconds.",
                    )
                )
                stop.wait(LOOK_SECONDS)

    return run
