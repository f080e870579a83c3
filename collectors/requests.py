"""Import of a gateway's log: every attempt, folded into counts and fine latency buckets per minute, then dropped.

Fields of a line: ``ts`` (when the attempt ended) and ``status`` are what it takes; ``ttft_s``, ``duration_s``, ``prompt_tokens``,
``output_tokens``, ``workload``, ``class``, ``pool``, ``upstream``, ``tenant``, ``model`` and ``release`` are used where given.

Cells and the position in the file are written in one transaction, so that a stop at any moment neither loses nor doubles a line.
The position must still be where this import found it: two imports of one file at the same moment (the collector and a person)
count every line once, whoever comes first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, Protocol

from collectors.fields import BadRecord, count, instant, number
from collectors.imports import BadLines, ImportResult, Progress, batches, usable
from collectors.jsonlines import BEGINNING, JsonLines, Line, Position
from collectors.labelling import Labelling
from collectors.pseudonyms import Pseudonyms
from core.classes import ClassRules
from core.config import Config
from core.records import Problem, RequestRecord
from core.requests import RequestCell, RequestKey, fine_edges, fold
from core.roles import Roles

BATCH = 50_000


class RequestStore(Protocol):
    """What the import needs of the store."""

    def get_cursor(self, name: str) -> str | None:
        """The value of a cursor, None if it was never set."""

    def set_cursor(self, name: str, value: str) -> None:
        """Set a cursor."""

    def add_requests(
        self,
        cells: Mapping[RequestKey, RequestCell],
        *,
        cursor: tuple[str, str] | None = None,
        expected: str | EllipsisType | None = ...,
    ) -> bool:
        """Add cells and set the cursor in one transaction; False, and nothing, where the cursor is not ``expected``."""

    def add_problems(self, problems: Sequence[Problem]) -> None:
        """Note problems of the input."""


def read_request(data: Mapping[str, Any], labelling: Labelling) -> RequestRecord:
    """The attempt in the object of one line; ``BadRecord`` where something needed is missing or wrong."""
    ts = instant(data)
    status = data.get("status")
    if isinstance(status, str) and status.isascii() and status.isdigit():
        status = int(status)
    if isinstance(status, bool) or not isinstance(status, int):
        raise BadRecord(
            "no_status", "has no status", "give the HTTP status of the attempt, 499 where the client left"
        )
    if not 0 <= status <= 999:
        raise BadRecord("bad_value", "status is no HTTP status", "give the HTTP status of the attempt")
    place = labelling.place(data)
    return RequestRecord(
        ts=ts,
        status=status,
        workload_class=place.class_,
        duration_s=number(data, "duration_s"),
        ttft_s=number(data, "ttft_s"),
        prompt_tokens=count(data, "prompt_tokens"),
        output_tokens=count(data, "output_tokens"),
        tenant=place.tenant,
        model=place.model,
        pool=place.pool,
        replica=place.replica,
        release=place.release,
    )


def import_requests(
    store: RequestStore,
    path: str | Path,
    classes: ClassRules,
    roles: Roles,
    *,
    config: Config,
    point: str = "gateway",
    progress: Progress | None = None,
) -> ImportResult:
    """Import a file of JSON lines (plain, .gz, .zst). Repeating it adds nothing; a file that grew goes on where it stopped.

    ``point`` is where the log was measured: gateway, router or client. Lines that cannot be used are skipped and become problems;
    ``InputError`` if the file is missing or its compression is broken (what came before the break is kept).
    """
    file = JsonLines(path)
    result, bad = ImportResult(str(file.path)), BadLines(file.path, "requests")
    labelling = Labelling(classes, roles, config, Pseudonyms.of(store))
    edges = fine_edges(config.request_thresholds)
    first = True
    try:
        while True:
            cursor, start, stored = _where(file, store, f"requests:{point}")
            if first:
                result.resumed_at, first = start.line, False
            for batch in batches(file.lines(start), BATCH, file, progress, "requests"):
                before = (result.read, result.blank, result.bad, bad.copy())
                records, after = _read(batch, labelling, bad, result)
                if after is None or not cursor:  # a first line still being written: nothing can be remembered
                    continue
                position = after.position().to_json()
                cells = fold(records, edges, point=point, joints=config.request_joints)
                if not store.add_requests(cells, cursor=(cursor, position), expected=stored):
                    result.read, result.blank, result.bad, bad = before
                    break
                stored = position
                result.imported += len(records)
                for r in records:
                    result.saw(r.ts)
            else:
                break
    finally:
        result.problems = bad.problems(time.time())
        if result.problems:
            store.add_problems(result.problems)
    return result


def _where(file: JsonLines, store: RequestStore, prefix: str) -> tuple[str, Position, str | None]:
    """Cursor, position and the cursor's text, which an import by somebody else may move at any moment."""
    while True:
        cursor, start = file.resume(store, prefix)
        stored = store.get_cursor(cursor) if cursor else None
        if start == (BEGINNING if stored is None else Position.from_json(stored)):
            return cursor, start, stored


def _read(
    batch: Sequence[Line], labelling: Labelling, bad: BadLines, result: ImportResult
) -> tuple[list[RequestRecord], Line | None]:
    """The attempts in some lines, and the last line that is complete."""
    records: list[RequestRecord] = []
    after = None
    for line in batch:
        data = usable(line, bad, result)
        if data is not None:
            try:
                records.append(read_request(data, labelling))
            except BadRecord as error:
                result.bad += 1
                bad.add(line.number, error)
        if line.complete or data is not None:
            after = line
    return records, after
