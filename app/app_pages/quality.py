"""Quality × load: how often answers are degraded, what carries it, and whether load is to blame."""

from __future__ import annotations

import streamlit as st

from app import queries
from app.services import quality_page
from app.services.offending import marked, span_of
from app.services.quality_page import DIMENSIONS, QualityPage, per_10k
from app.services.view import View
from app.services.wording import brief, clock, instant, percent, span
from app.storage import configuration
from app.ui import empty, links, rating, who
from app.ui.html import Tone, chip, chips, div, rows, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import class_colour
from app.ui.quality_pictures import (
    decile_picture,
    effects_picture,
    kinds_picture,
    load_picture,
    rate_picture,
    strata_picture,
)
from detectors.quality.analysis import Analysis
from detectors.quality.cascade import TURNS

CODES: dict[str, tuple[str, Tone]] = {
    "load": ("load-correlated", "amber"),
    "replica": ("one replica", "amber"),
    "release": ("since a change", "amber"),
    "cache": ("cache path", "amber"),
    "uptime": ("grows with uptime", "amber"),
    "no_load": ("not load", "amber"),
    "baseline": ("usual rate", "green"),
    "open": ("cannot tell yet", "grey"),
    "none": ("no data", "grey"),
}


def verdict(page: QualityPage, view: View) -> None:
    """The answer, what it rests on, and the numbers."""
    a = page.analysis
    text, tone = CODES[a.verdict.code]
    left, right = st.columns([2.5, 1])
    with left, st.container(border=True, height="stretch", gap="xsmall"):
        marks = [chip(text, tone)]
        if a.focus:
            marks.append(chip(f"pool {a.focus}"))
        show(
            chips(marks),
            div(a.verdict.title, class_="gf-big-title"),
            *(div(line, class_="gf-p gf-soft") for line in a.verdict.because),
            div(inline("Next: ", class_="gf-soft"), a.verdict.next, class_="gf-p")
            if a.verdict.next
            else div(),
        )
    with right, st.container(border=True, height="stretch", gap="xsmall"):
        value = per_10k(a.rate).split(" (")
        show(
            div("Degraded per 10,000 sampled", class_="gf-label"),
            div(value[0], class_="gf-number" + ("" if a.rate.n else " gf-word")),
            rows(
                [
                    ("95 % interval", value[1].rstrip(")") if len(value) > 1 else "–"),
                    *([(f"in {a.focus}", per_10k(a.focus_rate))] if a.focus else []),
                    ("the week before", per_10k(a.baseline) if a.baseline.n else "nothing sampled"),
                    ("outputs", f"{a.rate.n:,}"),
                    ("degraded", f"{a.rate.k:,}"),
                    (
                        inline("later turns", title="Turns after a session's first bad one: not counted"),
                        f"{a.history.later:,}",
                    ),
                    (
                        inline("kept as suspicious", title="Outside the random sample: in no rate"),
                        f"{a.history.aside:,}",
                    ),
                ]
            ),
        )
    for i in page.incidents[:3]:
        since = clock(i.started_at, relative_to=view.as_of)
        lasted = (
            f"since {since}" if i.ended_at is None else f"{since}–{clock(i.ended_at, relative_to=view.as_of)}"
        )
        row_left, row_right = st.columns([5.4, 1], vertical_alignment="center")
        with row_left:
            show(chips([chip(f"incident {i.state}"), inline(i.title), inline(lasted, class_="gf-soft")]))
        with row_right:
            links.open_incident(i.id, view)


def over_time(a: Analysis) -> None:
    """Rate and load on one time axis."""
    show(
        div(
            "Degraded per 10,000" + (f", pool {a.focus}" if a.focus else ""),
            inline(f" · per {span(a.step)}, exact 95 % interval shaded", class_="gf-soft"),
            class_="gf-h",
        ),
        rate_picture(a, a.over_time),
        div(
            "Load that the outputs met at admission, without themselves",
            inline(" · 1 = mean of the pool", class_="gf-soft"),
            class_="gf-h gf-next",
        ),
        load_picture(a),
    )


def by_load(a: Analysis) -> None:
    """Tenths of load, and the effect."""
    show(
        div("By tenth of load", inline(" · per 10,000, exact 95 % interval", class_="gf-soft"), class_="gf-h")
    )
    if not a.deciles:
        empty.nothing("Load at admission is not known here.", "It needs requests_running of these replicas.")
        return
    show(decile_picture(a))
    show(
        div(
            "Top against bottom quarter of load",
            inline(" · each bound holds with 95 %", class_="gf-soft"),
            class_="gf-h gf-next",
        ),
        effects_picture(a) if a.load.ratio is not None else div(a.load.why, class_="gf-p gf-soft"),
    )
    facts = []
    if a.load.ratio is not None:
        facts.append(f"{a.load.hours} hours, {a.load.episodes} load episodes")
        facts.append(f"variance ×{a.load.inflation:.1f} for clustering")
        if a.load.trend is not None:
            facts.append(f"stratified trend z {a.load.trend:.1f}")
    if a.missing is not None:
        facts.append(
            f"given up by clients: {percent(a.missing[0])} at low, {percent(a.missing[1])} at high load"
        )
    show(div(" · ".join(facts), class_="gf-small gf-soft"))


def by_stratum(a: Analysis) -> None:
    """One dimension at a time."""
    known = [d for d in DIMENSIONS if len(a.strata.of(d)) > 1]
    if not known:
        empty.nothing("Nothing to compare.", "It needs degraded outputs in at least two strata.")
        return
    choice = st.segmented_control(
        "Stratum", known, default=known[0], key="stratum", required=True, label_visibility="collapsed"
    )
    show(strata_picture(a.strata.of(choice or known[0])))
    show(
        div(
            "Amber: has more than its share at equal class and load. Many strata are looked at; names are given so that at most "
            "one in twenty is wrong (e-BH).",
            class_="gf-small gf-soft",
        )
    )


def by_class(a: Analysis, order: tuple[str, ...]) -> None:
    """Small multiples."""
    with st.grid(min(3, max(1, len(a.by_class))), min_column_width=300, gap="small"):
        for name, points in sorted(a.by_class.items()):
            total = sum(p.rate.k for p in points), sum(p.rate.n for p in points)
            with st.container(border=True, gap="xsmall"):
                show(
                    div(
                        inline(name or "unclassified", class_="gf-name"),
                        chip(f"{total[0]:,} of {total[1]:,}"),
                        class_="gf-head",
                    ),
                    rate_picture(a, points, colour=class_colour(name, order), tall=False),
                )


def tasks(view: View) -> None:
    """How likely a task stays clean."""
    found = queries.quality_tasks(view)
    show(
        div(
            "An agent's task of n turns stays clean",
            inline(" · last two days of the range at most", class_="gf-soft"),
            class_="gf-h",
        )
    )
    if not found:
        empty.nothing("No sampled output names a session.", "Send session and turn along with outputs.")
        return
    show(
        table(
            [
                "class",
                *(f"{n} turn{'s' if n > 1 else ''}" for n in TURNS),
                "turns after a bad one",
                "how",
            ],
            quality_page.task_rows(found),
        )
    )


def samples(a: Analysis) -> None:
    """Degraded outputs, one opened with its damage marked."""
    found = quality_page.samples(a)
    show(div("Degraded outputs", inline(" · the latest first", class_="gf-soft"), class_="gf-h"))
    if not found:
        empty.nothing("None in this range.")
        return
    by_id = {b.id: b for b in found}
    chosen = st.selectbox(
        "Output",
        list(by_id),
        format_func=lambda i: (
            f"{clock(by_id[i].ts, relative_to=a.end)} · {by_id[i].replica} · {by_id[i].class_} · "
            + ", ".join(quality_page.rules_of(by_id[i]))
        ),
        key="output",
        label_visibility="collapsed",
    )
    b = by_id[chosen or found[0].id]
    left, right = st.columns([1, 2.2])
    with left:
        show(
            rows(
                [
                    ("finished", instant(b.ts)),
                    ("replica", b.replica or "not said"),
                    ("class", b.class_),
                    ("session, turn", f"{brief(b.session) or '–'}, {'–' if b.turn is None else b.turn}"),
                    ("prompt, output", f"{b.prompt_tokens or 0:,}, {b.output_tokens or 0:,} tokens"),
                    (
                        "rules",
                        ", ".join(
                            f"{k.replace('_', ' ')} {v:.3g}" for k, v in quality_page.rules_of(b).items()
                        ),
                    ),
                    ("in the random sample", "yes" if b.random else "no: kept as suspicious"),
                ]
            )
        )
    with right:
        text = who.output_text(b.id) if who.sees_texts() else None
        if not who.sees_texts():
            may = " or ".join(configuration().auth.texts) or "nobody"
            show(div(f"Texts of outputs are shown to {may}; you are {who.current().role}.", class_="gf-p"))
        elif text is None:
            show(
                div("The text was scored at intake and dropped.", class_="gf-p"),
                div(
                    "outputs: {store_text: true} keeps texts, if this deployment allows it (docs/configuration.md).",
                    class_="gf-small gf-soft",
                ),
            )
        else:
            st.code(marked(text, span_of(text, quality_page.rules_of(b))), language=None, wrap_lines=True)
            show(div("The damage is between ▶ and ◀.", class_="gf-small gf-soft"))


def export(a: Analysis) -> None:
    """Files for a notebook."""
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Degraded outputs, CSV",
            lambda: quality_page.to_csv(a),
            quality_page.file_name(a, "degraded.csv"),
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        st.download_button(
            "Counts with load, Parquet",
            lambda: quality_page.to_parquet(a),
            quality_page.file_name(a, "quality.parquet"),
            "application/vnd.apache.parquet",
            icon=":material/download:",
            on_click="ignore",
        )
    show(
        div(
            "In SQL: view v_outputs, table output_counts; docs/sql.md has examples.",
            class_="gf-small gf-soft",
        )
    )


def body(view: View) -> None:
    """The live part."""
    page = queries.quality(view)
    a = page.analysis
    marks = [
        inline(
            f"{clock(view.start, relative_to=view.as_of)}–{instant(view.as_of)}", class_="gf-small gf-soft"
        )
    ]
    if not view.live:
        marks.insert(0, chip(f"showing history as of {instant(view.as_of)}", "blue"))
    show(chips(marks))
    if not a.rate.n and not a.history.aside:
        with st.container(border=True, gap="xsmall"):
            empty.nothing(
                "No output was sampled in this range.",
                "gustfront import-outputs FILE, POST /api/v1/outputs, or an outputs source in the configuration.",
            )
        return
    verdict(page, view)
    left, right = st.columns([1.5, 1])
    with left, st.container(border=True, height="stretch", gap="xsmall"):
        over_time(a)
    with right, st.container(border=True, height="stretch", gap="xsmall"):
        by_load(a)
    left, right = st.columns([1.5, 1])
    with left, st.container(border=True, height="stretch", gap="xsmall"):
        show(div("By stratum", inline(" · degraded per 10,000", class_="gf-soft"), class_="gf-h"))
        by_stratum(a)
    with right, st.container(border=True, height="stretch", gap="xsmall"):
        show(div("What is broken", inline(" · rules that fired", class_="gf-soft"), class_="gf-h"))
        if a.kinds:
            show(kinds_picture(a))
        else:
            empty.nothing("Nothing.")
    if len(a.by_class) > 1:
        by_class(a, queries.dimensions().classes)
    with st.container(border=True, gap="xsmall"):
        samples(a)
    with st.container(border=True, gap="xsmall"):
        tasks(view)
    with st.container(border=True, gap="xsmall"):
        rating.labels(view)
    export(a)


live(body)
