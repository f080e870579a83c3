"""What a detector is: the one interface that live detection, back-testing and the contract tests share.

A detector never reads the store. It declares the signals it wants (:class:`Need`); the fold hands it a :class:`Window` that
ends at the tick, so a detector cannot see the future, and keeps its learnt normal (*baseline*) and its memory (*state*) as
JSON objects, so that a run may stop and resume at any tick without changing a single result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from core.incidents import Finding

if TYPE_CHECKING:
    from detectors.window import Window

Json = dict[str, Any]
How = Literal["sum", "max", "min", "count"]


@dataclass(frozen=True, slots=True)
class Need:
    """One dense array that a detector wants: a signal, how its columns are joined within a replica, and a label filter.

    ``where`` is a label and its allowed values; columns without that label never match a filter. ``optional`` needs may be
    missing without a word; for the others the detector names ``flag``, the engine option that exports the signal.

    ``where`` with the value "" keeps the columns without that label. ``how`` count: how many columns have a value (GPUs, ranks).
    ``codes`` reads a gauge of codes as 1 + the position of its value among them, 0 where it is none of them.
    """

    name: str
    signal: str
    how: How = "sum"
    where: tuple[str, tuple[str, ...]] | None = None
    flag: str = ""
    optional: bool = True
    codes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Objective:
    """A latency objective: ``percent`` of the requests of one class within ``threshold`` seconds, by ``signal``."""

    name: str
    workload_class: str
    signal: str
    threshold: float
    percent: float

    @property
    def budget(self) -> float:
        """The share of requests that may be late."""
        return max(1.0 - self.percent / 100.0, 1e-6)


@dataclass(frozen=True)
class Context:
    """What does not change within a run: objectives by class, and which kinds only run in the shadow."""

    objectives: tuple[Objective, ...] = ()
    shadow: frozenset[str] = frozenset()
    step: float = 15.0

    def objective(self, workload_class: str, signal: str = "ttft_seconds") -> Objective | None:
        """The objective of a class for one signal, or None."""
        return next(
            (o for o in self.objectives if o.workload_class == workload_class and o.signal == signal), None
        )


@dataclass(frozen=True)
class Verdict:
    """What one evaluation returns: findings and the next state, and which replicas to keep out of later baselines."""

    findings: Sequence[Finding] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    abnormal: Sequence[str] = ()


@runtime_checkable
class Detector(Protocol):
    """The contract. Implementations hold parameters only; everything learnt is in the baseline and the state.

    ``fit`` learns the normal from a history that ends at ``as_of``; ``evaluate`` judges a window that ends at the tick. Both are
    pure: the same input gives the same output, the input is not changed, and nothing but the window is read.
    """

    @property
    def kind(self) -> str:
        """Id of the kind of incident it finds."""
        ...

    @property
    def needs(self) -> tuple[Need, ...]:
        """Scalar arrays it reads."""
        ...

    @property
    def hists(self) -> tuple[str, ...]:
        """Histogram signals it reads; ``signal:mean`` where number and sum are enough, ``signal:marks`` where a
        few joined buckets are (:mod:`detectors.marks`)."""
        ...

    def fit(self, history: Window, as_of: float) -> Json:
        """The normal as of a time. JSON-serialisable; holds ``as_of``."""
        ...

    def evaluate(self, window: Window, baseline: Json, state: Json) -> Verdict:
        """Findings at the window's end, the next state, and the replicas whose cells are not normal now."""
        ...
