"""The hot path: readings in, frames, states, roll-ups and restarts out, in one transaction.

Which values a reading is compared with: the *head* of its target is its newest reading, from whatever source. A reading
after the head moves the head. A reading at or before it is out of order and skipped, except in a back-fill stream (any
``stream`` other than ``live``), which has a state of its own, may start again at any time, and never inserts a frame that
overlaps a stored one. So the same readings appended twice change nothing, whoever sends them.

A clock that is wrong must not stop the others: readings dated more than a day ahead of this machine's clock are refused with a
problem, and a head that lies there (this machine's own clock was wrong once) is forgotten, or nothing would ever be after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from core.frames import IntArray, Reading, Target
from core.packing import pack
from core.records import Event, Problem
from core.times import AHEAD_SECONDS, horizon
from sql import events as event_rows
from sql import rollups, states, steady
from sql import targets as target_rows
from sql.accumulate import Deltas
from sql.bulk import bulk, upsert
from sql.ids import to_ms
from sql.increments import MAX_SPAN_MS, BoolArray, Increments, Run, State, advance
from sql.layouts import LayoutCache
from sql.schema import frames, scrape_failures
from sql.series import SeriesCache

LIVE = "live"


@dataclass(frozen=True, slots=True)
class AppendResult:
    """``inserted`` frames; ``skipped`` readings that were known already, out of order, or clock skew between two sources;
    ``restarts`` of processes that this batch showed for the first time."""

    inserted: int
    skipped: int
    restarts: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    """What one transaction gathers before it writes."""

    frames: list[tuple[list[int], Increments]] = field(default_factory=list)
    states: dict[tuple[int, str], State] = field(default_factory=dict)
    failures: list[dict[str, int]] = field(default_factory=list)
    restarts: list[Event] = field(default_factory=list)
    deltas: Deltas = field(default_factory=Deltas)
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Ids to be remembered once the transaction is committed."""

    layouts: set[str]
    series: set[int]
    targets: dict[int, target_rows.Seen]


def append(
    connection: Connection,
    readings: Sequence[Reading],
    *,
    stream: str,
    events: bool,
    layouts: LayoutCache,
    series: SeriesCache,
    targets: target_rows.TargetCache,
) -> tuple[AppendResult, Commit]:
    """Write ``readings`` in the caller's transaction, which must hold the write lock."""
    latest = horizon()
    readings, refused = _dated(readings, latest)
    if refused:
        event_rows.add_problems(connection, refused)
    by_target: dict[int, list[Reading]] = {}
    for r in readings:
        by_target.setdefault(target_rows.target_id(r.target), []).append(r)
    seen = {i: _seen(rows) for i, rows in by_target.items()}
    targets.save(connection, seen)
    kept = (states.HEAD,) if stream == LIVE else (states.HEAD, stream)
    known = {
        key: s
        for key, s in states.load(connection, by_target, kept, layouts).items()
        if s.t_ms <= to_ms(latest)
    }
    batch = Batch(skipped=sum(p.count for p in refused))
    usual, taken = steady.take(by_target, known)
    for s in usual:
        batch.frames.append((s.ids, s.frames))
        batch.deltas.add_each(s.targets, s.frames)
        batch.states.update(zip(((i, states.HEAD) for i in s.ids), s.states, strict=True))
    for target_id, rows in by_target.items():
        if target_id in taken:
            continue
        _target(connection, batch, target_id, seen[target_id].target, rows, stream, known)
    new_layouts = layouts.store(
        connection, [f.layout for _, f in batch.frames] + [s.layout for s in batch.states.values()]
    )
    inserted = _insert(connection, batch.frames)
    upsert(connection, scrape_failures, batch.failures)
    states.save(connection, batch.states)
    blocks = list(batch.deltas.blocks(series))
    new_series = series.store(connection)
    rollups.merge(connection, blocks)
    if events:
        event_rows.add(connection, batch.restarts)
    return AppendResult(inserted, batch.skipped, batch.restarts), Commit(new_layouts, new_series, seen)


def _dated(readings: Sequence[Reading], latest: float) -> tuple[Sequence[Reading], list[Problem]]:
    """The readings that can be, and a problem for each one from the future."""
    if all(r.t <= latest for r in readings):
        return readings, []
    kept, refused = [], []
    for r in readings:
        if r.t <= latest:
            kept.append(r)
            continue
        hours = (r.t - latest + AHEAD_SECONDS) / 3600
        text = f"A reading is dated {hours:.0f} h ahead of this machine's clock; it is not stored."
        fix = "Set the clock of the source, or of this machine (NTP)."
        refused.append(
            Problem(latest - AHEAD_SECONDS, r.target.source, "future_time", r.target.address, text, fix)
        )
    return kept, refused


def _seen(rows: Sequence[Reading]) -> target_rows.Seen:
    first, last, good, start = rows[0], rows[0], None, None
    for r in rows:
        if r.t < first.t:
            first = r
        if r.t >= last.t:
            last = r
        if r.up and (good is None or r.t >= good.t):
            good, start = r, r.start if r.start is not None else start
    return target_rows.Seen((good or last).target, to_ms(first.t), to_ms(last.t), last.up, start)


def _target(
    connection: Connection,
    batch: Batch,
    target_id: int,
    target: Target,
    rows: Sequence[Reading],
    stream: str,
    known: dict[tuple[int, str], State],
) -> None:
    """One target's readings: failures noted, the others on the head or on the stream's own state."""
    good: list[tuple[int, Reading]] = []
    for r in sorted(rows, key=attrgetter("t")):
        at = to_ms(r.t)
        if not r.up:
            batch.failures.append({"target_id": target_id, "t_ms": at})
        elif good and good[-1][0] == at:
            batch.skipped += 1
        else:
            _check(r)
            good.append((at, r))
    head = known.get((target_id, states.HEAD))
    split = 0 if head is None else sum(1 for at, _ in good if at <= head.t_ms)
    old, new = good[:split], good[split:]
    if stream == LIVE:
        batch.skipped += len(old)
    elif old:
        _old(connection, batch, target_id, target, old, stream, known.get((target_id, stream)))
    if new:
        after = _walk(batch, target_id, target, new, head, None)
        if after is not None:
            batch.states[target_id, states.HEAD] = after


def _check(r: Reading) -> None:
    sizes = (len(r.gauges), len(r.counts), len(r.sums))
    if sizes != r.layout.size:
        raise ValueError(f"{r.target.address}: arrays of {sizes} slots, its layout has {r.layout.size}")


def _old(
    connection: Connection,
    batch: Batch,
    target_id: int,
    target: Target,
    rows: Sequence[tuple[int, Reading]],
    stream: str,
    state: State | None,
) -> None:
    """Readings of a back-fill stream that are older than the head: on the stream's own state, beside what is stored."""
    first = rows[0][0] if state is None else min(rows[0][0], state.t_ms)
    stored = _Stored(connection, target_id, first, rows[-1][0])
    split = 0 if state is None else sum(1 for at, _ in rows if at <= state.t_ms)
    after: State | None = None
    if split:
        # the stream goes over earlier times (again): its state starts anew there
        after = _walk(batch, target_id, target, rows[:split], None, stored)
    if split < len(rows):
        after = _walk(batch, target_id, target, rows[split:], state, stored)
    if after is not None:
        batch.states[target_id, stream] = after


class _Stored:
    """Spans of a target's stored frames around a range of times."""

    def __init__(self, connection: Connection, target_id: int, first_ms: int, last_ms: int) -> None:
        c = frames.c
        # a frame that ends after the range may reach into it
        query = (
            select(c.t1_ms, c.span_ms)
            .where(c.target_id == target_id, c.t1_ms >= first_ms, c.t1_ms <= last_ms + MAX_SPAN_MS)
            .order_by(c.t1_ms)
        )
        rows = connection.execute(query).all()
        self.t1: IntArray = np.array([r[0] for r in rows], np.int64)
        self.t0: IntArray = self.t1 - np.array([r[1] for r in rows], np.int64)

    def free(self, done: Increments) -> BoolArray:
        """Which frames overlap no stored one."""
        out: BoolArray = np.ones(len(done.t1_ms), bool)
        if len(self.t1):
            after = np.searchsorted(self.t1, done.t0_ms, side="right")
            inside = after < len(self.t1)
            out = ~(inside & (self.t0[np.minimum(after, len(self.t1) - 1)] < done.t1_ms))
        return out


def _walk(
    batch: Batch,
    target_id: int,
    target: Target,
    rows: Sequence[tuple[int, Reading]],
    state: State | None,
    stored: _Stored | None,
) -> State | None:
    """Increments of consecutive readings; returns the state after them."""
    for _, run in groupby(rows, key=lambda x: (x[1].layout.id, x[1].target.source)):
        part = list(run)
        done, state, dropped = advance(state, _run(part))
        batch.skipped += dropped
        if stored is not None:
            free = stored.free(done)
            batch.skipped += int((~free).sum())
            done = done.only(free)
        if len(done.t1_ms):
            batch.frames.append(([target_id] * len(done.t1_ms), done))
            batch.deltas.add(target, done)
            batch.restarts.extend(_restarts(target, done))
    return state


def _run(part: Sequence[tuple[int, Reading]]) -> Run:
    first = part[0][1]
    return Run(
        first.layout,
        first.target.source,
        np.array([at for at, _ in part], np.int64),
        np.array([np.nan if r.start is None else r.start for _, r in part], np.float64),
        _rows([r.gauges for _, r in part]),
        _rows([r.counts for _, r in part]),
        _rows([r.sums for _, r in part]),
    )


def _rows(parts: list[NDArray[Any]]) -> NDArray[Any]:
    # a live batch has one reading a target: a view costs a tenth of a stack
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def _restarts(target: Target, done: Increments) -> Iterable[Event]:
    for i in np.flatnonzero(done.reset):
        t0, t1, start = int(done.t0_ms[i]) / 1000, int(done.t1_ms[i]) / 1000, float(done.starts[i])
        why = "process start moved" if done.moved[i] else "counts fell"
        yield Event(
            # the exporter's own start where it lies in this span, else when it was noticed
            ts=start if t0 < start <= t1 else t1,
            kind="restart",
            text=f"{target.replica or target.address} restarted ({why})",
            pool=target.pool,
            replica=target.replica,
            source="metrics",
            data={"address": target.address, "cluster": target.cluster, "rank": target.rank, "seen_at": t1},
        )


def _insert(connection: Connection, done: Iterable[tuple[list[int], Increments]]) -> int:
    """Plain inserts: a conflict would mean that the rules above are broken, and must undo the whole batch."""
    rows = []
    for ids, f in done:
        layout_id = f.layout.id
        columns = (
            ids,
            f.t1_ms.tolist(),
            (f.t1_ms - f.t0_ms).tolist(),
            f.reset.tolist(),
            f.gauges,
            f.counts,
            f.sums,
        )
        for target_id, t1, span, reset, gauges, counts, sums in zip(*columns, strict=True):
            rows.append((target_id, t1, span, layout_id, int(reset), pack(f.layout, gauges, counts, sums)))
    # in order of time: what is read together lies together
    rows.sort(key=itemgetter(1, 0))
    keys = ("target_id", "t1_ms", "span_ms", "layout_id", "reset", "data")
    bulk(connection, frames, keys, rows, conflict=False)
    return len(rows)
