"""The objectives as plain data: for the command line, the API and release gates."""

from __future__ import annotations

import math
from typing import Any

from app.services.budget import forecast
from app.services.cards import budget_interval
from app.services.latency import LOOK_BACK
from app.services.slos import SloRow, rows
from app.services.view import View
from app.services.wording import percent, span
from core.config import Config
from core.incidents import iso
from sql.store import Store


def lines(store: Store, config: Config, at: float | None = None) -> list[dict[str, Any]]:
    """Every objective at ``at`` (default: the newest data), in the order of the configuration.

    ``spent``: the whole interval of the budget left, of what was seen, is at or below 0.
    """
    view = view_at(store, at)
    if view is None:
        return [_nothing(s.name, s.class_) for s in config.slos]
    return [line(row) for row in rows(store, view, config)]


def view_at(store: Store, at: float | None = None) -> View | None:
    """The whole minutes in which objectives are judged at ``at`` (default: the newest data); None in an empty database."""
    newest = store.newest()
    times = [t for t in (newest, store.newest_attempt()) if t is not None]
    end = at if at is not None else max(times, default=None)
    if end is None:
        return None
    end = math.ceil(end / 60) * 60 if at is None else math.floor(end / 60) * 60
    return View(end - LOOK_BACK, end, live=False, newest=newest)


def row_of(store: Store, config: Config, name: str, at: float | None = None) -> SloRow | None:
    """One configured objective; None in an empty database. KeyError where none has this name."""
    mine = [s for s in config.slos if s.name == name]
    if not mine:
        raise KeyError(name)
    view = view_at(store, at)
    return None if view is None else rows(store, view, config.model_copy(update={"slos": mine}))[0]


def line(row: SloRow) -> dict[str, Any]:
    """One objective."""
    a, o = row.attainment, row.objective
    left = row.budget_left
    burn = row.burns[0].long if row.burns else (math.nan, math.nan)
    future = forecast(row)
    firing = [b for b in row.burns if b.firing]
    return {
        "name": o.name,
        "class": o.class_,
        "sli": o.sli,
        "version": o.version,
        "point": row.point,
        "start": iso(row.window[0]),
        "end": iso(row.window[1]),
        "objective": o.target,
        "attained": a.text(),
        "attainment": pair(a.low, a.high),
        "state": state_words(row),
        "reportable": a.reportable,
        "good": a.tally.good,
        "bad": a.tally.bad,
        "either": a.tally.either,
        "bad_or_excluded": a.tally.bad_or_excluded,
        "good_or_excluded": a.tally.good_or_excluded,
        "excluded": a.tally.excluded,
        "budget_left": None if left is None else pair(*left),
        "budget_left_text": "unknown" if left is None else plain(budget_interval(*left)),
        "burn": pair(*burn),
        "burn_text": burn_text(burn, firing[0].rule.severity if firing else ""),
        "firing": [
            {"severity": b.rule.severity, "factor": b.rule.factor, "long": b.rule.long, "short": b.rule.short}
            for b in firing
        ],
        "gone_in": row.gone_in,
        "forecast": plain(future.text(row.window[1])),
        "coverage": a.coverage,
        "coverage_text": plain(percent(a.coverage, 1)),
        "spent": left is not None and left[1] <= 0,
    }


def state_words(row: SloRow) -> str:
    """``met``, ``missed``, ``undetermined``, ``not enough data``, ``no traffic``, with what makes it not reportable."""
    word = row.attainment.state.replace("too_few", "not enough data").replace("_", " ")
    if not row.attainment.reportable and word not in ("no traffic", "not enough data"):
        return f"{word} (not reportable: too little seen)"
    return word


def burn_text(burn: tuple[float, float], severity: str) -> str:
    """``0.3×``, ``12–15×, page``."""
    if math.isnan(burn[0]):
        return "no traffic"
    low, high = (f"{x:.1f}" if x < 10 else f"{x:,.0f}" for x in burn)
    text = f"{low}×" if low == high else f"{low}–{high}×"
    return f"{text}, {severity}" if severity else text


def pair(low: float, high: float) -> list[float] | None:
    """[low, high]; None where there is none."""
    return None if math.isnan(low) or math.isnan(high) else [low, high]


def plain(text: str) -> str:
    """Without no-break spaces, which terminals and CSV readers show oddly."""
    return text.replace("\u00a0", " ")


def _nothing(name: str, class_: str) -> dict[str, Any]:
    return {
        "name": name,
        "class": class_,
        "attained": "no traffic",
        "state": "no traffic",
        "budget_left_text": "unknown",
        "burn_text": "no traffic",
        "forecast": "no data yet",
        "coverage_text": "0 %",
        "spent": False,
    }


def lasting(seconds: float | None) -> str:
    """``gone in 3 h at this pace``, or nothing."""
    return "" if seconds is None else plain(f"gone in {span(seconds)} at this pace")
