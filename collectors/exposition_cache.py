"""The memory of one target's lines, which makes its later scrapes cheap."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import replace
from itertools import compress
from operator import ne

import numpy as np

from collectors.exposition_body import Exposition, Limits, Reader, Report, Series, prepare
from collectors.exposition_lines import LineError, number, show, split_line, tail_value
from core.records import Problem

ABSENT_SCRAPES = 4
"""After so many scrapes without some of the known series, they are forgotten."""

_TORN = frozenset(
    {"truncated_body", "body_too_large", "html_body", "json_body", "compressed_body", "too_many_series"}
)
"""What says that a body does not hold all that the target exports."""


_HOLES = _TORN | {"bad_line"}
_FIRST_CUT = "the body does not end with a newline: its last family is left out until the next scrape shows the same end"
_SUFFIX = re.compile(r"_(?:bucket|sum|count|total|created)$")


def _family(name: str) -> str:
    return _SUFFIX.sub("", name)


class PrefixCache:
    """The memory of one target's lines, for repeated scrapes.

    The ``series`` of a result stay the same list while the target exports the same series; values are aligned with it, NaN where
    a scrape lacks one. When series appear, or others have been gone for a few scrapes, the list is made anew and ``generation``
    moves: what is gone must not linger, or a target that restarts with other buckets would seem to have both kinds.
    """

    def __init__(self, limits: Limits | None = None, source: str = "") -> None:
        self.limits = limits or Limits()
        self.source = source
        self.generation = 0
        self._start()

    def _start(self) -> None:
        self.series: list[Series] = []
        self.types: dict[str, str] = {}
        self._slots: dict[bytes, int] = {}
        self._refused: dict[bytes, str] = {}
        self._keys: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._skip: frozenset[int] = frozenset()
        self._lines: list[bytes] = []
        self._line_slot: list[int] = []
        self._line_head: list[bytes | None] = []
        self._values = np.empty(0)
        self._problems: list[Problem] = []
        self._dropped: dict[str, int] = {}
        self._look = True  # the next body is matched line by line
        self._cut = False
        self._absent = False
        self._absent_for = 0

    def keep(self, used: Collection[int]) -> None:
        """Read only these series until the list changes; the values of the others become NaN."""
        wanted = set(used)
        self._skip = frozenset(i for i in range(len(self.series)) if i not in wanted)
        self._look = True

    def forget(self) -> None:
        """Drop everything remembered."""
        generation = self.generation
        self._start()
        self.generation = generation + 1

    def scrape(self, body: bytes | str, *, ts: float = 0.0) -> Exposition:
        """Read one body of the target. ``generation`` of the result tells whether ``series`` is still the same list."""
        report = Report(self.limits, self.source, ts)
        text = prepare(body, self.limits, report)
        lines = text.split(b"\n")
        same = not report.dropped and not self._look and len(lines) == len(self._lines)
        if same and self._moved(lines):
            if self._absent:
                self._absent_for += 1
                if self._absent_for >= ABSENT_SCRAPES:
                    return self._anew(lines, ts)
            return self._result([replace(p, ts=ts) for p in self._problems], dict(self._dropped))
        known = len(self.series)
        found = self._resync(lines, report)
        readable = not self._cut and not report.dropped.keys() & _TORN
        grown = len(self.series) > known
        if readable and ((grown and (self._absent or self._skip)) or self._absent_for >= ABSENT_SCRAPES):
            return self._anew(lines, ts)
        return found

    def _anew(self, lines: list[bytes], ts: float) -> Exposition:
        """Forget, and read the same lines again: the series are then exactly those of this body, all of them read."""
        self.forget()
        return self._resync(lines, Report(self.limits, self.source, ts))

    def _result(self, problems: list[Problem], dropped: dict[str, int]) -> Exposition:
        return Exposition(self.series, self._values.copy(), self.types, problems, dropped, self.generation)

    def _moved(self, lines: list[bytes]) -> bool:
        """Take over the values of lines that changed since the last scrape; False where more than values changed."""
        slots, heads, old = self._line_slot, self._line_head, self._lines
        places: list[int] = []
        tails: list[bytes] = []
        for i in compress(range(len(lines)), map(ne, lines, old)):
            new, head = lines[i], heads[i]
            if head is None or not new.startswith(head):
                return False
            if slots[i] >= 0:
                places.append(slots[i])
                tails.append(new[len(head) :])
        if places:
            try:
                if b"_" in b"".join(tails):
                    raise ValueError
                fresh = list(map(float, tails))
            except ValueError:
                try:
                    fresh = list(map(tail_value, tails))
                except LineError:
                    return False
            self._values[places] = fresh
        self._lines = lines
        return True

    def _resync(self, lines: list[bytes], report: Report) -> Exposition:
        """Match every line by its prefix, and parse those never seen."""
        before, self.series = self.series, list(self.series)
        last = self._lines[-1] if self._lines else None
        known_before, self._cut = bool(before), False
        reader = Reader(self.limits, report)
        reader.types = self.types
        slots: list[int] = []
        heads: list[bytes | None] = []
        found: dict[int, float] = {}
        for n, line in enumerate(lines, 1):
            slot, head = -1, 0
            if line and line[0] == 35:
                if b"TYPE" in line[:8]:
                    reader.comment(line)
            elif line:
                cut = n == len(lines)  # a body that ends as it should has an empty last line
                try:
                    head, slot = self._find(line, n, reader)
                    if slot >= 0:
                        skip = slot in self._skip
                        value = math.nan if skip else self._tail(line[head:])
                        if slot in found:
                            name = self.series[slot][0]
                            report.drop(
                                "duplicate_series", f"line {n}", f"{name} appears twice; the first is kept"
                            )
                            slot = -1
                        elif cut and last is None and not known_before:
                            self._cut = True
                            report.add("no_final_newline", f"line {n}", _FIRST_CUT)
                        elif cut and (last or b"")[:head] != line[:head]:
                            raise LineError("the body stops here")
                        else:
                            found[slot] = value
                            slot = -1 if skip else slot
                            if cut:
                                report.add(
                                    "no_final_newline", f"line {n}", "the body does not end with a newline"
                                )
                except LineError as error:
                    code = "truncated_body" if cut else "bad_line"
                    report.drop(code, f"line {n}", f"{error}: {show(line)}")
                    slot, head = -1, 0
            slots.append(slot)
            heads.append(line[:head] if head else None)
        if len(self.series) == len(before):
            self.series = before
        else:
            self.generation += 1
        self._values = np.full(len(self.series), np.nan)
        if found:
            self._values[list(found)] = list(found.values())
        self._absent = len(found) < len(self.series)
        self._look = self._absent and (self._cut or bool(report.dropped.keys() & _HOLES))
        if self._look:
            self._blank(found)
        self._absent_for = self._absent_for + 1 if self._absent else 0
        if len(self._slots) > 2 * len(self.series) + 1000:  # one series under ever new spellings
            self._slots = {}
        self._lines, self._line_slot, self._line_head = lines, slots, heads
        self._problems, self._dropped = report.finish(), report.dropped
        return self._result(list(self._problems), dict(self._dropped))

    def _blank(self, found: Collection[int]) -> None:
        """Where bad lines took a known series of a family, take the others too.

        Series of a family are added up further on; with one of them missing the sum would fall, as if the process had restarted.
        """
        torn = {_family(self.series[i][0]) for i in set(range(len(self.series))).difference(found)}
        self._values[[i for i, (name, _) in enumerate(self.series) if _family(name) in torn]] = np.nan

    def _find(self, line: bytes, n: int, reader: Reader) -> tuple[int, int]:
        """Where the value of a line begins and its slot, -1 where the series is dropped."""
        end = line.rfind(b" ") + 1
        slot = self._slots.get(line[:end])
        if slot is None and self._refused and (reason := self._refused.get(line[:end])):
            reader.report.drop(reason, f"line {n}", "as in the scrape before")
            return end, -1
        if slot is None:
            before = line.rfind(b" ", 0, max(end - 1, 0)) + 1  # perhaps a time stamp follows the value
            if before:
                slot = self._slots.get(line[:before])
                end = before
        return self._learn(line, n, reader) if slot is None else (end, slot)

    @staticmethod
    def _tail(tail: bytes) -> float:
        try:
            return number(tail)
        except ValueError:
            return tail_value(tail)

    def _learn(self, line: bytes, n: int, reader: Reader) -> tuple[int, int]:
        """Parse a line never seen: where its value begins and its slot, -1 where a limit forbids it."""
        if len(line) > self.limits.max_line:
            reader.report.drop("line_too_long", f"line {n}", f"{len(line)} bytes")
            return 0, -1
        name, labels, tail = split_line(line)
        tail_value(tail)
        end = len(line) - len(tail)
        key = (name, frozenset(labels.items()))
        slot = self._keys.get(key)
        if slot is None:
            reason = reader.refused(name, labels, n)
            if not reason and len(self.series) >= self.limits.max_series:
                reason = "too_many_series"
                text = f"more than {self.limits.max_series} series"
                reader.report.drop(reason, f"line {n}", text, "raise max_series or export less")
            if reason:
                if len(self._refused) < 2 * self.limits.max_series:
                    self._refused[line[:end]] = reason
                return end, -1
            slot = self._keys[key] = len(self.series)
            self.series.append((name, labels))
        self._slots[line[:end]] = slot
        return end, slot
