"""The OpenAPI document of the REST interface, made from its endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from app import openapi_intake
from app.api_parts import TIME, Endpoint, Schema

__all__ = ["ERROR", "TIME", "document"]

ERROR: Schema = {
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
_INSTEAD_OF_DEFS = "#/components/schemas/{model}"


def document(endpoints: Iterable[Endpoint], schemas: dict[str, Schema]) -> dict[str, Any]:
    """OpenAPI 3.1 of the endpoints and of what can be sent (:mod:`app.openapi_intake`)."""
    try:
        release = version("gustfront")
    except PackageNotFoundError:
        release = "0"
    paths: dict[str, Any] = {}
    bodies: dict[str, Schema] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = one.described()
        if one.body is not None:
            made = one.body.model_json_schema(ref_template=_INSTEAD_OF_DEFS)
            bodies |= made.pop("$defs", {})
            bodies[one.body.__name__] = made
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gustfront",
            "version": release,
            "description": "What an LLM inference fleet does and what is wrong with it. Every error has the shape of Error. "
            "Lists with `next` are given in pages.",
        },
        "paths": {**paths, **openapi_intake.paths()},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": ERROR, **openapi_intake.schemas(), **schemas, **bodies},
        },
    }
