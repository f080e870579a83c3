"""Back-test: run the live fold over stored history, tick by tick, as if it had been there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from core.config_models import Config
from core.incidents import Incident
from detectors.contract import Detector
from detectors.fold import Fold
from detectors.incidents import RANK
from detectors.registry import detectors as all_detectors
from detectors.samples import Samples
from detectors.source import context_of, fill, new_cube
from sql.store import Store

Progress = Callable[[float, float], None]
DEFAULT_LAG = 30.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One change of one incident in a back-test."""

    ts: float
    incident: str
    action: str
    text: str


def backtest(
    store: Store,
    config: Config,
    start: float,
    end: float,
    lag: float | Literal["auto"] = "auto",
    save: bool = False,
    *,
    detectors: Sequence[Detector] | None = None,
    progress: Progress | None = None,
    log: list[LogLine] | None = None,
) -> list[Incident]:
    """Incidents that a live run would have raised in ``[start, end)``, by the time they were detected.

    At each tick ``now`` only data up to ``now - lag`` exists. ``save`` writes the incidents and their log to
    the store. Times in the
    incidents are those of the ticks: no hindsight. ``lag`` auto is 30 s.
    """
    delay = DEFAULT_LAG if lag == "auto" else float(lag)
    items = tuple(detectors) if detectors is not None else all_detectors()
    every = float(config.detect.every)
    cube = new_cube(items, start, context=context_of(config))
    fill(cube, store, end)
    samples = Samples.of(store.outputs(start, end))
    events = store.events(start, end)
    fold = Fold(context_of(config), items)
    kept: dict[str, Incident] = {}
    lines: list[LogLine] = []
    first = (start // every + 1) * every
    ticks = max(0, int((end - first) // every) + 1)
    for i in range(ticks):
        now = first + i * every
        for change in fold.tick(cube, samples, events, now, now - delay):
            kept[change.incident.id] = change.incident
            lines.append(LogLine(now, change.incident.id, change.action, change.text))
        if progress and i % 40 == 0:
            progress(now - start, end - start)
    for tracked in fold.tracker.tracked.values():
        kept[tracked.incident.id] = tracked.incident
    out = sorted(kept.values(), key=lambda x: (x.detected_at or x.started_at, -RANK[x.severity], x.id))
    if log is not None:
        log.extend(lines)
    if save:
        for incident in out:
            store.save_incident(incident)
        # The log is append-only and a back-test may be repeated: what it said before is not said again.
        said = {(i.id, e.ts, e.action) for i in out for e in store.incident_log(i.id)}
        for line in lines:
            if (line.incident, line.ts, line.action) not in said:
                store.log_incident(line.incident, line.ts, line.action, line.text, "backtest")
    return out
