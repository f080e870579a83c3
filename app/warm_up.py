"""Pays for imports and the first query at start, so that the first visitor does not."""

from __future__ import annotations

import contextlib
import importlib

MODULES = (
    "plotly.graph_objects",
    "pandas",
    "pyarrow",
    "scipy.stats",
    "app.queries",
    "app.ui.charts",
    "app.ui.filters",
)


def warm_up() -> None:
    """Import the pages' modules and open the store; a store that is not there yet is no error."""
    from core.errors import GustfrontError

    for name in MODULES:
        importlib.import_module(name)
    with contextlib.suppress(GustfrontError):
        from app.storage import shared_store

        shared_store().newest()
