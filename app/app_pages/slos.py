"""SLOs: p99 and attainment per class against its objectives, with how each number was computed."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import queries
from app.services.cards import budget_interval
from app.services.slos import SloRow, covered_text
from app.services.view import View
from app.services.wording import between, clock, instant, percent, promise, seconds, span, window
from app.ui import charts, empty
from app.ui.explain import (
    explain_attainment,
    explain_budget,
    explain_burn,
    explain_coverage,
    explain_p99,
)
from app.ui.html import Tone, chip, chips, div, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import class_colour, interval_text, latency_chart, word

STATES: dict[str, tuple[str, Tone]] = {
    "met": ("met", "green"),
    "missed": ("missed", "red"),
    "undetermined": ("undetermined", "amber"),
    "too_few": ("not enough data", "grey"),
    "no_traffic": ("no traffic", "grey"),
}


def number(
    column: st.delta_generator.DeltaGenerator,
    label: str,
    value: str,
    below: str,
    *,
    key: str,
    explanation: str,
    missed: bool = False,
) -> None:
    """One number with the line below it and the popover that says how it was computed."""
    with column:
        small = "" if value[:1].isdigit() or value[:1] in "≥≤<>−-" else " gf-word"
        show(
            div(label, class_="gf-label"),
            div(value, class_="gf-number gf-mid" + small + (" gf-missed" if missed else "")),
            div(below, class_="gf-small gf-soft gf-two"),
        )
        with st.popover("How computed", type="tertiary", key=key):
            st.text(explanation)


def late_now(row: SloRow) -> bool:
    """The whole interval of the p99 lies above the threshold."""
    return (
        row.p99 is not None
        and row.p99.q.state in ("ok", "above")
        and row.p99.q.low >= row.objective.threshold
    )


def head(row: SloRow) -> None:
    """Name, promise, state."""
    o = row.objective
    text, tone = STATES[row.attainment.state]
    said = f"{o.class_}: {promise(o.target)} of requests with {o.signal} ≤ {seconds(o.threshold)} over {span(o.window)}"
    now = [chip("over the threshold now", "red")] if late_now(row) else []
    show(
        div(
            inline(f"{o.name}", class_="gf-name", title=o.name),
            chips([*now, chip(f"measured at the {row.point}"), chip(f"{text}, {span(o.window)}", tone)]),
            class_="gf-head",
        ),
        div(
            said,
            class_="gf-p gf-soft",
        ),
    )


def numbers(row: SloRow) -> None:
    """p99, attainment, budget, burn and coverage."""
    a = row.attainment
    name = row.config.name
    columns = st.columns(5)
    number(
        columns[0],
        "p99 now",
        word(row.p99),
        interval_text(row.p99),
        key=f"p99-{name}",
        explanation=explain_p99(row),
        missed=late_now(row),
    )
    number(
        columns[1],
        f"attained, {span(row.objective.window)}",
        a.text().split(" (")[0],
        f"n {a.tally.counted:,} counted",
        key=f"att-{name}",
        explanation=explain_attainment(row),
        missed=a.state == "missed",
    )
    left = row.budget_left
    budget = "unknown" if left is None else budget_interval(*left)
    gone = "" if row.gone_in is None else f"gone in {span(row.gone_in)} at this pace"
    number(
        columns[2],
        "budget left",
        budget,
        gone,
        key=f"bud-{name}",
        explanation=explain_budget(row),
        missed=left is not None and left[1] <= 0,
    )
    firing = [b for b in row.burns if b.firing]
    burning = "no rule fires"
    if firing:
        r = firing[0].rule
        burning = f"{r.severity}: {span(r.long)} and {span(r.short)} both over {r.factor:g}×"
    rate = row.burns[0].long if row.burns else (float("nan"), float("nan"))
    number(
        columns[3],
        "burn, last hour",
        "no traffic" if np.isnan(rate[0]) else pair(rate[0], rate[1]),
        burning,
        key=f"burn-{name}",
        explanation=explain_burn(row),
        missed=bool(firing),
    )
    number(
        columns[4],
        "coverage",
        percent(a.coverage, 1),
        covered_text(row),
        key=f"cov-{name}",
        explanation=explain_coverage(row),
    )


def pair(low: float, high: float) -> str:
    """``12×`` or ``3–12×``."""
    a, b = (f"{x:.1f}" if x < 10 else f"{x:,.0f}" for x in (low, high))
    return f"{a}×" if a == b else f"{a}–{b}×"


def curves(row: SloRow, view: View, colour: str) -> None:
    """p99 and share within the threshold over the range."""
    d = queries.slo_detail(view, row.config.name)
    name = row.config.name
    left, right = st.columns(2)
    with left:
        show(div(f"{row.objective.signal} p99, interval shaded", class_="gf-small gf-soft"))
        if d.p99 is not None and np.isfinite(d.p99.value).any():
            latency_chart(
                d.p99,
                row.objective.threshold,
                view.start,
                view.as_of,
                colour=colour,
                key=f"c1-{name}",
                height=190,
            )
        else:
            empty.nothing("No percentile in this range.", f"It needs {300} observations in at most an hour.")
    with right:
        if d.share is None or not np.isfinite(d.share.low).any():
            show(div("Share within the threshold", class_="gf-small gf-soft"))
            empty.nothing("No share in this range.", "It needs at least 20 finished requests in the window.")
            return
        s = d.share
        show(
            div(
                f"Share within {seconds(row.objective.threshold)}, trailing {window(s.minutes)}, bounds shaded",
                class_="gf-small gf-soft",
            )
        )
        least = float(np.nanmin(s.low))
        data = [
            *charts.band(s.t, s.low * 100, s.high * 100, colour),
            charts.line(s.t, (s.low + s.high) * 50, name="within", colour=colour, hovertemplate="%{y:.2f} %"),
            charts.level(view.start, view.as_of, row.objective.target * 100, hoverinfo="skip"),
        ]
        bottom = min(least * 100, row.objective.target * 100)
        bottom = max(0.0, bottom - max(0.4, (100 - bottom) * 0.12))
        charts.show(
            data,
            {
                "xaxis": charts.time_axis(view.start, view.as_of),
                "yaxis": {
                    "range": [bottom, 100 + (100 - bottom) * 0.04],
                    "ticksuffix": " %",
                    "gridcolor": charts.GRID,
                    "zeroline": False,
                    "fixedrange": True,
                    "nticks": 5,
                },
            },
            key=f"c2-{name}",
            height=190,
        )


def layouts(row: SloRow) -> None:
    """p99 of each bucket layout alone: comparable with histogram_quantile of one engine."""
    if not row.layouts:
        return
    body = []
    for x in row.layouts:
        q = x.now.q
        inside = (
            between(seconds(q.low), "∞" if np.isinf(q.high) else seconds(q.high)) if q.state == "ok" else "–"
        )
        body.append(
            (
                ", ".join(x.pools) or "–",
                f"{len(x.edges)} edges, {seconds(x.edges[0])} to {seconds(x.edges[-1])}" if x.edges else "–",
                word(x.now),
                inside,
                f"{q.n:,}",
                f"{clock(row.p99_end - x.now.minutes * 60)}–{clock(row.p99_end)} UTC",
                "yes"
                if any(abs(e - row.objective.threshold) < 1e-9 * row.objective.threshold for e in x.edges)
                else "no",
            )
        )
    show(
        table(
            ["pools (engine)", "bucket layout", "p99", "interval", "n", "window", "threshold on an edge"],
            body,
        )
    )


def body(view: View) -> None:
    """The live part."""
    rows = queries.slo_rows(view)
    marks = [chip(f"as of {instant(view.as_of)}", "grey" if view.live else "blue")]
    show(chips(marks))
    if not rows:
        with st.container(border=True, gap="xsmall"):
            show(
                div("No objective configured", class_="gf-title"),
                div(
                    "Add one to the configuration; the p99 of every class is on the Now page in the meantime.",
                    class_="gf-p",
                ),
            )
            st.code(
                "slos:\n  - {name: chat-ttft, class: chat, signal: ttft_seconds, threshold: 1s,"
                " objective_percent: 99, window: 28d}",
                language="yaml",
            )
        return
    order = list(dict.fromkeys(r.objective.class_ for r in rows))
    for row in rows:
        with st.container(border=True, gap="xsmall"):
            head(row)
            numbers(row)
            curves(row, view, class_colour(row.objective.class_, order))
            layouts(row)
            if row.other is not None:
                show(
                    div(
                        f"At the other measurement point: {row.other.text()} (n {row.other.tally.counted:,}).",
                        class_="gf-small gf-soft",
                    )
                )
            for note in row.notes:
                show(div(note, class_="gf-small gf-soft"))


live(body)
