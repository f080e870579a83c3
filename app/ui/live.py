"""The one live fragment of a page: it refreshes itself while the data is live and stands still for history."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import queries
from app.services.view import View
from app.ui.filters import current_view
from app.ui.guard import guard

EVERY_SECONDS = 15


def live(body: Callable[[View], None]) -> None:
    """Draw ``body`` for the current view, again every 15 s where ``as of`` follows the clock (or a demonstration's past is being
    written)."""
    began_live = current_view().live

    def fragment() -> None:
        with guard():
            view = current_view()
            if view.live and not began_live:
                st.rerun()
            body(view)

    follow = began_live or queries.catching_up()
    st.fragment(fragment, run_every=EVERY_SECONDS if follow else None)()
