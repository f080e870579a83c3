"""Structured output and tool calls: is it JSON, does it fit its schema, is garbage hidden in its strings.

Rules (all soft: a model's own share of bad calls is never zero, so only a rise counts): ``tool_json`` (arguments are not JSON),
``tool_schema`` (unknown tool, missing or extra key, wrong type, value outside the enum), ``tool_name`` (empty name, or a name
that no tool can have). Strings inside valid arguments go through the text rules by :func:`strings`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/\-]{0,127}")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
MAX_DEPTH = 32


def parse_json(text: str) -> tuple[bool, Any]:
    """Whether ``text`` is one JSON value (duplicated tails, fences and cuts are not), and the value."""
    try:
        return True, orjson.loads(text)
    except orjson.JSONDecodeError:
        return False, None


def schema_faults(value: Any, schema: Mapping[str, Any], depth: int = 0) -> int:
    """How many times ``value`` breaks ``schema``: type, required, additionalProperties, enum, const, pattern, items, bounds.

    Other keywords are ignored: what is not understood is not a fault.
    """
    if depth > MAX_DEPTH:
        return 0
    faults = 0
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else list(wanted) if isinstance(wanted, Sequence) else []
    if names and not any(_is(value, name) for name in names):
        return 1
    if isinstance(options := schema.get("enum"), list) and value not in options:
        faults += 1
    if "const" in schema and value != schema["const"]:
        faults += 1
    if isinstance(value, dict):
        faults += _object_faults(value, schema, depth)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        faults += sum(schema_faults(v, items, depth + 1) for v in value[:1000])
    elif isinstance(value, str) and isinstance(pattern := schema.get("pattern"), str):
        faults += not _matches(pattern, value)
    return faults


def _object_faults(value: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> int:
    props = schema.get("properties")
    props = props if isinstance(props, Mapping) else {}
    required = schema.get("required")
    faults = sum(key not in value for key in required) if isinstance(required, list) else 0
    if schema.get("additionalProperties") is False:
        faults += sum(key not in props for key in value)
    for key, sub in props.items():
        if key in value and isinstance(sub, Mapping):
            faults += schema_faults(value[key], sub, depth + 1)
    return faults


def _is(value: Any, name: object) -> bool:
    kinds = _TYPES.get(name) if isinstance(name, str) else None
    if kinds is None:
        return True
    if isinstance(value, bool):
        return bool in kinds
    if name == "integer" and isinstance(value, float):
        return math.isfinite(value) and value.is_integer()
    return isinstance(value, kinds)


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value[:4096]) is not None
    except (re.error, RecursionError):
        return True


def call_rules(calls: Sequence[Any], tools: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Rules for a list of tool calls ``{name, arguments}`` (also in OpenAI's ``{function: {...}}`` form).

    ``tools`` maps a tool's name to the JSON schema of its arguments, where known.
    """
    bad = {"tool_json": 0, "tool_name": 0, "tool_schema": 0}
    for call in calls:
        inner = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(inner, Mapping):
            bad["tool_json"] += 1
            continue
        name, arguments = inner.get("name"), inner.get("arguments", {})
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            bad["tool_name"] += 1
        ok, value = parse_json(arguments) if isinstance(arguments, str) else (True, arguments)
        if not ok or not isinstance(value, dict):
            bad["tool_json"] += 1
        elif any(not _NAME.fullmatch(key) for key in value):
            bad["tool_schema"] += 1
        elif tools is not None:
            schema = tools.get(name) if isinstance(name, str) else None
            bad["tool_schema"] += schema is None or (
                isinstance(schema, Mapping) and schema_faults(value, schema) > 0
            )
    return {rule: float(n) for rule, n in bad.items() if n}


def strings(value: Any, depth: int = 0) -> Iterator[str]:
    """Every string inside a JSON value (keys too), for the text rules; strings that are JSON themselves are opened."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from strings(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, depth + 1)
