"""The part of the OpenAPI document about what can be sent."""

from __future__ import annotations

from typing import Any

from core.outcomes import KINDS

_REFUSALS = {
    400: "No record can be used; the message names the first reason.",
    401: "A token is needed or not known.",
    403: "Switched off, sent by a web page, or the scope or role is missing.",
    413: "More bytes or records than allowed at once.",
    415: "Content type or encoding is not understood.",
    429: "Others are still being stored: wait as Retry-After says.",
    503: "The database is away: wait as Retry-After says.",
}
_TIME = {"oneOf": [{"type": "number"}, {"type": "string"}], "description": "Unix seconds or ISO 8601."}


def _number(description: str) -> dict[str, Any]:
    return {"type": "number", "minimum": 0, "description": description}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def schemas() -> dict[str, Any]:
    """Components: ``Output``, ``Outcome``, ``Taken``."""
    counts = {key: {"type": "integer"} for key in ("received", "stored", "already_there", "skipped", "bad")}
    return {
        "Output": {
            "type": "object",
            "required": ["id", "ts"],
            "properties": {
                "id": _text("Of the request; stored once."),
                "ts": {**_TIME, "description": "When it ended. Unix seconds or ISO 8601."},
                "output": _text(
                    "The answer's text: scored, and dropped unless the configuration keeps texts."
                ),
                "prompt": _text("Sharpens the scores; never stored."),
                **{
                    n: _text("Where and whose.")
                    for n in ("instance", "pool", "model", "workload", "class", "release", "tenant")
                },
                "session": _text("Stored as a pseudonym."),
                "turn": {"type": "integer"},
                **{
                    n: _number("Tokens.")
                    for n in ("prompt_tokens", "output_tokens", "cached_tokens", "max_tokens")
                },
                **{n: _number("Seconds.") for n in ("ttft_s", "e2e_s", "queue_s")},
                "accept_length": _number("Tokens a step of speculative decoding."),
                "accept_rate": _number("Share of drafted tokens accepted."),
                "finish_reason": _text("As the engine says."),
                "aborted": {
                    "type": "boolean",
                    "description": "The client left: the output is what had been written.",
                },
                "structured": {
                    "type": ["boolean", "object"],
                    "description": "It has to be JSON; or its JSON schema.",
                },
                "tool_calls": {"type": "array", "items": {"type": "object"}},
                "tools": {
                    "type": ["array", "object"],
                    "description": "Tools of the request, with their schemas.",
                },
                "logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
                "random": {
                    "type": "boolean",
                    "default": True,
                    "description": "False: kept only for being suspicious.",
                },
                "weight": {
                    "type": "number",
                    "minimum": 1,
                    "default": 1,
                    "description": "Requests that it stands for.",
                },
                "cache_source": _text("Where the cached prefix came from."),
                "rules": {"type": "object", "description": "Instead of output: scores of gustfront score."},
                "features": {"type": "object"},
            },
        },
        "Outcome": {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "id": _text("Stored once; made from kind, subject and time where it is missing."),
                "ts": {**_TIME, "description": "Default: now. Unix seconds or ISO 8601."},
                "kind": {"type": "string", "enum": list(KINDS)},
                "ok": {
                    "type": "boolean",
                    "description": "Needed for tests_passed, patch_applied and tool_ran.",
                },
                "request": _text("Id of the request it is about."),
                "session": _text("Session it is about; as in outputs."),
                "value": _number("An optional measure, such as the share of tests that passed."),
            },
        },
        "Taken": {
            "type": "object",
            "properties": {
                **counts,
                "problems": {
                    "type": "array",
                    "description": "The first 20, by index of the record.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "index": {"type": "integer"},
                            **{key: {"type": "string"} for key in ("code", "message", "fix")},
                        },
                    },
                },
            },
        },
    }


def _post(
    summary: str, scope: str, body: dict[str, Any], answer: dict[str, Any], *parameters: dict[str, Any]
) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: dict[str, Any] = {
        "200": {"description": "Stored.", "content": {"application/json": {"schema": answer}}}
    }
    responses |= {str(status): {"description": text, "content": error} for status, text in _REFUSALS.items()}
    return {
        "post": {
            "operationId": "post_" + "_".join(summary.split()).lower().replace(":", "").replace("/", "_"),
            "summary": summary,
            "description": f"Least role: responder. Scope of a token: {scope}.",
            "parameters": list(parameters),
            "security": [{}, {"token": []}],
            "requestBody": {"required": True, "content": body},
            "responses": responses,
        }
    }


def _batch(key: str, item: str) -> dict[str, Any]:
    one = {"$ref": f"#/components/schemas/{item}"}
    many = {"type": "array", "items": one}
    return {
        "application/json": {"schema": {"oneOf": [{"type": "object", "properties": {key: many}}, many, one]}},
        "application/x-ndjson": {"schema": one},
    }


def paths() -> dict[str, Any]:
    """The paths that take bodies."""
    taken = {"$ref": "#/components/schemas/Taken"}
    otlp = {
        "application/json": {"schema": {"type": "object"}},
        "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
    }
    how = {
        "name": "format",
        "in": "query",
        "description": "gustfront, litellm, langfuse, phoenix, openai, otel, or auto.",
        "schema": {"type": "string", "default": "auto"},
    }
    return {
        "/api/v1/outputs": _post(
            "Send sampled outputs", "outputs:write", _batch("outputs", "Output"), taken, how
        ),
        "/api/v1/outcomes": _post(
            "Say what became of answers", "outcomes:write", _batch("outcomes", "Outcome"), taken
        ),
        "/api/v1/otlp/v1/traces": _post("OTLP/HTTP: GenAI spans", "outputs:write", otlp, {"type": "object"}),
        "/api/v1/otlp/v1/logs": _post("OTLP/HTTP: GenAI events", "outputs:write", otlp, {"type": "object"}),
    }
