"""Bodies that look alike: the second replica of an engine need not be parsed and planned from scratch.

A *shape* is what the lines of a body mean. A target whose body has a known shape takes it over; a plan is taken over too where no
label in which the two targets differ can matter to it. So a fleet of five hundred equal engines starts in the time of one, and
memory grows with the number of different engines rather than of targets.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from collectors.dictionary import Dictionary
from collectors.exposition import Series
from collectors.knownlines import KnownLines
from collectors.mapping import plan as make_plan
from collectors.plan import Plan
from collectors.sharing import Pool, content
from core.classes import ClassRules
from core.frames import FloatArray, Target

SHAPES_KEPT = 16
PLANS_KEPT = 256


@dataclass
class Shape:
    """One kind of body. ``plans``: by the part of a target that can matter to them."""

    known: KnownLines
    series: Sequence[Series]
    used: frozenset[int]
    label_names: frozenset[str]
    plans: dict[Hashable, Plan] = field(default_factory=dict)


class Shapes:
    """The shapes seen lately, most recent first. Thread-safe."""

    def __init__(self, dictionary: Dictionary, classes: ClassRules) -> None:
        self._dictionary, self._classes = dictionary, classes
        self._pool = Pool()
        self._lock = threading.Lock()
        self._shapes: tuple[Shape, ...] = ()

    def __len__(self) -> int:
        return len(self._shapes)

    def new_plan(self, series: Sequence[Series], target: Target) -> Plan:
        """A plan of its own, its large parts shared with equal ones."""
        plan = make_plan(series, self._dictionary, self._classes, target)
        plan.layout = self._pool.one(plan.layout, plan.layout.id)
        plan.folds = self._pool.one(plan.folds, content(plan.folds))
        return plan

    def match(self, body: bytes, target: Target) -> tuple[KnownLines, Plan, FloatArray] | None:
        """What a body means where its shape is known: how to read it, the plan of ``target``, its values."""
        for shape in self._shapes:
            values = shape.known.read(body)
            if values is not None:
                plan = self._plan(shape, target)
                if plan.used != shape.used:
                    return None
                if shape is not self._shapes[0]:
                    self._to_front(shape)
                return shape.known, plan, values
        return None

    def add(self, known: KnownLines, series: Sequence[Series], plan: Plan, target: Target) -> None:
        """Remember the shape of a body that had no problems; ``plan`` was made for ``target`` from its ``series``."""
        if any(shape.known is known for shape in self._shapes):
            return
        names = frozenset(name for _, labels in series for name in labels)
        shape = Shape(known, series, frozenset(plan.used), names)
        shape.plans[self._key(shape, target)] = plan
        self._to_front(shape)

    def one(self, known: KnownLines) -> KnownLines:
        """An equal one that is remembered already, else the given one."""
        return self._pool.one(known, known.key)

    def _to_front(self, shape: Shape) -> None:
        with self._lock:
            self._shapes = (shape, *(s for s in self._shapes if s is not shape))[:SHAPES_KEPT]

    def _key(self, shape: Shape, target: Target) -> Hashable:
        """All of a target that a plan can depend on: not its address, and only labels that series or class rules mention."""
        names = shape.label_names | self._classes.labels
        labels = frozenset((k, v) for k, v in target.labels.items() if k in names)
        return (labels, content(replace(target, address="", replica="", gpu_host="", labels={})))

    def _plan(self, shape: Shape, target: Target) -> Plan:
        key = self._key(shape, target)
        like = shape.plans.get(key)
        if like is None:
            like = self.new_plan(shape.series, target)
            if len(shape.plans) < PLANS_KEPT:
                shape.plans[key] = like
        found = like.target
        own = replace(
            target, components=found.components, model=found.model, role=found.role, version=found.version
        )
        return replace(like, target=own, _percent=set())
