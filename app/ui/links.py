"""Every jump between pages, so that URLs are made in one place."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.services.view import View
from app.services.wording import stamp

PAGES = {
    "now": "app_pages/now.py",
    "incident": "app_pages/incident.py",
    "slos": "app_pages/slos.py",
    "quality": "app_pages/quality.py",
    "kv": "app_pages/kv_cache.py",
    "replicas": "app_pages/replicas.py",
    "explore": "app_pages/explore.py",
    "health": "app_pages/data_health.py",
    "settings": "app_pages/settings.py",
}


def incident_params(incident_id: str, view: View) -> dict[str, str]:
    """Query parameters of an incident seen as of the view's time."""
    params = {"id": incident_id}
    if not view.live:
        params["as_of"] = stamp(view.as_of)
    return params


def incident_path(incident_id: str, view: View | None = None) -> str:
    """The stable link, relative to the app's root: ``/incident?id=…``."""
    return "/incident?" + urlencode(incident_params(incident_id, view) if view else {"id": incident_id})


def open_incident(incident_id: str, view: View) -> None:
    """The button that opens an incident; its look is in :mod:`app.ui.style`."""
    with st.container(key=f"gf-open-{incident_id}"):
        st.page_link(
            PAGES["incident"],
            label="Open incident",
            query_params=incident_params(incident_id, view),
            width="stretch",
        )


def to_incident(incident_id: str, view: View | None = None) -> None:
    """A plain link to an incident."""
    params = incident_params(incident_id, view) if view is not None else {"id": incident_id}
    st.page_link(PAGES["incident"], label="Open the incident", query_params=params)


def to(page: str, label: str) -> None:
    """A plain link to a page; ``label`` is ours, never data."""
    st.page_link(PAGES[page], label=label)


def open_quality(view: View, *, pool: str = "") -> None:
    """From an incident to the analysis of its pool at the same time."""
    params = {
        "range": "6h",
        **({"pool": pool} if pool else {}),
        **({} if view.live else {"as_of": stamp(view.as_of)}),
    }
    st.page_link(PAGES["quality"], label="Quality × load: what carries it", query_params=params)
