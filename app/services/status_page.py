"""A public status page that does not flatter: what users were promised and got, with intervals, and every incident they felt.

No internal names: classes and the configured promises only; incidents are told by what users noticed.
"""

from __future__ import annotations

import math
import time

from app.services.month_report import definition
from app.services.month_text import STYLE, e
from app.services.month_text import table as html_table
from app.services.rates import rate
from app.services.slo_report import plain, state_words
from app.services.slos import SloRow, rows
from app.services.view import View
from app.services.wording import instant, percent, seconds, span
from core.config import Config
from core.incidents import Incident, iso
from sql.output_counts import BIN
from sql.store import Store

DAY = 86400.0
FELT: dict[str, str] = {
    "degraded_generations": "Some answers were garbled or cut short",
    "error_burst": "Requests failed",
    "gateway_fault": "Requests were slow or failed before they were worked on",
    "capacity_lost": "Less capacity than usual: slow answers",
    "wedged": "Answers stopped coming",
    "retry_storm": "Requests failed and were sent again",
}
SLOW = "Answers began later than promised"


def status_html(
    store: Store,
    config: Config,
    *,
    title: str = "Service status",
    days: float = 90.0,
    now: float | None = None,
) -> str:
    """The page as one HTML file. Times in UTC; nothing of pools, replicas, tenants or causes is in it."""
    newest = [t for t in (store.newest(), store.newest_attempt()) if t is not None]
    end = math.floor(max(newest, default=now or time.time()) / 60) * 60.0
    found = rows(store, View(end - 3600, end, live=False), config)
    known = list(config.class_names) or sorted({s.class_ for s in config.slos})
    incidents = felt(store, end - days * DAY, end, known)
    parts = [
        f"<h1>{e(title)}</h1>",
        f'<p class="soft">As of {e(instant(end))}. Times in UTC. Made by measurement, not by hand.</p>',
    ]
    for name in known:
        parts.append(f"<h2>{e(name)}</h2>")
        mine = [i for i in incidents if name in i.classes]
        open_now = [i for i in mine if i.ended_at is None]
        parts.append(
            f"<p>{e('Trouble now: ' + words(open_now[0]) if open_now else 'No known trouble now.')}</p>"
        )
        parts += [_promise(row) for row in found if row.objective.class_ == name]
        parts.append(f"<p>{e(_degraded(store, name, end))}</p>")
        if mine:
            lines = [
                (
                    _since(i),
                    words(i),
                    span((i.ended_at or end) - i.started_at) + ("" if i.ended_at else ", not over"),
                )
                for i in mine
            ]
            parts.append(
                html_table(
                    f"Incidents of the last {days:.0f} days", ["since", "what users noticed", "for"], lines
                )
            )
        else:
            parts.append(f'<p class="soft">No incident in the last {days:.0f} days.</p>')
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{e(title)}</title><style>{STYLE}h2{{break-before:auto!important}}</style></head><body>\n{body}\n</body></html>\n"
    )


def felt(store: Store, start: float, end: float, classes: list[str]) -> list[Incident]:
    """Incidents that users of these classes could notice, newest first."""
    found = [
        i
        for i in store.incidents(start=start, end=end)
        if i.severity == "page" and i.kind != "telemetry_fault" and set(i.classes) & set(classes)
    ]
    return sorted(found, key=lambda i: -i.started_at)


def words(i: Incident) -> str:
    """What a user noticed."""
    return FELT.get(i.kind, SLOW)


def _since(i: Incident) -> str:
    return (iso(i.started_at) or "")[:16].replace("T", " ")


def _promise(row: SloRow) -> str:
    a = row.attainment
    attained = (
        plain(a.text())
        if a.reportable
        else f"{plain(a.text())} of what was seen; too little was seen to report"
    )
    parts = [f"<p><b>{e(definition(row.objective))}</b><br>{e(attained)}"]
    parts.append(
        f" over {e(span(row.window[1] - row.window[0]))}: {e(state_words(row))}; measured at the {e(row.point)}."
    )
    if row.p99 is not None and row.p99.q.value is not None and row.p99.q.state == "ok":
        q = row.p99.q
        high = "∞" if math.isinf(q.high) else seconds(q.high)
        parts.append(f"<br>Now: 99 of 100 within {e(seconds(q.value))} ({e(seconds(q.low))} to {e(high)}).")
    return "".join(parts) + "</p>"


def _degraded(store: Store, class_: str, end: float) -> str:
    first = math.floor((end - 28 * DAY) / BIN) * BIN
    n = hits = 0
    for row in store.output_counts(first, end, classes=[class_]):
        n += row.n
        hits += row.hard
    if n == 0:
        return "Garbled answers are not measured here."
    found = rate(hits, n, min_n=500)
    if found.state != "ok":
        return f"Garbled answers: not enough data (n {n:,})."
    return plain(
        f"Garbled answers: {percent(found.value, 2)} of {n:,} checked in 28 days"
        f" ({percent(found.low, 2)} to {percent(found.high, 2)})."
    )
