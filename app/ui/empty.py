"""What stands where there is nothing to show: it says why, and what to do about it."""

from __future__ import annotations

import streamlit as st

from app.ui.html import Markup, div, esc, show, tag

PROMETHEUS = """sources:
  - prometheus:
      url: http://prometheus:9090
      selector: '{job=~"vllm|sglang|dcgm"}'"""
TARGETS = """sources:
  - scrape:
      targets: [engine-0:8000, engine-1:8000]
      labels: {pool: chat}"""


def first_steps(database: str, config_path: str | None) -> None:
    """The first page of an empty installation: three lines that lead to data."""
    where = config_path or "gustfront.yaml"
    with st.container(border=True, gap="xsmall"):
        show(
            div(
                div("No data yet", class_="gf-title"),
                tag(
                    "p",
                    Markup(
                        f"1. Watch a Prometheus server: put the first block below into <code>{esc(where)}</code>."
                    ),
                ),
                tag(
                    "p",
                    Markup(
                        "2. Or scrape engines directly: put the second block there. Then start <code>gustfront run</code>."
                    ),
                ),
                tag(
                    "p",
                    Markup(
                        "3. Or read history: <code>gustfront backfill --prometheus URL --start T --end T</code>."
                    ),
                ),
                class_="gf-empty",
            )
        )
        left, right = st.columns(2)
        left.code(PROMETHEUS, language="yaml")
        right.code(TARGETS, language="yaml")
        show(div(f"Database: {database}", class_="gf-small gf-soft"))


def unavailable(problem: str) -> None:
    """The database or the configuration cannot be read; the message names the thing and the fix."""
    with st.container(border=True, gap="xsmall"):
        show(div("Gustfront cannot read its data", class_="gf-title"), div(problem, class_="gf-p gf-lines"))


def nothing(title: str, why: str = "") -> None:
    """A quiet note in place of a chart or table."""
    show(div(title, class_="gf-p"), div(why, class_="gf-small gf-soft"))
