"""What was odd in this window: every stored signal of every replica against its own earlier past, the oddest
first.

For the hour when no kind of incident explains what is seen: it names signals, not causes, and never
pages. Statistics: ``detectors/series/rarity.py`` (docs/odd.md). Bounded work: at most :data:`FRAMES`
frames are read, from fewer minutes where there are more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.services.odd_series import Found, Key, series_of, unit_of
from core.frames import FloatArray, Frame
from detectors.series.rarity import BLOCKS, Rarity, discoveries, rarity, share_rarity
from detectors.series.records import beyond_range
from detectors.series.scorer import ALARM, UNITS
from sql.store import Store

CELL = 60.0
BACK, MOST_BACK = 12, 86400.0
"""Twelve windows of past, at most a day, are asked for: with ten block means Student's t can reach one in a million."""
GAP = 600.0
"""The last ten minutes before the window teach nothing where there is more past: a fault that is just beginning is not normal."""
FRAMES = 16_000
FALSE_SHARE = 0.05
"""Share of false rows among those listed that is accepted."""
LEAST_CHANGE = 0.1
"""A smaller move of the mean (relative to its past) is left out unless its extremes moved, whatever its p."""


@dataclass(frozen=True, slots=True)
class OddRow:
    """One signal in one pool. ``replicas`` are the odd ones of ``tested``, the oddest first; numbers are those of the oddest.

    ``before``: median of the past; ``now``: mean of the window; ``p``: rarity of the oddest; ``q``: false discovery rate over
    all that was tested; ``since``: start of the first minute that lay beyond all before it (Unix seconds), None where none did.
    """

    signal: str
    what: str
    class_: str
    labels: tuple[tuple[str, str], ...]
    pool: str
    replicas: tuple[str, ...]
    tested: int
    unit: str
    before: float
    now: float
    direction: str
    p: float
    q: float
    strength: float
    since: float | None

    def as_json(self) -> dict[str, Any]:
        """For ``--json``: field names as in other commands, ``class`` without its underscore."""
        row = asdict(self)
        row["class"] = row.pop("class_")
        row["labels"] = dict(self.labels)
        row["replicas"] = list(self.replicas)
        return row


@dataclass(frozen=True, slots=True)
class OddReport:
    """``tested`` series were judged by ``past_seconds`` of past. ``why_empty`` says why nothing could be tested, else ""."""

    rows: tuple[OddRow, ...]
    tested: int
    past_seconds: float
    why_empty: str = ""


def odd(store: Store, start: float, end: float, *, pool: str = "", class_: str = "") -> OddReport:
    """The odd signals of [start, end), of one pool or class where named; ValueError where ``end`` is not after ``start``."""
    if end <= start:
        raise ValueError("end is not after start")
    oldest = store.oldest()
    cells = max(1, round((end - start) / CELL))
    begin = end - cells * CELL
    available = 0 if oldest is None else int((begin - oldest) // CELL)
    gap = int(np.clip(available - BLOCKS * cells, 0, GAP // CELL))
    blocks = min(BACK, (available - gap) // cells, max(BLOCKS, int(MOST_BACK // CELL) // cells))
    if blocks < BLOCKS:
        return OddReport(
            (), 0, blocks * cells * CELL, f"needs {BLOCKS} windows of earlier data, has {blocks}"
        )
    places = {
        row.id: (row.target.pool, row.target.replica or row.target.address.rsplit(":", 1)[0])
        for row in store.targets()
        if not pool or row.target.pool == pool
    }
    probe = sum(1 for _ in store.frames(end - CELL, end, target_ids=list(places)))
    every = max(1, int(np.ceil(probe * (blocks + 1) * cells / FRAMES)))
    plan = _plan(begin, cells, blocks, gap, min(every, cells))
    found = series_of(_frames(store, plan, list(places)), places, plan.edges, blocks * cells, class_)
    if not found.values:
        return OddReport((), 0, plan.past_seconds, "no data in this window and its past")
    keys, values, judged = _judge(found, plan)
    rows = _fold(keys, values, plan, judged, discoveries(judged.p))
    return OddReport(tuple(rows), int((~np.isnan(judged.p)).sum()), plan.past_seconds)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which minutes are read. ``edges`` of all minutes from the past's first to the window's last; ``columns`` of those read,
    the first ``past`` of them before the window."""

    edges: FloatArray
    columns: NDArray[np.intp]
    past: int
    past_seconds: float


def _plan(begin: float, cells: int, blocks: int, gap: int, every: int) -> _Plan:
    """The same minutes of the window and of every block, so that all are means of equally many."""
    before = blocks * cells
    edges = begin + CELL * np.arange(-before - gap, cells + 1, dtype=np.float64)
    inside = np.arange(0, cells, every)
    past = (np.arange(0, before, cells)[:, None] + inside).ravel()
    return _Plan(edges, np.concatenate([past, before + gap + inside]), len(past), before * CELL)


def _frames(store: Store, plan: _Plan, targets: Sequence[int]) -> Iterator[Frame]:
    """Frames of the minutes that are read."""
    breaks = np.flatnonzero(np.diff(plan.columns) > 1) + 1
    for run in np.split(plan.columns, breaks):
        start, end = float(plan.edges[run[0]]), float(plan.edges[run[-1] + 1])
        yield from store.frames(start, end, target_ids=targets)


def _judge(found: Found, plan: _Plan) -> tuple[list[Key], FloatArray, Rarity]:
    """Every series with its values and its rarity."""
    keys, tails = sorted(found.values), sorted(found.shares)
    past = plan.past
    values = np.stack([found.values[k] for k in keys])[:, plan.columns]
    judged = rarity(*_bell_shaped(keys, values, past))
    parts = [Rarity(judged.p, _median(values[:, :past]), _mean(values[:, past:]))]
    if tails:
        k, n = (np.stack([found.shares[t][i] for t in tails])[:, plan.columns] for i in (0, 1))
        parts.append(share_rarity((k[:, :past], n[:, :past]), (k[:, past:], n[:, past:])))
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.vstack([values, k / n])
    p, before, now = (np.concatenate([getattr(x, name) for x in parts]) for name in ("p", "before", "now"))
    return keys + tails, values, Rarity(p, before, now)


def _bell_shaped(keys: Sequence[Key], values: FloatArray, past: int) -> tuple[FloatArray, FloatArray]:
    """Past and window with means of requests as logarithms: times and sizes have long tails.

    A tenth of the past's median is added first, so that a cell of zeros is low and not infinitely low.
    """
    level = _median(values[:, :past])
    logs = np.asarray([k.what == "mean" for k in keys]) & (level > 0)
    shown = values.copy()
    shown[logs] = np.log(np.maximum(values[logs], 0.0) + 0.1 * level[logs, None])
    return shown[:, :past], shown[:, past:]


def _median(x: FloatArray) -> FloatArray:
    """Median of each row's known values; NaN where there is none."""
    known = ~np.isnan(x).all(axis=1)
    out = np.full(len(x), np.nan)
    out[known] = np.nanmedian(x[known], axis=1)
    return out


def _mean(x: FloatArray) -> FloatArray:
    n = (~np.isnan(x)).sum(axis=1)
    out: FloatArray = np.where(n > 0, np.nansum(x, axis=1) / np.maximum(n, 1), np.nan)
    return out


def _fold(
    keys: Sequence[Key],
    values: FloatArray,
    plan: _Plan,
    judged: Rarity,
    q: FloatArray,
) -> list[OddRow]:
    """Series of one signal of one pool that moved in one direction are one row."""
    p, before, now = judged.p, judged.before, judged.now
    groups: dict[tuple[Any, ...], list[int]] = {}
    tested: dict[tuple[Any, ...], int] = {}
    for i, k in enumerate(keys):
        if np.isnan(q[i]):
            continue
        same = (k.pool, k.signal, k.what, k.class_, k.labels)
        tested[same] = tested.get(same, 0) + 1
        if q[i] <= FALSE_SHARE and _moved(before[i], now[i]):
            groups.setdefault((*same, bool(now[i] > before[i])), []).append(i)
    rows = []
    for group, members in groups.items():
        members.sort(key=lambda i: (p[i], keys[i].replica))
        top, n = members[0], tested[group[:-1]]
        k = keys[top]
        strength = float(sum(-np.log10(max(p[i], 1e-12)) for i in members) / np.sqrt(n))
        rows.append(
            OddRow(
                signal=k.signal,
                what=k.what,
                class_=k.class_,
                labels=k.labels,
                pool=k.pool,
                replicas=tuple(keys[i].replica for i in members),
                tested=n,
                unit=unit_of(k),
                before=float(before[top]),
                now=float(now[top]),
                direction="up" if group[-1] else "down",
                p=float(p[top]),
                q=float(q[top]),
                strength=strength,
                since=_since(plan, values[top]),
            )
        )
    return sorted(rows, key=lambda r: (-r.strength, r.signal, r.pool))


def _moved(before: float, now: float) -> bool:
    return abs(now - before) > LEAST_CHANGE * abs(before)


def _since(plan: _Plan, values: FloatArray) -> float | None:
    """The first minute of the window that the series detector's value view would raise: beyond everything before it."""
    beyond = beyond_range(values)[plan.past :] / UNITS["value"] >= ALARM
    return float(plan.edges[plan.columns[plan.past + int(np.argmax(beyond))]]) if beyond.any() else None
