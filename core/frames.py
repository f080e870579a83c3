"""Readings, layouts and frames: the shapes in which one scrape of one target travels from a collector to the store.

A *reading* holds absolute (cumulative) values as the target exported them at one instant. A *frame* holds what happened
between two readings of one target: gauges as values, counters and bucket counts as increments. The store turns one into the
other inside its transaction (DESIGN: increments are computed from ``target_state``), collectors never do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["gauge", "counter", "sum", "histogram"]
"""``gauge``: a value, NaN is a gap. ``counter``: an integer count. ``sum``: a real-valued total (seconds, joules, dollars).
``histogram``: one integer count per bucket, overflow last, and a real-valued sum of the observations."""

Labels = tuple[tuple[str, str], ...]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """One mapped series (or histogram) of a target: the canonical signal and the labels that are not the target's own.

    ``labels`` are sorted pairs. Keys in use: ``class`` (workload class), ``model`` (only where one target serves several),
    ``rank``, and the dimensions that a dictionary entry declares (``reason``, ``mode``, ``status``, ``stage``, ...).
    ``edges`` are the finite upper bucket edges, ascending, for histograms; ``()`` otherwise.
    """

    signal: str
    labels: Labels = ()
    kind: Kind = "gauge"
    edges: tuple[float, ...] = ()

    def label(self, key: str, default: str = "") -> str:
        """The value of one label, or ``default``."""
        return next((v for k, v in self.labels if k == key), default)


@dataclass(frozen=True)
class Layout:
    """An ordered list of columns; content-addressed, so that equal targets share one stored layout.

    Values of a reading or frame are three flat arrays in column order: gauges; counts (one slot a counter, ``len(edges) + 1``
    slots a histogram: counts per bucket, *not* cumulative over ``le``, overflow last); sums (one slot a ``sum`` or histogram).
    """

    columns: tuple[Column, ...]

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits, the same for the same columns in any process."""
        return blake2b(self.to_json().encode(), digest_size=8).hexdigest()

    @cached_property
    def slots(self) -> tuple[tuple[slice, slice, slice], ...]:
        """For each column its slices of (gauges, counts, sums); an empty slice where it has none."""
        out: list[tuple[slice, slice, slice]] = []
        g = n = s = 0
        for c in self.columns:
            dg = int(c.kind == "gauge")
            dn = len(c.edges) + 1 if c.kind == "histogram" else int(c.kind == "counter")
            ds = int(c.kind in ("sum", "histogram"))
            out.append((slice(g, g + dg), slice(n, n + dn), slice(s, s + ds)))
            g, n, s = g + dg, n + dn, s + ds
        return tuple(out)

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """Number of gauge, count and sum slots."""
        if not self.slots:
            return (0, 0, 0)
        g, n, s = self.slots[-1]
        return (g.stop, n.stop, s.stop)

    @cached_property
    def index(self) -> Mapping[Column, int]:
        """Position of each column."""
        return {c: i for i, c in enumerate(self.columns)}

    def to_json(self) -> str:
        """Canonical JSON: a list of ``[signal, [[label, value], ...], kind, [edges]]``."""
        rows = [[c.signal, [list(p) for p in c.labels], c.kind, list(c.edges)] for c in self.columns]
        return json.dumps(rows, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """The inverse of :meth:`to_json`."""
        return cls(
            tuple(
                Column(signal, tuple((k, v) for k, v in labels), kind, tuple(float(e) for e in edges))
                for signal, labels, kind, edges in json.loads(text)
            )
        )


@dataclass(frozen=True)
class Target:
    """A scraped process and where it stands in the fleet.

    ``address`` is host and port (or URL) as the source names it; with ``pool`` and ``replica`` it identifies the target, so that
    a re-used address of another replica is another target, and one process seen by two sources is one target.
    """

    address: str
    pool: str = ""
    replica: str = ""
    cluster: str = ""
    rank: str = ""
    source: str = ""
    job: str = ""
    components: tuple[str, ...] = ()
    version: str = ""
    model: str = ""
    role: str = ""
    release: str = ""
    gpu_host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identity: cluster, pool, replica, rank, address."""
        return (self.cluster, self.pool, self.replica, self.rank, self.address)


@dataclass(frozen=True)
class Reading:
    """Absolute values of one target at one instant ``t`` (Unix seconds).

    ``up`` false means the scrape failed: no values, only the fact (``layout`` empty). ``start`` is the process start in Unix
    seconds where exported.
    """

    target: Target
    t: float
    layout: Layout
    gauges: FloatArray
    counts: IntArray
    sums: FloatArray
    start: float | None = None
    up: bool = True


@dataclass(frozen=True)
class Frame:
    """What one target did over the span ``(t0, t1]``; ``reset`` marks the first span after a restart of its process."""

    target_id: int
    t0: float
    t1: float
    layout: Layout
    gauges: FloatArray
    counts: IntArray
    sums: FloatArray
    reset: bool = False


def column(signal: str, kind: Kind = "gauge", edges: Sequence[float] = (), **labels: str) -> Column:
    """A column with its labels sorted; a label named ``class`` is passed as ``class_``."""
    pairs = sorted((k.rstrip("_"), v) for k, v in labels.items())
    return Column(signal, tuple(pairs), kind, tuple(float(e) for e in edges))
