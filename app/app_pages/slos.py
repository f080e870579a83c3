"""SLOs: p99 and attainment per class against its objectives, with how each number was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

import numpy as np
import streamlit as st

from app import queries
from app.services.budget import Forecast
from app.services.cards import budget_interval
from app.services.month_report import definition, short
from app.services.slo_page import More
from app.services.slos import SloRow, covered_text
from app.services.view import View
from app.services.wording import (
    between,
    capital,
    clock,
    instant,
    percent,
    promise,
    seconds,
    span,
    window,
    zone_word,
)
from app.ui import empty, links
from app.ui.explain import (
    explain_attainment,
    explain_budget,
    explain_burn,
    explain_coverage,
    explain_p99,
)
from app.ui.fleet_pictures import Level, Line, lines_picture
from app.ui.html import Markup, Tone, chip, chips, div, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import class_colour, interval_text, word
from app.ui.style import RED
from core.slo import Objective

FORMS = {"HTML": "text/html", "CSV": "text/csv", "JSON": "application/json"}
OPENED = 2
"""So many objectives show their curves at once, those with the least budget left."""
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


def point_words(point: str) -> str:
    """Where it was measured."""
    return "of the sampled outputs" if point == "sample" else f"measured at the {point}"


def length_words(o: Objective) -> str:
    """``28 d``, ``this month``."""
    return f"this {o.calendar}" if o.calendar else span(o.window)


def head(row: SloRow) -> None:
    """Name, promise, state."""
    o = row.objective
    text, tone = STATES[row.attainment.state]
    if not row.attainment.reportable and row.attainment.state in ("met", "missed", "undetermined"):
        # What was seen of the window is too little to say how the window went.
        text, tone = f"{text} so far", "red" if row.attainment.state == "missed" else "grey"
    said = f"{o.class_}: {definition(o)} over {length_words(o)}"
    now = [chip("over the threshold now", "red")] if late_now(row) else []
    show(
        div(
            inline(f"{o.name}", class_="gf-name", title=o.name),
            chips([*now, chip(point_words(row.point)), chip(f"{text}, {span(o.window)}", tone)]),
            class_="gf-head",
        ),
        div(
            said,
            class_="gf-p gf-soft",
        ),
    )


def numbers(row: SloRow, future: Forecast | None) -> None:
    """p99, attainment, budget, burn and coverage."""
    a = row.attainment
    name = row.config.name
    columns = st.columns(5)
    latency_slo = row.objective.sli == "latency"
    if latency_slo:
        number(
            columns[0],
            "p99 now",
            word(row.p99),
            interval_text(row.p99),
            key=f"p99-{name}",
            explanation=explain_p99(row),
            missed=late_now(row),
        )
    else:
        number(
            columns[0],
            "bad",
            f"{a.tally.bad:,}",
            f"of {a.tally.counted:,} counted",
            key=f"p99-{name}",
            explanation=explain_attainment(row),
        )
    number(
        columns[1],
        f"attained, {length_words(row.objective)}",
        a.text().split(" (")[0],
        f"n {a.tally.counted:,} counted",
        key=f"att-{name}",
        explanation=explain_attainment(row),
        missed=a.state == "missed",
    )
    left = row.budget_left
    budget = "unknown" if left is None else budget_interval(*left)
    gone = future.text(row.window[1]) if future is not None else ""
    if row.gone_in is not None and left is not None and left[1] > 0:
        gone = f"gone in {span(row.gone_in)} at the pace of the last hour"
    if left is not None and left[1] <= 0:
        gone = "spent"
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
    left, right = st.columns(2)
    with left:
        show(div(f"{capital(short(row.objective.signal))}, p99, interval shaded", class_="gf-small gf-soft"))
        if d.p99 is not None and np.isfinite(d.p99.value).any():
            line = Line("p99", d.p99.t, d.p99.value, colour, low=d.p99.low, high=d.p99.high)
            goal = Level(row.objective.threshold, RED, "objective")
            show(
                lines_picture(
                    [line],
                    view.start,
                    view.as_of,
                    unit="s",
                    log=True,
                    levels=[goal],
                    height="tall",
                    label=f"p99 of {row.config.name} over time, objective {seconds(row.objective.threshold)}",
                )
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
        bottom = min(float(np.nanmin(s.low)), row.objective.target)
        bottom = max(0.0, bottom - max(0.004, (1 - bottom) * 0.12))
        line = Line("within", s.t, (s.low + s.high) / 2, colour, low=s.low, high=s.high)
        show(
            lines_picture(
                [line],
                view.start,
                view.as_of,
                unit="ratio",
                levels=[Level(row.objective.target, RED, "promised")],
                between=(bottom, 1 + (1 - bottom) * 0.04),
                height="tall",
                label=f"share within the threshold of {row.config.name} over time",
            )
        )


def ate(row: SloRow, found: More, view: View) -> None:
    """What used the budget up, and who was hit by prompt length."""
    if found.eaten:
        lines = []
        for e in found.eaten[:5]:
            what: object = "outside any incident"
            if e.incident is not None:
                where = escape(links.incident_path(e.incident.id, view))
                what = Markup(f'<a href="{where}" target="_self">{escape(e.incident.title)}</a>')
            lines.append((what, f"{e.bad:,}", percent(e.share, 0)))
        show(
            div("What ate the budget", class_="gf-label"),
            table(["incident", "bad requests", "of the whole budget"], lines),
        )
    if len(found.bands) > 1:
        rows = [(b.name, b.p99 or "–", f"{b.bad:,}", f"{b.n:,}") for b in found.bands]
        show(
            div("By prompt length, last 24 h", class_="gf-label"),
            table(["prompt tokens", "time to first token, p99", "bad", "counted"], rows),
        )


def budget_order(row: SloRow) -> float:
    """The least budget first."""
    return row.budget_left[0] if row.budget_left is not None else float("inf")


def summary(rows: Sequence[SloRow], more: Mapping[str, More]) -> None:
    """All objectives at a glance, the least budget first."""
    if len(rows) < 2:
        return

    lines = []
    for row in sorted(rows, key=budget_order):
        left = row.budget_left
        future = more[row.config.name].forecast if row.config.name in more else None
        lines.append(
            (
                row.config.name,
                row.objective.class_,
                promise(row.objective.target),
                row.attainment.text(),
                "unknown" if left is None else budget_interval(*left),
                future.text(row.window[1]) if future is not None else "–",
                percent(row.attainment.coverage, 1),
            )
        )
    head_ = ["objective", "class", "promised", "attained", "budget left", "forecast", "coverage"]
    with st.container(border=True, gap="xsmall"):
        show(div("Budgets, the least left first", class_="gf-title"), table(head_, lines))


def month_row(view: View) -> None:
    """The month's report, to be taken along."""
    months = queries.slo_months(view)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        month = st.selectbox("Month report", months, key="slo-month", width=160)
        for form, mime in FORMS.items():
            st.download_button(
                f"Download {form}",
                data=partial(queries.month_file, month, form),
                file_name=f"gustfront-{month}.{form.lower()}",
                mime=mime,
                key=f"slo-download-{form}",
                on_click="ignore",
                type="primary" if form == "HTML" else "secondary",
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
                f"{clock(row.p99_end - x.now.minutes * 60)}–{clock(row.p99_end)} {zone_word(row.p99_end)}",
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


def other_words(row: SloRow) -> str:
    """The measurement point that the numbers are not from."""
    return "From the engines' own metrics" if row.point != "engine" else "From the gateway's log"


def details(row: SloRow, found: More | None, view: View, colour: str) -> None:
    """Curves, what ate the budget, bucket layouts, and what the other measurement point says."""
    if row.objective.sli == "latency":
        curves(row, view, colour)
    if found is not None:
        ate(row, found, view)
    layouts(row)
    if row.other is not None:
        show(
            div(
                f"{other_words(row)}: {row.other.text()} (n {row.other.tally.counted:,}).",
                class_="gf-small gf-soft",
            )
        )
    for note in row.notes:
        show(div(note, class_="gf-small gf-soft"))


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
    more = queries.slo_more(view)
    month_row(view)
    summary(rows, more)
    order = list(dict.fromkeys(r.objective.class_ for r in rows))
    for n, row in enumerate(sorted(rows, key=budget_order)):
        found = more.get(row.config.name)
        with st.container(border=True, gap="xsmall"):
            head(row)
            numbers(row, found.forecast if found is not None else None)
            if n < OPENED:
                details(row, found, view, class_colour(row.objective.class_, order))
                continue
            # What nobody has opened is not computed: a page of many objectives stays quick.
            name = f"slo-more-{row.config.name}"
            with st.expander(
                "Curves, what ate the budget, prompt lengths", key=name, on_change="rerun"
            ) as more_of_it:
                if more_of_it.open:
                    details(row, found, view, class_colour(row.objective.class_, order))


live(body)
