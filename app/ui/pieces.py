"""Pieces that several pages draw: class cards, the incident line, the heat map, the timeline."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import streamlit as st

from app.services.cards import ClassCard
from app.services.harm import quantile_word
from app.services.heat import HeatMap
from app.services.incident_view import IncidentView, as_seen, kind_title, scope_text
from app.services.latency import Windowed
from app.services.view import View
from app.services.wording import NOT_EXPORTED, between, clock, promise, seconds, span, window
from app.ui import links, pictures
from app.ui.html import Markup, Tone, chip, chips, div, rows, show, table
from app.ui.html import span as inline
from app.ui.style import CLASS_COLOURS, GREY
from core.incidents import Incident
from core.records import Event

STATUS: dict[str, tuple[str, Tone]] = {
    "missed": ("objective missed", "red"),
    "met": ("on objective", "green"),
    "undetermined": ("too close to tell", "amber"),
    "none": ("no objective", "grey"),
    "no_traffic": ("no traffic", "grey"),
    "too_few": ("not enough data", "grey"),
    "not_exported": ("not exported", "grey"),
}


def interval_text(w: Windowed | None) -> str:
    """``1.0–2.5 s · n 4,312 · over 5 min``."""
    if w is None:
        return NOT_EXPORTED
    q = w.q
    if q.state in ("no_traffic", "too_few"):
        return f"n {q.n:,} over {window(w.minutes)}"
    if q.state == "above":
        where = f"not below {seconds(q.low)}"
    elif q.state == "below":
        where = f"not above {seconds(q.high)}"
    else:
        high = "∞" if np.isinf(q.high) else seconds(q.high)
        where = between(seconds(q.low), high)
    return f"{where} · n {q.n:,} · over {window(w.minutes)}"


def word(w: Windowed | None) -> str:
    """The quantile in one word or number."""
    return NOT_EXPORTED if w is None else quantile_word(w)


BAD_HELP = "429, 499 and 5xx at the gateway, or the engine's own abort and error counters"
DEGRADED_HELP = (
    "Hard findings of the text rules in the random sample of the last 24 h, with exact 95 % interval"
)


def class_card(card: ClassCard, view: View, colour: str) -> None:
    """One card: a big number against its objective, the rest as a short list, a curve."""
    status, tone = STATUS[card.status]
    number = word(card.ttft)
    kind = "gf-number" + ("" if number[:1].isdigit() or number[:1] in "≥≤" else " gf-word")
    if card.status == "missed":
        kind += " gf-missed"
    objective = "no objective set"
    if card.threshold is not None and card.objective is not None:
        objective = f"objective {promise(card.objective)} ≤ {seconds(card.threshold)}"
    left = card.budget_text()
    budget = ""
    if card.threshold is not None:
        budget = f" · budget {left}" if left.startswith("overspent") else f" · budget left {left}"
    with st.container(border=True, gap="xsmall"):
        show(
            div(
                inline(card.class_, class_="gf-name", title=card.class_), chip(status, tone), class_="gf-head"
            ),
            div(div(*numbers(card, number, kind), class_="gf-card"), class_="gf-cardbox"),
            div(*parts(f"{interval_text(card.ttft)} · {objective}{budget}"), class_="gf-foot"),
        )
        if card.series is not None and np.isfinite(card.series.value).any():
            show(pictures.latency_line(card.series, card.threshold, view.start, view.as_of, colour))
        else:
            show(div(f"TTFT p99: {word(card.ttft)}", class_="gf-small gf-soft"))


def numbers(card: ClassCard, number: str, kind: str) -> tuple[Markup, Markup]:
    """The big number, and the list beside (or, in a narrow card, below) it."""
    help_ = "Time from arrival to the first output token, as the engine sees it"
    bad_help = f"Last {window(card.bad_minutes)}: {BAD_HELP}"
    return (
        div(div("TTFT p99, engine", class_="gf-label", title=help_), div(number, class_=kind)),
        rows(
            [
                (inline("ITL p99", title="Time between output tokens"), word(card.itl)),
                (inline("end to end p99", title="Arrival to last token"), word(card.e2e)),
                (inline("gave up or failed", title=bad_help), card.bad.as_percent()),
                (inline("degraded /10k", title=DEGRADED_HELP), card.degraded.per_10k()),
            ]
        ),
    )


def parts(text: str) -> list[object]:
    """Text that breaks only at its middle dots."""
    pieces = text.split(" · ")
    out: list[object] = []
    for n, piece in enumerate(pieces):
        out += [" · "] if n else []
        out.append(inline(piece, class_="gf-part"))
    return out


def incident_line(v: IncidentView, view: View, *, prominent: bool, standing: Sequence[Markup] = ()) -> None:
    """One open incident on the Now page: what, where, who is hurt, why, who has it; a button to open it."""
    i = v.incident
    marks = [
        severity_chip(i, missed=v.missed),
        chip(f"{i.state} {span(v.open_for)}"),
        chip(v.direction.text(), "red" if v.direction.word == "getting worse" and v.missed else "grey"),
        *standing,
    ]
    with st.container(border=True, gap="xsmall"):
        left, right = st.columns([6, 1.15], vertical_alignment="center")
        with left:
            show(
                chips(marks),
                div(v.sentence, class_="gf-title" if prominent else "gf-h"),
                div(v.summary, class_="gf-p gf-soft"),
            )
        with right:
            links.open_incident(i.id, view)


def heat_chart(heat: HeatMap) -> None:
    """Replicas against their own normal."""
    show(pictures.heat_picture(heat, full_scale_text(heat)))


def severity_chip(i: Incident, *, missed: bool) -> Markup:
    """The severity; red only for a page whose objective is missed now."""
    if i.severity == "page":
        return chip("page", "red" if missed else "amber")
    return chip(i.severity, "amber" if i.severity == "ticket" else "grey")


def plain(text: str) -> str:
    """A label for Plotly, which reads a little HTML: angle brackets and ampersands are escaped, long names cut."""
    cut = text if len(text) <= 28 else text[:13] + "…" + text[-13:]
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def full_scale_text(heat: HeatMap) -> str:
    """What the dark end of the scale means."""
    m = heat.measure
    if m.as_difference and m.unit != "ratio":
        return f"{m.full_scale:g} {'below' if m.worse < 0 else 'above'}"
    if m.as_difference:
        return f"{m.full_scale * 100:.0f} points {'below' if m.worse < 0 else 'above'}"
    return f"×{m.full_scale:g} {'below' if m.worse < 0 else 'above'}"


def incident_table(incidents: Sequence[Incident], view: View, missed: Collection[str]) -> None:
    """Open and recent incidents as a table with links; ``missed``: ids of those whose objective is missed now."""
    seen = [s for i in incidents if (s := as_seen(i, view.as_of)) is not None]
    if not seen:
        show(div("No incident in this range.", class_="gf-p gf-soft"))
        return
    seen.sort(key=lambda i: (i.state == "resolved", -i.started_at))
    body = [
        (
            severity_chip(i, missed=i.id in missed),
            _link(i, view),
            scope_text(i),
            clock(i.detected_at or i.announced_at or i.started_at, relative_to=view.as_of),
            i.state,
        )
        for i in seen[:8]
    ]
    show(tag_table(body))
    if len(seen) > 8:
        show(div(f"and {len(seen) - 8} more", class_="gf-small gf-soft"))


def events_table(events: Sequence[Event], view: View) -> Markup:
    """Events in the order given: when, what, where, and the beginning of their text."""
    return table(
        ["when", "what", "where", ""],
        [
            (clock(e.ts, relative_to=view.as_of), e.kind, e.replica or e.pool or "fleet", e.text[:120])
            for e in events
        ],
    )


def _link(i: Incident, view: View) -> Markup:
    from html import escape

    return Markup(
        f'<a href="{escape(links.incident_path(i.id, view))}" target="_self">{escape(kind_title(i.kind))}</a>'
    )


def tag_table(body: Sequence[Sequence[object]]) -> Markup:
    """The table of incidents."""
    return table(["", "what", "where", "since", "state"], body)


def timeline(incidents: Sequence[Incident], view: View, missed: Collection[str]) -> None:
    """Bars of incidents over the range: amber while announced, then red where an objective is missed now, else slate or grey."""
    bars: list[pictures.Bar] = []
    for i in [s for i in incidents if (s := as_seen(i, view.as_of)) is not None][:8]:
        end = i.ended_at or view.as_of
        kind = "missed" if i.id in missed else ("page" if i.severity == "page" else "other")
        spans = []
        if i.announced_at is not None:
            spans.append((i.announced_at, min(i.detected_at or end, end), "announced"))
        if i.detected_at is not None:
            spans.append((i.detected_at, end, kind))
        for a, b, what in spans:
            a, b = max(a, view.start), max(b, view.start)
            if b > a:
                bars.append(pictures.Bar(kind_title(i.kind), a, b, what))
    if bars:
        show(pictures.timeline_picture(bars, view.start, view.as_of))


def class_colour(class_: str, order: Sequence[str]) -> str:
    """The colour of a class: by its place in the list of classes, the same on every page."""
    return CLASS_COLOURS[order.index(class_) % len(CLASS_COLOURS)] if class_ in order else GREY
