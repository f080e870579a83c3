"""Now: what is wrong, where, since when and who is hurt."""

from __future__ import annotations

import streamlit as st

from app import queries
from app.services.cards import WORST, budget_words
from app.services.heat import WORST as WORST_REPLICAS
from app.services.measures import HEAT_MAP, MEASURES
from app.services.view import View
from app.services.wording import clock, instant, promise, seconds
from app.ui import acting, empty
from app.ui.html import chip, chips, div, show, span, table
from app.ui.live import live
from app.ui.pieces import (
    STATUS,
    class_card,
    class_colour,
    heat_chart,
    incident_line,
    incident_table,
    timeline,
    word,
)


def cards(model: queries.NowModel, view: View) -> None:
    """The worst six classes as cards, at most three a row; the rest as a table."""
    worst = model.cards[:WORST]
    with st.grid(min(3, max(1, len(worst))), min_column_width=300, gap="small"):
        for card in worst:
            class_card(card, view, class_colour(card.class_, model.class_order))
    rest = model.cards[WORST:]
    if rest:
        with st.container(border=True, gap="xsmall"):
            show(div("Other classes", class_="gf-h"))
            show(
                table(
                    [
                        "class",
                        "state",
                        "TTFT p99",
                        "objective",
                        "ITL p99",
                        "end to end p99",
                        "gave up or failed",
                        "budget left",
                    ],
                    [
                        (
                            c.class_,
                            chip(*STATUS[c.status]),
                            word(c.ttft),
                            "–"
                            if c.threshold is None
                            else f"{promise(c.objective or 0.0)} ≤ {seconds(c.threshold)}",
                            word(c.itl),
                            word(c.e2e),
                            c.bad.as_percent(),
                            "–" if c.slo is None else budget_words(c.slo),
                        )
                        for c in rest
                    ],
                )
            )


def replicas(view: View, measure: str) -> None:
    """The heat map of the chosen measure."""
    heat = queries.heat(view, measure)
    if not heat.rows:
        empty.nothing(
            f"{MEASURES[measure].title}: not exported by any replica here.",
            "Data health names the flag that exports it.",
        )
        return
    heat_chart(heat)
    note = (
        "Normal: the median of each replica over up to six hours before the range."
        if not heat.own_range
        else "Normal: the median of the range itself, where less history came before it."
    )
    if heat.total > WORST_REPLICAS:
        note = f"The worst {WORST_REPLICAS} of {heat.total} replicas. {note}"
    show(div(note, class_="gf-small gf-soft"))


def body(view: View) -> None:
    """The live part."""
    model = queries.now(view)
    c = model.coverage
    marks = [chip(c.text(), "grey" if c.complete else "amber")]
    if not view.live:
        marks.append(chip(c.history(), "blue"))
    marks.append(
        span(f"{clock(view.start, relative_to=view.as_of)}–{instant(view.as_of)}", class_="gf-small gf-soft")
    )
    show(chips(marks))
    standings = queries.standings(v.incident.id for v in model.open)
    for n, incident in enumerate(model.open):
        known = standings.get(incident.incident.id)
        having = acting.marks(known, view.as_of) if known else ()
        incident_line(incident, view, prominent=n == 0, standing=having)
    waiting = sum(i.state != "resolved" and i.severity != "info" for i in model.incidents) - len(model.open)
    if waiting > 0:
        show(div(f"{waiting} more open incidents stand in the table below.", class_="gf-soft gf-small"))
    if not model.open:
        with st.container(border=True, gap="xsmall"):
            show(
                div("No open incident", class_="gf-h"),
                div(
                    "Nothing at ticket severity or above is open as of this time.", class_="gf-soft gf-small"
                ),
            )
    cards(model, view)
    left, right = st.columns([1.75, 1])
    with left, st.container(border=True, gap="xsmall"):
        head, choice = st.columns([1, 1.6], vertical_alignment="center")
        with head:
            show(div("Replicas against their own normal", class_="gf-h"))
        with choice:
            measure = st.segmented_control(
                "Measure",
                list(HEAT_MAP),
                default="ttft_p99",
                format_func=lambda m: HEAT_MAP[m],
                key="heat_measure",
                required=True,
                label_visibility="collapsed",
            )
        replicas(view, measure or "ttft_p99")
    with right, st.container(border=True, gap="xsmall"):
        show(div("Open and recent", class_="gf-h"))
        missed = {v.incident.id for v in model.open if v.missed}
        incident_table(model.incidents, view, missed)
        timeline(model.incidents, view, missed)


live(body)
