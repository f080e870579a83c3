"""Import of sampled outputs from files: JSON lines, or one JSON list as exports have it; each is scored when it comes in.

Fields are those of :mod:`collectors.output_reader`; records of other tools are translated first
(:mod:`collectors.translate`). Its text is dropped unless the configuration keeps it. An id is imported once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import orjson

from collectors.fields import BadRecord
from collectors.imports import BadLines, ImportResult, Progress, batches, usable
from collectors.jsonlines import JsonLines, Line
from collectors.labelling import Labelling
from collectors.output_reader import UNSCORED, OutputReader
from collectors.pseudonyms import Pseudonyms
from collectors.translate import Translator
from core.classes import ClassRules
from core.config import Config
from core.errors import InputError
from core.records import OutputRecord, Problem
from core.roles import Roles

__all__ = ["UNSCORED", "OutputReader", "OutputStore", "import_outputs", "output_reader"]

BATCH = 5000
MAX_DOCUMENT = 512 << 20
"""A JSON list (bytes, unpacked) is read whole; a longer one has to be written as JSON lines."""


class OutputStore(Protocol):
    """What the import needs of the store."""

    def get_cursor(self, name: str) -> str | None:
        """The value of a cursor, None if it was never set."""

    def set_cursor(self, name: str, value: str) -> None:
        """Set a cursor."""

    def add_outputs(self, records: Sequence[OutputRecord], *, cursor: tuple[str, str] | None = None) -> int:
        """Insert records with new ids and set the cursor in one transaction; how many were new."""

    def add_problems(self, problems: Sequence[Problem]) -> None:
        """Note problems of the input."""


def output_reader(
    store: OutputStore, classes: ClassRules, roles: Roles, config: Config, source: str
) -> OutputReader:
    """A reader with this database's pseudonyms."""
    names = Pseudonyms.of(store)
    return OutputReader(Labelling(classes, roles, config, names), names, config, source)


def import_outputs(
    store: OutputStore,
    path: str | Path,
    classes: ClassRules,
    roles: Roles,
    *,
    config: Config,
    format_name: str = "auto",
    progress: Progress | None = None,
) -> ImportResult:
    """Import a file (plain, .gz, .zst). Repeating it adds nothing; JSON lines that grew go on where they stopped.

    ``format_name``: a mapping of :mod:`collectors.translate`, ``gustfront`` or ``auto``. Lines that cannot be used are
    skipped and become problems; ``InputError`` if the file is missing or its compression is broken (what came before the
    break is kept).
    """
    file = JsonLines(path)
    result, bad = ImportResult(str(file.path)), BadLines(file.path, "outputs")
    reader, translate = output_reader(store, classes, roles, config, "file"), Translator(format_name)
    listed = _is_list(file)
    if listed:
        cursor, lines = "", _listed(file)
    else:
        cursor, start = file.resume(store, "outputs")
        result.resumed_at, lines = start.line, file.lines(start)
    try:
        for batch in batches(lines, BATCH, file, progress, "outputs"):
            records: list[OutputRecord] = []
            after = None
            for line in batch:
                data = usable(line, bad, result)
                if data is not None:
                    _read(reader, translate, data, line, records, bad, result)
                if line.complete or data is not None:
                    after = line
            done = (cursor, after.position().to_json()) if after is not None and cursor else None
            inserted = store.add_outputs(records, cursor=done)
            result.imported += inserted
            result.known += len(records) - inserted
            for r in records:
                result.saw(r.ts)
                result.verdicts[r.verdict] = result.verdicts.get(r.verdict, 0) + 1
    finally:
        result.problems = bad.problems(time.time())
        if result.problems:
            store.add_problems(result.problems)
    return result


def _read(
    reader: OutputReader,
    translate: Translator,
    data: Mapping[str, Any],
    line: Line,
    records: list[OutputRecord],
    bad: BadLines,
    result: ImportResult,
) -> None:
    """The outputs of one line: a trace or a page of an API may hold several, or none."""
    found = list(translate(data))
    result.skipped += not found
    for item in found:
        try:
            record = reader.read(item)
        except BadRecord as error:
            result.bad += 1
            bad.add(line.number, error)
        else:
            if record is None:
                result.skipped += 1
            else:
                records.append(record)


def _is_list(file: JsonLines) -> bool:
    """Whether the file is one JSON list rather than lines of objects."""
    with closing(file.file.open()) as stream:
        return stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["


def _listed(file: JsonLines) -> Iterator[Line]:
    """The entries of a JSON list as lines."""
    chunks, size = [], 0
    with closing(file.file.open()) as stream:
        while chunk := stream.read(1 << 20):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_DOCUMENT:
                raise InputError(
                    str(file.path),
                    f"a JSON list of more than {MAX_DOCUMENT >> 20} MiB",
                    "write JSON lines: jq -c '.[]' FILE",
                )
    try:
        items = orjson.loads(b"".join(chunks).lstrip(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise InputError(
            str(file.path), f"begins as a JSON list and is none: {error}", "export it again"
        ) from None
    for number, item in enumerate(items, 1):
        yield Line(number, orjson.dumps(item), 0, b"")
