"""From the bodies of one target to readings: remembered prefixes, a plan made anew only when the series change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectors.dictionary import Dictionary
from collectors.discovery import Endpoint
from collectors.exposition import Limits, PrefixCache
from collectors.mapping import plan as make_plan
from collectors.plan import Plan
from core.classes import ClassRules
from core.config_models import ScrapeSource
from core.frames import Reading, Target
from core.records import Problem
from core.roles import Roles

EXAMINE_EVERY = 20
"""Scrapes between two looks at what cannot be true in the values (buckets that fall, impossible ratios)."""


@dataclass(frozen=True)
class BodyTools:
    """What reading a body needs, shared by all targets."""

    dictionary: Dictionary
    classes: ClassRules
    roles: Roles

    def target(self, endpoint: Endpoint, source: str) -> Target:
        """The target of an endpoint as far as its labels tell."""
        labels = dict(endpoint.labels)
        return self.roles.target(endpoint.address, labels, source, job=labels.get("job", ""))


class BodyReader:
    """One target's bodies. Not for several threads at once.

    ``target`` is refined by what the series say. ``fresh`` until a first body has been read.
    """

    def __init__(self, tools: BodyTools, target: Target, source: ScrapeSource) -> None:
        self.target = self._base = target
        self.fresh = True
        self._version = ""
        self._tools, self._source = tools, source
        self._limits = Limits(
            max_bytes=source.max_bytes, max_series=source.max_series, max_label_length=source.max_label_length
        )
        self._cache = PrefixCache(self._limits, target.source)
        self._plan: Plan | None = None
        self._generation = -1
        self._since = 0

    @property
    def unversioned(self) -> frozenset[str]:
        """The components found, where none of them exports a version; empty otherwise."""
        if self._plan is None or self._plan.target.version:
            return frozenset()
        return frozenset(self._plan.components)

    def read(self, body: bytes, t: float) -> tuple[Reading | None, list[Problem]]:
        """The reading of one body scraped at ``t``, and what is wrong with it.

        The reading is None where a body that is not empty holds no series.
        """
        found = self._cache.scrape(body, ts=t)
        self.fresh = False
        problems = [self._named(p, t) for p in found.problems]
        if not found.series and body.strip():
            return None, problems
        plan = self._plan
        if plan is None or found.generation != self._generation:
            plan = self._plan = make_plan(
                found.series, self._tools.dictionary, self._tools.classes, self._base
            )
            self._generation = found.generation
            self._cache.keep(plan.used)
            self._since = 0
            self._retarget()
        if self._since % EXAMINE_EVERY == 0:
            problems += [
                self._named(p, t) for p in plan.problems(found.values, source=self._base.source, ts=t)
            ]
        self._since += 1
        gauges, counts, sums = plan.apply(found.values)
        return Reading(self.target, t, plan.layout, gauges, counts, sums, plan.start(found.values)), problems

    def set_version(self, version: str) -> None:
        """The engine's version as it told it elsewhere; what the series say wins."""
        self._version = version
        self._retarget()

    def _retarget(self) -> None:
        target = self._base if self._plan is None else self._plan.target
        self.target = (
            replace(target, version=self._version) if self._version and not target.version else target
        )

    def _named(self, problem: Problem, t: float) -> Problem:
        """A problem of this target: the subject says where, also when the parser named only a line or family."""
        subject = problem.subject
        if self._base.address not in subject:
            subject = f"{self._base.address}: {subject}" if subject else self._base.address
        return replace(problem, ts=problem.ts or t, source=self._base.source, subject=subject[:500])
