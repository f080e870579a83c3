"""Outputs and outcomes received over HTTP: read, scored and stored, one body at a time, or refused for now.

The only part of the app that writes facts. It has a writing store of its own, opened at the first body, beside the read-only
one that pages and API share. A body is answered when its records are stored; while more than ``intake.waiting`` bodies wait,
further ones are refused (:class:`Busy`) and their sender tries again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from collectors import otlp
from collectors.fields import BadRecord
from collectors.outcomes import read_outcome
from collectors.outputs import OutputReader, output_reader
from collectors.pseudonyms import Pseudonyms
from collectors.translate import Translator
from core.classes import ClassRules
from core.config import Config
from core.errors import StoreError
from core.records import Outcome, OutputRecord, Problem
from core.roles import Roles
from sql.store import Store

REGISTRY = CollectorRegistry()
RECORDS = Counter(
    "gustfront_intake_records", "Records received, by kind and result.", ["kind", "result"], registry=REGISTRY
)
REFUSED = Counter(
    "gustfront_intake_refused_bodies", "Bodies refused, by HTTP status.", ["status"], registry=REGISTRY
)
SECONDS = Histogram(
    "gustfront_intake_seconds", "From a body's turn until its records are stored.", registry=REGISTRY
)
_SHOWN = 20
_SCORED_AT_ONCE = 50
"""Between so many records the interpreter gets a chance to serve a page."""


class Busy(Exception):
    """Too many bodies wait; ``retry_after`` whole seconds."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(f"try again in {retry_after} s")


@dataclass
class Taken:
    """What became of the records of one body: ``received`` = ``stored`` + ``already_there`` + ``skipped`` + ``bad``."""

    received: int = 0
    stored: int = 0
    already_there: int = 0
    skipped: int = 0
    problems: list[tuple[int, BadRecord]] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """Records refused."""
        return len(self.problems)

    def as_json(self) -> dict[str, Any]:
        """Counts, and the first problems with the index of their record."""
        shown = [
            {"index": i, "code": p.code, "message": p.what, "fix": p.fix} for i, p in self.problems[:_SHOWN]
        ]
        return {
            "received": self.received,
            "stored": self.stored,
            "already_there": self.already_there,
            "skipped": self.skipped,
            "bad": self.bad,
            "problems": shown,
        }


class Intake:
    """One process's intake for one configuration. Thread-safe: one body is at work, others wait their turn."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._turn, self._count = threading.Lock(), threading.Lock()
        self._waiting = 0
        self._seconds = 1.0
        self._store: Store | None = None
        self._readers: dict[str, OutputReader] = {}
        self._names: Pseudonyms | None = None

    def outputs(
        self, records: Iterable[Mapping[str, Any]], format_name: str = "auto", source: str = "api"
    ) -> Taken:
        """Score and store outputs. ``Busy``; ``StoreError``; ``ConfigError`` for an unknown format."""
        translate = Translator(format_name)
        return self._outputs((list(translate(r)) for r in records), source)

    def spans(self, body: Mapping[str, Any]) -> Taken:
        """The answers in an OTLP body; spans without an answer's text are no outputs and are skipped."""
        translate = Translator()
        return self._outputs(
            (
                [o for o in translate(r) if o.get("output") is not None or o.get("tool_calls")]
                if _is_genai(r)
                else []
                for r in otlp.flat_records(body)
            ),
            "otlp",
        )

    def outcomes(self, records: Iterable[Mapping[str, Any]]) -> Taken:
        """Store outcomes. ``Busy``; ``StoreError``."""
        with self._my_turn() as store:
            taken, good = Taken(), list[Outcome]()
            names = self._pseudonyms(store)
            for i, data in enumerate(records):
                taken.received += 1
                try:
                    good.append(read_outcome(data, names, "api"))
                except BadRecord as error:
                    taken.problems.append((i, error))
            taken.stored = store.add_outcomes(good)
            taken.already_there = len(good) - taken.stored
            self._note(store, "outcomes", taken)
        return taken

    def close(self) -> None:
        """Close the writing store."""
        with self._turn:
            self._forget()

    def _outputs(self, many: Iterable[Sequence[Mapping[str, Any]]], source: str) -> Taken:
        with self._my_turn() as store:
            taken, good = Taken(), list[OutputRecord]()
            reader = self._reader(store, source)
            for i, found in enumerate(many):
                taken.received += max(1, len(found))
                taken.skipped += not found
                for data in found:
                    try:
                        record = reader.read(data)
                    except BadRecord as error:
                        taken.problems.append((i, error))
                    else:
                        if record is None:
                            taken.skipped += 1
                        else:
                            good.append(record)
                if i % _SCORED_AT_ONCE == _SCORED_AT_ONCE - 1:
                    time.sleep(0)
            taken.stored = store.add_outputs(good)
            taken.already_there = len(good) - taken.stored
            self._note(store, source, taken)
        return taken

    @contextmanager
    def _my_turn(self) -> Iterator[Store]:
        with self._count:
            if self._waiting > self.config.intake.waiting:
                raise Busy(max(1, round(self._seconds * self._waiting)))
            self._waiting += 1
        try:
            with self._turn:
                begun = time.perf_counter()
                try:
                    if self._store is None:
                        self._store = Store.open(self.config.database)
                    yield self._store
                except StoreError:
                    self._forget()
                    raise
                spent = time.perf_counter() - begun
                self._seconds = 0.7 * self._seconds + 0.3 * spent
                SECONDS.observe(spent)
        finally:
            with self._count:
                self._waiting -= 1

    def _forget(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store, self._names = None, None
        self._readers.clear()

    def _pseudonyms(self, store: Store) -> Pseudonyms:
        if self._names is None:
            self._names = Pseudonyms.of(store)
        return self._names

    def _reader(self, store: Store, source: str) -> OutputReader:
        if source not in self._readers:
            config = self.config
            self._readers[source] = output_reader(
                store, ClassRules.from_config(config.classes), Roles.from_config(config.roles), config, source
            )
        return self._readers[source]

    def _note(self, store: Store, kind: str, taken: Taken) -> None:
        for result in ("stored", "already_there", "skipped", "bad"):
            RECORDS.labels(kind, result).inc(getattr(taken, result))
        counts: dict[tuple[str, str, str], int] = {}
        for _, p in taken.problems:
            counts[p.code, p.what, p.fix] = counts.get((p.code, p.what, p.fix), 0) + 1
        if counts:
            now = time.time()
            store.add_problems(
                [
                    Problem(now, f"intake {kind}", code, what, f"a record {what}", fix, n)
                    for (code, what, fix), n in counts.items()
                ]
            )


def _is_genai(record: Mapping[str, Any]) -> bool:
    return any(k.startswith(("gen_ai.", "llm.", "openinference.")) for k in record["attributes"])


_lock = threading.Lock()
_intakes: list[Intake] = []


def shared_intake(config: Config) -> Intake:
    """The intake of this process; a new one where the configuration has changed."""
    with _lock:
        if not _intakes or _intakes[0].config is not config:
            for old in _intakes:
                old.close()
            _intakes[:] = [Intake(config)]
        return _intakes[0]


def close_intake() -> None:
    """End of the process."""
    with _lock:
        for intake in _intakes:
            intake.close()
        _intakes.clear()
