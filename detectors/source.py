"""From the store to what detectors read: cube, samples and events of a span."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.config_models import Config
from core.signals import resolve
from detectors.contract import Context, Detector, Objective
from detectors.cube import Cube
from detectors.registry import wanted
from sql.store import Store


def context_of(config: Config) -> Context:
    """Objectives and shadowed kinds of a configuration; only latency objectives take part."""
    objectives = tuple(
        Objective(s.name, s.class_, resolve(s.signal).id, float(s.threshold), float(s.objective_percent))
        for s in config.slos
    )
    return Context(objectives, frozenset(config.detect.shadow))


def new_cube(items: Sequence[Detector], start: float, depth: float | None = None) -> Cube:
    """An empty cube for the signals that these detectors declare."""
    needs, hists = wanted(tuple(items))
    return Cube(needs, hists, start=start, depth=depth)


def fill(cube: Cube, store: Store, until: float) -> None:
    """Close the cube's cells up to ``until`` from the store's frames and scrape outcomes."""
    start = cube.end
    if int(until // cube.step) <= int(start // cube.step):
        return
    targets = {row.id: row.target for row in store.targets()}
    until = until // cube.step * cube.step
    ups = store.uptime(start, until)
    cube.extend(store.frames(start, until), targets, until)
    for tid, (times, good) in ups.items():
        target = targets.get(tid)
        if target is None or not cube.is_engine(target):
            continue
        for t in np.asarray(times)[~np.asarray(good)]:
            cube.mark_up(target, float(t), False)
