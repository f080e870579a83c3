"""Requests that gave up or failed, and generations that were degraded, per class: from the gateway where there is a log."""

from __future__ import annotations

from dataclasses import dataclass

from app.services.rates import MISSING, Rate, rate
from app.services.view import View
from sql.store import Store

GAVE_UP = 499
MIN_OUTPUTS = 500


@dataclass(slots=True)
class BadCounts:
    """Attempts of one class: ``n`` in all, ``gave_up`` by the client, ``failed`` (429 and 5xx); ``source`` where counted."""

    n: int = 0
    gave_up: int = 0
    failed: int = 0
    source: str = "gateway"

    @property
    def bad(self) -> int:
        """Gave up or failed."""
        return self.gave_up + self.failed


def is_failure(status: int) -> bool:
    """Rejected or failed by the service; other 4xx are the client's own."""
    return status == 429 or status >= 500


def gateway_bad(store: Store, start: float, end: float, view: View) -> dict[str, BadCounts]:
    """Counts per class from the gateway log in [start, end)."""
    out: dict[str, BadCounts] = {}
    for key, cell in store.request_cells(start, end):
        if not view.has(class_=key.class_, pool=key.pool or None, model=key.model):
            continue
        counts = out.setdefault(key.class_, BadCounts())
        counts.n += cell.n
        if key.status == GAVE_UP:
            counts.gave_up += cell.n
        elif is_failure(key.status):
            counts.failed += cell.n
    return out


def engine_bad(store: Store, start: float, end: float, view: View) -> dict[str, BadCounts]:
    """Counts per class from engine counters in [start, end), for classes that export aborts (errors alone would hide them)."""
    finished = _increase(store, "request_success_total", start, end, view)
    aborted = _increase(store, "aborted_total", start, end, view)
    errors = _increase(store, "errors_total", start, end, view)
    out: dict[str, BadCounts] = {}
    for class_ in aborted:
        a, e = aborted.get(class_, 0), errors.get(class_, 0)
        out[class_] = BadCounts(finished.get(class_, 0) + a + e, a, e, "engine")
    return out


def _increase(store: Store, signal: str, start: float, end: float, view: View) -> dict[str, int]:
    """Increase of a counter per class."""
    out: dict[str, int] = {}
    for (class_, pool, _, model, _), (_, counts, _) in store.rollup_matrix(
        signal, start, end, step=60
    ).items():
        if view.has(class_=class_, pool=pool, model=model):
            out[class_] = out.get(class_, 0) + int(counts.clip(min=0).sum())
    return out


def bad_rate(gateway: BadCounts | None, engine: BadCounts | None) -> Rate:
    """The rate from the gateway, else from the engine's counters, else 'not exported'."""
    for counts in (gateway, engine):
        if counts is not None:
            return rate(min(counts.bad, counts.n), counts.n, source=counts.source)
    return MISSING


def degraded_rates(store: Store, start: float, end: float, view: View) -> dict[str, Rate]:
    """Hard verdicts of the text rules per class in the random sample, with exact intervals."""
    hits: dict[str, int] = {}
    n: dict[str, int] = {}
    for o in store.outputs(start, end, pools=[view.pool] if view.pool else None):
        if view.has(class_=o.workload_class, model=o.model):
            n[o.workload_class] = n.get(o.workload_class, 0) + 1
            if o.verdict == "hard":
                hits[o.workload_class] = hits.get(o.workload_class, 0) + 1
    return {
        c: rate(hits.get(c, 0), total, source="sampled outputs", min_n=MIN_OUTPUTS) for c, total in n.items()
    }
