"""What ``append`` must do, said slowly: dictionaries and loops, one reading at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core.frames import Column, Reading
from core.signals import SIGNALS

SIX_HOURS_MS = 6 * 3600 * 1000
Slot = tuple[Column, str, int]
"""A column's gauge, n-th count or sum."""


def slots(r: Reading) -> dict[Slot, float]:
    """What a reading says: absent values are left out."""
    out: dict[Slot, float] = {}
    for c, (dg, dn, ds) in zip(r.layout.columns, r.layout.slots, strict=True):
        for name, values in (("gauge", r.gauges[dg]), ("count", r.counts[dn]), ("sum", r.sums[ds])):
            for i, v in enumerate(values.tolist()):
                if not (v != v or (name == "count" and v < 0)):
                    out[c, name, i] = v
    return out


def all_slots(r: Reading) -> list[Slot]:
    """Every slot of a reading's layout."""
    out: list[Slot] = []
    for c, parts in zip(r.layout.columns, r.layout.slots, strict=True):
        for name, part in zip(("gauge", "count", "sum"), parts, strict=True):
            out += [(c, name, i) for i in range(part.stop - part.start)]
    return out


@dataclass
class Known:
    """What is remembered of a target."""

    t: int
    start: float | None
    source: str
    sources: set[str]
    values: dict[Slot, float]


@dataclass
class Span:
    """A frame: None is a gap."""

    t0: int
    t1: int
    reset: bool
    values: dict[Slot, float | None]


@dataclass
class Model:
    """The naive store."""

    heads: dict[Any, Known] = field(default_factory=dict)
    sides: dict[Any, Known] = field(default_factory=dict)
    frames: dict[Any, dict[int, Span]] = field(default_factory=lambda: defaultdict(dict))

    def append(self, readings: Sequence[Reading], stream: str) -> None:
        """The same as ``Store.append``."""
        by_target: dict[Any, dict[int, Reading]] = defaultdict(dict)
        for r in readings:
            if r.up:
                by_target[r.target.key].setdefault(round(r.t * 1000), r)
        for key, by_time in by_target.items():
            self._target(key, sorted(by_time.items()), stream)

    def _target(self, key: Any, rows: list[tuple[int, Reading]], stream: str) -> None:
        head = self.heads.get(key)
        old = [x for x in rows if head is not None and x[0] <= head.t]
        if old and stream != "live":
            side = self.sides.get((key, stream))
            again = [x for x in old if side is not None and x[0] <= side.t]
            last: Known | None = None
            for t, r in again:
                last = self._step(key, last, t, r)
            if len(again) < len(old):
                last = side
            for t, r in old[len(again) :]:
                last = self._step(key, last, t, r)
            assert last is not None
            self.sides[key, stream] = last
        for t, r in rows[len(old) :]:
            head = self._step(key, head, t, r)
        if head is not None:
            self.heads[key] = head

    def _step(self, key: Any, known: Known | None, t: int, r: Reading) -> Known:
        said = slots(r)
        source = r.target.source
        if known is None or t - known.t > SIX_HOURS_MS:
            values = {s: said.get(s, 0) for s in all_slots(r) if s[1] != "gauge"}
            return Known(t, r.start, source, {source}, values)
        moved = None not in (known.start, r.start) and abs(known.start - r.start) > 2  # type: ignore[operator]
        fell = any(self._fell(s, known.values.get(s), v) for s, v in said.items())
        if known.source != source and fell and not moved and t - known.t < 2000:
            return known
        reset = moved or fell
        values: dict[Slot, float | None] = {}
        after: dict[Slot, float] = {} if reset else dict(known.values)
        for s in all_slots(r):
            now = said.get(s)
            if s[1] == "gauge":
                values[s] = now
                continue
            if reset:
                before: float | None = 0
            elif s in known.values:
                before = known.values[s]
            else:
                before = 0 if source in known.sources else None
            values[s] = None if now is None or before is None else now - before
            if now is not None:
                after[s] = now
            else:
                after.setdefault(s, 0)
        if not any(f.t0 < t and f.t1 > known.t for f in self.frames[key].values()):
            self.frames[key][t] = Span(known.t, t, reset, values)
        start = known.start if r.start is None else r.start
        return Known(t, start, source, known.sources | {source}, after)

    @staticmethod
    def _fell(slot: Slot, before: float | None, now: float) -> bool:
        if before is None or slot[1] == "gauge":
            return False
        if slot[1] == "count":
            return now < before
        return slot[0].kind == "sum" and now < before - 1e-9 * abs(before)

    def rollups(self, step: int, *, per_replica: bool) -> dict[Any, list[float]]:
        """(ts, class, pool, unit, signal, labels, edges) → [n, total, max, counts …]."""
        out: dict[Any, list[float]] = {}
        for (_, pool, replica, _, _), spans in self.frames.items():
            for span in spans.values():
                ts = span.t1 // 1000 // step * step
                for c in {s[0] for s in span.values}:
                    signal = SIGNALS[c.signal]
                    if not (signal.per_replica if per_replica else signal.rollup):
                        continue
                    mine = {(s[1], s[2]): v for s, v in span.values.items() if s[0] == c and v is not None}
                    counts = [mine.get(("count", i), 0) for i in range(len(c.edges) + 1)] if c.edges else []
                    if c.kind == "gauge":
                        add = [1, mine.get(("gauge", 0), 0), mine.get(("gauge", 0), -math.inf)]
                    elif c.kind == "counter":
                        add = [mine.get(("count", 0), 0), mine.get(("count", 0), 0), -math.inf]
                    elif c.kind == "sum":
                        add = [1, mine.get(("sum", 0), 0), -math.inf]
                    else:
                        add = [sum(counts), mine.get(("sum", 0), 0), -math.inf]
                    seen = any(k[0] == ("count" if c.kind == "histogram" else k[0]) for k in mine)
                    if not seen:
                        continue
                    labels = tuple(p for p in c.labels if p[0] not in ("class", "rank"))
                    key = (
                        ts,
                        c.label("class"),
                        pool,
                        replica if per_replica else "",
                        c.signal,
                        labels,
                        c.edges,
                    )
                    row = out.setdefault(key, [0, 0.0, -math.inf, *([0] * len(counts))])
                    row[0] += add[0]
                    row[1] += add[1]
                    row[2] = max(row[2], add[2])
                    for i, n in enumerate(counts):
                        row[3 + i] += n
        return out
