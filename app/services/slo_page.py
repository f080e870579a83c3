"""What the SLOs page shows beside the numbers: what ate the budget, how it ends, percentiles by prompt length, months."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.services.budget import Eaten, Forecast, eaten, forecast
from app.services.month_report import Part, first_token_p99, month_report
from app.services.month_text import to_csv, to_html, to_json
from app.services.slos import SloRow
from core.config import Config
from core.requests import BANDS, RequestCell, RequestKey
from core.slo import TTFT, Tally, cell_tally, concerns
from core.windows import month_before, month_of
from sql.store import Store

DAY = 86400.0
BANDS_OVER = DAY
MONTHS = 13


@dataclass(frozen=True, slots=True)
class More:
    """``bands``: prompt-length bands of the last day, in their order; empty where no gateway log knows lengths."""

    eaten: tuple[Eaten, ...]
    forecast: Forecast
    bands: tuple[Part, ...]


def more(store: Store, row: SloRow) -> More:
    """Of one objective."""
    return More(eaten(store, row), forecast(row), bands(store, row))


def bands(store: Store, row: SloRow) -> tuple[Part, ...]:
    """Requests, bad ones and the p99 of the time to first token of each prompt-length band in the last day, by whole hours."""
    o = row.objective
    if row.point in ("engine", "sample") or not o.from_requests:
        return ()
    end = row.window[1]
    first = math.floor(max(row.window[0], end - BANDS_OVER) / 3600) * 3600
    groups: dict[str, list[tuple[RequestKey, RequestCell]]] = {}
    for key, cell in store.request_cells(first, end, classes=[o.class_], points=[row.point], hourly=True):
        if concerns(o, key):
            groups.setdefault(key.band, []).append((key, cell))
    out = []
    for name, mine in groups.items():
        tally = Tally()
        for key, cell in mine:
            tally += cell_tally(o, key.status, cell)
        p99 = first_token_p99(mine) if o.signal == TTFT else ""
        out.append(Part(name, tally.counted, tally.bad, p99))
    return tuple(sorted(out, key=lambda p: BANDS.index(p.name) if p.name in BANDS else len(BANDS)))


def months(end: float, first: float | None) -> list[str]:
    """Months that can be reported at ``end``, the newest first, back to that of the ``first`` data."""
    out = [month_of(end - 1e-3)]
    last = month_of(first) if first is not None else out[0]
    while out[-1] > last and len(out) < MONTHS:
        out.append(month_before(out[-1]))
    return out


def download(store: Store, config: Config, month: str, form: str) -> str:
    """The month report as HTML, CSV or JSON; nothing is frozen by looking at it."""
    made = month_report(store, config, month, freeze=False)
    return {"HTML": to_html, "CSV": to_csv, "JSON": to_json}[form](made)
