"""What other tools write about one answer, by format: made by hand from their documentation, one call each."""

from __future__ import annotations

import json
from typing import Any

END = 1_789_999_260.0
ISO_END, ISO_START = "2026-09-21T14:01:00Z", "2026-09-21T14:00:57.5Z"
ANSWER = "The harbour freezes in January, and the ferries stop until the ice is gone."
PROMPT = "When do the ferries stop?"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"town": "Oulu"}'},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {
                "type": "object",
                "required": ["town"],
                "properties": {"town": {"type": "string"}},
            },
        },
    }
]
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": int(END),
    "model": "glm-5-air",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": ANSWER},
            "logprobs": {
                "content": [{"token": "The", "logprob": -0.25}, {"token": " harbour", "logprob": -1.5}]
            },
        }
    ],
    "usage": {
        "prompt_tokens": 24,
        "completion_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 16},
    },
}
LITELLM: dict[str, Any] = {
    "id": "chatcmpl-1",
    "trace_id": "trace-7",
    "call_type": "acompletion",
    "status": "success",
    "startTime": END - 2.5,
    "completionStartTime": END - 2.0,
    "endTime": END,
    "model": "hosted_vllm/glm-5-air",
    "model_group": "glm-5-air",
    "model_id": "deployment-3",
    "api_base": "http://chat-a-1:8000",
    "cache_hit": None,
    "prompt_tokens": 24,
    "completion_tokens": 17,
    "messages": MESSAGES,
    "response": CHAT,
    "model_parameters": {"max_tokens": 64, "tools": TOOLS},
    "metadata": {
        "user_api_key_team_alias": "shop",
        "requester_metadata": {"workload": "chat"},
        "usage_object": {"prompt_tokens_details": {"cached_tokens": 16}},
    },
    "error_str": None,
}
LANGFUSE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "traceId": "trace-7",
    "type": "GENERATION",
    "name": "chat",
    "startTime": ISO_START,
    "completionStartTime": "2026-09-21T14:00:58Z",
    "endTime": ISO_END,
    "model": "glm-5-air",
    "modelParameters": {"max_tokens": 64},
    "input": {"messages": MESSAGES, "tools": TOOLS},
    "output": {"role": "assistant", "content": ANSWER},
    "usageDetails": {"input": 24, "output": 17, "input_cached_tokens": 16},
    "userId": "shop",
}
LANGFUSE_BLOB: dict[str, Any] = {
    "id": "chatcmpl-1",
    "trace_id": "trace-7",
    "type": "GENERATION",
    "name": "chat",
    "start_time": "2026-09-21 14:00:57.500000",
    "completion_start_time": "2026-09-21 14:00:58.000000",
    "end_time": "2026-09-21 14:01:00.000000",
    "provided_model_name": "glm-5-air",
    "input": json.dumps(MESSAGES),
    "output": json.dumps({"role": "assistant", "content": ANSWER}),
    "usage_details": {"input": 24, "output": 17, "input_cached_tokens": 16},
    "user_id": "shop",
}
PHOENIX: dict[str, Any] = {
    "name": "chat",
    "span_kind": "LLM",
    "context": {"trace_id": "trace-7", "span_id": "chatcmpl-1"},
    "start_time": ISO_START,
    "end_time": ISO_END,
    "attributes": {
        "openinference": {"span": {"kind": "LLM"}},
        "llm": {
            "model_name": "glm-5-air",
            "input_messages": [{"message": m} for m in MESSAGES],
            "output_messages": [{"message": {"role": "assistant", "content": ANSWER}}],
            "token_count": {"prompt": 24, "completion": 17, "prompt_details": {"cache_read": 16}},
        },
        "user": {"id": "shop"},
    },
}
PHOENIX_FLAT: dict[str, Any] = {
    "name": "chat",
    "span_kind": "LLM",
    "context.trace_id": "trace-7",
    "context.span_id": "chatcmpl-1",
    "start_time": ISO_START,
    "end_time": ISO_END,
    "attributes.llm.model_name": "glm-5-air",
    "attributes.llm.input_messages": [
        {"message.role": m["role"], "message.content": m["content"]} for m in MESSAGES
    ],
    "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": ANSWER}],
    "attributes.llm.token_count.prompt": 24,
    "attributes.llm.token_count.completion": 17,
    "attributes.llm.token_count.prompt_details.cache_read": 16,
    "attributes.user.id": "shop",
}
OPENAI: dict[str, Any] = {
    "timestamp": ISO_END,
    "duration_s": 2.5,
    "request": {"model": "glm-5-air", "messages": MESSAGES, "max_tokens": 64, "tools": TOOLS, "user": "shop"},
    "response": CHAT,
    "session_id": "trace-7",
    "workload": "chat",
}
RESPONSES: dict[str, Any] = {
    "timestamp": END * 1000,
    "duration_s": 2.5,
    "request": {"model": "glm-5-air", "input": PROMPT, "max_output_tokens": 64},
    "response": {
        "id": "chatcmpl-1",
        "model": "glm-5-air",
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "ferries..."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
            {"type": "function_call", "name": "look_up", "arguments": '{"town": "Oulu"}'},
        ],
        "usage": {"input_tokens": 24, "output_tokens": 17, "input_tokens_details": {"cached_tokens": 16}},
    },
}
ANTHROPIC: dict[str, Any] = {
    "timestamp": END,
    "duration_s": 2.5,
    "request": {"model": "glm-5-air", "system": "Be brief.", "messages": [MESSAGES[1]], "max_tokens": 64},
    "response": {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "model": "glm-5-air",
        "content": [
            {"type": "text", "text": ANSWER},
            {"type": "tool_use", "id": "t", "name": "look_up", "input": {"town": "Oulu"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 24, "output_tokens": 17, "cache_read_input_tokens": 16},
    },
}


def attribute(key: str, value: Any) -> dict[str, Any]:
    """One OTLP attribute in JSON form."""
    return {"key": key, "value": any_value(value)}


def any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(v) for v in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [attribute(k, v) for k, v in value.items()]}}
    return {"stringValue": value}


BASE = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "vllm",
    "gen_ai.request.model": "glm-5-air",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.request.max_tokens": 64,
    "gen_ai.usage.input_tokens": 24,
    "gen_ai.usage.output_tokens": 17,
    "gen_ai.usage.cache_read.input_tokens": 16,
    "gen_ai.conversation.id": "trace-7",
    "gen_ai.response.finish_reasons": ["stop"],
    "user.id": "shop",
}
IN_PARTS = [{"role": m["role"], "parts": [{"type": "text", "content": m["content"]}]} for m in MESSAGES]
OUT_PARTS = [
    {"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"},
]


def span(attributes: dict[str, Any], events: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """An ExportTraceServiceRequest with one span."""
    one = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "chat glm-5-air",
        "kind": 3,
        "startTimeUnixNano": str(int((END - 2.5) * 1e9)),
        "endTimeUnixNano": str(int(END * 1e9)),
        "attributes": [attribute(k, v) for k, v in attributes.items()],
        "events": events or [],
    }
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [attribute("service.name", "chat")]},
                "scopeSpans": [{"scope": {"name": "x"}, "spans": [one]}],
            }
        ]
    }


def logs(*records: dict[str, Any]) -> dict[str, Any]:
    """An ExportLogsServiceRequest."""
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": [attribute("service.name", "chat")]},
                "scopeLogs": [{"scope": {}, "logRecords": list(records)}],
            }
        ]
    }
