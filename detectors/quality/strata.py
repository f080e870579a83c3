"""Which stratum carries a raised rate: many are looked at, so the evidence is counted as e-values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.quality.cells import Cells, codes, rank
from detectors.quality.evalues import average, named, share_value
from detectors.quality.history import Labels
from detectors.quality.rates import RateInterval, exact

I = NDArray[np.intp]  # noqa: E741
B = NDArray[np.bool_]
LOAD_NAMES = ("low load", "medium load", "high load")
ALARMING = ("replica", "release", "cache path", "load", "time since start", "last change")
"""Dimensions whose levels should not differ: classes, pools and models have rates of their own without any fault."""
CARRIES = 5.0
"""A stratum carries the rate where it is at least this many times that of the rest."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One level of one dimension: its rate, the rest's, and how strong the evidence is that it has more than its share.

    ``named``: e-BH names it, at most one in twenty of such names being wrong.
    """

    dimension: str
    level: str
    rate: RateInterval
    rest: float
    evidence: float
    named: bool

    @property
    def carries(self) -> bool:
        """Named, and the rest is nearly free of it."""
        return self.named and self.rate.value >= CARRIES * max(self.rest, 1e-9)


@dataclass(frozen=True)
class Table:
    """All strata looked at, and one e-value for "at least one that should not differ stands out"."""

    strata: tuple[Stratum, ...]
    evidence: float

    def of(self, dimension: str) -> tuple[Stratum, ...]:
        """The levels of one dimension, the worst rate first."""
        mine = [s for s in self.strata if s.dimension == dimension]
        return tuple(sorted(mine, key=lambda s: -s.rate.value))

    def carriers(self) -> tuple[Stratum, ...]:
        """What carries the rate, strongest evidence first."""
        return tuple(sorted((s for s in self.strata if s.carries), key=lambda s: -s.evidence))


def strata_of(
    cells: Cells, labels: dict[str, Labels], *, uptime: I | None = None, change: I | None = None
) -> Table:
    """Every level of every dimension that has at least two, against the rest within class and third of load.

    A replica or release is so compared at equal load, load within class only, time since start within the same hour, and
    what came after a replica's restart or release with what came before it.
    """
    load = _thirds(cells)
    dimensions: list[tuple[str, tuple[str, ...], I, I]] = []
    for name, found in labels.items():
        control = codes(cells.class_, load) if name != "class" else load
        if name not in ("class", "pool", "model"):
            control = codes(control, labels["pool"].code)
        dimensions.append((name, found.values, found.code, control))
    dimensions.append(("load", (*LOAD_NAMES, "not known"), load, cells.class_))
    if uptime is not None:
        hour = codes(cells.class_, (cells.t // 3600).astype(np.intp))
        dimensions.append(("time since start", ("younger half", "older half", "not known"), uptime, hour))
    if change is not None:
        control = codes(cells.class_, load)
        dimensions.append(("last change", ("before it", "after it", "none known"), change, control))
    raw: list[tuple[str, str, RateInterval, float, float]] = []
    for name, values, code, control in dimensions:
        levels = [v for v in np.unique(code) if cells.n[code == v].sum() >= 1]
        if len(levels) < 2:
            continue
        for v in levels:
            at = code == v
            raw.append((name, values[v], *_one(cells, at, control)))
    evidence = [r[4] for r in raw]
    chosen = set(named(evidence))
    strata = tuple(Stratum(*r, named=i in chosen) for i, r in enumerate(raw))
    return Table(strata, average([r[4] for r in raw if r[0] in ALARMING]))


def _one(cells: Cells, at: B, control: I) -> tuple[RateInterval, float, float]:
    size = int(control.max(initial=0)) + 1
    K, N, k, n = (
        np.asarray(np.bincount(code, x, size), np.float64)
        for code, x in (
            (control, cells.k),
            (control, cells.n),
            (control[at], cells.k[at]),
            (control[at], cells.n[at]),
        )
    )
    found = share_value(k, K, n / np.maximum(N, 1e-12))
    rate = exact(round(float(k.sum())), round(float(n.sum())))
    rest = float((K.sum() - k.sum()) / max(N.sum() - n.sum(), 1e-12))
    return rate, rest, found


def _thirds(cells: Cells) -> I:
    known = ~np.isnan(cells.load)
    out = np.full(len(cells), 3, np.intp)
    if known.any():
        out[known] = np.minimum(rank(cells.load[known], cells.n[known]) * 3, 2).astype(np.intp)
    return out
