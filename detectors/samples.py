"""Sampled outputs as columns: what the quality detectors count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.records import OutputRecord

Floats = NDArray[np.float64]


Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
CALL_RULES = frozenset({"call_text", "tool_json", "tool_name", "tool_schema", "not_json", "json_schema"})
ENDING_RULES = frozenset({"empty", "whitespace", "cut_off", "fence_open", "reasoning_open"})
SOFT_GROUPS: dict[str, frozenset[str]] = {
    "calls": CALL_RULES,
    "endings": ENDING_RULES,
    "limit": frozenset({"truncated"}),
}
"""Soft rules whose rates are watched, by what is wrong: calls and JSON, answers that end wrongly, answers cut by the limit."""
GROUPS = tuple(SOFT_GROUPS)
"""Their names, in the order of the arrays."""


@dataclass(frozen=True)
class Samples:
    """Columns of equal length, ordered by ``ts`` (the finish). ``bad`` marks the first degraded turn of a session.

    Later turns of a session that has gone bad carry the bad context along, so they are no independent evidence; outputs that
    were kept only because they look bad say nothing about rates. Both stay in the table with ``bad`` false and ``aside`` true.
    ``soft`` and ``soft_aside`` ``[groups, rows]`` say the same for each of :data:`SOFT_GROUPS`; for ``calls`` only answers that
    are calls, or had to be JSON, are at risk.
    Pool, replica, class, session, model, release and cache source are codes: ``names[code]`` is the name.
    """

    ts: Floats
    admitted: Floats
    pool: Codes
    replica: Codes
    workload_class: Codes
    session: Codes
    bad: Flags
    aside: Flags
    soft: Flags
    soft_aside: Flags
    model: Codes
    release: Codes
    cache: Codes
    accept: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    cached_tokens: Floats
    rules: tuple[tuple[str, ...], ...]
    ids: tuple[str, ...]
    names: tuple[str, ...]
    codes: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.ts)

    def upto(self, t: float) -> int:
        """Number of rows that had finished by ``t``."""
        return int(np.searchsorted(self.ts, t, side="right"))

    def since(self, t: float) -> int:
        """Index of the first row that finished after ``t``."""
        return int(np.searchsorted(self.ts, t, side="right"))

    def code(self, name: str) -> int:
        """The code of a name, -1 where it does not occur."""
        return self.codes.get(name, -1)

    @classmethod
    def of(cls, records: Iterable[OutputRecord]) -> Samples:
        """Columns from records in any order."""
        rows = sorted(records, key=lambda r: (r.ts, r.id))
        bad, aside = _first_bad(rows)
        soft, soft_aside = _first_soft(rows)
        codes: dict[str, int] = {}

        def coded(values: Iterable[str]) -> Codes:
            return np.asarray([codes.setdefault(v, len(codes)) for v in values], np.int32)

        def number(values: Iterable[float | None]) -> Floats:
            return np.asarray([np.nan if v is None else v for v in values], np.float64)

        return cls(
            ts=number(r.ts for r in rows),
            admitted=number(r.admitted for r in rows),
            pool=coded(r.pool for r in rows),
            replica=coded(r.replica.rsplit(":", 1)[0] for r in rows),
            workload_class=coded(r.workload_class for r in rows),
            session=coded(r.session for r in rows),
            bad=bad,
            aside=aside,
            soft=soft,
            soft_aside=soft_aside,
            model=coded(r.model for r in rows),
            release=coded(r.release for r in rows),
            cache=coded(r.cache_source for r in rows),
            accept=number(r.accept_length for r in rows),
            prompt_tokens=number(r.prompt_tokens for r in rows),
            output_tokens=number(r.output_tokens for r in rows),
            cached_tokens=number(r.cached_tokens for r in rows),
            rules=tuple(tuple(sorted(r.rules)) for r in rows),
            ids=tuple(r.id for r in rows),
            names=tuple(codes),
            codes=codes,
        )


def _first_bad(rows: Sequence[OutputRecord]) -> tuple[Flags, Flags]:
    bad = np.zeros(len(rows), bool)
    aside = np.zeros(len(rows), bool)
    gone: set[tuple[str, str]] = set()
    for i, r in enumerate(rows):
        key = (r.pool, r.session or r.id)
        aside[i] = key in gone or not r.random
        if r.verdict == "hard":
            bad[i] = not aside[i]
            gone.add(key)
    return bad, aside


def _first_soft(rows: Sequence[OutputRecord]) -> tuple[Flags, Flags]:
    """Faulty and aside, ``[groups, rows]``: the first faulty turn of a session counts, for each group by itself."""
    bad = np.zeros((len(SOFT_GROUPS), len(rows)), bool)
    aside = np.zeros((len(SOFT_GROUPS), len(rows)), bool)
    for g, (group, rules) in enumerate(SOFT_GROUPS.items()):
        gone: set[tuple[str, str]] = set()
        for i, r in enumerate(rows):
            faulty = not rules.isdisjoint(r.rules)
            if not r.random or r.verdict == "unscored" or (group == "calls" and not (faulty or _is_call(r))):
                aside[g, i] = True
                continue
            key = (r.pool, r.session or r.id)
            aside[g, i] = key in gone
            if faulty:
                bad[g, i] = not aside[g, i]
                gone.add(key)
    return bad, aside


def _is_call(r: OutputRecord) -> bool:
    return "calls" in r.features or bool(r.structured)


EMPTY = Samples.of([])
