"""Pays for imports and the first query at start, so that the first visitor does not."""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
import time

MODULES = (
    "plotly.graph_objects",
    "pandas",
    "pyarrow",
    "scipy.stats",
    "app.queries",
    "app.ui.charts",
    "app.ui.filters",
    "app.ui.fleet_pictures",
    "app.ui.pieces",
    "app.ui.tables",
)


def warm_up() -> None:
    """Import the pages' modules, open the store, and count the gateway log in the background; a store that is not there yet is
    no error."""
    from core.errors import GustfrontError

    for name in MODULES:
        importlib.import_module(name)
    # Streamlit collects all garbage after each script run. What is imported now never is garbage: looking through it each time
    # would cost five times as much as the run itself.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(GustfrontError):
        from app.storage import shared_store

        if shared_store().newest() is not None:
            threading.Thread(target=_count_the_log, name="warm-up", daemon=True).start()


def _count_the_log() -> None:
    """Objectives over 28 days of a busy log take a while the first time: finished spans are remembered then."""
    from app import queries
    from app.services.view import make_view
    from core.errors import GustfrontError

    with contextlib.suppress(GustfrontError):
        queries.slo_rows(make_view(time.time(), queries.newest()))
