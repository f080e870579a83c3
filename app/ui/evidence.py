"""The evidence of an incident: affected replicas in red against the control group in grey, one chart a measure."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.services.incident_view import EvidenceChart, IncidentView
from app.services.wording import compact, listing
from app.ui import charts, empty
from app.ui.html import Markup, div, show
from app.ui.html import span as inline
from app.ui.pieces import plain
from app.ui.style import AMBER, GREY, RED, SLATE


def evidence(v: IncidentView) -> None:
    """Affected replicas in red against the control group in grey, one row a measure."""
    affected, control = listing(list(v.affected), 5) or "none named", listing(list(v.control), 5) or "none"
    if not v.control and v.quality is not None:
        control = "replicas of other pools"
    keys = [(RED, f"affected: {affected}"), (GREY, f"control group: {control}"), (SLATE, "onset (dotted)")]
    if v.incident.announced_at is not None:
        keys.append((AMBER, "announced (dotted)"))
    show(
        div("Evidence", class_="gf-h"),
        div(
            *(inline(Markup(f'<span class="gf-key" style="background:{c}"></span>'), t) for c, t in keys),
            class_="gf-legend",
        ),
    )
    drawn = [c for c in v.charts if not c.flat]
    for n, chart in enumerate(drawn):
        evidence_chart(v, chart, last=n == len(drawn) - 1)
    flat = [c.measure.title for c in v.charts if c.flat]
    if flat:
        show(div("Zero on every replica: ", listing(flat, 4), class_="gf-small gf-soft"))
    if not v.charts:
        empty.nothing("No replica exports the signals that argue this kind.", "Data health names the flags.")


# unit of a measure → factor and unit on the axis
SCALES = {"ratio": (100.0, "%"), "Hz": (1e-6, "MHz"), "per 10,000": (1.0, "")}


def evidence_chart(v: IncidentView, chart: EvidenceChart, *, last: bool) -> None:
    """One measure over the incident."""
    m = chart.measure
    scale, unit = SCALES.get(m.unit, (1.0, m.unit))
    data: list[dict[str, Any]] = []
    values: list[float] = []
    hover = "%{y:.3~s}" + (" " + unit if unit else "")
    for colour, width, group in ((GREY, 1.1, chart.control[:15]), (RED, 1.7, chart.affected)):
        for c in group:
            y = c.value * scale
            values += list(y[np.isfinite(y)])
            data.append(
                charts.line(c.t, y, name=plain(c.replica), colour=colour, hovertemplate=hover)
                | {"line": {"color": colour, "width": width}}
            )
    shapes = []
    if v.incident.announced_at is not None:
        shapes.append(charts.mark(v.incident.announced_at, colour=AMBER))
    shapes.append(charts.mark(v.incident.started_at, colour=SLATE))
    if v.incident.ended_at is not None:
        shapes.append(charts.mark(v.incident.ended_at, colour=GREY))
    if m.log and m.unit == "s":
        axis = charts.seconds_axis(values)
    elif m.log:
        good = [x for x in values if x > 0] or [1.0, 10.0]
        axis = charts.log_axis(min(good) / 1.3, max(good) * 1.3, compact)
    else:
        axis = {
            **({"range": [-2, 104], "tickvals": [0, 50, 100]} if scale == 100.0 else {"rangemode": "tozero"}),
            "gridcolor": charts.GRID,
            "zeroline": False,
            "fixedrange": True,
            "nticks": 4,
            "tickformat": "~g" if max(values, default=0) < 1000 else "~s",
        }
    title = m.title + (f", {unit}" if unit and unit not in ("requests",) else "")
    show(div(title, class_="gf-small"))
    charts.show(
        data,
        {
            "xaxis": charts.time_axis(v.start, v.end, showticklabels=last),
            "yaxis": axis,
            "shapes": shapes,
            "margin": {"l": 46, "r": 8, "t": 4, "b": 22 if last else 6},
            "hovermode": "closest",
        },
        key=f"evidence-{m.id}",
        height=118 if last else 100,
    )
