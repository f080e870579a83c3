"""Objectives, month reports, quality and replicas: the numbers of ``gustfront slo``, ``report`` and ``analyse quality``."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api_parts import (
    PAGED,
    TIME,
    Answer,
    ApiError,
    Endpoint,
    Schema,
    list_of,
    nullable,
    page,
    query,
    ref,
)
from app.services import fleet_json, replica_table, slo_curves, slo_json
from app.services.api_views import clean, time_range
from app.services.month_report import month_report
from app.services.month_text import to_csv, to_html
from app.services.quality_page import as_json as quality_json
from app.services.slo_report import lines, row_of
from app.services.slos import SloRow
from app.services.view import View, make_view
from app.storage import configuration, shared_store
from core.errors import ConfigError
from core.times import parse_time
from core.windows import month_span
from detectors.quality.analysis import analyse
from detectors.quality.history import Place

DAY = 86400.0
LONGEST = 92 * DAY
LONGEST_QUALITY = 31 * DAY
_TEXT: Schema = {"type": "string"}
_WHEN = nullable("string", format="date-time")
_NUMBER = nullable("number")
_COUNT: Schema = {"type": "integer"}
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
_PAIR: Schema = {"type": ["array", "null"], "items": {"type": ["number", "null"]}}


def _at(request: Request) -> float | None:
    text = request.query_params.get("as_of")
    return None if text is None else parse_time(text, "as_of")


def _range(request: Request, longest: float) -> tuple[float, float]:
    start, end = time_range(shared_store(), request.query_params)
    if end - start > longest:
        raise ConfigError(
            "start", f"the range is longer than {longest / DAY:.0f} days", "ask for a shorter one"
        )
    return start, end


def _row(request: Request) -> SloRow:
    name = request.path_params["id"]
    try:
        row = row_of(shared_store(), configuration(), name, _at(request))
    except KeyError:
        raise ApiError(404, "not_found", f"no objective {name[:100]}", "list them at /api/v1/slos") from None
    if row is None:
        raise ApiError(404, "no_data", "the database holds no data yet", "collect or backfill some")
    return row


def slos(request: Request) -> Answer:
    """Every objective: attainment, budget, burn, forecast."""
    found = lines(shared_store(), configuration(), _at(request))
    numbered = [(i, one) for i, one in enumerate(found)]
    some, following = page(numbered, lambda pair: (pair[0],), request)
    return {"slos": [clean(one) for _, one in some], "next": following}


def slo_status(request: Request) -> Answer:
    """One objective with its burn rates."""
    return slo_json.status(_row(request))


def slo_budget(request: Request) -> Answer:
    """Where the budget of one objective went."""
    return slo_json.budget(shared_store(), _row(request))


def slo_history(request: Request) -> Answer:
    """One objective over time."""
    start, end = _range(request, LONGEST)
    name, config = request.path_params["id"], configuration()
    slo = next((s for s in config.slos if s.name == name), None)
    if slo is None:
        raise ApiError(404, "not_found", f"no objective {name[:100]}", "list them at /api/v1/slos")
    found = slo_curves.detail(shared_store(), View(start, end, live=False), config, name)
    return slo_json.history(name, slo.class_, start, end, found)


def report(request: Request) -> Answer | Response:
    """A month's report; nothing is frozen by reading it."""
    month, form = request.path_params["month"], request.query_params.get("format", "json")
    try:
        month_span(month)
    except ConfigError as error:
        raise ApiError(
            404, "not_found", f"{month[:40]}: {error.problem}", "write a month such as 2026-09"
        ) from None
    if form not in ("json", "csv", "html"):
        raise ConfigError("format", "is none of json, csv, html", "write format=json", form)
    made = month_report(shared_store(), configuration(), month, freeze=False)
    if form == "csv":
        return Response(to_csv(made), media_type="text/csv")
    if form == "html":
        return Response(to_html(made), media_type="text/html")
    told: dict[str, Any] = clean(made.as_json())
    return told


def quality(request: Request) -> Answer:
    """How often sampled outputs are degraded, what carries it, and whether load is to blame."""
    start, end = _range(request, LONGEST_QUALITY)
    q = request.query_params
    place = Place(q.get("pool", ""), q.get("class", ""), q.get("model", ""))
    told: dict[str, Any] = clean(quality_json(analyse(shared_store(), start, end, place)))
    return told


def replicas(request: Request) -> Answer:
    """Replicas against their own normal and their pool."""
    q, store = request.query_params, shared_store()
    view = make_view(
        time.time(), store.newest(), as_of=_at(request), pool=q.get("pool", ""), class_=q.get("class", "")
    )
    found = fleet_json.replicas(replica_table.table(store, view))
    rows = sorted(found["replicas"], key=lambda r: (r["pool"], r["replica"]))
    some, following = page(rows, lambda r: (r["pool"], r["replica"]), request)
    return {"end": found["end"], "replicas": some, "next": following}


_AS_OF = query("as_of", TIME + " Default: the newest data.")
_START = query("start", TIME + " Default: an hour before end.")
_END = query("end", TIME + " Exclusive. Default: the newest data.")
_PLACE = (query("pool", "Only this pool."), query("class", "Only this workload class."))

_REPLICAS = list_of("replicas", "Replica", paged=True)
_REPLICAS["properties"]["end"] = _WHEN

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/api/v1/slos",
        slos,
        "Every objective: attainment, budget left, burn, forecast",
        list_of("slos", "Slo", paged=True),
        "slo:read",
        parameters=(_AS_OF, *PAGED),
    ),
    Endpoint(
        "GET",
        "/api/v1/slos/{id}/status",
        slo_status,
        "One objective with its burn rates",
        ref("SloStatus"),
        "slo:read",
        parameters=(_AS_OF,),
    ),
    Endpoint(
        "GET",
        "/api/v1/slos/{id}/budget",
        slo_budget,
        "Where the budget of one objective went, and how it ends",
        ref("SloBudget"),
        "slo:read",
        parameters=(_AS_OF,),
    ),
    Endpoint(
        "GET",
        "/api/v1/slos/{id}/history",
        slo_history,
        "One objective over time: p99 and the share that kept it",
        ref("SloHistory"),
        "slo:read",
        parameters=(_START, _END),
    ),
    Endpoint(
        "GET",
        "/api/v1/report/{month}",
        report,
        "A month's report per class, such as 2026-09",
        ref("Report"),
        "slo:read",
        parameters=(query("format", "json, csv or html.", enum=["json", "csv", "html"], default="json"),),
        media_types=("application/json", "text/csv", "text/html"),
    ),
    Endpoint(
        "GET",
        "/api/v1/quality",
        quality,
        "How often sampled outputs are degraded, what carries it, and whether load is to blame",
        ref("Quality"),
        "slo:read",
        parameters=(_START, _END, *_PLACE, query("model", "Only this model.")),
    ),
    Endpoint(
        "GET",
        "/api/v1/replicas",
        replicas,
        "Replicas against their own normal and their pool",
        _REPLICAS,
        "fleet:read",
        parameters=(_AS_OF, *_PLACE, *PAGED),
    ),
)

_SLO: dict[str, Schema] = {
    **dict.fromkeys(
        ("name", "class", "attained", "state", "budget_left_text", "burn_text", "forecast", "coverage_text"),
        _TEXT,
    ),
    **dict.fromkeys(("sli", "version", "point"), _TEXT),
    **dict.fromkeys(("start", "end"), _WHEN),
    **dict.fromkeys(("objective", "coverage", "gone_in"), _NUMBER),
    **dict.fromkeys(("attainment", "budget_left", "burn"), _PAIR),
    **dict.fromkeys(("good", "bad", "either", "bad_or_excluded", "good_or_excluded", "excluded"), _COUNT),
    "reportable": {"type": "boolean", "description": "Enough was seen."},
    "spent": {"type": "boolean", "description": "The budget is surely spent."},
    "firing": {"type": "array", "items": {"type": "object"}},
}
_REQUIRED = ["name", "class", "attained", "state", "spent"]


def _points(*names: str) -> Schema:
    fields = {"t": _WHEN, **dict.fromkeys(names, _NUMBER), "n": {"type": "integer"}}
    return {"type": ["array", "null"], "items": {"type": "object", "properties": fields}}


SCHEMAS: dict[str, Schema] = {
    "Slo": {"type": "object", "required": _REQUIRED, "properties": _SLO},
    "SloStatus": {
        "type": "object",
        "required": [*_REQUIRED, "burns", "notes"],
        "properties": {
            **_SLO,
            "burns": {"type": "array", "items": ref("Burn")},
            "notes": {"type": "array", "items": _TEXT, "description": "What the number does not know."},
        },
    },
    "Burn": {
        "type": "object",
        "properties": {
            "severity": {"type": "string", "enum": ["page", "ticket"]},
            **dict.fromkeys(("factor", "long_s", "short_s", "gone_in_s"), _NUMBER),
            **dict.fromkeys(("burn_long", "burn_short"), _PAIR),
            "bad": {"type": "integer"},
            "firing": {"type": "boolean"},
        },
    },
    "SloBudget": {
        "type": "object",
        "required": ["name", "class", "budget_left", "eaten", "forecast"],
        "properties": {
            **dict.fromkeys(("name", "class", "forecast"), _TEXT),
            **dict.fromkeys(("start", "end", "gone_at"), _WHEN),
            **dict.fromkeys(("allowed_share_bad", "pace", "left_at_end"), _NUMBER),
            "budget_left": _PAIR,
            "eaten": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "incident": nullable("string"),
                        "title": _TEXT,
                        "bad": {"type": "integer"},
                        "share_of_budget": _NUMBER,
                    },
                },
            },
        },
    },
    "SloHistory": {
        "type": "object",
        "required": ["name", "class", "point", "p99", "share_good"],
        "properties": {
            **dict.fromkeys(("name", "class", "point"), _TEXT),
            **dict.fromkeys(("start", "end"), _WHEN),
            "p99": _points("value", "low", "high", "window_s"),
            "share_good": _points("low", "high"),
        },
    },
    "Report": {
        "type": "object",
        "required": ["month", "closed", "classes"],
        "properties": {
            "month": _TEXT,
            **dict.fromkeys(("start", "end", "made_at"), _WHEN),
            "closed": {"type": "boolean", "description": "False while the month runs."},
            "gpu_price": _NUMBER,
            "currency": _TEXT,
            "classes": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Quality": {
        "type": "object",
        "required": ["verdict", "title", "because", "rate", "load_correlated"],
        "properties": {
            **dict.fromkeys(("start", "end", "verdict", "title", "next"), _TEXT),
            "because": {"type": "array", "items": _TEXT},
            **dict.fromkeys(("rate", "baseline"), ref("DegradedRate")),
            "load": _OBJECT,
            "load_correlated": nullable("boolean"),
            **dict.fromkeys(("pool", "class", "pool_carrying"), nullable("string")),
            "e_value": _NUMBER,
            **dict.fromkeys(("deciles", "strata"), _OBJECTS),
            "missing": nullable("object", description="Outputs that are still needed to tell."),
            "kinds": {"type": "object", "additionalProperties": _COUNT},
        },
    },
    "DegradedRate": {
        "type": "object",
        "description": "Per ten thousand outputs, with its interval; null without outputs.",
        "properties": {
            **dict.fromkeys(("per_10k", "low", "high"), _NUMBER),
            **dict.fromkeys(("degraded", "outputs"), _COUNT),
        },
    },
    "Replica": {
        "type": "object",
        "required": ["pool", "replica", "seen", "odd", "measures"],
        "properties": {
            **dict.fromkeys(("pool", "replica", "version", "model", "release", "role", "odd"), _TEXT),
            "components": {"type": "array", "items": _TEXT},
            "seen": {"type": "boolean"},
            "started": _WHEN,
            "measures": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "properties": dict.fromkeys(("now", "normal", "pool", "deviation"), _NUMBER),
                },
            },
            **dict.fromkeys(("errors_per_s", "aborts_per_s", "temperature_celsius", "xid"), _NUMBER),
        },
    },
}
