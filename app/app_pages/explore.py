"""Explore: any signal by class, pool, model or replica, two side by side, with incidents and events; what was odd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app import queries
from app.services.explore import BYS, By, Drawing, Overlay, file_name, stats_of, to_csv
from app.services.view import View
from app.services.wording import capital, clock, compact, instant, listing, quantity, span, window
from app.ui import charts, empty
from app.ui.html import Markup, chip, chips, div, esc, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import events_table, incident_table, plain
from app.ui.style import CLASS_COLOURS, GREY
from app.ui.tables import sheet
from core.signals import SIGNALS

NONE = "no second signal"
FIRST = "ttft_seconds"
HEIGHT = 330


def chooser(n: int, signals: Sequence[str]) -> tuple[str, str, By]:
    """Signal, form and grouping of one chart, all in the URL."""
    suffix = "" if n == 1 else "2"
    options = list(signals) if n == 1 else [NONE, *signals]
    default = options.index(FIRST) if n == 1 and FIRST in options else 0
    left, middle, right = st.columns([2.2, 1, 1])
    with left:
        signal = st.selectbox(
            "Signal" if n == 1 else "Beside it",
            options,
            index=default,
            key=f"signal{suffix}",
            bind="query-params",
        )
    if signal == NONE:
        return NONE, "", "class"
    forms = stats_of(SIGNALS[signal])
    with middle:
        # One widget a kind of signal: a p99 chosen for one must not be an impossible choice for the next.
        stat = st.selectbox("Form", forms, key=f"form{suffix}_{SIGNALS[signal].kind}", bind="query-params")
    with right:
        by = st.selectbox("By", BYS, key=f"by{suffix}", bind="query-params")
    return signal, stat, by


def axis(d: Drawing) -> tuple[dict[str, Any], float]:
    """The y axis, and what values are multiplied by."""
    scale = {"0..1": 100.0, "hertz": 1e-6}.get(d.unit, 1.0)
    values = [float(v) * scale for line in d.lines for v in line.value[np.isfinite(line.value)]]
    if d.unit == "s":
        return charts.seconds_axis(values), 1.0
    if d.unit == "0..1":
        top = max([*values, 1.0])
        return {
            "range": [0, top * 1.05],
            "ticksuffix": " %",
            "gridcolor": charts.GRID,
            "fixedrange": True,
            "zeroline": False,
        }, scale
    return {
        "rangemode": "tozero",
        "gridcolor": charts.GRID,
        "fixedrange": True,
        "zeroline": False,
        "tickformat": "~s" if max(values, default=0) >= 1000 else "~g",
    }, scale


def shapes(over: Overlay, view: View) -> list[dict[str, Any]]:
    """Incidents as shaded spans, events as dotted lines."""
    out: list[dict[str, Any]] = []
    for i in over.incidents[:12]:
        a, b = max(i.started_at, view.start), min(i.ended_at or view.as_of, view.as_of)
        x0, x1 = charts.dates(np.array([a, b]))
        out.append(
            {
                "type": "rect",
                "xref": "x",
                "yref": "paper",
                "x0": x0,
                "x1": x1,
                "y0": 0,
                "y1": 1,
                "line": {"width": 0},
                "fillcolor": "rgba(208,135,0,0.13)",
                "layer": "below",
            }
        )
    return out + [charts.mark(e.ts, colour=GREY) for e in over.events]


def draw(d: Drawing, over: Overlay, view: View, key: str) -> None:
    """One signal."""
    unit = {"0..1": "%", "hertz": "MHz"}.get(d.unit, d.unit)
    show(
        div(
            f"{d.signal.id}, {d.stat} by {d.by} ",
            inline(f"{unit} · step {span(d.step)}", class_="gf-soft"),
            class_="gf-h",
        )
    )
    if not d.lines:
        empty.nothing("Nothing to draw.", d.why_empty)
        return
    y, scale = axis(d)
    data: list[dict[str, Any]] = []
    for n, line in enumerate(d.lines):
        colour = CLASS_COLOURS[n % len(CLASS_COLOURS)]
        dash = ("solid", "dot", "dash")[n // len(CLASS_COLOURS) % 3]
        if line.low is not None and line.high is not None and len(d.lines) <= 3:
            # An interval without an upper end is shaded up to the curve; the pointer and the table say ∞.
            high = np.where(np.isposinf(line.high), line.value, line.high)
            data += charts.band(line.t, line.low * scale, high * scale, colour)
        more: dict[str, Any] = {"hovertemplate": "%{y:.3~s} " + unit}
        if line.n is not None and line.minutes is not None:
            _, count, minutes = charts.thin(line.t, line.n, line.minutes)
            assert line.low is not None
            assert line.high is not None
            _, lo, hi = charts.thin(line.t, line.low, line.high)
            more = {
                "customdata": [
                    [compact(c), window(m), quantity(a, d.unit), quantity(b, d.unit)]
                    for c, m, a, b in zip(count, minutes, lo, hi, strict=True)
                ],
                "hovertemplate": "%{y:.3~s} "
                + unit
                + " (%{customdata[2]} – %{customdata[3]}, n %{customdata[0]} over %{customdata[1]})",
            }
        one = charts.line(line.t, line.value * scale, name=plain(line.name), colour=colour, **more)
        one["line"] = {"color": colour, "width": 1.6, "dash": dash}
        data.append(one)
    legend = div(
        *(
            inline(
                Markup(
                    f'<span class="gf-key" style="background:{CLASS_COLOURS[n % len(CLASS_COLOURS)]}"></span>'
                ),
                esc(line.name),
            )
            for n, line in enumerate(d.lines)
        ),
        class_="gf-legend",
    )
    show(legend)
    if d.total > len(d.lines):
        show(
            div(
                f"The {len(d.lines)} of {d.total} curves that moved most; choose a pool to see others.",
                class_="gf-small gf-soft",
            )
        )
    charts.show(
        data,
        {
            "xaxis": charts.time_axis(view.start, view.as_of),
            "yaxis": y,
            "shapes": shapes(over, view),
            "margin": {"l": 56, "r": 12, "t": 8, "b": 26},
            "hovermode": "x unified" if len(d.lines) <= 6 else "closest",
        },
        key=f"explore-{key}",
        height=HEIGHT,
    )
    latest(d)
    with st.popover("How computed", type="tertiary", key=f"explore-how-{key}"):
        st.text(d.how)


def latest(d: Drawing) -> None:
    """The last known value of each curve; of a quantile with interval and count."""
    lines = []
    for line in d.lines:
        known = np.flatnonzero(np.isfinite(line.value))
        if not len(known):
            continue
        i = int(known[-1])
        more = "–"
        if line.low is not None and line.high is not None and line.n is not None and line.minutes is not None:
            more = (
                f"{quantity(float(line.low[i]), d.unit)} to {quantity(float(line.high[i]), d.unit)} · "
                f"n {line.n[i]:,.0f} over {window(float(line.minutes[i]))}"
            )
        lines.append((line.name, quantity(float(line.value[i]), d.unit), more, clock(float(line.t[i]))))
    quantiles = any(line.n is not None for line in d.lines)
    head = [d.by, "last value", "interval and count", "at"] if quantiles else [d.by, "last value", "", "at"]
    show(table(head, [row if quantiles else (row[0], row[1], "", row[3]) for row in lines[:12]]))


def happened(over: Overlay, view: View) -> None:
    """What is drawn over the curves, in words."""
    left, right = st.columns(2)
    with left:
        show(div("Incidents in the range ", inline("shaded", class_="gf-soft"), class_="gf-h"))
        incident_table(over.incidents, view, ())
    with right:
        show(div("Events in the range ", inline("dotted", class_="gf-soft"), class_="gf-h"))
        if not over.events:
            empty.nothing("No release, restart, scaling or note in this range.")
            return
        newest = sorted(over.events, key=lambda e: -e.ts)
        show(events_table(newest[:8], view))
        if len(newest) > 8:
            show(div(f"and {len(newest) - 8} more", class_="gf-small gf-soft"))


def odd(view: View) -> None:
    """What was odd in this window: asked for, because it reads every signal."""
    show(
        div("What was odd in this window", class_="gf-h"),
        div(
            "Every stored signal of every replica against its own past, the oddest first. It names signals, not causes.",
            class_="gf-small gf-soft",
        ),
    )
    wanted = st.toggle("Look for it", key="odd", bind="query-params")
    if not wanted:
        return
    with st.spinner("Comparing every signal with its past", show_time=True):
        report = queries.odd(view)
    if report.why_empty:
        empty.nothing("Nothing could be tested.", f"{capital(report.why_empty)}. A shorter range needs less.")
        return
    if not report.rows:
        empty.nothing(
            f"Nothing odd: {report.tested:,} series tested against the {span(report.past_seconds)} before.",
            "At most one in twenty of what would be listed is there by chance.",
        )
        return
    frame = pd.DataFrame(
        [
            {
                "signal": r.signal + (f" ({r.what})" if r.what else ""),
                "pool": r.pool,
                "class": r.class_,
                "replicas": f"{len(r.replicas)} of {r.tested}: {listing(list(r.replicas), 3)}",
                "before": quantity(r.before, r.unit),
                "now": quantity(r.now, r.unit),
                "since": clock(r.since) if r.since is not None else "–",
                "p": f"{r.p:.1e}",
            }
            for r in report.rows
        ]
    )
    sheet(frame, key="odd-rows")
    show(
        div(
            f"{report.tested:,} series tested against the {span(report.past_seconds)} before; at most one in 20 rows is chance.",
            class_="gf-small gf-soft",
        )
    )


def body(view: View) -> None:
    """The live part."""
    signals = queries.signals()
    show(chips([chip(f"as of {instant(view.as_of)}", "grey" if view.live else "blue")]))
    if not signals:
        with st.container(border=True, gap="xsmall"):
            empty.nothing("No signal is stored yet.", "Configure a source: the Now page says how.")
        return
    over = queries.overlay(view)
    drawings: list[Drawing] = []
    left, right = st.columns(2)
    for n, column in ((1, left), (2, right)):
        with column, st.container(border=True, gap="xsmall"):
            signal, stat, by = chooser(n, signals)
            if signal == NONE:
                show(
                    div(
                        "Choose a signal to see it beside the first, over the same time.",
                        class_="gf-small gf-soft",
                    )
                )
                continue
            with st.spinner("Reading", show_time=True):
                drawings.append(queries.explore(view, signal, stat, by))
            draw(drawings[-1], over, view, str(n))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.download_button(
            "Download CSV",
            data=lambda: to_csv(drawings),
            file_name=file_name(drawings, view),
            mime="text/csv",
            key="explore-csv",
            on_click="ignore",
        )
        show(
            div(
                "The address of this page holds every choice: it is the link to send.",
                class_="gf-small gf-soft",
            )
        )
    with st.container(border=True, gap="xsmall"):
        happened(over, view)
    with st.container(border=True, gap="xsmall"):
        odd(view)


live(body)
