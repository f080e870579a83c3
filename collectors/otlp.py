"""OTLP/HTTP bodies (spans and log events, JSON or protobuf) as flat records for the mappings ``otel`` and ``phoenix``.

A record is ``{attributes, resource, span_id, trace_id, name, start_time, end_time, inputs, outputs}``: attributes by name,
times in nanoseconds. Contents come from attributes, from the event ``gen_ai.client.inference.operation.details``, or from the
older events and numbered attributes (``gen_ai.choice``, ``gen_ai.completion.0.content``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from core.errors import InputError

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_NUMBERED = {
    "gen_ai.prompt.": "inputs",
    "gen_ai.completion.": "outputs",
    "llm.input_messages.": "inputs",
    "llm.output_messages.": "outputs",
}
_CONTENT_EVENTS = {
    "gen_ai.content.prompt": "inputs",
    "gen_ai.system.message": "inputs",
    "gen_ai.user.message": "inputs",
    "gen_ai.tool.message": "inputs",
    "gen_ai.assistant.message": "inputs",
    "gen_ai.choice": "outputs",
    "gen_ai.content.completion": "outputs",
}
DETAILS = "gen_ai.client.inference.operation.details"
MAX_NESTING = 32


def decode(body: bytes, content_type: str, signal: str) -> dict[str, Any]:
    """A body of ``signal`` (``traces`` or ``logs``) in OTLP's JSON form. ``InputError`` where it cannot be read."""
    if content_type == PROTOBUF:
        return _protobuf(body, signal)
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError("body", f"is not JSON: {error}", f"send OTLP as {JSON} or {PROTOBUF}") from None
    if not isinstance(data, dict):
        raise InputError(
            "body", "is JSON but no object", "send an ExportTraceServiceRequest or ExportLogsServiceRequest"
        )
    return data


def _protobuf(body: bytes, signal: str) -> dict[str, Any]:
    # a tenth of a second to import, and needed only where somebody sends protobuf
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    try:
        message.ParseFromString(body)
        data = MessageToDict(message)
    except (DecodeError, ValueError, RecursionError) as error:
        raise InputError(
            "body", f"is not the protobuf of OTLP {signal}: {error}", "send it to the path of its signal"
        ) from None
    _ids_to_hex(data)
    return dict(data)


def _ids_to_hex(data: Any) -> None:
    """Trace and span ids are base64 in protobuf's own JSON form and hexadecimal in OTLP's."""
    for _, items in _records(data):
        for item in items:
            for key in ("traceId", "spanId", "parentSpanId"):
                if isinstance(value := item.get(key), str):
                    item[key] = base64.b64decode(value).hex()


def _records(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], list[dict[str, Any]]]]:
    """(resource, spans or log records) of a body in JSON form; anything that is not of that form is passed over."""
    for outer, inner, key in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
    ):
        for resource in _list(data.get(outer)):
            about = resource.get("resource")
            for scope in _list(resource.get(inner)):
                yield about if isinstance(about, Mapping) else {}, _list(scope.get(key))


def _list(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def flat_records(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One record a span or event that may hold an answer; contents in separate events are joined to the span they belong to."""
    out: list[dict[str, Any]] = []
    by_span: dict[str, dict[str, Any]] = {}
    loose: list[tuple[str, str, dict[str, Any]]] = []
    for resource, items in _records(data):
        about = _attributes(resource.get("attributes"))
        for item in items:
            record = _flat(item, about)
            name = record["name"]
            if name in _CONTENT_EVENTS and "startTimeUnixNano" not in item:
                loose.append((record["span_id"], name, record))
                continue
            out.append(record)
            if record["span_id"] and name != DETAILS:
                by_span[record["span_id"]] = record
    for span_id, name, event in loose:
        if (owner := by_span.get(span_id)) is not None:
            body = event["body"] if isinstance(event["body"], Mapping) else event["attributes"]
            _content(owner, name, body)
    return out


def _flat(item: Mapping[str, Any], resource: dict[str, Any]) -> dict[str, Any]:
    attributes = _attributes(item.get("attributes"))
    name = item.get("eventName") or attributes.get("event.name") or item.get("name") or ""
    record: dict[str, Any] = {
        "attributes": attributes,
        "resource": resource,
        "span_id": str(item.get("spanId") or ""),
        "trace_id": str(item.get("traceId") or ""),
        "name": str(name),
        "start_time": _nanos(item.get("startTimeUnixNano")),
        "end_time": _nanos(
            item.get("endTimeUnixNano") or item.get("timeUnixNano") or item.get("observedTimeUnixNano")
        ),
        "body": _value(item.get("body"), 0),
        "inputs": None,
        "outputs": None,
    }
    if isinstance(record["body"], Mapping) and name == DETAILS:
        attributes.update({k: v for k, v in record["body"].items() if isinstance(k, str)})
    for event in _list(item.get("events")):
        inner = _attributes(event.get("attributes"))
        if event.get("name") == DETAILS:
            attributes.update(inner)
        elif event.get("name") in _CONTENT_EVENTS:
            _content(record, str(event["name"]), inner)
    _numbered(record)
    return record


def _content(record: dict[str, Any], name: str, body: Mapping[str, Any]) -> None:
    """The prompt or answer of an older event, as one more message."""
    side = _CONTENT_EVENTS[name]
    text = body.get("gen_ai.prompt" if side == "inputs" else "gen_ai.completion")
    message = {"content": text} if text is not None else dict(body)
    if side == "outputs" and "message" not in message:
        message.setdefault("role", "assistant")
    record[side] = [*(record[side] or ()), message]


def _numbered(record: dict[str, Any]) -> None:
    """``gen_ai.completion.0.content`` and its like, put together again."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key, value in record["attributes"].items():
        for prefix, side in _NUMBERED.items():
            if key.startswith(prefix):
                index, _, rest = key[len(prefix) :].partition(".")
                if index.isdigit() and len(index) < 6 and rest:
                    _put(
                        found.setdefault(side, {}).setdefault(int(index), {}),
                        rest.removeprefix("message."),
                        value,
                    )
    for side, messages in found.items():
        if record[side] is None:
            record[side] = [messages[i] for i in sorted(messages)]


def _put(message: dict[str, Any], path: str, value: Any) -> None:
    """``tool_calls.0.tool_call.function.name`` as nested objects; lists stay objects whose keys are numbers until the end."""
    head, _, rest = path.partition(".")
    if head == "tool_calls" and rest:
        index, _, field = rest.partition(".")
        if index.isdigit() and len(index) < 6 and field:
            calls = message.setdefault("tool_calls", [])
            while len(calls) <= min(int(index), 255):
                calls.append({})
            calls[min(int(index), 255)][
                field.removeprefix("tool_call.function.").removeprefix("function.")
            ] = value
        return
    message[path] = value


def _attributes(value: Any) -> dict[str, Any]:
    return {a["key"]: _value(a.get("value"), 0) for a in _list(value) if isinstance(a.get("key"), str)}


def _value(value: Any, depth: int) -> Any:
    """An ``AnyValue`` in JSON form as a plain value."""
    if not isinstance(value, Mapping) or depth > MAX_NESTING:
        return None
    for kind, inner in value.items():
        if kind in ("stringValue", "boolValue"):
            return inner
        if kind == "intValue":
            return _nanos(inner)
        if kind == "doubleValue":
            return inner if isinstance(inner, int | float) else None
        if kind == "arrayValue":
            return [_value(v, depth + 1) for v in _list((inner or {}).get("values"))]
        if kind == "kvlistValue":
            pairs = _list((inner or {}).get("values"))
            return {
                p["key"]: _value(p.get("value"), depth + 1) for p in pairs if isinstance(p.get("key"), str)
            }
        if kind == "bytesValue":
            try:
                return base64.b64decode(inner).decode("utf-8", "replace")
            except (binascii.Error, TypeError, ValueError):
                return None
    return None


def _nanos(value: Any) -> int | None:
    """A 64-bit integer, which OTLP's JSON writes as text."""
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 21:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value else None
