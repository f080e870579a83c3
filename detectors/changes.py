"""Whether somebody changed something: releases and restarts before a tick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.records import Event
from detectors.window import Window

RELEASES = ("deploy", "release", "flag")


def releases(window: Window, pool: str, since: float, until: float) -> list[Event]:
    """Deploys, releases and changed flags of a pool (or of no pool in particular) in ``[since, until]``, Unix seconds."""
    return [
        e
        for e in window.events
        if e.kind in RELEASES and since <= e.ts <= min(until, window.end) and e.pool in ("", pool)
    ]


def untouched(window: Window, seconds: float) -> NDArray[np.bool_]:
    """Replicas that did not restart in the last ``seconds``."""
    return window.since_restart(int(seconds // window.step) + 1) > seconds
