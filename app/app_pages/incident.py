"""Incident: blast radius, what changed, the first safe action, the cause and its evidence, in the order a person needs them."""

from __future__ import annotations

import streamlit as st

from app import queries
from app.services.harm import quantile_word
from app.services.incident_load import Loaded
from app.services.incident_view import IncidentView, kind_title
from app.services.story import signal_title, told_actions
from app.services.view import View
from app.services.wording import (
    capital,
    clock,
    instant,
    listing,
    percent,
    promise,
    seconds,
    span,
    uncapital,
)
from app.ui import acting, empty, links
from app.ui.evidence import evidence
from app.ui.filters import current_view
from app.ui.html import Markup, bold, chip, chips, div, esc, rows, show, table
from app.ui.html import span as inline
from app.ui.live import live
from app.ui.pieces import heat_chart, interval_text, severity_chip


def head(loaded: Loaded) -> None:
    """The sentence and its chips: blast radius and direction first, then how it stands with people."""
    v = loaded.view
    i = v.incident
    marks = [
        severity_chip(i, missed=v.missed),
        chip(f"{i.state} {span(v.open_for)}"),
        chip(v.direction.text(), "red" if v.direction.word == "getting worse" and v.missed else "grey"),
    ]
    if i.announced_at is not None:
        marks.append(chip(f"announced {clock(i.announced_at, relative_to=v.as_of)}"))
    if i.detected_at is not None:
        marks.append(chip(f"detected {clock(i.detected_at, relative_to=v.as_of)}"))
    late = [h for h in v.harm if h.late] if v.quality is None else []
    marks += [chip(f"{h.late:,} {h.class_} requests late") for h in late[:2]]
    marks.append(chip(confidence_text(v)))
    marks += acting.marks(loaded.standing, v.as_of)
    show(div(v.sentence, class_="gf-big-title"), chips(marks))


def confidence_text(v: IncidentView) -> str:
    """``confidence 0.97, next: capacity shortfall``."""
    i = v.incident
    after = f", next: {uncapital(kind_title(i.runner_up))}" if i.runner_up else ""
    return f"confidence {i.confidence:.2f}{after}"


def changed(v: IncidentView) -> None:
    """What changed in the hour before."""
    show(div("Changed in the last hour", class_="gf-h"))
    if v.changes:
        show(
            rows(
                [
                    (
                        clock(e.ts, relative_to=v.as_of),
                        f"{e.kind}: {e.text or e.replica or e.pool or 'no text'}",
                    )
                    for e in v.changes[-6:]
                ]
            )
        )
    if v.traffic:
        show(*(div(t.text(), class_="gf-p") for t in v.traffic[:3]))
    kinds = {e.kind for e in v.changes}
    absent = [name for name in ("deploy", "restart", "scale", "flag") if name not in kinds]
    if absent:
        words = {"deploy": "release", "restart": "restart", "scale": "scaling", "flag": "flag"}
        show(
            div(
                f"No {', no '.join(words[a] for a in absent)} recorded from an hour before the onset on.",
                class_="gf-soft gf-small",
            )
        )


def action(v: IncidentView) -> None:
    """First safe action apart from tomorrow's fix."""
    a = v.action
    if a is None:
        show(
            div("First safe action", class_="gf-h"),
            div(
                "None is known for this kind. Compare affected and unaffected replicas below before changing anything.",
                class_="gf-p",
            ),
        )
        return
    title = "First safe action" if v.incident.ended_at is None else "If it comes back: first safe action"
    restart = "needs a restart" if a.restart else "no restart"
    show(
        div(title, inline(f" ({restart})", class_="gf-soft"), class_="gf-h"),
        div(a.now, class_="gf-p"),
        div("Risk: ", a.risk, class_="gf-small gf-soft"),
    )
    if a.avoid:
        show(div("Avoid: ", a.avoid, class_="gf-small gf-soft"))
    later = told_actions(v.incident, "tomorrow") or (a.tomorrow,)
    show(div("Tomorrow: ", "; ".join(t.rstrip(".") for t in later[:3]), ".", class_="gf-small gf-soft"))


def harm(v: IncidentView) -> None:
    """Who is hurt."""
    show(div("Blast radius", class_="gf-h"))
    if v.harm:
        show(
            table(
                [
                    "class",
                    "p99 now",
                    "in these pools",
                    "interval",
                    "objective",
                    "late since onset",
                    "missed from",
                ],
                [
                    (
                        h.class_,
                        inline(f"{h.label} {h.now_text()}", class_="gf-missed" if h.missed else ""),
                        "–" if h.here is None else quantile_word(h.here),
                        interval_text(h.now),
                        "none set"
                        if h.threshold is None
                        else f"{promise(h.objective or 0.0)} ≤ {seconds(h.threshold)}",
                        "unknown"
                        if h.late is None
                        else (f"{h.late:,}" if h.late == h.late_high else f"{h.late:,}–{h.late_high:,}")
                        + f" of {h.n:,}",
                        clock(h.missed_since, relative_to=v.as_of),
                    )
                    for h in v.harm
                ],
            )
        )
    else:
        show(div("No class with latency data in its pools.", class_="gf-soft"))
    if v.quality is not None:
        q = v.quality
        damage = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in q.damage)
        show(
            rows(
                [
                    ("degraded per 10,000 since", f"{q.now.per_10k()} ({q.now.k:,} of {q.now.n:,} sampled)"),
                    ("before", f"{q.before.per_10k()} ({q.before.k:,} of {q.before.n:,} sampled)"),
                    ("what is broken", damage or "nothing"),
                ]
            )
        )
    if v.tenants:
        top = ", ".join(f"{name} {percent(share, 0)}" for name, share in v.tenants[:4])
        even = "one tenant carries it" if v.tenants[0][1] > 0.8 and len(v.tenants) > 1 else "several tenants"
        show(div(f"Late or failed requests by tenant ({even}): {top}", class_="gf-small gf-soft"))


def cause(v: IncidentView) -> None:
    """Cause with confidence and runner-up."""
    i = v.incident
    load = {
        True: "Follows load.",
        False: "Does not follow load.",
        None: "Whether it follows load cannot be told yet.",
    }
    show(
        div("Cause", class_="gf-h"),
        div(capital(i.cause) or "Not established.", class_="gf-p"),
    )
    line = f"{capital(confidence_text(v))}."
    if i.kind == "degraded_generations":
        line += f" {load[i.load_correlated]}"
    show(div(line, class_="gf-small gf-soft"))
    if i.kind == "degraded_generations":
        links.open_quality(current_view(), pool=i.pools[0] if i.pools else "")


def chain(v: IncidentView) -> None:
    """The story in order of time."""
    if not v.chain:
        return
    show(div("Why, ", inline("in the order it happened", class_="gf-soft"), class_="gf-h"))
    show(
        div(
            *(
                div(
                    div(
                        clock(x.at, relative_to=v.as_of) + (" UTC" if x.at is not None else ""),
                        class_="gf-small gf-soft",
                    ),
                    div(bold(x.what)),
                    div(x.detail, class_="gf-small gf-soft"),
                )
                for x in v.chain
            ),
            class_="gf-chain",
        )
    )


def ruled_out(v: IncidentView) -> None:
    """Look-alikes and how they were excluded."""
    show(div("Ruled out", class_="gf-h"))
    if not v.incident.ruled_out:
        show(div("No look-alike was tested.", class_="gf-soft"))
        return
    show(
        table(
            ["look-alike", "test", "result", "is it?"],
            [
                (uncapital(kind_title(r.kind)), r.test, r.result, "no" if r.excluded else "not\u00a0excluded")
                for r in v.incident.ruled_out
            ],
        )
    )


def side(loaded: Loaded, view: View) -> None:
    """Where, basis, similar ones, log."""
    v = loaded.view
    i = v.incident
    with st.container(border=True, gap="xsmall"):
        show(
            div("Where", class_="gf-h"),
            rows(
                [
                    ("classes", listing(list(i.classes), 6) or "all"),
                    ("pools", listing(list(i.pools), 6) or "all"),
                    ("replicas", listing(list(v.affected), 8) or "not told"),
                    ("control", listing(list(v.control), 8) or "none"),
                    *([("ranks", listing(list(i.ranks), 8))] if i.ranks else []),
                ]
            ),
        )
    with st.container(border=True, gap="xsmall"):
        show(div("Times (UTC)", class_="gf-h"))
        times = [
            ("onset", i.started_at),
            ("announced", i.announced_at),
            ("detected", i.detected_at),
            ("diagnosed", i.diagnosed_at),
            ("ended", i.ended_at),
        ]
        show(rows([(name, "–" if t is None else clock(t, relative_to=v.as_of)) for name, t in times]))
    with st.container(border=True, gap="xsmall"):
        show(div("Seen before", class_="gf-h"))
        if loaded.similar:
            for s in loaded.similar:
                path = links.incident_path(s.incident.id)
                when = Markup(f'<a href="{esc(path)}" target="_self">{esc(s.when())}</a>')
                said = f" People called it: {s.label}." if s.label else ""
                show(
                    div(when, class_="gf-small"),
                    div(f"{s.ended_by}.{said}", class_="gf-small"),
                    div(", ".join(s.why), class_="gf-small gf-soft"),
                )
        else:
            show(div("Nothing like it in the 400 days before.", class_="gf-small gf-soft"))
    with st.container(border=True, gap="xsmall"):
        show(div("Log", class_="gf-h"))
        if loaded.log:
            show(
                rows(
                    [
                        (
                            clock(e.ts, relative_to=v.as_of),
                            f"{e.action.replace('_', ' ')}{': ' if e.text else ''}{e.text}"
                            + (f" ({e.who})" if e.who else ""),
                        )
                        for e in reversed(loaded.log)
                    ]
                )
            )
        else:
            show(div("Empty.", class_="gf-small gf-soft"))
    with st.container(border=True, gap="xsmall"):
        signals = listing([signal_title(e.signal) for e in i.evidence], 8)
        n = sum(h.n for h in v.harm)
        learnt = i.detail.get("learnt_s")
        past = f"own normal from {span(learnt)} before" if isinstance(learnt, int | float) and learnt else ""
        sessions = (i.detail.get("harm") or {}).get("sessions_sampled")
        seen = f"{sessions:,} sessions seen in the sample" if sessions else ""
        show(
            div("Rests on", class_="gf-h"),
            div(
                " · ".join(
                    filter(
                        None,
                        (
                            f"{n:,} requests since onset",
                            seen,
                            f"{len(v.affected) + len(v.control)} replicas",
                            past,
                            signals or "no numeric evidence",
                        ),
                    )
                ),
                class_="gf-small gf-soft",
            ),
        )


def body(view: View) -> None:
    """The live part."""
    incident_id = str(st.query_params.get("id", ""))
    if not incident_id:
        empty.nothing("No incident chosen.", "Open one from the Now page.")
        links.to("now", "Now")
        return
    loaded = queries.incident(view, incident_id)
    if loaded is None:
        with st.container(border=True, gap="xsmall"):
            show(
                div("No such incident", class_="gf-title"),
                div(f"No incident {incident_id} was known as of {instant(view.as_of)}.", class_="gf-p"),
            )
            links.to("now", "Now")
        return
    v = loaded.view
    show(
        div(
            f"Incidents › {incident_id} · stable link: {links.incident_path(incident_id)}"
            + ("" if view.live else f" · showing history as of {instant(view.as_of)}"),
            class_="gf-small gf-soft",
        )
    )
    head(loaded)
    acting.controls(loaded)
    if loaded.expired:
        show(
            div(
                "Its measurements are past their retention: what was copied into the incident is shown, no charts.",
                class_="gf-small gf-soft",
            )
        )
    if v.incident.updated_at > view.as_of + 60:
        updated = instant(v.incident.updated_at)
        known = f"Replicas, cause and ruled-out are as of {updated}; numbers and charts are as of {clock(view.as_of)}."
        show(div(known, class_="gf-small gf-soft"))
    main, right = st.columns([3.1, 1])
    with main:
        with st.container(border=True, gap="xsmall"):
            harm(v)
        left, middle = st.columns(2)
        with left, st.container(border=True, height="stretch", gap="xsmall"):
            changed(v)
        with middle, st.container(border=True, height="stretch", gap="xsmall"):
            action(v)
        with st.container(border=True, gap="xsmall"):
            cause(v)
            chain(v)
        with st.container(border=True, gap="xsmall"):
            evidence(v)
        if loaded.heat is not None and loaded.heat.rows:
            with st.container(border=True, gap="xsmall"):
                show(div(f"{loaded.heat.measure.title} against each replica's own normal", class_="gf-h"))
                heat_chart(loaded.heat)
        with st.container(border=True, gap="xsmall"):
            ruled_out(v)
    with right:
        side(loaded, view)


live(body)
