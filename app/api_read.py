"""Reading what the fleet did: targets and series."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from app.api_parts import PAGED, TIME, Answer, Endpoint, Schema, list_of, nullable, page, query, ref
from app.services.api_views import series_json, targets_json
from app.storage import shared_store

_TEXT: Schema = {"type": "string"}
_NAMES: Schema = {"type": "array", "items": _TEXT}
_WHEN = nullable("string", format="date-time")


def _place(target: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(target[k] for k in ("cluster", "pool", "replica", "rank", "address", "id"))


def targets(request: Request) -> Answer:
    """Targets, optionally of one pool."""
    found = targets_json(shared_store(), request.query_params)["targets"]
    some, following = page(sorted(found, key=_place), _place, request)
    return {"targets": some, "next": following}


def series(request: Request) -> Answer:
    """One signal over time."""
    return series_json(shared_store(), request.query_params)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/api/v1/targets",
        targets,
        "Scraped processes",
        list_of("targets", "Target", paged=True),
        "fleet:read",
        parameters=(query("pool", "Only this pool."), *PAGED),
    ),
    Endpoint(
        "GET",
        "/api/v1/series",
        series,
        "One signal over time, per class and pool",
        ref("Series"),
        "fleet:read",
        parameters=(
            query("signal", "Id or alias of a signal, such as ttft_seconds.", required=True),
            query("stat", "Statistic.", enum=["p50", "p90", "p95", "p99", "mean", "rate"]),
            query("start", TIME + " Default: an hour before end."),
            query("end", TIME + " Exclusive. Default: the newest data."),
            query("step", "Whole minutes, such as 60s or 5m.", default="60s"),
            query("class", "Only this workload class."),
            query("pool", "Only this pool."),
        ),
    ),
)

SCHEMAS: dict[str, Schema] = {
    "Target": {
        "type": "object",
        "properties": {
            **dict.fromkeys(
                (
                    "id",
                    "address",
                    "pool",
                    "replica",
                    "cluster",
                    "rank",
                    "source",
                    "job",
                    "version",
                    "model",
                    "role",
                    "release",
                ),
                _TEXT,
            ),
            "components": _NAMES,
            "up": {"type": "boolean"},
            "first_seen": _WHEN,
            "last_seen": _WHEN,
            "process_start": _WHEN,
        },
    },
    "Series": {
        "type": "object",
        "properties": {
            "signal": _TEXT,
            "unit": _TEXT,
            "stat": _TEXT,
            "step": {"type": "number"},
            "start": _WHEN,
            "end": _WHEN,
            "series": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "class": _TEXT,
                        "pool": _TEXT,
                        "points": {"type": "array", "items": ref("Point")},
                    },
                },
            },
        },
    },
    "Point": {
        "type": "object",
        "required": ["t", "value", "n"],
        "properties": {
            "t": {"type": "string", "format": "date-time", "description": "End of the step."},
            "value": nullable("number"),
            "low": nullable("number"),
            "high": nullable("number"),
            "n": {"type": "integer"},
            "state": {"type": "string", "enum": ["ok", "above", "below", "too_few", "no_traffic"]},
            "window_s": {"type": "number"},
        },
    },
}
