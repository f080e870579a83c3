"""From the bodies of one target to readings: remembered prefixes, a plan made anew only when the series change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collectors.dictionary import Dictionary
from collectors.discovery import Endpoint
from collectors.exposition import Exposition, Limits, PrefixCache
from collectors.knownlines import KnownLines
from collectors.plan import Plan
from collectors.shapes import Shapes
from core.classes import ClassRules
from core.config_models import ScrapeSource
from core.frames import FloatArray, IntArray, Reading, Target
from core.records import Problem
from core.roles import Roles

EXAMINE_EVERY = 40
"""Scrapes between two looks at what cannot be true in the values (buckets that fall, impossible ratios)."""


CALM_SCRAPES = 10
"""Scrapes without a new line after which a target's line cache is dropped."""


@dataclass(frozen=True)
class BodyTools:
    """What reading a body needs, shared by all targets."""

    dictionary: Dictionary
    classes: ClassRules
    roles: Roles
    shapes: Shapes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", Shapes(self.dictionary, self.classes))

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
        self._cache: PrefixCache | None = None
        self._plan: Plan | None = None
        self._generation = -1
        self._since = 0
        self._known: KnownLines | None = None
        self._standing: list[Problem] = []
        self._calm = 0

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
        values, problems = self.values(body, t)
        return (None if values is None else self.reading(values, t)), problems

    def values(self, body: bytes, t: float) -> tuple[FloatArray | None, list[Problem]]:
        """The raw values of a body for :meth:`reading` or :func:`read_together`, and what is wrong with it."""
        values = None if self._known is None else self._known.read(body)
        problems: list[Problem] = []
        if values is not None:
            problems = [replace(p, ts=t) for p in self._standing] if self._standing else []
            self._rest()
        elif self._cache is None and (alike := self._tools.shapes.match(body, self._base)) is not None:
            self._known, self._plan, values = alike
            self._standing, self._since, self.fresh = [], 0, False
            self._retarget()
        else:
            if self._cache is None:
                self._cache, self._generation = PrefixCache(self._limits, self._base.source), -1
            found = self._cache.scrape(body, ts=t)
            self.fresh = False
            problems = self._standing = [self._named(p, t) for p in found.problems]
            if not found.series and body.strip():
                self._known = None
                return None, problems
            values = found.values
            self._learn(self._cache, found)
        if self._since % EXAMINE_EVERY == 0:
            unlikely = self.plan.problems(values, source=self._base.source, ts=t)
            problems = problems + [self._named(p, t) for p in unlikely]
        self._since += 1
        return values, problems

    @property
    def plan(self) -> Plan:
        """The plan of the last body."""
        assert self._plan is not None
        return self._plan

    def reading(self, values: FloatArray, t: float) -> Reading:
        """The reading of the values that :meth:`values` gave just now."""
        return self.made(values, t, *self.plan.apply(values))

    def made(
        self, values: FloatArray, t: float, gauges: FloatArray, counts: IntArray, sums: FloatArray
    ) -> Reading:
        """A reading of folded values."""
        return Reading(self.target, t, self.plan.layout, gauges, counts, sums, self.plan.start(values))

    def _learn(self, cache: PrefixCache, found: Exposition) -> None:
        """Plan anew if the series changed, and remember what each line of the body just read was."""
        plan, shapes = self._plan, self._tools.shapes
        lines, heads, slots = cache._lines, cache._line_head, cache._line_slot
        if plan is None or found.generation != self._generation:
            plan = self._plan = shapes.new_plan(found.series, self._base)
            self._generation, self._since = found.generation, 0
            cache.keep(plan.used)
            self._retarget()
        self._known, self._calm = None, 0
        # While series are absent the cache counts for how long, so it has to see those bodies itself.
        if lines and not cache._absent:
            self._known = shapes.one(KnownLines(lines, heads, slots, plan.used, len(found.series)))
            if not self._standing:
                shapes.add(self._known, found.series, plan, self._base)

    def _rest(self) -> None:
        """After a calm while, drop the cache, most of a target's memory: the next unusual body is read from scratch."""
        self._calm += 1
        if self._calm == CALM_SCRAPES:
            self._cache = None

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


def read_together(items: Sequence[tuple[BodyReader, FloatArray, float]]) -> list[Reading]:
    """The readings of several targets, in order: those of equal plans are folded in one go, which costs little more than one."""
    out: dict[int, Reading] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (reader, values, _) in enumerate(items):
        groups.setdefault((id(reader.plan.folds), len(values)), []).append(i)
    for rows in groups.values():
        first = items[rows[0]][0].plan
        # What a plan has learnt (a ratio exported as a percentage) is its own: such targets are read alone.
        if len(rows) > 1 and not any(items[i][0].plan._percent for i in rows):
            gauges, counts, sums = (
                np.ascontiguousarray(x.T)
                for x in first.apply_many(np.stack([items[i][1] for i in rows], axis=1))
            )
            if not first._percent:
                for k, i in enumerate(rows):
                    reader, values, t = items[i]
                    out[i] = reader.made(values, t, gauges[k], counts[k], sums[k])
                continue
            first._percent.clear()
        for i in rows:
            reader, values, t = items[i]
            out[i] = reader.reading(values, t)
    return [out[i] for i in range(len(items))]
