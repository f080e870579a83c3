"""A view of the cube, the sampled outputs and the events that ends at a tick: all that a detector may look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.records import Event
from detectors.attempts import AttemptsView
from detectors.contract import Context
from detectors.cube import Cube, HistKey, Unit
from detectors.facts import Facts
from detectors.ranks import RankView
from detectors.samples import Samples

F = NDArray[np.float64]
BORN_S = 120.0
"""A replica whose first scrape came so much later than its pool's was not there before."""


@dataclass(frozen=True)
class Window:
    """Cells ``[start, stop)`` of a cube (indices into its arrays), with samples and events up to the same instant.

    ``excluded`` lists (unit index, from, to) spans in Unix seconds that are not normal and must stay out of baselines.
    """

    cube: Cube
    stop: int
    context: Context
    samples: Samples
    events: Sequence[Event] = ()
    excluded: Sequence[tuple[int, float, float]] = ()
    start: int = 0
    memo: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    """What detectors of one tick computed of this window already; never outlives the tick."""

    @property
    def end(self) -> float:
        """Unix time at which the last visible cell ends; nothing later is visible."""
        return (self.cube.first + self.stop) * self.cube.step

    @property
    def step(self) -> float:
        """Seconds of a cell."""
        return self.cube.step

    @property
    def units(self) -> list[Unit]:
        """The replicas, in array order."""
        return self.cube.units

    @cached_property
    def gateway(self) -> AttemptsView:
        """The gateway's attempts by minute, whole minutes before the end of the window."""
        return self.cube.attempts.upto(self.end)

    @cached_property
    def ranks(self) -> RankView:
        """The ranks inside the replicas, where they are told apart."""
        return RankView(self.cube.ranks, self.start, self.stop)

    def facts(self, unit: int) -> Facts | None:
        """What a replica had said of itself by the end of the window; None where nothing is known."""
        return self.cube.facts_at(unit, self.end)

    def time(self, cell: int) -> float:
        """Unix time at which a cell of this window (index from its start) ends."""
        return (self.cube.first + self.start + cell + 1) * self.cube.step

    def value(self, name: str, cells: int | None = None) -> F:
        """The last ``cells`` cells of a scalar array (all where None), ``[units, cells]``, NaN where missing.
        Not to be written."""
        lo = self.start if cells is None else max(self.start, self.stop - cells)
        key = ("value", name, lo)
        found = self.memo.get(key)
        if found is None:
            if self.cube.has(name):
                found = self.cube.scalar(name)[:, lo : self.stop].astype(np.float64)
            else:
                found = np.full((len(self.units), self.stop - lo), np.nan)
            self.memo[key] = found
        return found

    def total(self, name: str, cells: int) -> F:
        """Sum of the last ``cells`` cells per replica; NaN where none is known."""
        return self._folded("total", nansum, name, cells)

    def mean(self, name: str, cells: int) -> F:
        """Mean of the last ``cells`` cells per replica; NaN where none is known."""
        return self._folded("mean", nanmean, name, cells)

    def _folded(self, what: str, fold: Callable[[F], F], name: str, cells: int) -> F:
        key = (what, name, cells)
        found: F | None = self.memo.get(key)
        if found is None:
            found = self.memo[key] = fold(self.value(name, cells))
            found.setflags(write=False)
        return found

    def hist_keys(self, signal: str) -> list[HistKey]:
        """Classes and bucket layouts seen for a histogram signal."""
        return self.cube.hist_keys(signal)

    def counts(self, signal: str, key: HistKey, cells: int | None = None) -> F:
        """Bucket increments ``[units, cells, buckets]``."""
        lo = self.start if cells is None else max(self.start, self.stop - cells)
        return self.cube.counts(signal, key)[:, lo : self.stop].astype(np.float64)

    def since_restart(self, cells: int) -> F:
        """Seconds since the last start seen in the last ``cells`` cells, per replica; inf where none.

        A replica that appears among others that were there before has started then.
        """
        marks = self._starts(cells)
        out = np.full(len(self.units), np.inf)
        if marks.shape[1]:
            hit = marks.any(axis=1)
            back = np.argmax(marks[:, ::-1], axis=1) * self.step
            out[hit] = back[hit]
        return out

    def _starts(self, cells: int | None = None) -> NDArray[np.bool_]:
        """Cells ``[units, cells]`` in which a process was seen to start."""
        marks = self.value("restart", cells) > 0
        offset = self.cube.first + self.stop - marks.shape[1]
        for unit, cell in self._newcomers:
            if 0 <= cell - offset < marks.shape[1]:
                marks[unit, cell - offset] = True
        return marks

    @cached_property
    def _newcomers(self) -> list[tuple[int, int]]:
        """Replicas that were first scraped later than others of their pool, with the cell counted from Unix time 0."""
        late, out = int(BORN_S // self.step), []
        for idx in self.pools.values():
            born = [(int(i), b) for i in idx if (b := self.cube.born.get(int(i))) is not None]
            oldest = min((b for _, b in born), default=0)
            out += [(i, b) for i, b in born if b - oldest >= late]
        return out

    @cached_property
    def pools(self) -> dict[str, NDArray[np.intp]]:
        """Replica indices of each pool."""
        out: dict[str, list[int]] = {}
        for i, u in enumerate(self.units):
            out.setdefault(u.pool, []).append(i)
        return {p: np.asarray(i, np.intp) for p, i in sorted(out.items())}

    def classes_of(self, units: Sequence[int] | NDArray[np.intp]) -> tuple[str, ...]:
        """Workload classes that these replicas serve."""
        found: set[str] = set()
        for i in units:
            found |= self.cube.classes.get(int(i), set())
        return tuple(sorted(c for c in found if c and c != "shared"))

    def upto(self, stop: int) -> Window:
        """The same window, ending earlier."""
        return Window(
            self.cube,
            min(stop, self.stop),
            self.context,
            self.samples,
            self.events,
            self.excluded,
            self.start,
        )

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Cells ``[units, cells]`` that may teach a baseline: scraped, not excluded, not within ten minutes after a restart."""
        restart = self._starts()
        ok = _covered(self.value("span"), self.step)
        warm = int(600 // self.step)
        if restart.any():
            grown = np.cumsum(np.pad(restart, ((0, 0), (warm, 0))), axis=1)
            ok = ok & ((grown[:, warm:] - grown[:, :-warm]) <= 0)
        base = (self.cube.first + self.start) * self.step
        for u, a, b in self.excluded:
            if u < len(ok):
                ok[u, max(0, int((a - base) // self.step)) : max(0, int((b - base) // self.step) + 1)] = False
        return ok


def _covered(span: F, step: float, most: int = 8) -> NDArray[np.bool_]:
    """Cells that lie within the span of some frame, ``[units, cells]``: with scrapes a minute apart only each fourth holds one.

    ``span`` holds the seconds that the frame ending in a cell covers, NaN where none ends; at most ``most`` cells are filled.
    """
    out: NDArray[np.bool_] = ~np.isnan(span)
    for back in range(1, min(most, span.shape[1] - 1) + 1):
        with np.errstate(invalid="ignore"):
            out[:, :-back] |= span[:, back:] > (back - 0.5) * step
    return out


def nansum(x: F) -> F:
    """Sum over the last axis, NaN where every value is NaN (numpy gives 0 there)."""
    plain: F = np.add.reduce(x, axis=-1)
    if not x.shape[-1] or not np.isnan(np.add.reduce(plain, axis=None)):
        return plain
    none = np.isnan(x)
    return np.where(
        np.logical_and.reduce(none, axis=-1), np.nan, np.add.reduce(np.where(none, 0.0, x), axis=-1)
    )


def nanmean(x: F) -> F:
    """Mean over the last axis without warnings; NaN where every value is NaN."""
    none = np.isnan(x)
    if not none.any() and x.shape[-1]:
        return x.mean(axis=-1)  # type: ignore[no-any-return]
    n = (~none).sum(axis=-1)
    return np.where(n > 0, np.where(none, 0.0, x).sum(axis=-1) / np.maximum(n, 1), np.nan)
