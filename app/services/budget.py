"""Where an error budget went and how long the rest lasts: the incidents that ate it, and the pace of the last day."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.services.engine_slo import engine_tallies
from app.services.gateway import Where, fold
from app.services.slos import SloRow
from app.services.view import View
from app.services.wording import span
from core.incidents import Incident
from core.slo import Tally
from core.windows import period
from sql.store import Store

DAY = 86400.0
MOST = 200
"""Incidents looked at: the worst of a month are among the first ones by severity."""
_SEVERITY = {"page": 0, "ticket": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Eaten:
    """What an incident took: ``bad`` requests of the objective while it lasted, ``share`` of the whole budget. ``incident`` None:
    what burned outside any incident."""

    incident: Incident | None
    bad: int
    share: float


def eaten(store: Store, row: SloRow) -> tuple[Eaten, ...]:
    """The incidents that ate the row's budget, largest first, then what burned outside of them.

    A bad request counts for one incident: of several at once, for the graver, then the earlier.
    """
    start, end = row.window
    allowed = row.objective.budget * max(1, row.attainment.tally.counted)
    known = [
        i
        for i in store.incidents(start=start, end=end)
        if (not i.classes or row.objective.class_ in i.classes) and i.severity in ("page", "ticket")
    ]
    known.sort(key=lambda i: (_SEVERITY.get(i.severity, 3), i.started_at))
    taken: list[tuple[float, float]] = []
    found: list[Eaten] = []
    for one in known[:MOST]:
        first = math.floor(max(start, one.started_at) / 60) * 60
        last = math.ceil(min(end, one.ended_at if one.ended_at is not None else end) / 60) * 60
        bad = sum(bad_between(store, row, a, b) for a, b in without(first, last, taken))
        taken.append((first, last))
        if bad:
            found.append(Eaten(one, bad, bad / allowed))
    found.sort(key=lambda e: -e.bad)
    rest = row.attainment.tally.bad - sum(e.bad for e in found)
    if rest > 0:
        found.append(Eaten(None, rest, rest / allowed))
    return tuple(found)


def without(start: float, end: float, taken: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """[start, end) less the spans that are taken."""
    parts = [(start, end)]
    for a, b in taken:
        parts = [piece for x, y in parts for piece in ((x, min(y, a)), (max(x, b), y)) if piece[0] < piece[1]]
    return parts


def bad_between(store: Store, row: SloRow, start: float, end: float) -> int:
    """Bad requests of the objective, at its point, in whole minutes of [start, end)."""
    o = row.objective
    if row.point == "engine":
        part = engine_tallies(store, o, start, end, View(start, end, live=False))
        return part.total.bad
    if row.point == "sample":
        return 0
    where = Where(exclusions=tuple(store.exclusions(start, end)))
    chunk = fold(store, [o], where, start, end, "minutes")
    return sum(t.bad for t in chunk.tallies.get((o.name, row.point), {}).values())


@dataclass(frozen=True, slots=True)
class Forecast:
    """How the budget ends: ``gone_at`` (Unix seconds) at the pace of the last day, None where it lasts; ``left`` share then
    left at the end of the window (calendar) or kept up (rolling). ``pace`` in units of the even pace; NaN without traffic."""

    pace: float
    gone_at: float | None
    left: float

    def text(self, now: float) -> str:
        """``lasts at this pace``, ``gone in 3 d at the pace of the last day``, ``spent``."""
        if math.isnan(self.pace):
            return "no traffic in the last day"
        if self.gone_at is None:
            return "lasts at the pace of the last day"
        if self.gone_at <= now:
            return "spent"
        return f"gone in {span(self.gone_at - now)} at the pace of the last day"


def forecast(row: SloRow) -> Forecast:
    """From the worst case of what is left and the certain pace of the last day."""
    o, (start, end) = row.objective, row.window
    left = row.budget_left
    recent = row.minutes.window(max(start, end - DAY), end) if row.minutes is not None else Tally()
    low, _ = recent.bad_share
    pace = low / o.budget
    if left is None or math.isnan(pace):
        return Forecast(math.nan, None, math.nan)
    if left[0] <= 0:
        return Forecast(pace, end, left[0])
    until = period(o.calendar, end - 1e-3)[1] if o.calendar else end + o.window
    whole = until - (start if o.calendar else end)
    lasts = left[0] * whole / pace if pace > 0 else math.inf
    gone = end + lasts if lasts < until - end and pace > 1 else None
    return Forecast(pace, gone, left[0] - pace * (until - end) / whole)
