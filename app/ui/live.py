"""The one live fragment of a page: it refreshes itself while the data is live and stands still for history."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.services.view import View
from app.ui.filters import current_view
from app.ui.guard import guard

EVERY_SECONDS = 15


def live(body: Callable[[View], None]) -> None:
    """Draw ``body`` for the current view, again every 15 s where ``as of`` follows the clock."""

    def fragment() -> None:
        with guard():
            body(current_view())

    st.fragment(fragment, run_every=EVERY_SECONDS if current_view().live else None)()
