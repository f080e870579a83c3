"""Labels by people on the Quality × load page: how far two raters agree, and the next output to label."""

from __future__ import annotations

import time

import streamlit as st

from app.services import calibration
from app.services.people import Forbidden
from app.services.view import View
from app.storage import configuration, shared_store, writing_store
from app.ui import empty, who
from app.ui.html import div, show
from app.ui.html import span as inline
from core.errors import ConfigError
from detectors.quality.agreement import DEGRADED, FINE, UNSURE

SHOWN = 6000
"""Characters of a text that a rater sees: its beginning and its end."""


def labels(view: View) -> None:
    """The whole section."""
    show(
        div(
            "Labels by people",
            inline(
                " · two raters, who do not see what the rules said: how often are the rules right here?",
                class_="gf-soft",
            ),
            class_="gf-h",
        )
    )
    batches = [name for name, _, _ in shared_store().rating_batches()]
    left, right = st.columns([1, 1.6])
    with left:
        chosen = _batch(batches, view)
        if chosen:
            for line in calibration.sentences(calibration.agreement(shared_store(), chosen)):
                show(div(line, class_="gf-p gf-soft"))
    with right:
        if chosen:
            _next(chosen)


def _batch(batches: list[str], view: View) -> str | None:
    """The chosen batch; the way to a new one."""
    chosen = None
    if batches:
        chosen = st.selectbox("Batch", batches, key="batch", label_visibility="collapsed")
    else:
        empty.nothing("Nothing was drawn yet.", "It needs kept texts: outputs: {store_text: true}.")
    reason = who.why_not("responder")
    drawn = st.button(
        "Draw 200 outputs of this range",
        key="draw_batch",
        disabled=bool(reason),
        help=reason
        or "40 with a hard verdict, 40 with a soft one, 120 without, by chance from the random sample",
    )
    if drawn:
        name = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        who.acting("draw outputs to label", name, "responder")
        try:
            calibration.open_batch(writing_store(), name, view.start, view.as_of, time.time())
        except ConfigError as error:
            st.warning(f"{error.problem}. {error.fix}", icon=":material/info:")
            return chosen
        st.rerun()
    return chosen


def _next(batch: str) -> None:
    """The next output for who looks, with three buttons."""
    me = who.current()
    reason = who.why_not("responder")
    if reason or not who.sees_texts():
        show(div(reason or "Texts of outputs are not shown to your role.", class_="gf-p"))
        return
    rater = me.name
    if configuration().auth.mode == "none":
        # Nobody signs in here: two people at one screen say who they are.
        rater = st.text_input("Who labels?", key="rater", placeholder=me.name).strip()[:100] or me.name
    try:
        item = calibration.next_for(
            shared_store(), me, configuration().auth, batch, rater, read=who.output_text
        )
    except Forbidden as error:
        show(div(str(error), class_="gf-p"))
        return
    if item is None:
        show(div(f"{rater} has labelled all of this batch.", class_="gf-p"))
        return
    show(div(f"Output {item.place} of {item.total}: is it damaged?", class_="gf-label"))
    if item.text is None:
        show(div("Its text is gone: label it unsure.", class_="gf-p"))
    else:
        text = item.text
        if len(text) > SHOWN:
            text = f"{text[: SHOWN // 2]}\n … {len(text) - SHOWN:,} characters … \n{text[-SHOWN // 2 :]}"
        st.code(text, language=None, wrap_lines=True, height=260)
    with st.container(horizontal=True, gap="small"):
        for label, words in ((DEGRADED, "Degraded"), (FINE, "Fine"), (UNSURE, "Unsure")):
            if st.button(words, key=f"rate_{label}"):
                who.acting("label output", item.output, "responder", {"batch": batch, "rater": rater})
                calibration.rate(writing_store(), me, batch, item.output, rater, label, time.time())
                st.rerun()
    show(
        div(
            "Degraded: loops, garbled characters, a language nobody asked for, text broken off. Wrong or odd is fine.",
            class_="gf-small gf-soft",
        )
    )
