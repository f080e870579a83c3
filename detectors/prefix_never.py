"""A prefix cache that never hit although the traffic shares prefixes: unsupported by the model, or switched off.

Queries are counted and hits stay at exactly 0 from the start of what is known. That alone proves nothing (traffic may share no
prefix), so somebody must know better: sessions that come back (a later turn repeats the earlier ones) or a replica of the
same model that does hit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.incidents import Finding, RuledOut
from detectors.case import Case, Row
from detectors.normal import Normal
from detectors.pd import roles
from detectors.window import Window
from detectors.wording import names, number, percent

F = NDArray[np.float64]
B = NDArray[np.bool_]
SPAN_S = 1800.0
LOOKED_UP = 50_000
AGAIN = 0.2


def never_hits(window: Window) -> B:
    """Replicas with at least 50,000 looked-up tokens in half an hour and not one hit since they are known.

    Not those that only decode: their prompts come with the transfer.
    """
    cells = int(SPAN_S // window.step)
    if window.stop - window.start < cells:
        return np.zeros(len(window.units), bool)
    with np.errstate(invalid="ignore"):
        asked = window.total("queries", cells)
        hits = window.value("hits")
        none = np.nansum(hits, axis=1) == 0
        some = ~np.isnan(hits).all(axis=1)
        return np.asarray((asked >= LOOKED_UP) & none & some & ~roles(window).decode, bool)


def who_knows_better(window: Window, units: NDArray[np.intp]) -> str:
    """Why this traffic should hit, as a sentence; empty where nothing says so."""
    s = window.samples
    lo, hi = s.since(window.end - SPAN_S), s.upto(window.end)
    mine = np.asarray([s.code(window.units[i].replica) for i in units])
    rows = np.arange(lo, hi)
    rows = rows[np.isin(s.replica[rows], mine) & (s.session[rows] != s.code(""))] if len(rows) else rows
    if len(rows) >= 50:
        again = 1 - len(np.unique(s.session[rows])) / len(rows)
        if again >= AGAIN:
            return f"{percent(again)} of the sampled answers continue a session, so their prompts repeat earlier ones."
    model = {
        f.model for i in units if (f := window.cube.facts_at(int(i), window.end)) is not None and f.model
    }
    for j in range(len(window.units)):
        facts = window.cube.facts_at(j, window.end)
        if j in units or facts is None or facts.model not in model:
            continue
        hit = (
            float(np.nansum(window.value("hits", 120)[j])),
            float(np.nansum(window.value("queries", 120)[j])),
        )
        if hit[1] >= LOOKED_UP and hit[0] >= 0.05 * hit[1]:
            return f"{window.units[j].replica} serves the same model and hits {percent(hit[0] / hit[1])}."
    return ""


def tell_never(
    window: Window, pool: str, hit: NDArray[np.intp], seen: NDArray[np.intp], normal: Normal, m: dict[str, F]
) -> Finding | None:
    """A ticket for replicas of a pool that never hit; None where the traffic may share nothing."""
    why = who_knows_better(window, hit)
    if not why:
        return None
    case = Case(window, pool, hit, seen, normal, m)
    asked = float(np.nansum(window.total("queries", int(SPAN_S // window.step))[hit]))
    return case.finding(
        "prefix_cache_loss",
        title=f"Prefix cache on {pool} never hits: 0 of {number(asked)} tokens in {SPAN_S / 60:.0f} min",
        cause=f"{names(case.replicas)} look prompts up and have found nothing since they are known. {why} The "
        "cache is off, or the "
        "model's attention does not support it (hybrid and recurrent models).",
        onset=window.end - SPAN_S,
        severity="ticket",
        confidence=0.7,
        runner_up="config_drift",
        with_p99=False,
        evidence=(
            Row("prefix_cache_hit_tokens_total", unit="tokens found in 30 min", now=0.0),
            Row("prefix_cache_queries_tokens_total", unit="tokens looked up in 30 min", now=asked),
        ),
        ruled_out=(
            RuledOut("kv_eviction_storm", "a full cache hits sometimes", "not one hit"),
            RuledOut("warm_up", "a cold cache fills within minutes", "half an hour without a hit"),
            RuledOut("traffic_shift", "traffic that shares no prefix", why),
        ),
        now=["Nothing is burning: it was never better. Every prompt is computed in full"],
        tomorrow=[
            "Check --enable-prefix-caching (vLLM) or --disable-radix-cache (SGLang), and whether the model supports it",
            "Test with three prompts that share a prefix: hits must rise",
        ],
        detail={"which": "never"},
    )
