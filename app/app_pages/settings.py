"""Settings: what the running configuration is, what is wrong with it, and the commands that go with it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import queries
from app.services.settings_page import Settings, size
from app.services.view import View
from app.services.wording import instant, span
from app.ui import empty
from app.ui.html import chip, chips, div, rows, show, table
from app.ui.html import span as inline
from app.ui.live import live


def block(
    title: str, head: Sequence[str], lines: Sequence[Sequence[object]], none: str, note: str = ""
) -> None:
    """A titled table, or what it means that there is none."""
    with st.container(border=True, gap="xsmall"):
        show(div(f"{title} ", inline(note, class_="gf-soft"), class_="gf-h"))
        if lines:
            show(table(head, lines))
        else:
            empty.nothing(none)


def first(s: Settings) -> None:
    """Where it comes from and whether it is right."""
    d = s.disk
    with st.container(border=True, gap="xsmall"):
        show(
            div("Running configuration", class_="gf-h"),
            rows(
                [
                    ("file", s.file),
                    ("database", f"{s.database} (schema {s.revision})"),
                    (
                        "size",
                        size(d.used)
                        + (f" of at most {size(d.limit)}" if d.limit is not None else ", no limit set")
                        + (f"; {size(d.free)} free on its disk" if d.free is not None else ""),
                    ),
                    (
                        "data",
                        "none yet"
                        if d.oldest is None or d.newest is None
                        else f"{instant(d.oldest)} to {instant(d.newest)} ({span(d.newest - d.oldest)} of scrapes)",
                    ),
                ]
            ),
        )
    with st.container(border=True, gap="xsmall"):
        show(div("Problems of the file", class_="gf-h"))
        if s.problems:
            show(table(["where", "what is wrong", "fix"], [(p.where, p.what, p.fix) for p in s.problems]))
            show(div("The screens go on with what they had read before.", class_="gf-small gf-soft"))
        else:
            empty.nothing("None: the file is valid.")


def detectors(s: Settings) -> None:
    """Every detector."""
    known = any(d.learnt is not None for d in s.detectors)
    head = ["kind", "finds", "severity", "mode"]
    lines = [
        (
            d.title,
            d.meaning,
            d.severity,
            d.mode,
            *([instant(d.learnt) if d.learnt is not None else "–"] if known else []),
        )
        for d in s.detectors
    ]
    with st.container(border=True, gap="xsmall"):
        show(
            div("Detectors ", inline(f"{len(s.detectors)} kinds", class_="gf-soft"), class_="gf-h"),
            div(s.learning, class_="gf-small gf-soft gf-p"),
            table([*head, "normal last kept"] if known else head, lines),
        )


def commands(s: Settings) -> None:
    """To be copied."""
    with st.container(border=True, gap="xsmall"):
        show(div("Commands ", inline("for a terminal on this machine", class_="gf-soft"), class_="gf-h"))
        for what, command in s.commands:
            show(div(what, class_="gf-small gf-soft"))
            st.code(command, language="shell", wrap_lines=True)


def body(view: View) -> None:
    """The live part."""
    s = queries.settings()
    n = len(s.problems)
    words = "valid" if n == 0 else ("1 problem" if n == 1 else f"{n} problems")
    show(
        chips(
            [
                chip(f"configuration {words}", "amber" if n else "green"),
                chip("read-only: change the file, it is read again by itself"),
            ]
        )
    )
    left, right = st.columns([1.6, 1])
    with left:
        first(s)
        block(
            "Sources",
            ["kind", "name", "settings"],
            s.sources,
            "No source: nothing is collected. The Now page of an empty installation and gustfront.example.yaml show how.",
        )
        block(
            "Units",
            ["pool", "replicas", "components and models"],
            s.units,
            "No target seen yet.",
            "as targets say",
        )
        block(
            "Objectives",
            ["name", "class", "what", "promise", "window", "measured at"],
            s.objectives,
            "No objective: gustfront slo propose suggests some from your own history.",
        )
        block(
            "Classes",
            ["class", "what matches"],
            s.classes,
            "None configured: the label workload, else the pool.",
            "first match wins",
        )
        block("Teams", ["team", "settings"], s.teams, "No team: incidents have no owner.")
        block(
            "API tokens",
            ["name", "id", "role", "scopes", "state", "last used"],
            s.tokens,
            "None: gustfront tokens create makes one.",
            "never their secrets",
        )
        detectors(s)
    with right:
        commands(s)
        block("Kept for", ["what", "how long"], s.retention, "")
        block("Labels that place a target", ["role", "labels, first non-empty wins"], s.roles, "")
        for name, lines in s.sections:
            block(name.capitalize(), ["setting", "value"], lines, "None.")
        block("Versions", ["part", "version"], s.versions, "")


live(body)
