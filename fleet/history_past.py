"""A longer past than was simulated: the increments of simulated five-minute blocks, drawn again and again.

Simulating two weeks of a fleet takes hours. The demonstration simulates some minutes and draws the time before from
them: whole blocks of all targets together, so that what belongs together stays together and counts stay whole numbers;
their number an hour follows the day. Good for budgets and screens, not for judging detectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fleet.faces.page import Floats
from fleet.faces.targets import Exposed, Sample
from fleet.history import EVERY, Tick
from fleet.model import Attempt, Finish, ReplicaState

BLOCK_TICKS = 20
GRID = 4  # blocks begin at every fourth tick
AGE = 15 * 86400.0  # processes pretend to run for longer than the past is
SESSION_SECONDS = 1800.0
PEAK_HOUR, SWING = 14.5, 0.35


def demand(t: float) -> float:
    """How busy the hour of ``t`` is, around 1."""
    hour = t % 86400.0 / 3600.0
    return 1.0 + SWING * math.cos((hour - PEAK_HOUR) / 24.0 * 2 * math.pi)


@dataclass(slots=True)
class _Track:
    exposed: Exposed
    rows: list[Floats] = field(default_factory=list)
    values: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    grows: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    shift: Floats = field(default_factory=lambda: np.zeros(0))
    total: Floats = field(default_factory=lambda: np.zeros(0))


class Recording:
    """Consecutive ticks of a calm fleet whose processes neither come nor go."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.attempts: list[list[Attempt]] = []
        self.finishes: list[list[tuple[ReplicaState, Finish]]] = []
        self._tracks: dict[str, _Track] = {}

    def add(self, tick: Tick) -> None:
        """Remember one tick."""
        self.times.append(tick.t)
        self.attempts.append(tick.seen.attempts)
        self.finishes.append(tick.seen.finishes)
        for e in tick.targets:
            if e.page is not None:
                self._tracks.setdefault(e.name, _Track(e)).rows.append(e.page.snapshot())

    @property
    def ticks(self) -> int:
        """Steps between remembered moments."""
        return len(self.times) - 1

    def tracks(self) -> dict[str, _Track]:
        """Targets that were there all the time, as matrices [moments, series]; a series not there yet counted 0."""
        out: dict[str, _Track] = {}
        for name, seen in self._tracks.items():
            page = seen.exposed.page
            if page is None or len(seen.rows) != len(self.times):
                continue
            track = _Track(seen.exposed, seen.rows)
            size = len(track.rows[-1])
            track.values = np.zeros((len(track.rows), size))
            for i, row in enumerate(track.rows):
                track.values[i, : len(row)] = row
            track.grows = page.cumulative[:size]
            track.shift = np.asarray(
                [-AGE if n == "process_start_time_seconds" else 0.0 for n, _ in page.series[:size]]
            )
            track.total = np.zeros(size)
            out[name] = track
        return out


@dataclass(frozen=True, slots=True)
class Slot:
    """One span of the past: ``samples`` of all targets at ``t``, made of ``blocks`` (tick numbers where they begin).

    ``step`` is -1 for a coarse span, else the position inside the one block.
    """

    t: float
    samples: list[tuple[Exposed, Sample]]
    blocks: tuple[int, ...]
    step: int = -1


class Past:
    """The past of a recording. Ask for it in order of time; ``settle`` at the end."""

    def __init__(self, recording: Recording, seed: int) -> None:
        if recording.ticks < BLOCK_TICKS + GRID:
            raise ValueError(f"{recording.ticks} ticks are too few to draw blocks of {BLOCK_TICKS} from")
        self._recording = recording
        self._tracks = recording.tracks()
        self._rng = Random(f"{seed}:past")
        self.starts = tuple(range(0, recording.ticks - BLOCK_TICKS + 1, GRID))
        self._now = demand(recording.times[-1])

    def _samples(self, changes: list[tuple[int, int]], last: int) -> list[tuple[Exposed, Sample]]:
        """Add the growth between each (from, to) and show levels as of moment ``last``."""
        out = []
        for track in self._tracks.values():
            v = track.values
            for a, b in changes:
                track.total += np.where(track.grows, v[b] - v[a], 0.0)
            shown = np.where(track.grows, track.total, v[last]) + track.shift
            page = track.exposed.page
            assert page is not None
            out.append((track.exposed, Sample(page.series, shown)))
        return out

    def coarse(self, start: float, end: float, step: float = 3600.0) -> Iterator[Slot]:
        """One moment every ``step`` seconds in (start, end]."""
        per_step = step / (BLOCK_TICKS * EVERY)
        t = start + step
        while t <= end:
            n = max(1, round(per_step * demand(t - step / 2) / self._now))
            blocks = tuple(self._rng.choice(self.starts) for _ in range(n))
            yield Slot(
                t, self._samples([(b, b + BLOCK_TICKS) for b in blocks], blocks[-1] + BLOCK_TICKS), blocks
            )
            t += step

    def fine(self, start: float, end: float) -> Iterator[Slot]:
        """One moment every tick in (start, end]."""
        block, step, t = 0, BLOCK_TICKS, start + EVERY
        while t <= end:
            if step >= BLOCK_TICKS:
                block, step = self._rng.choice(self.starts), 0
            at = block + step
            yield Slot(t, self._samples([(at, at + 1)], at + 1), (block,), step)
            step += 1
            t += EVERY

    def settle(self) -> Iterator[Slot]:
        """Give the pages this past, and go through the recording itself as what followed."""
        base = {}
        for name, track in self._tracks.items():
            base[name] = np.where(track.grows, track.total - track.values[0], 0.0) + track.shift
            page = track.exposed.page
            assert page is not None
            page.carry(base[name])
        for i, t in enumerate(self._recording.times[1:], 1):
            samples = []
            for name, track in self._tracks.items():
                page = track.exposed.page
                assert page is not None
                samples.append((track.exposed, Sample(page.series, track.values[i] + base[name])))
            yield Slot(t, samples, (), i)

    def finishes(
        self, slot: Slot, share: float, shares: Mapping[str, float] = MappingProxyType({})
    ) -> list[tuple[ReplicaState, Finish]]:
        """A random ``share`` of the finished requests of a fine slot (``shares``: another one for a workload), moved there as
        other requests.
        """
        at = slot.blocks[0] + slot.step + 1
        by = slot.t - self._recording.times[at]
        mark = f"~{int(slot.t - slot.step * EVERY) % 10_000_000:x}"
        # A session goes on over blocks for half an hour: as many are active at a time as really were.
        session = f"~{int(slot.t // SESSION_SECONDS) % 100_000:x}"
        draw = self._rng.random
        return [
            (r, replace(f, id=f.id + mark, session=f.session + session, t=f.t + by))
            for r, f in self._recording.finishes[at]
            if draw() < shares.get(f.workload, share)
        ]
