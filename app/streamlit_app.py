"""The router: page frame, style, navigation. Pages are files in ``app_pages``."""

from __future__ import annotations

import sys
from pathlib import Path

# Streamlit puts this file's folder on the path, not its parent: absolute imports must work from any working directory.
_ROOT = str(Path(__file__).resolve().parent.parent)
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

import streamlit as st  # noqa: E402

from app.ui import frame  # noqa: E402

frame.begin()
page = st.navigation(
    {
        "": [
            st.Page(
                "app_pages/now.py",
                title="Now",
                icon=":material/crisis_alert:",
                default=True,
                help="What is wrong now, where, since when and who is hurt.",
            ),
            st.Page(
                "app_pages/incident.py",
                title="Incident",
                icon=":material/emergency_home:",
                url_path="incident",
                visibility="hidden",
                help="One incident: blast radius, what changed, first safe action, cause and evidence.",
            ),
        ],
        "Services": [
            st.Page(
                "app_pages/slos.py",
                title="SLOs",
                icon=":material/flag:",
                url_path="slos",
                help="p99 and attainment per workload class against its objectives.",
            ),
            st.Page(
                "app_pages/quality.py",
                title="Quality × load",
                icon=":material/ssid_chart:",
                url_path="quality",
                help="How often answers are degraded, what carries it, and whether load is to blame.",
            ),
        ],
        "Fleet": [
            st.Page(
                "app_pages/kv_cache.py",
                title="KV cache",
                icon=":material/memory:",
                url_path="kv-cache",
                help="Is the cache what is wrong, is it coming, what would help.",
            ),
            st.Page(
                "app_pages/replicas.py",
                title="Replicas",
                icon=":material/dns:",
                url_path="replicas",
                help="Every replica against its own normal and its peers; one or two in detail.",
            ),
            st.Page(
                "app_pages/explore.py",
                title="Explore",
                icon=":material/query_stats:",
                url_path="explore",
                help="Any signal over time, with incidents and events, and what was odd.",
            ),
            st.Page(
                "app_pages/data_health.py",
                title="Data health",
                icon=":material/monitor_heart:",
                url_path="data-health",
                help="Targets found, signals found and missing, and what is wrong with the input.",
            ),
            st.Page(
                "app_pages/settings.py",
                title="Settings",
                icon=":material/settings:",
                url_path="settings",
                help="The running configuration, its problems, versions and commands.",
            ),
        ],
    }
)
frame.run(page)
