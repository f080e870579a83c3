"""The banner of a demonstration: that it is one, and a way to break the simulated fleet."""

from __future__ import annotations

import streamlit as st

from app import queries
from app.services.demo import Demo, faults, trigger
from app.services.wording import instant
from core.errors import SourceError


def banner() -> None:
    """Say that the fleet is simulated, where it is; nothing on a real fleet's screens."""
    demo = queries.demonstration()
    if demo is None:
        return
    said, offer = st.columns([5, 1], vertical_alignment="center")
    text = "Demonstration: this fleet is simulated, everything that watches it is real."
    if queries.catching_up():
        text += f" Its past is still being written, up to {instant(queries.newest())} so far; the present follows by itself."
    said.info(text, icon=":material/theater_comedy:")
    with offer.popover("Trigger a fault", width="stretch"):
        _trigger(demo)


def _trigger(demo: Demo) -> None:
    names = faults(demo)
    if not names:
        st.text("The simulated fleet does not answer.")
        return
    chosen = st.selectbox("Fault", names, key="demo-fault")
    if st.button("Trigger", key="demo-trigger", type="primary"):
        try:
            trigger(demo, chosen)
        except SourceError as error:
            st.text(str(error))
        else:
            st.text("It has begun. Watch the heat map; the incident follows.")
