"""Replicas: all of them against their own normal and against their peers; one or two in detail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from app import queries
from app.services.heat import natural
from app.services.measures import MEASURES, Measure
from app.services.replica_detail import DetailChart, split
from app.services.replica_table import (
    BEFORE_STEPS,
    JUDGED,
    MEASURED,
    NOW_STEPS,
    ReplicaRow,
    ReplicaTable,
    deviation,
    name_of,
    own_share,
)
from app.services.view import View
from app.services.wording import instant, listing, quantity, span
from app.ui import empty
from app.ui.fleet_pictures import Line, key, lines_picture, squares_picture
from app.ui.html import chip, chips, div, rows, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import events_table, incident_table
from app.ui.style import AMBER, BLUE, GREY
from app.ui.tables import sheet

WORST = "worst"
NOBODY = "nothing"
COLUMNS = {
    "ttft_p50": "TTFT p50 s",
    "ttft_p99": "TTFT p99 s",
    "itl_p99": "ITL p99 ms",
    "running": "running",
    "waiting": "waiting",
    "kv_usage": "KV in use %",
    "hit_rate": "hit rate %",
    "accept_rate": "accepted %",
    "generation_rate": "tokens/s",
    "sm_clock": "clock MHz",
}
SCALE = {"itl_p99": 1e3, "kv_usage": 100.0, "hit_rate": 100.0, "accept_rate": 100.0, "sm_clock": 1e-6}
DIGITS = {
    "ttft_p50": 3,
    "ttft_p99": 2,
    "itl_p99": 1,
    "running": 1,
    "waiting": 1,
    "kv_usage": 1,
    "hit_rate": 1,
    "accept_rate": 1,
}
HOW = (
    f"Now: the last {NOW_STEPS * 5} minutes of five-minute roll-ups. Normal: the {BEFORE_STEPS * 5 // 60} hours before them "
    "(medians; percentiles from all observations of those hours). Percentiles come from summed buckets and need 100 "
    "observations. Peers: the median of the others of the pool. How far: 0 is normal or better, 1 the darkest shade; TTFT p99 is "
    "darkest at 20 times its normal, hit rate at 60 points below it. Errors, aborts, temperature and Xid are of the last scrapes."
)


def squares(found: ReplicaTable, measure: str) -> None:
    """The whole fleet at a glance."""
    pools: dict[str, list[tuple[str, float, str]]] = {}
    for r in sorted(found.rows, key=lambda r: (natural(r.pool), natural(r.replica))):
        if measure == WORST:
            far = r.worst[1] if any(m in r.values for m in JUDGED) else float("nan")
            title = r.odd() or "as usual"
        else:
            v = r.values.get(measure)
            far = v.own if v is not None else float("nan")
            m = MEASURES[measure]
            title = (
                "not exported"
                if v is None
                else f"{quantity(v.now, m.unit)}, normal {quantity(v.normal, m.unit)}"
            )
        pools.setdefault(r.pool, []).append((r.replica, far, title))
    show(squares_picture(pools, "far from its own normal"))


def frame_of(found: ReplicaTable, view: View) -> pd.DataFrame:
    """The sortable table."""
    out = []
    for r in found.rows:
        _, far = r.worst
        line: dict[str, object] = {
            "pool": r.pool,
            "replica": r.replica,
            "how far": round(far, 2) if far > 0 else 0.0,
            "stands out by": r.odd() or "–",
            "against its pool": peers(r),
        }
        for m in MEASURED:
            v = r.values.get(m)
            known = v is not None and np.isfinite(v.now)
            line[COLUMNS[m]] = (
                round(v.now * SCALE.get(m, 1.0), DIGITS.get(m, 0)) if v is not None and known else None
            )
        line |= {
            "errors/s": r.errors,
            "aborts/s": r.aborts,
            "°C": r.temperature,
            "Xid": r.xid,
            "busiest rank ÷ mean": r.rank_spread,
            "version": r.version or "not exported",
            "release": r.release or "–",
            "role": r.role or "–",
            "model": r.model or "not exported",
            "up since": span(view.as_of - r.started) if r.started is not None else "not exported",
            "seen": "yes" if r.seen else "no",
        }
        out.append(line)
    frame = pd.DataFrame(out)
    # A column nobody exports is said below, not shown empty.
    return frame.dropna(axis=1, how="all")


def peers(r: ReplicaRow) -> str:
    """The measure that is furthest from the pool's others."""
    known = [(r.values[m].peers, m) for m in JUDGED if m in r.values and np.isfinite(r.values[m].peers)]
    far, m = max(known, default=(0.0, ""))
    if far < 0.15:
        return "–"
    return deviation(MEASURES[m], r.values[m].now, r.values[m].pool, "its pool")


def missing(frame: pd.DataFrame) -> list[str]:
    """Columns that nobody exports."""
    wanted = [*COLUMNS.values(), "errors/s", "aborts/s", "°C", "Xid", "busiest rank ÷ mean"]
    return [c for c in wanted if c not in frame.columns]


def choose(frame: pd.DataFrame) -> None:
    """A click on rows of the table chooses what is shown below."""
    picked = st.session_state["replica-table"].selection.rows[:2]
    names = [f"{frame.iloc[i]['pool']} / {frame.iloc[i]['replica']}" for i in picked]
    if names:
        st.session_state["replica"] = names[0]
        st.session_state["other"] = names[1] if len(names) > 1 else NOBODY


def all_of_them(found: ReplicaTable, view: View) -> None:
    """The table; selecting one or two rows opens them below."""
    frame = frame_of(found, view)
    show(
        div(
            "All replicas ",
            inline("select one row for its charts, two to compare them", class_="gf-soft"),
            class_="gf-h",
        )
    )
    sheet(
        frame,
        key="replica-table",
        columns={"how far": st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="%.2f")},
        selection_mode="multi-row",
        on_select=lambda: choose(frame),
    )
    absent = missing(frame)
    note = f"Nobody here exports: {listing(absent, 12)} (Data health names the flags). " if absent else ""
    show(div(note + "– means not exported, or fewer than 100 observations.", class_="gf-small gf-soft"))
    with st.popover("How computed", type="tertiary", key="replicas-how"):
        st.text(HOW)


def facts(row: ReplicaRow, view: View, *, alone: bool) -> None:
    """What it is, and how it stands."""
    numbers = []
    for m in MEASURED:
        v = row.values.get(m)
        if v is None:
            continue
        numbers.append(
            (
                MEASURES[m].title,
                said(MEASURES[m], v.now),
                said(MEASURES[m], v.normal),
                said(MEASURES[m], v.pool),
            )
        )
    about = rows(
        [
            ("component", " + ".join(row.components) or "not recognised"),
            (
                "version, release",
                " · ".join(x for x in (row.version or "version not exported", row.release) if x),
            ),
            ("model", row.model or "not exported"),
            (
                "up since",
                "not exported"
                if row.started is None
                else f"{instant(row.started)}, {span(view.as_of - row.started)}",
            ),
            ("stands out by", row.odd() or "nothing"),
            ("against its pool", peers(row)),
        ]
    )
    measured = table(["measure", "now", "its normal", "its pool"], numbers)
    show(div(name_of(row), class_="gf-title"))
    if not alone:
        show(about, measured)
        return
    left, right = st.columns([1, 1.4])
    with left:
        show(about)
    with right:
        show(measured)


def said(m: Measure, value: float) -> str:
    """A value with its unit."""
    if not np.isfinite(value):
        return "–"
    return f"{value / 1e6:,.0f}\u00a0MHz" if m.unit == "Hz" else quantity(value, m.unit)


def detail_chart(chart: DetailChart, view: View, events: Sequence[tuple[float, str]]) -> None:
    """One measure."""
    m = chart.measure
    colours = (BLUE, AMBER)
    lines = [Line(c.replica, c.t, c.value, colour) for c, colour in zip(chart.chosen, colours, strict=False)]
    lines.append(Line("median of the others", chart.t, chart.peers, GREY, 1.2))
    show(
        div(m.title, class_="gf-small"),
        lines_picture(lines, view.start, view.as_of, unit=m.unit, log=m.log, marks=events, height="low"),
    )


def detail(found: ReplicaTable, view: View) -> None:
    """One replica, or two beside each other."""
    names = found.names()
    left, right = st.columns(2)
    with left:
        first = st.selectbox(
            "Replica", names, key="replica", bind="query-params", index=None, placeholder="Choose a replica"
        )
    with right:
        second = st.selectbox("Compare with", [NOBODY, *names], key="other", bind="query-params")
    if first is None:
        # The oddest one is what a person came for.
        first = name_of(found.rows[0])
    chosen = tuple(dict.fromkeys([first, *([second] if second and second != NOBODY else [])]))
    shown = [r for n in chosen if (r := found.row(*split(n))) is not None]
    if not shown:
        empty.nothing(f"{first} is not among the replicas at this time.")
        return
    with st.spinner("Reading curves", show_time=True):
        model = queries.replica(view, shown[0].pool, chosen)
    with st.grid(len(shown), min_column_width=380, gap="small"):
        for row in shown:
            with st.container(gap="xsmall"):
                facts(row, view, alone=len(shown) == 1)
    show(
        key(
            [
                *((c, name_of(r)) for c, r in zip((BLUE, AMBER), shown, strict=False)),
                (GREY, f"median of the others of {shown[0].pool}"),
            ]
        )
    )
    marks = [(e.ts, f"{e.kind} {e.replica or e.pool} {e.text}".strip()) for e in model.events]
    with st.grid(3, min_column_width=300, gap="small"):
        for chart in model.charts:
            with st.container(gap="xxsmall"):
                detail_chart(chart, view, marks)
    if model.missing:
        show(div(f"Not exported: {listing(list(model.missing), 12)}.", class_="gf-small gf-soft"))
    left, right = st.columns(2)
    with left:
        show(div("What happened", class_="gf-h"))
        if model.events:
            show(events_table(sorted(model.events, key=lambda e: -e.ts)[:12], view))
        else:
            empty.nothing("No release, restart or scaling in this range.")
    with right:
        show(div("Incidents", class_="gf-h"))
        incident_table(model.incidents, view, ())


def body(view: View) -> None:
    """The live part."""
    found = queries.replicas(view)
    if not found.rows:
        with st.container(border=True, gap="xsmall"):
            empty.nothing("No replica known at this time.", "Configure a source: the Now page says how.")
        return
    unseen = [r.replica for r in found.rows if not r.seen]
    marks = [chip(own_share(found), "amber" if found.rows[0].worst[1] >= 0.3 else "grey")]
    if unseen:
        marks.append(chip(f"not seen in the last minute: {listing(unseen, 3)}", "amber"))
    marks.append(chip(f"up to {instant(found.end)}", "grey" if view.live else "blue"))
    show(chips(marks))
    with st.container(border=True, gap="xsmall"):
        measure = st.segmented_control(
            "Measure",
            [WORST, *JUDGED],
            default=WORST,
            format_func=lambda m: "Worst of all" if m == WORST else MEASURES[m].title,
            key="fleet_measure",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
        )
        squares(found, measure or WORST)
    with st.container(border=True, gap="xsmall"):
        all_of_them(found, view)
    with st.container(border=True, gap="xsmall"):
        detail(found, view)


live(body)
