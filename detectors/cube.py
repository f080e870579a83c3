"""Dense per-replica arrays on a fixed 15-second grid, filled from frames.

A cell ``k`` covers ``[k * step, (k + 1) * step)`` of Unix time, the same cells in every process. Counters and buckets hold the
increments of all frames whose end lies in the cell; ``span`` holds how many seconds those increments cover, so a rate is
``sum(increments) / sum(span)`` at any scrape interval. Missing is NaN, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.frames import Column, Frame, Layout, Target
from detectors.attempts import Attempts
from detectors.contract import Need
from detectors.facts import Facts, latest, note
from detectors.marks import COARSE, MEAN, detail, join, joined, signal_of
from detectors.ranks import Ranks

Array = NDArray[np.float32]
HistKey = tuple[str, tuple[float, ...]]
"""Workload class and finite bucket edges of one histogram array."""

ENGINE_SPAN = "span"


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """One replica of a pool."""

    cluster: str
    pool: str
    replica: str

    @property
    def key(self) -> str:
        """Its name in baselines and states."""
        return f"{self.cluster}/{self.pool}/{self.replica}"


@dataclass(frozen=True)
class _Plan:
    """Where the needed values of one layout lie: (need, 'g'|'n'|'s', slots) and histograms with their slots."""

    scalars: tuple[tuple[Need, str, NDArray[np.intp]], ...]
    hists: tuple[tuple[str, HistKey, tuple[slice, ...], tuple[int, ...]], ...]
    engine: bool


class Cube:
    """Arrays ``[units, cells]`` (and ``[units, cells, buckets]``) that grow with time and fleet.

    ``depth`` limits the kept history in seconds (None keeps all). Cells are final once extended: a frame that arrives for a
    cell already closed is counted in ``late`` and dropped, because a live run could not have used it either.
    """

    def __init__(
        self,
        needs: Sequence[Need],
        hists: Sequence[str],
        *,
        start: float,
        step: float = 15.0,
        depth: float | None = None,
    ) -> None:
        self.step = step
        self.depth = depth
        self.first = int(start // step)
        self.cells = 0
        self.units: list[Unit] = []
        self.late = 0
        self.classes: dict[int, set[str]] = defaultdict(set)
        self.engines: dict[int, str] = {}
        self.attempts = Attempts(start, depth)
        self.facts: dict[int, list[Facts]] = defaultdict(list)
        self.ranks = Ranks()
        self.born: dict[int, int] = {}
        """Cell, counted from Unix time 0, in which each replica was first scraped."""
        self._index: dict[Unit, int] = {}
        self._needs = tuple(dict.fromkeys(needs))
        # "signal:mean" asks for number and sum only, "signal:marks" for a few joined buckets; all buckets of a large fleet would
        # fill the memory.
        self._hists = {signal_of(h): h for h in sorted(hists, key=detail)}
        self._plans: dict[str, _Plan] = {}
        self._engine_targets: set[tuple[str, ...]] = set()
        self._cap = (16, 1024)
        self._scalars: dict[str, Array] = {}
        self._counts: dict[tuple[str, HistKey], Array] = {}
        totals = (f"{h}:{part}" for h in self._hists for part in ("n", "sum"))
        for name in (*(n.name for n in self._needs), *totals, ENGINE_SPAN, "up", "restart"):
            self._scalars[name] = np.full(self._cap, np.nan, np.float32)

    # ------------------------------------------------------------------ reading

    @property
    def end(self) -> float:
        """Unix time at which the last closed cell ends."""
        return (self.first + self.cells) * self.step

    def names(self) -> tuple[str, ...]:
        """Names of the scalar arrays."""
        return tuple(self._scalars)

    def has(self, name: str) -> bool:
        """Whether there is a scalar array of that name."""
        return name in self._scalars

    def scalar(self, name: str) -> Array:
        """One array ``[units, cells]``; a view, not to be written."""
        return self._scalars[name][: len(self.units), : self.cells]

    def hist_keys(self, signal: str) -> list[HistKey]:
        """Classes and bucket layouts that occur for a histogram signal."""
        return sorted(k for s, k in self._counts if s == signal)

    def counts(self, signal: str, key: HistKey) -> Array:
        """Increments per bucket ``[units, cells, buckets]``, overflow last; NaN where the replica exported none."""
        return self._counts[(signal, key)][: len(self.units), : self.cells]

    # ------------------------------------------------------------------ writing

    def extend(self, frames: Iterable[Frame], targets: Mapping[int, Target], until: float) -> None:
        """Close all cells that end at or before ``until`` with the given frames (any order, all of those cells)."""
        stop = int(until // self.step) - self.first
        if stop <= self.cells:
            return
        begin, self.cells = self.cells, stop
        self._grow()
        groups: dict[str, list[Frame]] = defaultdict(list)
        for f in frames:
            cell = int(f.t1 // self.step) - self.first
            if f.target_id not in targets:
                continue
            if cell < begin:
                self.late += int(cell >= 0)
            elif cell < stop:
                groups[f.layout.id].append(f)
        for group in groups.values():
            self._add(group, targets)
        self._trim()

    def mark_up(self, target: Target, t: float, up: bool) -> None:
        """Note whether one scrape of a target succeeded at ``t``; a replica is up in a cell if any engine target of it was."""
        cell = int(t // self.step) - self.first
        u = self._unit(target)
        if 0 <= cell < self._cap[1]:
            old = self._scalars["up"][u, cell]
            self._scalars["up"][u, cell] = float(up) if np.isnan(old) else max(float(old), float(up))

    def note_facts(self, target: Target, since: float) -> None:
        """Note what an engine says of itself, from the start of its process on (Unix seconds)."""
        if target.rank in ("", "0"):
            facts = Facts(since, target.version, target.model, target.role, target.release, target.components)
            note(self.facts[self._unit(target)], facts)

    def facts_at(self, unit: int, end: float) -> Facts | None:
        """What was known of a replica at ``end`` (Unix seconds)."""
        return latest(self.facts[unit], end) if unit in self.facts else None

    def is_engine(self, target: Target) -> bool:
        """Whether frames of this target have carried counters or histograms that detectors use."""
        return target.key in self._engine_targets

    @staticmethod
    def unit_of(target: Target) -> Unit:
        """The replica that a target belongs to."""
        return Unit(target.cluster, target.pool, target.replica or target.address.rsplit(":", 1)[0])

    def _unit(self, target: Target) -> int:
        unit = self.unit_of(target)
        at = self._index.get(unit)
        if at is None:
            at = self._index[unit] = len(self.units)
            self.units.append(unit)
            self._grow()
        return at

    def _stores(self) -> tuple[dict[Any, Array], ...]:
        return (self._scalars, self._counts)

    def _grow(self) -> None:
        cap_u, cap_t = self._cap
        while len(self.units) > cap_u:
            cap_u *= 2
        while self.cells > cap_t:
            cap_t *= 2
        if (cap_u, cap_t) == self._cap:
            return
        du, dt = cap_u - self._cap[0], cap_t - self._cap[1]
        self._cap = (cap_u, cap_t)
        for store in self._stores():
            for key, a in store.items():
                pad = [(0, du), (0, dt)] + [(0, 0)] * (a.ndim - 2)
                store[key] = np.pad(a, pad, constant_values=np.nan)

    def _trim(self) -> None:
        if self.depth is None:
            return
        keep = int(self.depth // self.step)
        if self.cells <= keep + keep // 4:
            return
        drop = self.cells - keep
        self.first += drop
        self.cells = keep
        self.ranks.drop(drop)
        for store in self._stores():
            for a in store.values():
                a[:, :keep] = a[:, drop : drop + keep].copy()
                a[:, keep:] = np.nan

    def _plan(self, layout: Layout) -> _Plan:
        found = self._plans.get(layout.id)
        if found is not None:
            return found
        scalars: list[tuple[Need, str, NDArray[np.intp]]] = []
        for need in self._needs:
            for part in ("g", "n", "s"):
                slots = [
                    _slot(layout, i, part) for i, c in enumerate(layout.columns) if _wanted(need, c, part)
                ]
                if slots:
                    scalars.append((need, part, np.asarray(slots, np.intp)))
        hists: dict[tuple[str, HistKey], tuple[list[slice], list[int]]] = {}
        for i, c in enumerate(layout.columns):
            if c.kind == "histogram" and c.signal in self._hists:
                slices, sums = hists.setdefault((c.signal, (c.label("class"), c.edges)), ([], []))
                slices.append(layout.slots[i][1])
                sums.append(layout.slots[i][2].start)
        plan = _Plan(
            tuple(scalars),
            tuple((s, k, tuple(a), tuple(b)) for (s, k), (a, b) in hists.items()),
            bool(hists)
            or any(part != "g" and not need.signal.startswith("gpu_") for need, part, _ in scalars),
        )
        self._plans[layout.id] = plan
        return plan

    def _add(self, frames: list[Frame], targets: Mapping[int, Target]) -> None:
        """Scatter the frames of one layout into the arrays, all at once."""
        plan = self._plan(frames[0].layout)
        frames.sort(key=lambda f: (f.target_id, f.t1))
        units = {i: self._unit(targets[i]) for i in {f.target_id for f in frames}}
        u = np.asarray([units[f.target_id] for f in frames], np.intp)
        k = np.asarray([int(f.t1 // self.step) - self.first for f in frames], np.intp)
        target = np.asarray([f.target_id for f in frames])
        last = np.ones(len(frames), bool)
        last[:-1] = (target[1:] != target[:-1]) | (k[1:] != k[:-1])
        parts = {
            "g": np.stack([f.gauges for f in frames]),
            "n": np.where((n := np.stack([f.counts for f in frames])) < 0, np.nan, n),
            "s": np.stack([f.sums for f in frames]),
        }
        if plan.engine:
            for i, at in zip(*np.unique(target, return_index=True), strict=True):
                cell = self.first + int(k[at])
                self.born[units[int(i)]] = min(cell, self.born.get(units[int(i)], cell))
            span = np.asarray([f.t1 - f.t0 for f in frames])
            # Scrapes of one process add up; processes of one replica cover the same seconds.
            first = np.flatnonzero(np.append(True, last[:-1]))
            _scatter(self._scalars[ENGINE_SPAN], u[last], k[last], np.add.reduceat(span, first), "max")
            _scatter(self._scalars["up"], u, k, np.ones(len(frames)), "max")
            _scatter(self._scalars["restart"], u, k, np.asarray([float(f.reset) for f in frames]), "max")
        self.ranks.add(frames[0].layout, parts["g"], u, k, [targets[f.target_id].rank for f in frames])
        for need, part, slots in plan.scalars:
            values = parts[part][:, slots]
            if need.codes:
                values = _coded(values, need.codes)
            values = _join(values, need.how)
            if part == "g":
                _scatter(self._scalars[need.name], u[last], k[last], values[last], need.how)
            else:
                _scatter(self._scalars[need.name], u, k, values, "sum")
        for signal, key, slices, sum_slots in plan.hists:
            parts_n = [parts["n"][:, sl] for sl in slices]
            sums = _join(parts["s"][:, list(sum_slots)], "sum")
            number = _join(np.stack([x.sum(axis=1) for x in parts_n], axis=1), "sum")
            _scatter(self._scalars[f"{signal}:n"], u, k, number, "sum")
            _scatter(self._scalars[f"{signal}:sum"], u, k, np.where(np.isnan(number), np.nan, sums), "sum")
            if not self._hists[signal].endswith(MEAN):
                full = (signal, key)
                if self._hists[signal].endswith(COARSE):
                    edges, starts = joined(signal, key[1])
                    full, parts_n = (signal, (key[0], edges)), [join(x, starts) for x in parts_n]
                if full not in self._counts:
                    self._counts[full] = np.full((*self._cap, len(full[1][1]) + 1), np.nan, np.float32)
                for x in parts_n:
                    _scatter(self._counts[full], u, k, x, "sum")
            for unit in units.values():
                self.classes[unit].add(key[0])
        if plan.engine:
            self._engine_targets |= {targets[i].key for i in units}
        components = {i: next(iter(targets[i].components), "") for i in units}
        for i, unit in units.items():
            if plan.engine and components[i]:
                self.engines[unit] = components[i]


def _wanted(need: Need, column: Column, part: str) -> bool:
    if column.signal != need.signal:
        return False
    kinds = {"g": ("gauge",), "n": ("counter",), "s": ("sum",)}[part]
    if column.kind not in kinds:
        return False
    return need.where is None or column.label(need.where[0]) in need.where[1]


def _slot(layout: Layout, i: int, part: str) -> int:
    return int(layout.slots[i]["gns".index(part)].start)


def _coded(values: NDArray[np.float64], codes: tuple[float, ...]) -> NDArray[np.float64]:
    """1 + position among ``codes``, 0 for any other value, NaN stays."""
    out = np.where(np.isnan(values), np.nan, 0.0)
    for i, code in enumerate(codes):
        out[values == code] = i + 1.0
    return out


def _join(values: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """Join columns ``[frames, columns]`` to ``[frames]``; NaN only where all are NaN."""
    if how == "count":
        known = (~np.isnan(values)).sum(axis=1).astype(np.float64)
        return np.where(known > 0, known, np.nan)
    if values.shape[1] == 1:
        return values[:, 0]
    none = np.isnan(values).all(axis=1)
    if how == "sum":
        out = np.nansum(values, axis=1)
    else:
        fill, op = (-np.inf, np.max) if how == "max" else (np.inf, np.min)
        out = op(np.where(np.isnan(values), fill, values), axis=1)
    return np.where(none, np.nan, out)


def _scatter(
    array: Array, u: NDArray[np.intp], k: NDArray[np.intp], values: NDArray[np.float64], how: str
) -> None:
    """Join ``values`` into ``array[u, k]``; a NaN value changes nothing, a NaN cell takes the value."""
    ok = ~np.isnan(values) if values.ndim == 1 else ~np.isnan(values).any(axis=1)
    if not ok.all():
        u, k, values = u[ok], k[ok], values[ok]
    if not len(u):
        return
    flat = u * array.shape[1] + k
    rows = array.reshape(-1, *array.shape[2:])
    fresh = np.unique(flat)
    empty = fresh[np.isnan(rows[fresh]) if rows.ndim == 1 else np.isnan(rows[fresh, 0])]
    start = {"sum": 0.0, "count": 0.0, "max": -np.inf, "min": np.inf}[how]
    rows[empty] = start
    op = {"sum": np.add, "count": np.add, "max": np.maximum, "min": np.minimum}[how]
    op.at(rows, flat, values.astype(np.float32))
