"""From the store to what detectors read: cube, samples and events of a span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from core.config_models import Config
from core.signals import resolve
from detectors.attempts import MINUTE
from detectors.contract import Context, Detector, Objective
from detectors.cube import Cube
from detectors.registry import wanted
from sql.store import Store
from sql.targets import TargetRow

REREAD_S = 180.0
"""Minutes of the gateway log that are read again, because lines arrive late."""
CHUNK_S = 1800.0


def context_of(config: Config) -> Context:
    """Objectives and shadowed kinds of a configuration; only latency objectives take part."""
    objectives = tuple(
        Objective(s.name, s.class_, resolve(s.signal).id, float(s.threshold), float(s.objective_percent))
        for s in config.slos
        if s.sli == "latency" and not (s.tenant or s.model or s.pool or s.prompt_above or s.prompt_below)
    )
    return Context(objectives, frozenset(config.detect.shadow))


def new_cube(
    items: Sequence[Detector], start: float, depth: float | None = None, context: Context | None = None
) -> Cube:
    """An empty cube for the signals that these detectors declare; late attempts are judged by the context's objectives."""
    needs, hists = wanted(tuple(items))
    cube = Cube(needs, hists, start=start, depth=depth)
    if context is not None:
        cube.attempts.thresholds = {
            o.workload_class: o.threshold for o in context.objectives if o.signal == "ttft_seconds"
        }
    return cube


def fill(cube: Cube, store: Store, until: float) -> None:
    """Close the cube's cells up to ``until`` from frames and scrape outcomes, and read the gateway's whole minutes."""
    start = cube.end
    if int(until // cube.step) <= int(start // cube.step):
        return
    rows = store.targets()
    targets = {row.id: row.target for row in rows}
    until = until // cube.step * cube.step
    ups = store.uptime(start, until)
    cube.extend(store.frames(start, until), targets, until)
    for tid, (times, good) in ups.items():
        target = targets.get(tid)
        if target is None or not cube.is_engine(target):
            continue
        for t in np.asarray(times)[~np.asarray(good)]:
            cube.mark_up(target, float(t), False)
    _facts(cube, rows)
    _attempts(cube, store, until)


def _facts(cube: Cube, rows: Sequence[TargetRow]) -> None:
    """What engines say of themselves holds from the start of their process, or from their last restart that was seen."""
    at = {u: i for i, u in enumerate(cube.units)}
    restarts = cube.scalar("restart")
    for row in rows:
        if not cube.is_engine(row.target):
            continue
        since = row.process_start
        if since is None:
            unit = at.get(cube.unit_of(row.target))
            marks = np.flatnonzero(restarts[unit] > 0) if unit is not None else np.zeros(0, np.intp)
            since = (cube.first + int(marks[-1])) * cube.step if len(marks) else row.first_seen
        cube.note_facts(row.target, float(since))


def _attempts(cube: Cube, store: Store, until: float) -> None:
    """Read whole minutes; the newest ones again, because lines of a log arrive late."""
    log = cube.attempts
    stop = until // MINUTE * MINUTE
    if stop <= log.until:
        return
    pool_of = _pool_of(cube)
    since = max(log.first * MINUTE, log.until - REREAD_S)
    while since < stop:
        end = min(since + CHUNK_S, stop)
        log.add(store.request_counts(since, end), since, end, pool_of)
        since = end


def _pool_of(cube: Cube) -> Mapping[str, str]:
    """The pool of each class that only one pool serves."""
    pools: dict[str, set[str]] = defaultdict(set)
    for unit, classes in cube.classes.items():
        for c in classes:
            pools[c].add(cube.units[unit].pool)
    return {c: next(iter(p)) for c, p in pools.items() if len(p) == 1}
