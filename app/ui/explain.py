"""How each number on the SLOs page was computed, in plain text with the numbers that went in."""

from __future__ import annotations

import numpy as np

from app.services.slos import SloRow
from app.services.wording import instant, percent, promise, seconds, span, window
from core.slo import TTFT

POINTS = {
    "engine": "the engine: from arrival at its front end to the first token. Router and network are not in it.",
    "gateway": "the gateway: from arrival there to the first token. Attempts given up count with their age.",
    "router": "the router: from the request's arrival there to the first token.",
    "client": "the client: what a person waited.",
}


def explain_p99(row: SloRow) -> str:
    """The percentile."""
    if row.p99 is None:
        return f"No engine of this class exports {row.objective.signal}.\nData health names the flag that exports it."
    q = row.p99.q
    high = "infinity" if np.isinf(q.high) else seconds(q.high)
    return "\n".join(
        [
            f"Measured at {POINTS.get(row.point, row.point)}"
            if row.objective.signal == TTFT
            else "Measured at the engine, whose histogram the percentile comes from.",
            f"Window: the shortest of 1, 5, 15 and 60 min with 300 requests: {window(row.p99.minutes)}"
            f" up to {instant(row.p99_end)}.",
            f"Observations: {q.n:,}. Bucket counts of all replicas are summed, percentiles are never averaged.",
            f"Interval: {seconds(q.low)} to {high}. It joins the edges of the bucket that holds the percentile"
            " with the 95 % order-statistic bound of so many observations.",
            "Inside a bucket the value is interpolated geometrically. Different bucket layouts are bounded one by"
            " one and added, never merged.",
        ]
    )


def explain_attainment(row: SloRow) -> str:
    """The share of good requests."""
    t = row.attainment.tally
    return "\n".join(
        [
            f"good ÷ (good + bad) from {instant(row.window[0])} to {instant(row.window[1])}, measured at the {row.point}.",
            f"good: {t.good:,}    bad: {t.bad:,} (of them errors {t.errors:,}, turned away {t.unmet:,})",
            f"good or bad, not known which: {t.either:,}    given up at unknown age: {t.bad_or_excluded:,}",
            f"excluded: {t.excluded:,}",
            f"Lowest possible {percent(row.attainment.low, 2)}, highest {percent(row.attainment.high, 2)};"
            f" promised {promise(row.objective.target)}.",
            "Aborts: counted."
            if t.aborts_known
            else "Aborts: not exported by every engine of the class; requests given up are missing here.",
        ]
    )


def explain_budget(row: SloRow) -> str:
    """Error budget."""
    o, a = row.objective, row.attainment
    return "\n".join(
        [
            f"Budget: {percent(o.budget, 2)} of requests may be bad over {span(o.window)}.",
            f"Used: share of bad requests ÷ budget, so left = 1 − (1 − attained) ÷ {o.budget:.4g}.",
            f"With attained {percent(a.low, 2)} to {percent(a.high, 2)}:"
            f" {percent(a.budget_left[0], 1)} to {percent(a.budget_left[1], 1)} left. Below zero it is overspent.",
            "Time until it is gone: what is left at the pace of the last hour.",
        ]
    )


def explain_burn(row: SloRow) -> str:
    """Burn rates."""
    lines = [
        "Burn = share of bad requests ÷ budget: 1× uses the budget up exactly over the window."
        " A rule fires while both its windows burn faster than its factor."
    ]
    for b in row.burns:
        rate = "no traffic" if np.isnan(b.long[0]) else f"{b.long[0]:.2f}–{b.long[1]:.2f}×"
        recent = "no traffic" if np.isnan(b.short[0]) else f"{b.short[0]:.2f}–{b.short[1]:.2f}×"
        state = "FIRING" if b.firing else "quiet"
        lines.append(
            f"{b.rule.severity}, {b.rule.factor:g}×: {span(b.rule.long)} {rate}, {span(b.rule.short)} {recent},"
            f" {b.bad:,} bad: {state}"
        )
    return "\n".join(lines)


def explain_coverage(row: SloRow) -> str:
    """Coverage."""
    a = row.attainment
    return "\n".join(
        [
            f"Minutes of the window with telemetry of the class: {row.covered_minutes:,}"
            f" of {(row.window[1] - row.window[0]) / 60:,.0f} ({percent(a.coverage, 2)}).",
            "The rest is unknown: it is neither good nor bad, and the attainment is of what was seen.",
        ]
    )
