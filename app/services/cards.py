"""Class cards of the Now page: each workload class against its objective, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.services import latency
from app.services.bad import BadCounts, bad_rate, degraded_rates, engine_bad, gateway_bad
from app.services.harm import within
from app.services.latency import Hists, Series, Windowed
from app.services.rates import MISSING, Rate, exact_interval
from app.services.slos import SloRow
from app.services.view import View
from app.services.wording import between, percent, span
from core.config import Config, SloConfig
from core.frames import IntArray
from sql.store import Store

Status = Literal["missed", "met", "undetermined", "none", "no_traffic", "too_few", "not_exported"]
SIGNALS = ("ttft_seconds", "inter_token_latency_seconds", "request_latency_seconds")
BAD_MINUTES = 15.0
DEGRADED_SECONDS = 86400.0
WORST = 6
_ORDER: Mapping[Status, int] = {
    "missed": 0,
    "undetermined": 1,
    "met": 2,
    "none": 3,
    "too_few": 4,
    "not_exported": 5,
    "no_traffic": 6,
}


@dataclass(frozen=True, slots=True)
class ClassCard:
    """One workload class now. None as a quantile means that no engine of the class exports it.

    ``late`` = (least, most, n): requests over the objective in the window of its quantile. ``harm`` orders the cards.
    """

    class_: str
    status: Status
    ttft: Windowed | None
    itl: Windowed | None
    e2e: Windowed | None
    series: Series | None
    threshold: float | None
    objective: float | None
    slo_name: str
    late: tuple[int, int, int] | None
    bad: Rate
    bad_minutes: float
    degraded: Rate
    slo: SloRow | None
    harm: float

    def budget_text(self) -> str:
        """``41 %``, ``35–52 %`` or why there is none; with the time until it is gone where it burns."""
        if self.slo is None or self.slo.budget_left is None:
            return "unknown"
        return budget_words(self.slo)


def budget_words(row: SloRow) -> str:
    """Budget left as an interval, and when it will be gone at this pace."""
    if row.budget_left is None:
        return "unknown"
    low, high = row.budget_left
    text = budget_interval(low, high)
    if high <= 0:
        return f"overspent ({text})" if high < 0 else "none"
    if row.gone_in is not None and row.gone_in < 7 * 86400:
        return f"{text} · gone in {span(row.gone_in)} at this pace"
    return text


def budget_interval(low: float, high: float) -> str:
    """``35–52 %``; with a word between where a minus sign would read like a dash."""
    a, b = percent(low, 0), percent(high, 0)
    if a == b:
        return a
    return between(a, b) if low >= 0 else f"{a} to {b}"


def objective_for(class_: str, slos: Sequence[SloConfig]) -> SloConfig | None:
    """The objective that a card shows: time to first token where there is one, else the first of the class."""
    mine = [s for s in slos if s.class_ == class_]
    return next((s for s in mine if s.signal == "ttft_seconds"), mine[0] if mine else None)


def cards(
    store: Store,
    view: View,
    config: Config,
    slo_rows: Sequence[SloRow],
    degraded: Mapping[str, Rate],
) -> tuple[ClassCard, ...]:
    """All classes of the view, worst first. ``degraded`` comes from :func:`degraded` (it is read less often)."""
    end = latency.last_minute(view)
    now_start = end - latency.LOOK_BACK
    step = view.step
    grid_start = float(np.floor((view.start - latency.LOOK_BACK) / step) * step)
    grid_end = float(np.ceil(end / step) * step)
    recent = {s: latency.load(store, s, view, now_start, end, 60.0) for s in SIGNALS}
    ranged = latency.load(store, "ttft_seconds", view, grid_start, min(grid_end, end), step)
    gateway = gateway_bad(store, end - BAD_MINUTES * 60, end, view)
    engine = engine_bad(store, end - BAD_MINUTES * 60, end, view)
    names = {c for s in recent.values() for c in s} | set(ranged) | set(gateway)
    names |= {c for c in config.class_names if not view.pool and not view.model and view.has(class_=c)}
    by_name = {r.config.name: r for r in slo_rows}
    out = [
        one_card(
            c,
            {s: recent[s].get(c) for s in SIGNALS},
            ranged.get(c),
            config,
            by_name,
            gateway.get(c),
            engine.get(c),
            degraded.get(c, MISSING),
            view,
            grid_start,
            step,
        )
        for c in names
    ]
    return tuple(sorted(out, key=lambda c: (-c.harm, c.class_)))


def degraded(store: Store, view: View) -> dict[str, Rate]:
    """Degraded generations per class over the last day."""
    return degraded_rates(store, view.as_of - DEGRADED_SECONDS, view.as_of, view)


def one_card(
    class_: str,
    recent: Mapping[str, Mapping[tuple[float, ...], IntArray] | None],
    ranged: Hists | None,
    config: Config,
    slo_rows: Mapping[str, SloRow],
    gateway: BadCounts | None,
    engine: BadCounts | None,
    degraded: Rate,
    view: View,
    grid_start: float,
    step: float,
) -> ClassCard:
    """The card of one class from its parts."""
    now = {s: latency.current(h, 0.99) if h else None for s, h in recent.items()}
    slo = objective_for(class_, config.slos)
    signal = slo.signal if slo is not None else "ttft_seconds"
    threshold = slo.threshold if slo is not None else None
    objective = slo.objective_percent / 100 if slo is not None else None
    hists, quantile = recent.get(signal), now.get(signal)
    late: tuple[int, int, int] | None = None
    if hists and quantile is not None and threshold is not None:
        w = within(hists, threshold)
        steps = max(1, round(quantile.minutes))
        late = (
            int((w.n - w.high)[-steps:].sum()),
            int((w.n - w.low)[-steps:].sum()),
            int(w.n[-steps:].sum()),
        )
    status = status_of(quantile, late, objective)
    return ClassCard(
        class_=class_,
        status=status,
        ttft=now["ttft_seconds"],
        itl=now["inter_token_latency_seconds"],
        e2e=now["request_latency_seconds"],
        series=latency.series_of(ranged, 0.99, grid_start, step, draw_from=view.start) if ranged else None,
        threshold=threshold,
        objective=objective,
        slo_name=slo.name if slo is not None else "",
        late=late,
        bad=bad_rate(gateway, engine),
        bad_minutes=BAD_MINUTES,
        degraded=degraded,
        slo=slo_rows.get(slo.name) if slo is not None else None,
        harm=harm_of(status, late, objective),
    )


def status_of(q: Windowed | None, late: tuple[int, int, int] | None, objective: float | None) -> Status:
    """Missed where even the lower 95 % bound of the late share is over what is allowed, met where the count is within it.

    Between the two (a threshold inside a bucket, or so few requests that chance could do it) it is undetermined.
    """
    if q is None:
        return "not_exported"
    if q.q.state == "no_traffic":
        return "no_traffic"
    if objective is None:
        return "none"
    if q.q.state == "too_few" or late is None or late[2] == 0:
        return "too_few"
    least, most, n = late
    allowed = 1 - objective
    if exact_interval(least, n)[0] > allowed:
        return "missed"
    return "met" if most <= allowed * n + 1e-9 else "undetermined"


def harm_of(status: Status, late: tuple[int, int, int] | None, objective: float | None) -> float:
    """The order of statuses first, then late requests in multiples of what the objective allows."""
    base = 10.0 * (6 - _ORDER[status])
    if late is None or objective is None or late[2] == 0:
        return base
    return base + min(9.0, late[0] / late[2] / max(1 - objective, 1e-9) / 12)
