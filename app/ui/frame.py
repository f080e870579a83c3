"""What every page has around it: page settings, style, and an honest page where the data cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app import queries
from app.services.people import Forbidden
from app.storage import configuration
from app.ui import demo, empty, filters, style, who
from app.ui.guard import guard

_HERE = Path(__file__).resolve().parent
ICON, LOGO = _HERE / "icon.png", _HERE / "logo.svg"


def begin() -> None:
    """First calls of a run."""
    # A material icon as page icon would be fetched from the internet: ours is a file.
    st.set_page_config(
        page_title="Gustfront", page_icon=str(ICON), layout="wide", initial_sidebar_state="auto"
    )
    st.logo(str(LOGO), size="medium")
    style.inject()


CONTROLS: dict[str, dict[str, Any]] = {
    "incident": {"time_range": False, "dimensions": ()},
    "settings": {"time_range": False, "dimensions": ()},
    "data-health": {"time_range": False, "dimensions": ("pool", "model")},
}
"""Controls by URL path where a page has not all of them."""


def run(page: StreamlitPage) -> None:
    """The global controls, then the page, guarded.

    The controls are drawn here, in the entry script, so that their values go along from page to page. A database without
    data has one page: how to get some.
    """
    with guard():
        try:
            who.badge()
        except Forbidden as error:
            who.refusal(error)
            return
        if queries.newest() is None:
            config = configuration()
            empty.first_steps(config.database_shown, str(config.path) if config.path else None)
            return
        demo.banner()
        filters.controls(**CONTROLS.get(page.url_path, {}))
        page.run()
