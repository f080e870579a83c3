"""One objective as plain data: how it stands, where its budget went, how it went over time."""

from __future__ import annotations

import math
from typing import Any

from app.services.api_views import clean, number
from app.services.budget import eaten, forecast
from app.services.slo_curves import SloDetail
from app.services.slo_report import line
from app.services.slos import SloRow
from core.incidents import iso
from sql.store import Store


def status(row: SloRow) -> dict[str, Any]:
    """The line of ``gustfront slo`` with the burn rates behind it and what the number does not know."""
    burns = [
        {
            "severity": b.rule.severity,
            "factor": b.rule.factor,
            "long_s": b.rule.long,
            "short_s": b.rule.short,
            "burn_long": _pair(b.long),
            "burn_short": _pair(b.short),
            "bad": b.bad,
            "firing": b.firing,
            "gone_in_s": number(b.gone_in),
        }
        for b in row.burns
    ]
    told: dict[str, Any] = clean({**line(row), "burns": burns, "notes": list(row.notes)})
    return told


def budget(store: Store, row: SloRow) -> dict[str, Any]:
    """What is left of the budget, which incidents ate it, how it ends at this pace."""
    future = forecast(row)
    told: dict[str, Any] = clean(
        {
            "name": row.config.name,
            "class": row.objective.class_,
            "start": iso(row.window[0]),
            "end": iso(row.window[1]),
            "allowed_share_bad": row.objective.budget,
            "budget_left": None if row.budget_left is None else list(row.budget_left),
            "eaten": [
                {
                    "incident": None if e.incident is None else e.incident.id,
                    "title": "outside any incident" if e.incident is None else e.incident.title,
                    "bad": e.bad,
                    "share_of_budget": e.share,
                }
                for e in eaten(store, row)
            ],
            "pace": future.pace,
            "gone_at": iso(future.gone_at) if future.gone_at is not None else None,
            "left_at_end": future.left,
            "forecast": future.text(row.window[1]).replace("\u00a0", " "),
        }
    )
    return told


def history(name: str, class_: str, start: float, end: float, found: SloDetail) -> dict[str, Any]:
    """p99 and the share within the objective over time; a list is null where it is not exported or not measured."""
    p99 = share = None
    if found.p99 is not None:
        s = found.p99
        p99 = [
            {
                "t": iso(float(s.t[i])),
                "value": number(float(s.value[i])),
                "low": number(float(s.low[i])),
                "high": number(float(s.high[i])),
                "n": int(s.n[i]),
                "window_s": float(s.minutes[i]) * 60 if math.isfinite(s.minutes[i]) else None,
            }
            for i in range(len(s.t))
        ]
    if found.share is not None:
        g = found.share
        share = [
            {
                "t": iso(float(g.t[i])),
                "low": number(float(g.low[i])),
                "high": number(float(g.high[i])),
                "n": int(g.n[i]),
            }
            for i in range(len(g.t))
        ]
    return {
        "name": name,
        "class": class_,
        "point": found.point,
        "start": iso(start),
        "end": iso(end),
        "p99": p99,
        "share_good": share,
    }


def _pair(values: tuple[float, float]) -> list[float | None] | None:
    return None if math.isnan(values[0]) else [number(v) for v in values]
