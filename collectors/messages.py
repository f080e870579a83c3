"""Prompts and answers in the shapes that chat APIs and tracers write them, reduced to text, tool calls and finish reason.

Understood: plain strings; OpenAI chat and text completions, OpenAI responses, Anthropic messages; OpenTelemetry's
``gen_ai.*.messages`` (``parts``); OpenInference's ``message.content`` keys; and any of these as JSON inside a string. What is not
understood yields nothing rather than a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

MAX_DEPTH = 12
_TEXT_TYPES = frozenset({"", "text", "output_text", "input_text", "refusal"})
_CALL_TYPES = frozenset({"tool_call", "tool_use", "function_call", "server_tool_call"})


@dataclass
class Answer:
    """An answer: ``text`` is None where none was recorded; ``logprobs`` are those of its tokens (natural logarithm)."""

    text: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = ""
    logprobs: list[float] = field(default_factory=list)

    def add_text(self, part: str) -> None:
        """Append one part."""
        self.text = part if self.text is None else self.text + part


def opened(value: Any) -> Any:
    """A string that holds a JSON object or list as that value; anything else as it is."""
    if not isinstance(value, str) or value[:1] not in ("{", "[") or value[-1:] not in ("}", "]"):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def answer(value: Any) -> Answer:
    """The first answer in ``value``. A JSON string that is no known shape is the answer's text itself."""
    out = Answer()
    inner = opened(value)
    # a model that answers in JSON is not a message: only known shapes are opened
    if isinstance(value, str) and (inner is value or not _is_shape(inner)):
        out.text = value
        return out
    _answer(inner, out, 0)
    return out


def prompt(value: Any) -> str | None:
    """All text that was sent (system, user, earlier turns), parts separated by line breaks; None where there is none."""
    inner = opened(value)
    if isinstance(value, str) and (inner is value or not _is_shape(inner)):
        return value
    parts = list(_texts(inner, 0))
    return "\n".join(parts) if parts else None


def tools(value: Any) -> Mapping[str, Any] | None:
    """Name → JSON schema of the arguments, from a mapping or from a list as chat APIs write it."""
    value = opened(value)
    if isinstance(value, Mapping) and all(isinstance(v, Mapping) for v in value.values()):
        return value
    if not isinstance(value, list):
        return None
    out: dict[str, Any] = {}
    for tool in value:
        tool = opened(tool)
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            schema = opened(inner.get("parameters") or inner.get("input_schema") or {})
            out[inner["name"]] = schema if isinstance(schema, Mapping) else {}
    return out or None


def response_schema(value: Any) -> bool | Mapping[str, Any] | None:
    """``response_format`` as what the answer has to be: a JSON schema, True (some JSON), False (text), None (not said)."""
    value = opened(value)
    if value is None:
        return None
    if isinstance(value, str):
        return {"json": True, "json_object": True, "text": False}.get(value)
    if not isinstance(value, Mapping):
        return None
    if isinstance(inner := value.get("format"), Mapping):  # OpenAI responses: text.format
        value = inner
    kind = value.get("type")
    if kind == "json_schema":
        named = value.get("json_schema", value)
        schema = named.get("schema") if isinstance(named, Mapping) else None
        return schema if isinstance(schema, Mapping) else True
    if kind == "json_object":
        return True
    if kind == "text":
        return False
    return None


def _is_shape(value: Any) -> bool:
    """Whether a JSON value looks like messages rather than like an answer written in JSON."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, Mapping) and _is_shape(v) for v in value)
    if not isinstance(value, Mapping):
        return False
    if value.keys() & {"choices", "message", "message.content", "message.role", "tool_calls"}:
        return True
    if value.keys() & {"role"} and value.keys() & {"content", "parts"}:
        return True
    kind = value.get("type")
    return kind in ("message", "text", "output_text", *_CALL_TYPES) and len(value) > 1


def _answer(value: Any, out: Answer, depth: int) -> None:
    if depth > MAX_DEPTH or value is None:
        return
    if isinstance(value, str):
        out.add_text(value)
    elif isinstance(value, list):
        _answer_list(value, out, depth)
    elif isinstance(value, Mapping):
        _answer_object(value, out, depth)


def _answer_list(items: Sequence[Any], out: Answer, depth: int) -> None:
    roles = [
        m for m in items if isinstance(m, Mapping) and ("role" in m or "message.role" in m or "message" in m)
    ]
    if roles:  # several are alternatives (n > 1) or a transcript: the last assistant's is the answer
        mine = [m for m in roles if _role(m) in ("assistant", "model", "ai", "")]
        if mine:
            _answer(mine[-1] if len(roles) > len(mine) else mine[0], out, depth + 1)
        for item in items:  # OpenAI responses: calls stand beside the message
            if isinstance(item, Mapping) and str(item.get("type")) in _CALL_TYPES and (call := _call(item)):
                out.tool_calls.append(call)
        return
    for item in items:
        _answer(item, out, depth + 1)


def _role(message: Mapping[str, Any]) -> str:
    inner = message.get("message")
    role = (
        message.get("role")
        or message.get("message.role")
        or (inner.get("role") if isinstance(inner, Mapping) else "")
    )
    return str(role or "")


def _answer_object(value: Mapping[str, Any], out: Answer, depth: int) -> None:
    reason = value.get("finish_reason") or value.get("stop_reason")
    if isinstance(reason, str) and not out.finish_reason:
        out.finish_reason = reason
    if isinstance(logprobs := value.get("logprobs"), Mapping):
        out.logprobs += _logprobs(logprobs)
    if isinstance(choices := value.get("choices"), list):
        if choices:
            _answer(choices[0], out, depth + 1)
        return
    kind = str(value.get("type") or "")
    if kind in _CALL_TYPES or "tool_call.function.name" in value or "tool_call" in value:
        if call := _call(value):
            out.tool_calls.append(call)
        return
    if kind in ("reasoning", "thinking", "tool_call_response", "tool_result"):
        return
    for key in ("message", "message.content", "content", "parts", "output", "text", "message.contents"):
        inner = value.get(key)
        if inner is not None and not (key == "text" and kind not in _TEXT_TYPES):
            _answer(inner, out, depth + 1)
            break
    for key in ("tool_calls", "message.tool_calls"):
        calls = value.get(key)
        for item in calls if isinstance(calls, list) else ():
            if isinstance(item, Mapping) and (call := _call(item)):
                out.tool_calls.append(call)


def _call(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """``{name, arguments}`` of a tool call in any of the shapes."""
    inner: Any = value.get("tool_call", value.get("function", value))
    if isinstance(inner, Mapping) and isinstance(inner.get("function"), Mapping):
        inner = inner["function"]
    if not isinstance(inner, Mapping):
        return None
    name = inner.get("name", inner.get("tool_call.function.name"))
    for key in ("arguments", "input", "tool_call.function.arguments"):
        if key in inner:
            return {"name": name, "arguments": inner[key]}
    return {"name": name, "arguments": {}} if name else None


def _logprobs(value: Mapping[str, Any]) -> list[float]:
    tokens = value.get("token_logprobs")
    if not isinstance(tokens, list):
        content = value.get("content")
        tokens = (
            [t.get("logprob") for t in content if isinstance(t, Mapping)] if isinstance(content, list) else []
        )
    return [
        float("nan") if t is None else float(t) for t in tokens if t is None or isinstance(t, int | float)
    ]


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH or value is None:
        return
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, Mapping):
        for key in (
            "messages",
            "message",
            "message.content",
            "content",
            "parts",
            "text",
            "prompt",
            "input",
            "system",
        ):
            if key in value:
                yield from _texts(opened(value[key]), depth + 1)
