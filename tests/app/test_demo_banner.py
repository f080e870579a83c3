"""The demonstration says that it is one, on every page and nowhere else."""

from __future__ import annotations

import json

import pytest
import streamlit as st

from app.services.demo import Demo, demonstration, faults
from sql.store import Store
from tests.app.history import History
from tests.app.test_pages import open_page


def test_only_a_demonstrations_database_is_called_one(
    storm_history: History, configured: pytest.MonkeyPatch
) -> None:
    configured.setenv("GUSTFRONT_CONFIG", str(storm_history.config))
    st.cache_data.clear()
    assert not [i for i in open_page("now").info if "simulated" in i.value]
    with Store.open(storm_history.url) as store:
        store.set_cursor("demo", json.dumps({"control": "http://127.0.0.1:9", "scenario": "story"}))
        try:
            st.cache_data.clear()
            assert [i for i in open_page("now").info if "simulated" in i.value]
        finally:
            store.set_cursor("demo", "")
            st.cache_data.clear()


def test_a_mark_that_points_elsewhere_is_not_believed_and_a_dead_fleet_offers_nothing(
    storm_history: History,
) -> None:
    with Store.open(storm_history.url) as store:
        store.set_cursor("demo", json.dumps({"control": "http://example.com", "scenario": "story"}))
        try:
            assert demonstration(store) is None
        finally:
            store.set_cursor("demo", "")
    assert faults(Demo("http://127.0.0.1:9", "story")) == []
