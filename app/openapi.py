"""The OpenAPI document of the REST interface."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from app import openapi_intake

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "fix"],
            "properties": {
                "code": {"type": "string", "description": "Stable word, such as bad_request or not_found."},
                "message": {"type": "string"},
                "fix": {"type": "string", "description": "What to do; may be empty."},
            },
        }
    },
}
TIME = "ISO 8601 (UTC where no zone is named) or Unix seconds."


def _query(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string", **schema}}


def _get(
    summary: str, answer: dict[str, Any], *parameters: dict[str, Any], errors: tuple[int, ...] = (400, 503)
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "Found.", "content": {"application/json": {"schema": answer}}}
    }
    for status in errors:
        responses[str(status)] = {
            "description": {
                400: "A parameter is wrong.",
                404: "There is none.",
                503: "The database is away.",
            }[status],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": responses}}


def _list_of(name: str, item: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": [name],
        "properties": {name: {"type": "array", "items": {"$ref": f"#/components/schemas/{item}"}}},
    }


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    try:
        release = version("gustfront")
    except PackageNotFoundError:
        release = "0"
    text, when = {"type": "string"}, _nullable("string", format="date-time")
    names = {"type": "array", "items": text}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gustfront",
            "version": release,
            "description": "What an LLM inference fleet does and what is wrong with it.",
        },
        "paths": {
            "/api/v1/targets": _get(
                "Scraped processes", _list_of("targets", "Target"), _query("pool", "Only this pool.")
            ),
            "/api/v1/series": _get(
                "One signal over time, per class and pool",
                {"$ref": "#/components/schemas/Series"},
                {**_query("signal", "Id or alias of a signal, such as ttft_seconds."), "required": True},
                _query("stat", "Statistic.", enum=["p50", "p90", "p95", "p99", "mean", "rate"]),
                _query("start", TIME + " Default: an hour before end."),
                _query("end", TIME + " Exclusive. Default: the newest data."),
                _query("step", "Whole minutes, such as 60s or 5m.", default="60s"),
                _query("class", "Only this workload class."),
                _query("pool", "Only this pool."),
            ),
            "/api/v1/incidents": _get(
                "Incidents that touch a range",
                _list_of("incidents", "Incident"),
                _query("start", TIME),
                _query("end", TIME + " Exclusive."),
                _query("open", "Only open ones.", enum=["true", "false"]),
            ),
            "/api/v1/incidents/{id}": _get(
                "One incident with its log",
                {"$ref": "#/components/schemas/Incident"},
                {"name": "id", "in": "path", "required": True, "schema": text},
                errors=(404, 503),
            ),
            **openapi_intake.paths(),
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": ERROR,
                **openapi_intake.schemas(),
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
                            text,
                        ),
                        "components": names,
                        "up": {"type": "boolean"},
                        "first_seen": when,
                        "last_seen": when,
                        "process_start": when,
                    },
                },
                "Series": {
                    "type": "object",
                    "properties": {
                        "signal": text,
                        "unit": text,
                        "stat": text,
                        "step": {"type": "number"},
                        "start": when,
                        "end": when,
                        "series": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "class": text,
                                    "pool": text,
                                    "points": {
                                        "type": "array",
                                        "items": {"$ref": "#/components/schemas/Point"},
                                    },
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
                        "value": _nullable("number"),
                        "low": _nullable("number"),
                        "high": _nullable("number"),
                        "n": {"type": "integer"},
                        "state": {
                            "type": "string",
                            "enum": ["ok", "above", "below", "too_few", "no_traffic"],
                        },
                        "window_s": {"type": "number"},
                    },
                },
                "Incident": {
                    "type": "object",
                    "properties": {
                        **dict.fromkeys(("id", "kind", "title", "cause", "runner_up"), text),
                        "severity": {"type": "string", "enum": ["info", "ticket", "page"]},
                        "state": {"type": "string", "enum": ["announced", "open", "resolved"]},
                        **dict.fromkeys(
                            (
                                "started_at",
                                "announced_at",
                                "detected_at",
                                "diagnosed_at",
                                "ended_at",
                                "updated_at",
                            ),
                            when,
                        ),
                        **dict.fromkeys(("classes", "pools", "replicas", "ranks"), names),
                        "load_correlated": _nullable("boolean"),
                        "confidence": {"type": "number"},
                        "evidence": {"type": "array", "items": {"type": "object"}},
                        "ruled_out": {"type": "array", "items": {"type": "object"}},
                        "detail": {"type": "object"},
                    },
                },
            },
        },
    }
