"""A simulated fleet straight into the store: the same plans, readings and transactions as a scrape, without HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from collectors.bodies import BodyTools
from collectors.dictionary import load_dictionary
from collectors.discovery import endpoint
from collectors.mapping import plan as make_plan
from collectors.plan import Plan
from core.classes import ClassRules
from core.config_models import Config, ScrapeSource
from core.frames import FloatArray, Layout, Reading, Target
from core.roles import Roles
from fleet.faces.targets import Exposed, Sample, visible

_EMPTY = (Layout(()), np.zeros(0), np.zeros(0, np.int64), np.zeros(0))


def tools_of(config: Config) -> BodyTools:
    """What reading needs, as the collector would make it from ``config``."""
    return BodyTools(
        load_dictionary(), ClassRules.from_config(config.classes), Roles.from_config(config.roles)
    )


def path_of(name: str) -> str:
    """Where the fleet server shows the target called ``name``."""
    return f"/t/{name}/metrics"


@dataclass(slots=True)
class _Known:
    base: Target
    target: Target
    key: tuple[int, int, frozenset[int]] = (0, 0, frozenset())
    plan: Plan | None = None
    times: list[float] = field(default_factory=list)
    values: list[FloatArray] = field(default_factory=list)


class Gather:
    """Collects scrapes of all targets; ``take`` hands over their readings, in order of time for each target.

    ``address``: host and port of the fleet server, so that what it serves later is the same target.
    """

    def __init__(self, tools: BodyTools, source: ScrapeSource, address: str) -> None:
        self._tools, self._source, self._address = tools, source, address
        self._known: dict[tuple[str, str], _Known] = {}
        self._layouts: dict[str, Layout] = {}  # equal targets share one
        self._out: list[Reading] = []

    def target(self, exposed: Exposed) -> Target:
        """The target that a scraper makes of the address."""
        labels = {**exposed.labels, "__metrics_path__": path_of(exposed.name)}
        return self._tools.target(
            endpoint(self._source, self._address, labels), self._source.name or "scrape"
        )

    def add(self, t: float, exposed: Exposed) -> None:
        """One scrape at ``t``."""
        self.put(t, exposed, exposed.sample())

    def put(self, t: float, exposed: Exposed, sample: Sample | None) -> None:
        """One scrape at ``t`` that gave ``sample``, or failed (None)."""
        key = (exposed.name, exposed.labels["instance"])
        known = self._known.get(key)
        if known is None:
            target = self.target(exposed)
            known = self._known[key] = _Known(target, target)
        if sample is None:
            self._flush(known)
            layout, gauges, counts, sums = _EMPTY
            self._out.append(Reading(known.target, t, layout, gauges, counts, sums, None, up=False))
            return
        self._remember(known, t, sample)

    def _remember(self, known: _Known, t: float, sample: Sample) -> None:
        """Remember one body's numbers; another set of series makes a new plan."""
        key = (id(sample.series), len(sample.values), sample.hidden)
        series, values = visible(sample) if known.key != key or sample.hidden else (None, sample.values)
        if known.key != key or known.plan is None:
            self._flush(known)
            assert series is not None
            known.plan = make_plan(series, self._tools.dictionary, self._tools.classes, known.base)
            known.plan.layout = self._layouts.setdefault(known.plan.layout.id, known.plan.layout)
            known.target, known.key = known.plan.target, key
        known.times.append(t)
        known.values.append(values)

    def _flush(self, known: _Known) -> None:
        if not known.times or known.plan is None:
            return
        gauges, counts, sums = known.plan.apply_many(np.column_stack(known.values))
        for i, t in enumerate(known.times):
            self._out.append(
                Reading(
                    known.target,
                    t,
                    known.plan.layout,
                    np.ascontiguousarray(gauges[:, i]),
                    np.ascontiguousarray(counts[:, i]),
                    np.ascontiguousarray(sums[:, i]),
                    known.plan.start(known.values[i]),
                )
            )
        known.times, known.values = [], []

    def take(self) -> list[Reading]:
        """All readings so far, and forget them."""
        for known in self._known.values():
            self._flush(known)
        out, self._out = self._out, []
        return out
