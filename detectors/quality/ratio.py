"""The adjusted rate ratio of the top to the bottom quarter of load, with one-sided 95 % bounds.

How a rate depends on load is not known: it may rise all the way, or only beyond a threshold. Four shapes of one parameter
each are fitted (straight in the rank of load, its square, a step at the median, a step at the upper quarter); a bound is the
furthest ratio that any shape still explains nearly as well as the best one does (profile likelihood over shapes). That costs
little where the shape is plain and is honest where it is not. Over-dispersion and clustering shrink the likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from detectors.quality.cells import Cells, rank
from detectors.quality.conditional import fit

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
LEVEL = 0.95
QUARTERS = (0.25, 0.75)


def shapes(x: F) -> dict[str, F]:
    """Shapes of dependence on the rank ``x`` of load, each from 0 to 1."""
    return {
        "rising": x,
        "rising late": x**2,
        "step at the median": (x > 0.5).astype(float),
        "step at the top quarter": (x > 0.75).astype(float),
    }


def quarters(x: F) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the bottom and the top quarter; where the load has few values, of its lowest and its highest."""
    if not len(x) or x.min() == x.max():
        none = np.zeros(len(x), bool)
        return none, none
    return x <= max(QUARTERS[0], float(x.min())), (x > QUARTERS[1]) | (x == x.max())


@dataclass(frozen=True, slots=True)
class Ratio:
    """``low`` and ``high`` hold with 95 % each (together a 90 % interval); ``p`` one-sided against "no rise with load".

    ``clusters`` used for the error, ``inflation`` of its variance over independent outputs.
    """

    value: float
    low: float
    high: float
    p: float
    shape: str
    z: float
    clusters: int
    inflation: float
    control_z: float | None = None
    """Largest z of the further covariates, where there are any."""


def contrast(f: F, beta: F, x: F, n: F) -> F:
    """Ratio of mean ``exp(beta f)`` over the top quarter of outputs to that over the bottom quarter, for each beta."""
    bottom, top = quarters(x)
    e = np.exp(np.clip(np.outer(beta, f), -40, 40))
    return np.asarray(
        (e[:, top] @ n[top] / max(n[top].sum(), 1e-12))
        / (e[:, bottom] @ n[bottom] / max(n[bottom].sum(), 1e-12))
    )


def adjusted(
    cells: Cells, x: F | None = None, *, clusters: tuple[I, ...] = (), controls: F | None = None
) -> Ratio | None:
    """The ratio with class, prompt length, model and release held fixed (the cells' ``stratum``).

    ``controls`` ``[cells, q]`` are further covariates (the mechanism model). ``clusters`` are ways to group dependent
    outputs (hours, load episodes): the widest error counts. None without bad outputs or without two quarters of load.
    """
    x = rank(cells.load, cells.n) if x is None else x
    bottom, top = quarters(x)
    if not cells.n[top].sum() > 0 or not cells.n[bottom].sum() > 0:
        return None
    fits = {}
    for name, f in shapes(x).items():
        columns = f[:, None] if controls is None else np.column_stack([f, controls])
        found = fit(cells.k, cells.n, cells.stratum, columns)
        if found is not None and found.v[0, 0] < 20.0:
            fits[name] = (f, found)
    if not fits:
        return None
    best = max(fits, key=lambda name: fits[name][1].loglik)
    inflation, used = 1.0, 0
    for cluster in clusters:
        size = len(np.unique(cluster))
        if size < 2:
            continue
        found = fits[best][1]
        ratio = float(found.cluster_variance(cluster)[0, 0] / found.v[0, 0])
        # Few clusters: Student's quantile is wider than the normal one, said as variance.
        wider = float(stats.t.ppf(LEVEL, size - 1) / stats.norm.ppf(LEVEL)) ** 2
        if ratio * wider > inflation:
            inflation, used = ratio * wider, size
        used = used or size
    room = float(stats.norm.ppf(LEVEL)) ** 2 / 2 * inflation
    lows, highs = [], []
    for f, found in fits.values():
        spare = room - (fits[best][1].loglik - found.loglik)
        if spare < 0:
            continue
        half = np.sqrt(2 * spare * found.v[0, 0])
        low, high = contrast(f, np.array([found.beta[0] - half, found.beta[0] + half]), x, cells.n)
        lows.append(float(low))
        highs.append(float(high))
    f, found = fits[best]
    value = float(contrast(f, found.beta[:1], x, cells.n)[0])
    z = float(found.beta[0] / np.sqrt(found.v[0, 0] * inflation))
    # The best of four correlated shapes: twice the tail bounds the optimism of choosing (checked by simulation).
    p = min(1.0, 2.0 * float(stats.norm.sf(z)))
    others = None
    if controls is not None:
        others = float((found.beta[1:] / np.sqrt(np.diag(found.v)[1:] * inflation)).max())
    return Ratio(value, min(lows), max(highs), p, best, z, used, inflation, others)


def crude(cells: Cells) -> Ratio | None:
    """The same without holding anything fixed: what a plain chart of rate against load would say."""
    from dataclasses import replace

    return adjusted(replace(cells, stratum=np.zeros(len(cells), np.intp)), clusters=(cells.hour,))
