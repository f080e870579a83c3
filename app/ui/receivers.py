"""Who is told of incidents and whether it works: the receivers on the page Data health, with a button that sends a test."""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st

from app import queries
from app.services import deliveries
from app.services.people import Forbidden
from app.storage import configuration, writing_store
from app.ui import empty, who
from app.ui.html import Markup, chip, div, show
from app.ui.tables import height
from core.errors import GustfrontError


def chip_of() -> Markup | None:
    """The chip about receivers: which fail, or nothing where all is well or none is configured."""
    if queries.delivery_stopped():
        return chip("nobody is told: delivery is not running", "amber")
    ill = [r.name for r in queries.receivers() if r.state in ("failing", "parked")]
    if not ill:
        return None
    words = f"receiver {ill[0]} fails" if len(ill) == 1 else f"{len(ill)} receivers fail"
    return chip(words, "amber")


def receivers() -> None:
    """The table, and a test."""
    show(div("Receivers", class_="gf-h"))
    rows = queries.receivers()
    if not rows:
        empty.nothing(
            "No receiver is configured: nobody is told of incidents.", "Add receivers: to the configuration."
        )
        return
    stopped = queries.delivery_stopped()
    if stopped:
        st.text(f"{stopped[:1].upper()}{stopped[1:]}.")
    now = time.time()
    frame = pd.DataFrame(
        [
            {
                "receiver": r.name,
                "kind": r.kind or "not configured any more",
                "to": r.where,
                "state": r.state,
                "what waits, what was sent": r.words(now),
                "last error": r.error or "none",
            }
            for r in rows
        ]
    )
    st.dataframe(frame, hide_index=True, width="stretch", height=height(len(frame)), key="receivers")
    _test([r.name for r in rows if r.kind])


def _test(names: list[str]) -> None:
    if not names:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        name = st.selectbox("Send a test message to", names, key="receiver-to-test", width=260)
        asked = st.button(
            "Send a test message",
            key="receiver-test",
            disabled=not who.can("responder"),
            help=who.why_not("responder") or None,
        )
    if not asked or name is None:
        return
    try:
        person = who.acting("test receiver", name, "responder")
        with st.spinner("Sending a test message"):
            done = deliveries.send_test(writing_store(), configuration(), name, person)
    except (GustfrontError, Forbidden) as error:
        st.text(f"Not sent: {error}")
        return
    queries.forget_receivers()
    st.text(f"{name} has taken it." if done.state == "sent" else f"{name} has not taken it: {done.error}")
