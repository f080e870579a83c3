"""Data health: what was found, what is missing and which flag exports it, and what is wrong with the input."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import queries
from app.services.health import DataHealth
from app.services.view import View
from app.services.wording import instant, percent, seconds, span
from app.ui import empty
from app.ui import receivers as receiver_rows
from app.ui.html import chip, chips, div, show
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.tables import height


def targets(model: DataHealth, view: View) -> None:
    """Every target."""
    show(div("Targets", class_="gf-h"))
    if not model.targets:
        empty.nothing("No target known at this time.", "Configure a source: the Now page says how.")
        return
    frame = pd.DataFrame(
        [
            {
                "pool": t.pool,
                "replica": t.replica,
                "address": t.address,
                "component": " + ".join(t.components) or "not recognised",
                "version": t.version or "not exported",
                "model": t.model or "not exported",
                "state": "up" if t.up else ("down" if t.up is False else "unknown"),
                "last seen": f"{span(view.as_of - t.last_seen)} before" if t.seen else instant(t.last_seen),
                "signals found": len(t.found),
                "missing": len(t.missing),
                "source": t.source,
            }
            for t in model.targets
        ]
    )
    st.dataframe(frame, hide_index=True, width="stretch", height=height(len(frame)), key="targets")


def signals(model: DataHealth) -> None:
    """Missing signals first, with their flags."""
    missing = [s for s in model.signals if s.found < s.of]
    found = [s for s in model.signals if s.found == s.of]
    show(div("Signals missing", class_="gf-h"))
    if not model.signals:
        empty.nothing("No signal seen in the last two minutes before this time.")
        return
    if missing:
        st.dataframe(
            pd.DataFrame(
                [
                    {
                        "component": s.component,
                        "signal": s.signal,
                        "found on": f"{s.found} of {s.of} targets",
                        "flag or setting that exports it": s.flag or "none known",
                        "what it is": s.meaning,
                    }
                    for s in missing
                ]
            ),
            hide_index=True,
            width="stretch",
            height=height(len(missing), 12),
            key="missing",
        )
    else:
        empty.nothing("Every signal that these components can export is there.")
    show(div(f"Signals found: {len(found)}", class_="gf-h"))
    st.dataframe(
        pd.DataFrame(
            [
                {"component": s.component, "signal": s.signal, "targets": s.of, "what it is": s.meaning}
                for s in found
            ]
        ),
        hide_index=True,
        width="stretch",
        height=height(len(found), 10),
        key="found",
    )


def problems(model: DataHealth) -> None:
    """Problems of the input."""
    show(div("Problems of the input", class_="gf-h"))
    if not model.problems:
        empty.nothing("None recorded.")
        return
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "source": p.problem.source,
                    "what": p.problem.code,
                    "where": p.problem.subject,
                    "message": p.problem.message,
                    "fix": p.problem.fix,
                    "times": p.problem.count,
                    "first": instant(p.since),
                    "last": instant(p.problem.ts),
                }
                for p in model.problems
            ]
        ),
        hide_index=True,
        width="stretch",
        height=height(len(model.problems)),
        key="problems",
    )


def saturated(model: DataHealth) -> None:
    """Histograms whose last edge is too low."""
    show(
        div(
            "Saturated histograms, last hour ",
            inline("percentiles beyond the last edge are shown as ≥", class_="gf-soft"),
            class_="gf-h",
        )
    )
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "signal": s.signal,
                    "class": s.class_,
                    "pool": s.pool,
                    "last edge": seconds(s.edge),
                    "above it": percent(s.share, 2),
                    "observations": s.n,
                }
                for s in model.saturated
            ]
        ),
        hide_index=True,
        width="stretch",
        height=height(len(model.saturated)),
        key="saturated",
    )


def body(view: View) -> None:
    """The live part."""
    model = queries.data_health(view)
    c = model.coverage
    marks = [chip(c.text(), "grey" if c.complete else "amber")]
    if not view.live:
        marks.append(chip(c.history(), "blue"))
    n = len(model.problems)
    words = (
        "no problem of the input"
        if n == 0
        else (f"{n} problems of the input" if n > 1 else "1 problem of the input")
    )
    marks.append(chip(words, "amber" if n else "grey"))
    marks += [mark for mark in (receiver_rows.chip_of(),) if mark]
    show(chips(marks))
    with st.container(border=True, gap="xsmall"):
        problems(model)
    with st.container(border=True, gap="xsmall"):
        receiver_rows.receivers()
    if model.saturated:
        with st.container(border=True, gap="xsmall"):
            saturated(model)
    with st.container(border=True, gap="xsmall"):
        targets(model, view)
    with st.container(border=True, gap="xsmall"):
        signals(model)


live(body)
