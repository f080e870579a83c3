"""Series of one target while their meaning is decided, and thinning them of what would count twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectors.dictionary import Entry, Part, canonical_name

START = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class Row:
    """One series: its index, canonical name, all labels, and those that are not the target's own."""

    index: int
    name: str
    full: Mapping[str, str]
    own: Mapping[str, str]


Matched = Mapping[str, Mapping[Entry, Mapping[Part, list[Row]]]]
"""Component to entry to part of the family to rows."""


def row(index: int, name: str, labels: Mapping[str, str], fixed: Mapping[str, str]) -> Row:
    """A series without empty labels (rule R9) and, in ``own``, without the labels of its target."""
    full = {k: v for k, v in labels.items() if v and k != "__name__"}
    own = {k: v for k, v in full.items() if fixed.get(k) != v} if fixed else full
    return Row(index, canonical_name(name), full, own)


def first(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """The first non-empty of some labels."""
    return next((v for k in keys if (v := labels.get(k))), "")


def without_parts(rows: list[Row], totals: Sequence[str]) -> list[Row]:
    """Where a series without one of the labels ``totals`` stands beside series with it, only that total (rule R9)."""
    for label in totals:
        if any(label in r.own for r in rows):
            kept: list[Row] = []
            for members in group(rows, {label}).values():
                kept += [r for r in members if label not in r.own] or members
            rows = kept
    return rows


def without_copies(rows: list[Row], copies: Sequence[str]) -> list[Row]:
    """Of series that differ only by ranks that repeat the work, those of the lowest rank."""
    if not copies or not any(c in r.own for r in rows for c in copies):
        return rows
    kept: list[Row] = []
    for members in group(rows, set(copies)).values():
        low = min(rank_key(r, copies) for r in members)
        kept += [r for r in members if rank_key(r, copies) == low]
    return kept


def group(rows: Sequence[Row], without: set[str]) -> dict[tuple[str, frozenset[tuple[str, str]]], list[Row]]:
    out: dict[tuple[str, frozenset[tuple[str, str]]], list[Row]] = {}
    for r in rows:
        key = frozenset((k, v) for k, v in r.own.items() if k not in without)
        out.setdefault((r.name, key), []).append(r)
    return out


def rank_key(row: Row, copies: Sequence[str]) -> tuple[tuple[int, str], ...]:
    return tuple((len(v), v) for c in copies for v in [row.own.get(c, "")])
