"""Is it load? The rate of bad answers of a pool against the load that each request met at admission, without itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.quality.decision import Setting, decide
from detectors.quality.verdict import LoadVerdict
from detectors.quality.window_load import UNFINISHED_S, cells_of, load_series
from detectors.window import Window

I = NDArray[np.intp]  # noqa: E741


def is_it_load(window: Window, pool: str, rows: I, carried: str = "", *, final: bool = True) -> LoadVerdict:
    """Judge the sampled answers ``rows`` (indices into the samples) of one pool, all after the onset.

    ``carried`` says what else carries the rate, if anything does: then the answer is no, with its numbers beside it (with
    ``final`` false only where load does not show by itself).
    """
    s = window.samples
    # The latest admissions do not yet know who was in flight beside them: those requests have not finished.
    rows = rows[s.admitted[rows] <= window.end - UNFINISHED_S]
    if not len(rows):
        return LoadVerdict(False if carried else None, carried or "too early")
    series = load_series(window, pool, float(s.admitted[rows].min()))
    group = np.unique([u.pool for u in window.units], return_inverse=True)[1].astype(np.intp)
    return decide(cells_of(window, rows, series), Setting(series, group, carried=carried, final=final))
