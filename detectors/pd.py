"""Which replicas only compute prompts, which only decode, and which prefill pools feed a decode pool.

A role is taken from what the target says of itself; without that from what it does: a replica that answers one token a
request computes prompts for others, and one that receives KV and answers more than that decodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.measures import now
from detectors.window import Window

B = NDArray[np.bool_]
Units = NDArray[np.intp]
SPAN_S = 3600.0
ONE_TOKEN = 1.5
LEAST = 20


@dataclass(frozen=True)
class Roles:
    """Masks ``[units]``: replicas that only compute prompts, and replicas that only decode."""

    prefill: B
    decode: B


def roles(window: Window) -> Roles:
    """The roles of all replicas, from their own words first and from the last hour's work second."""
    found = window.memo.get(("roles",))
    if isinstance(found, Roles):
        return found
    m = now(window, int(SPAN_S // window.step), "output_length", "transfers", "n")
    with np.errstate(invalid="ignore"):
        known = (m["n"] >= LEAST) & (m["transfers"] > 0)
        prefill = known & (m["output_length"] <= ONE_TOKEN)
        decode = known & (m["output_length"] > ONE_TOKEN)
    # Somebody must compute the prompts: an engine that loads from a KV store is no decode worker.
    for cluster in {u.cluster for u in window.units}:
        here = np.asarray([u.cluster == cluster for u in window.units])
        if not (prefill & here).any():
            decode &= ~here
    for i in range(len(window.units)):
        facts = window.cube.facts_at(i, window.end)
        if facts is not None and facts.role in ("prefill", "decode"):
            prefill[i], decode[i] = facts.role == "prefill", facts.role == "decode"
    out = Roles(prefill, decode)
    window.memo[("roles",)] = out
    return out


def feeders(window: Window, units: Units) -> Units:
    """Prefill replicas that may feed some decode replicas: those of the same cluster, and of the same model where it is known."""
    mine = {(window.units[i].cluster, _model(window, int(i))) for i in units}
    return np.asarray(
        [
            int(i)
            for i in np.flatnonzero(roles(window).prefill)
            if any(
                window.units[i].cluster == c and (not m or _model(window, int(i)) in ("", m)) for c, m in mine
            )
        ],
        np.intp,
    )


def _model(window: Window, unit: int) -> str:
    facts = window.cube.facts_at(unit, window.end)
    return facts.model if facts is not None else ""
