"""From the samples of a window to readings: one matrix a target, its plan, and what is remembered of it between windows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from collectors.dictionary import Dictionary
from collectors.mapping import plan as make_plan
from collectors.plan import Plan
from collectors.prometheus_scrapes import align, choose, grid_of
from collectors.prometheus_series import (
    Copy,
    LabelPairs,
    Sampled,
    SeriesKey,
    TargetSamples,
    Times,
    Window,
)
from core.classes import ClassRules
from core.frames import FloatArray, IntArray, Layout, Reading, Target
from core.records import Problem
from core.roles import Roles

log = logging.getLogger(__name__)

FORGET_AFTER = 1200.0
"""Seconds after which a series that is gone while its target lives leaves the plan."""
MAX_SERIES = 100_000

_NO_LAYOUT = Layout(())
_NO_FLOATS: FloatArray = np.empty(0)
_NO_COUNTS: IntArray = np.empty(0, np.int64)
_STARTS = ("process_start_time_seconds", "_created")


@dataclass
class _Known:
    """A target between windows: its plan over the series seen lately, the newest reading made, the copy believed."""

    target: Target
    seen: dict[SeriesKey, float] = field(default_factory=dict)
    rows: dict[SeriesKey, int] = field(default_factory=dict)
    spans: dict[SeriesKey, tuple[float, float] | None] = field(default_factory=dict)
    plan: Plan | None = None
    newest: float = float("-inf")
    copy: LabelPairs | None = None
    warned: set[tuple[str, str]] = field(default_factory=set)


class TargetBook:
    """The targets of one source. ``every`` is the scrape interval in seconds. Not for several threads at once."""

    def __init__(
        self, source: str, dictionary: Dictionary, classes: ClassRules, roles: Roles, every: float
    ) -> None:
        self._source, self._every = source, every
        self._dictionary, self._classes, self._roles = dictionary, classes, roles
        self._known: dict[LabelPairs, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: LabelPairs) -> bool:
        return key in self._known

    @property
    def unmapped(self) -> list[Target]:
        """Targets none of whose series means anything to the dictionary."""
        return [k.target for k in self._known.values() if k.plan is not None and not k.plan.layout.columns]

    def readings(self, window: Window) -> tuple[list[Reading], list[Problem]]:
        """The readings of a window, grouped by target, ascending in time; only what is newer than the ones made before.

        Where a target has ``up``, its samples are the times of scrapes and a 0 is a reading that is not up; where it has none,
        times come from the samples and absence says nothing.
        """
        readings: list[Reading] = []
        problems = list(window.problems)
        for key, samples in window.targets.items():
            known = self._known.get(key)
            if known is None:
                if not samples.selected:
                    continue  # another instance of the same job, which the selector did not ask for
                known = self._known[key] = _Known(self._place(samples))
            try:
                readings.extend(self._target(known, samples, window, problems))
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # One target that we cannot digest must not cost the others their data.
                log.exception("the series of %s could not be mapped", known.target.address)
                problems.append(
                    self._problem(
                        known,
                        window.end,
                        "unreadable_target",
                        f"Its series could not be mapped ({type(error).__name__}: {str(error)[:200]}).",
                        "Please report this with the output of gustfront doctor for the target.",
                    )
                )
        return readings, problems

    def _place(self, samples: TargetSamples) -> Target:
        labels = dict(samples.labels)
        for name in self._roles.gpu_host:  # a label of GPU series, not of their exporter
            values = {dict(s.key[1]).get(name, "") for c in samples.copies.values() for s in c.series}
            if len(values) == 1 and name not in labels and (value := values.pop()):
                labels[name] = value
        address = labels.get("instance") or labels.get("pod", "")
        return self._roles.target(address, labels, self._source)

    def _target(
        self, known: _Known, samples: TargetSamples, window: Window, problems: list[Problem]
    ) -> list[Reading]:
        grids = {tag: grid_of(c) for tag, c in samples.copies.items()}
        times, down, known.copy = choose(samples.copies, grids, known.copy, known.newest, self._every)
        out = [
            Reading(known.target, float(t), _NO_LAYOUT, _NO_FLOATS, _NO_COUNTS, _NO_FLOATS, up=False)
            for t in down
        ]
        series = [s for c in samples.copies.values() for s in c.series]
        if not series or not times:
            self._newest(known, out)
            return out
        plan = self._plan(known, series, window, problems)
        if not plan.layout.columns:
            self._newest(known, out)
            return out
        values = np.full((len(known.rows), len(times)), np.nan)
        for tag, copy in samples.copies.items():
            at = [i for i, (_, chosen) in enumerate(times) if chosen == tag]
            if at:
                chosen_times = np.array([times[i][0] for i in at])
                strays = self._fill(known, copy, grids[tag], values, np.array(at), chosen_times)
                if strays:
                    problems.append(
                        self._problem(
                            known,
                            window.end,
                            "own_timestamps",
                            "Samples carry times of their own and belong to no scrape; they were left out.",
                            "Set honor_timestamps: false in the scrape configuration.",
                            strays,
                        )
                    )
        out.extend(self._apply(known, plan, [t for t, _ in times], values, problems))
        out.sort(key=lambda r: r.t)
        self._newest(known, out)
        return out

    def _newest(self, known: _Known, out: list[Reading]) -> None:
        if out:
            known.newest = max(known.newest, max(r.t for r in out))

    def _plan(
        self, known: _Known, series: Sequence[Sampled], window: Window, problems: list[Problem]
    ) -> Plan:
        """The plan over the series of this window and those of the last twenty minutes, made anew only when they change."""
        for s in series:
            known.seen[s.key] = s.times[-1]
        gone = [k for k, t in known.seen.items() if t < window.start - FORGET_AFTER]
        for k in gone:
            del known.seen[k]
        if len(known.seen) > MAX_SERIES:
            problems.append(
                self._problem(
                    known,
                    window.end,
                    "too_many_series",
                    f"It has {len(known.seen)} series; only {MAX_SERIES} are kept.",
                    "Narrow the selector of the source, or drop labels at the target.",
                )
            )
            known.seen = dict(sorted(known.seen.items())[:MAX_SERIES])
        spans = _bucket_spans(known.seen, series)
        if known.plan is None or known.rows.keys() != known.seen.keys() or known.spans != spans:
            known.rows = {k: i for i, k in enumerate(sorted(known.seen))}
            known.spans = spans
            listed = [(name, dict(labels)) for name, labels in known.rows]
            present = _presence(known.rows, spans) if spans else None
            known.plan = make_plan(listed, self._dictionary, self._classes, known.target, present=present)
            # What a scrape says of itself stays known while the target is down or says less.
            known.target = replace(
                known.plan.target,
                components=known.plan.components or known.target.components,
            )
        return known.plan

    def _fill(
        self,
        known: _Known,
        copy: Copy,
        grid: Times,
        values: FloatArray,
        at: IntArray,
        chosen: FloatArray,
    ) -> int:
        """Write the samples of one copy into the columns ``at`` (times ``chosen``); returns how many had no place."""
        all_chosen = len(chosen) == len(grid)
        alone = len(at) == values.shape[1]
        strays = 0
        cache: dict[Times, tuple[IntArray, IntArray, int]] = {}
        for s in copy.series:
            row = known.rows.get(s.key)
            if row is None:
                continue
            if all_chosen and (s.times is grid or s.times == grid):
                if alone:
                    values[row] = s.values
                else:
                    values[row, at] = s.values
                continue
            if s.times not in cache:
                cache[s.times] = align(np.array(s.times), np.array(grid), chosen, self._every)
            source, place, lost = cache[s.times]
            values[row, at[place]] = s.values[source]
            strays += lost
        return strays

    def _apply(
        self, known: _Known, plan: Plan, times: list[float], values: FloatArray, problems: list[Problem]
    ) -> Iterable[Reading]:
        gauges, counts, sums = plan.apply_many(values)
        starts = _starts(plan, list(known.rows), values)
        for p in plan.problems(values[:, -1]):
            subject = f"{known.target.address} {p.subject}".rstrip()
            problems.append(replace(p, source=self._source, ts=times[-1], subject=subject))
        rows = (np.ascontiguousarray(a.T) for a in (gauges, counts, sums))
        for t, g, n, s, start in zip(times, *rows, starts, strict=True):
            yield Reading(known.target, float(t), plan.layout, g, n, s, start)

    def _problem(
        self, known: _Known, at: float, code: str, message: str, fix: str, count: int = 1
    ) -> Problem:
        return Problem(at, self._source, code, known.target.address, message, fix, count)


def _bucket_spans(
    seen: Iterable[SeriesKey], series: Iterable[Sampled]
) -> dict[SeriesKey, tuple[float, float] | None]:
    """When the buckets were there that did not last the whole window; None: not at all, though others of their family were.

    After a restart with other edges the old buckets stay behind. Taken together both sets would make one histogram of two bucket
    layouts, of which neither can be read.
    """
    buckets = {s.key: s for s in series if s.key[0].endswith("_bucket")}
    if not buckets:
        return {}
    families = {name for name, _ in buckets}
    first = min(s.times[0] for s in buckets.values())
    last = max(s.times[-1] for s in buckets.values())
    spans: dict[SeriesKey, tuple[float, float] | None] = {
        s.key: (s.times[0], s.times[-1]) for s in buckets.values() if s.times[0] > first or s.times[-1] < last
    }
    return spans | {key: None for key in seen if key[0] in families and key not in buckets}


def _presence(
    rows: Iterable[SeriesKey], spans: Mapping[SeriesKey, tuple[float, float] | None]
) -> NDArray[np.bool_]:
    """``[series, moments]``: whether each series was there, at the moments at which some bucket came or went."""
    moments = np.array(sorted({t for span in spans.values() if span for t in span}) or [0.0])
    listed = list(rows)
    out = np.ones((len(listed), len(moments)), bool)
    for i, key in enumerate(listed):
        if key in spans:
            span = spans[key]
            out[i] = (moments >= span[0]) & (moments <= span[1]) if span else False
    return out


def _starts(plan: Plan, keys: list[SeriesKey], values: FloatArray) -> list[float | None]:
    """The process start at each time, asked of the plan only where what it depends on changed."""
    rows = [i for i, (name, _) in enumerate(keys) if name.endswith(_STARTS)]
    if not rows:
        return [_start(plan, values[:, 0])] * values.shape[1]
    own = values[rows]
    changed = np.ones(values.shape[1], bool)
    same = (own[:, 1:] == own[:, :-1]) | (np.isnan(own[:, 1:]) & np.isnan(own[:, :-1]))
    changed[1:] = ~same.all(axis=0)
    out: list[float | None] = []
    for i, new in enumerate(changed):
        out.append(_start(plan, values[:, i]) if new else out[-1])
    return out


def _start(plan: Plan, values: FloatArray) -> float | None:
    found = plan.start(values)
    return None if found is None else float(found)
