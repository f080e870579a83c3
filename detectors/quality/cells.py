"""Sampled outputs as counts by cell: what the load statistics work on, whether they come from a detector's window or from SQL.

A cell is a set of outputs that share stratum, replica, time step and the covariates. ``k`` counts first bad turns of a
session; turns after it are in neither ``k`` nor ``n``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]
I = NDArray[np.intp]  # noqa: E741
B = NDArray[np.bool_]
HOUR = 3600.0


@dataclass(frozen=True)
class Cells:
    """Columns of equal length.

    ``t`` is the time of admission (Unix seconds), ``stratum`` a code of class, prompt length, model and release together,
    ``class_`` the code of the class alone, ``unit`` the replica (−1: not scraped), ``load`` its load at admission without
    the request itself (1 = its pool's mean; NaN where unknown), ``host`` 1 where the prefix came from a host or remote tier,
    ``preempt`` 1 where requests were being preempted around admission.
    """

    k: F
    n: F
    t: F
    class_: I
    stratum: I
    unit: I
    load: F
    host: F
    preempt: F

    def __len__(self) -> int:
        return len(self.k)

    @property
    def bad(self) -> int:
        """First bad turns."""
        return round(float(self.k.sum()))

    @property
    def outputs(self) -> int:
        """Outputs at risk."""
        return round(float(self.n.sum()))

    def where(self, keep: B) -> Cells:
        """The cells of a mask."""
        return Cells(**{name: getattr(self, name)[keep] for name in self.__dataclass_fields__})

    def with_load(self, load: F) -> Cells:
        """The same outputs under another load."""
        return replace(self, load=load)

    @property
    def hour(self) -> I:
        """Cluster of each cell: the clock hour of admission."""
        return np.unique(self.t // HOUR, return_inverse=True)[1].astype(np.intp)


def codes(*columns: NDArray[np.generic]) -> I:
    """One code for each combination of the columns."""
    out = np.zeros(len(columns[0]), np.intp)
    for column in columns:
        _, at = np.unique(column, return_inverse=True)
        out = out * (int(at.max(initial=0)) + 1) + at
        # Codes stay small however many columns there are.
        out = np.unique(out, return_inverse=True)[1].astype(np.intp)
    return out


def rank(load: F, n: F) -> F:
    """Place of each cell in the distribution of load over outputs, 0 to 1; ties share their middle."""
    order = np.argsort(load, kind="stable")
    values, first = np.unique(load[order], return_index=True)
    weight = np.add.reduceat(n[order], first) if len(first) else np.zeros(0)
    up_to = np.cumsum(weight)
    middle = (up_to - weight / 2) / max(float(up_to[-1]), 1e-12) if len(up_to) else up_to
    return np.asarray(middle[np.searchsorted(values, load)], np.float64)


PROMPT_BANDS = (1024.0, 8192.0, 32768.0)
"""Edges of prompt length in tokens."""


def prompt_band(tokens: F) -> I:
    """0 to 3 by :data:`PROMPT_BANDS`, 4 where the length is not known."""
    out = np.digitize(tokens, PROMPT_BANDS).astype(np.intp)
    out[np.isnan(tokens)] = len(PROMPT_BANDS) + 1
    return out
