"""Charts as plain dictionaries: SVG, at most some hundred points a series, dates in the zone in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.services.lines import log_ticks
from app.services.view import MAX_POINTS
from app.services.wording import utc_offset, zone_word
from app.ui.style import BLUE, RED
from core.frames import FloatArray

CONFIG = {"displayModeBar": False, "showTips": False, "doubleClick": "reset"}
GRID = "rgba(128,140,165,0.18)"
AXIS_TEXT = "#7c889e"


def dates(t: FloatArray) -> list[str]:
    """Unix seconds as the date strings that Plotly shows as they are: wall time of the zone in use."""
    if len(t):
        first, last = utc_offset(float(t[0])), utc_offset(float(t[-1]))
        # Within a range over a change of the clocks each time has its own offset.
        t = t + (first if first == last else np.array([utc_offset(float(x)) for x in t]))
    return [str(d) for d in np.array(np.round(t), dtype="datetime64[s]")]


def numbers(values: FloatArray) -> list[float | None]:
    """Values for JSON: four significant digits are more than a screen shows; NaN is a gap."""
    return [None if not np.isfinite(v) else float(f"{v:.4g}") for v in values]


def thin(t: FloatArray, *series: FloatArray) -> tuple[FloatArray, ...]:
    """Every k-th point so that at most :data:`MAX_POINTS` stay; the last one stays."""
    step = max(1, -(-len(t) // MAX_POINTS))
    if step == 1:
        return (t, *series)
    start = (len(t) - 1) % step
    return (t[start::step], *(s[start::step] for s in series))


def show(data: list[dict[str, Any]], layout: dict[str, Any], *, key: str, height: int) -> None:
    """Draw one figure."""
    base: dict[str, Any] = {
        "height": height,
        "margin": {"l": 46, "r": 12, "t": 8, "b": 24},
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 11, "color": AXIS_TEXT},
        "hoverlabel": {"font": {"size": 12}},
        "hovermode": "x unified",
        "dragmode": False,
    }
    figure = go.Figure(data=data, layout={**base, **layout})
    st.plotly_chart(figure, width="stretch", height=height, config=CONFIG, key=key)


def time_axis(start: float, end: float, **more: Any) -> dict[str, Any]:
    """An x axis that spans the range whatever the data."""
    span = dates(np.array([start, end]))
    form = "%H:%M" if end - start <= 2 * 86400 else "%d %b"
    return {
        "type": "date",
        "range": span,
        "showgrid": False,
        "tickformat": form,
        "nticks": 7,
        "linecolor": GRID,
        "hoverformat": f"%d %b %H:%M {zone_word(end)}",
        "fixedrange": True,
        "tickangle": 0,
        **more,
    }


def seconds_axis(values: Sequence[float], **more: Any) -> dict[str, Any]:
    """A log axis with ticks in plain seconds that holds all (finite, positive) values."""
    good = [v for v in values if np.isfinite(v) and v > 0] or [0.1, 1.0]
    low, high = min(good) / 1.4, max(good) * 1.5
    return log_axis(low, high, lambda t: f"{t * 1000:g} ms" if t < 0.1 else f"{t:,g} s", **more)


def log_axis(low: float, high: float, text: Callable[[float], str], **more: Any) -> dict[str, Any]:
    """A log axis from ``low`` to ``high`` with at most five round ticks."""
    ticks = log_ticks(low, high, 5)
    return {
        "type": "log",
        "range": [float(np.log10(low)), float(np.log10(high))],
        "tickvals": ticks,
        "ticktext": [text(t) for t in ticks],
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        **more,
    }


def line(t: FloatArray, value: FloatArray, *, name: str, colour: str = BLUE, **more: Any) -> dict[str, Any]:
    """One line; gaps stay gaps."""
    t, value = thin(t, value)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": dates(t),
        "y": numbers(value),
        "name": name,
        "line": {"color": colour, "width": 1.6},
        "connectgaps": False,
        **more,
    }


def level(start: float, end: float, value: float, *, name: str = "objective", **more: Any) -> dict[str, Any]:
    """A dotted red line: the objective."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": dates(np.array([start, end])),
        "y": [value, value],
        "name": name,
        "line": {"color": RED, "width": 1.2, "dash": "dot"},
        **more,
    }


def band(
    t: FloatArray, low: FloatArray, high: FloatArray, colour: str = BLUE, **more: Any
) -> list[dict[str, Any]]:
    """The interval around a line, as two traces that fill between them."""
    t, low, high = thin(t, low, high)
    good = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(good, low, np.nan), np.where(good, high, np.nan)
    shared = {
        "type": "scatter",
        "mode": "lines",
        "x": dates(t),
        "line": {"width": 0},
        "hoverinfo": "skip",
        **more,
    }
    fill = f"rgba({int(colour[1:3], 16)},{int(colour[3:5], 16)},{int(colour[5:7], 16)},0.16)"
    return [
        {**shared, "y": numbers(low)},
        {**shared, "y": numbers(high), "fill": "tonexty", "fillcolor": fill},
    ]


def mark(t: float, *, colour: str = RED, yref: str = "paper") -> dict[str, Any]:
    """A vertical dotted line through the whole figure."""
    x = dates(np.array([t]))[0]
    return {
        "type": "line",
        "xref": "x",
        "yref": yref,
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": colour, "width": 1.3, "dash": "dot"},
    }
