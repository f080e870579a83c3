"""The global controls: time range with ``as of``, class, pool and model. All of them live in the URL."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from app import queries
from app.services.view import CUSTOM, RANGES, View, make_view
from app.services.wording import instant, stamp, use_zone
from core.errors import ConfigError
from core.times import parse_time

ALL_CLASSES, ALL_POOLS, ALL_MODELS = "All classes", "All pools", "All models"
DEFAULT_RANGE = "1h"
UTC_TIMES, LOCAL = "UTC", "local"


def _asked(key: str) -> str | None:
    """The value of a control; before it is drawn for the first time, what the URL says."""
    if key in st.session_state:
        value = st.session_state[key]
        return None if value is None else str(value)
    return st.query_params.get(key)


def _selected(key: str, everything: str) -> str:
    value = _asked(key)
    return "" if value is None or value == everything else str(value)


def _typed_time(key: str) -> float | None:
    """The time typed into a field; None where it is empty or cannot be read (the field says so)."""
    text = str(_asked(key) or "").strip()
    if not text:
        return None
    try:
        return parse_time(text, key)
    except ConfigError:
        return None


def current_view() -> View:
    """The view that the controls (and the clock) ask for; call it again inside a live fragment."""
    name = _asked("range") or DEFAULT_RANGE
    zone = (st.context.timezone or "") if _asked("tz") == LOCAL else ""
    use_zone(zone)
    return make_view(
        time.time(),
        queries.newest(),
        length=RANGES.get(name, RANGES[DEFAULT_RANGE]),
        as_of=_typed_time("as_of"),
        start=_typed_time("from") if name == CUSTOM else None,
        class_=_selected("class", ALL_CLASSES),
        pool=_selected("pool", ALL_POOLS),
        model=_selected("model", ALL_MODELS),
        zone=zone,
    )


def _choice(label: str, everything: str, options: Sequence[str], key: str) -> None:
    st.selectbox(
        label,
        [everything, *[o for o in options if o]],
        key=key,
        bind="query-params",
        label_visibility="collapsed",
        width=124,
    )


def _as_of_field(view: View) -> None:
    label = instant(view.as_of) if not view.live else "as of now"
    with st.popover(
        label, icon=":material/schedule:", width=220, help="The time the screens are as of, and its zone"
    ):
        st.text_input(
            "As of (UTC)",
            key="as_of",
            bind="query-params",
            placeholder=stamp(view.as_of),
            help="ISO 8601 or Unix seconds. Empty: now, or the newest data where nothing arrives any more.",
        )
        if _asked("range") == CUSTOM:
            st.text_input(
                "From (UTC)",
                key="from",
                bind="query-params",
                placeholder=stamp(view.start),
                help="Start of the custom range.",
            )
        st.segmented_control(
            "Times are shown in",
            [UTC_TIMES, LOCAL],
            default=UTC_TIMES,
            key="tz",
            bind="query-params",
            required=True,
            help="local: the zone of this browser. What is typed above stays UTC.",
        )
        for key in ("as_of", "from"):
            text = str(_asked(key) or "").strip()
            if text and _typed_time(key) is None:
                st.error("Not a time. Write 2026-09-21T10:00:00Z or Unix seconds.", icon=":material/error:")


def controls(*, time_range: bool = True, dimensions: Sequence[str] = ("class", "pool", "model")) -> None:
    """Draw the row of controls. Pages where a control would do nothing leave it out; its value stays in the URL."""
    view = current_view()
    choices = queries.dimensions()
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="gf-controls"):
        if time_range:
            st.segmented_control(
                "Time range",
                [*RANGES, CUSTOM],
                default=DEFAULT_RANGE,
                key="range",
                bind="query-params",
                required=True,
                label_visibility="collapsed",
                width="content",
            )
        for label, everything, options, key in (
            ("Class", ALL_CLASSES, choices.classes, "class"),
            ("Pool", ALL_POOLS, choices.pools, "pool"),
            ("Model", ALL_MODELS, choices.models, "model"),
        ):
            if key in dimensions:
                _choice(label, everything, options, key)
        _as_of_field(view)
