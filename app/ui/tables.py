"""Sortable tables: how high, and how numbers and gaps look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

ROW, HEAD = 31, 32


def height(n: int, most: int = 14) -> int:
    """Height of a table that shows all rows up to ``most``."""
    return HEAD + ROW * max(1, min(n, most)) + 3


def numeric(frame: pd.DataFrame) -> dict[str, Any]:
    """Column settings: numbers with separators, right-aligned."""
    return {
        str(c): st.column_config.NumberColumn(format="localized")
        for c in frame.columns
        if pd.api.types.is_numeric_dtype(frame[c])
    }


def sheet(
    frame: pd.DataFrame, *, key: str, most: int = 12, columns: Mapping[str, Any] | None = None, **more: Any
) -> None:
    """A sortable table; what is missing is a dash."""
    st.dataframe(
        frame,
        hide_index=True,
        width="stretch",
        height=height(len(frame), most),
        row_height=ROW,
        placeholder="–",
        column_config=numeric(frame) | dict(columns or {}),
        key=key,
        **more,
    )
