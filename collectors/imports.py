"""What imports of files have in common: counting, problems by kind with line numbers, progress, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.fields import BadRecord, record
from collectors.jsonlines import JsonLines, Line
from core.errors import InputError
from core.records import Problem

Progress = Callable[[float, float, str], None]
"""``progress(done, total, message)``: bytes of the file read, its size, what is going on."""
_SHOWN = 5


@dataclass
class ImportResult:
    """What an import did. ``read`` lines = ``imported`` + ``known`` (there already) + ``bad`` + ``blank`` + ``skipped`` (no
    outputs, or not wanted by the configuration), where each line holds one record.

    ``resumed_at``: lines that an earlier run had read. ``verdicts``: outputs by verdict (imports of outputs only).
    """

    file: str
    read: int = 0
    imported: int = 0
    known: int = 0
    bad: int = 0
    blank: int = 0
    skipped: int = 0
    resumed_at: int = 0
    first: float | None = None
    last: float | None = None
    verdicts: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def saw(self, ts: float) -> None:
        """Widen the span of the imported data."""
        self.first = ts if self.first is None else min(self.first, ts)
        self.last = ts if self.last is None else max(self.last, ts)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``: plain values; times in ISO 8601, UTC."""
        out: dict[str, Any] = {
            "file": self.file,
            "lines": self.read,
            "imported": self.imported,
            "already_there": self.known,
            "bad": self.bad,
            "skipped": self.skipped,
            "resumed_at_line": self.resumed_at,
            "first": _iso(self.first),
            "last": _iso(self.last),
        }
        if self.verdicts:
            out["verdicts"] = dict(sorted(self.verdicts.items()))
        out["problems"] = [
            {"code": p.code, "count": p.count, "message": p.message, "fix": p.fix} for p in self.problems
        ]
        return out


def _iso(ts: float | None) -> str | None:
    return None if ts is None else datetime.fromtimestamp(ts, UTC).isoformat().replace("+00:00", "Z")


class BadLines:
    """Collects refused lines: one problem a kind with the numbers of its first lines."""

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source
        self._kinds: dict[tuple[str, str, str], tuple[int, list[int]]] = {}

    def copy(self) -> BadLines:
        """What is collected so far, on its own."""
        other = BadLines(self._path, self._source)
        other._kinds = {key: (n, list(lines)) for key, (n, lines) in self._kinds.items()}
        return other

    def add(self, line: int, bad: BadRecord) -> None:
        """Note one refused line."""
        key = (bad.code, bad.what, bad.fix)
        n, lines = self._kinds.get(key, (0, []))
        if len(lines) < _SHOWN:
            lines.append(line)
        self._kinds[key] = (n + 1, lines)

    def problems(self, now: float) -> list[Problem]:
        """One problem for each kind, ``subject`` is the file's name."""
        out = []
        for (code, what, fix), (n, lines) in self._kinds.items():
            where = ", ".join(map(str, lines)) + (", ..." if n > len(lines) else "")
            message = f"line{'s' if n > 1 else ''} {where}: {what}"
            out.append(Problem(now, self._source, code, f"{self._path.name}: {what}", message, fix, n))
        return out


def batches(
    lines: Iterator[Line], size: int, file: JsonLines, progress: Progress | None, what: str
) -> Iterator[list[Line]]:
    """Lines in lists of ``size``; reports progress after each. A stream that breaks delivers what came before the break."""
    batch: list[Line] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) >= size:
                yield batch
                batch = []
                if progress is not None:
                    progress(file.file.done, file.file.size, what)
    except InputError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
    if progress is not None:
        progress(file.file.size, file.file.size, what)


def usable(line: Line, bad: BadLines, result: ImportResult) -> dict[str, Any] | None:
    """The object of a line; None (and counted) where it is blank or refused."""
    result.read += 1
    if line.data is not None and not line.data.strip():
        result.blank += 1
        return None
    try:
        return record(line.data)
    except BadRecord as error:
        result.bad += 1
        if not line.complete and error.code == "not_json":
            error = BadRecord(
                "cut_off", "the last line is not complete", "nothing to do if the file is still being written"
            )
        bad.add(line.number, error)
        return None
