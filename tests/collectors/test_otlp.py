"""OTLP bodies of current, older and foreign conventions come out as the same answer."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors import otlp
from collectors.translate import Translator
from core.errors import InputError
from tests.collectors import payloads as p


def outputs(body: dict[str, Any]) -> list[dict[str, Any]]:
    translate = Translator()
    return [o for r in otlp.flat_records(body) for o in map(dict, translate(r)) if "output" in o]


def log(name: str, attributes: dict[str, Any], body: Any = None) -> dict[str, Any]:
    return {
        "timeUnixNano": str(int(p.END * 1e9)),
        "eventName": name,
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "attributes": [p.attribute(k, v) for k, v in attributes.items()],
        **({} if body is None else {"body": p.any_value(body)}),
    }


MESSAGES_NOW = {"gen_ai.input.messages": p.IN_PARTS, "gen_ai.output.messages": p.OUT_PARTS}
OLD = {
    "gen_ai.system": "vllm",
    "gen_ai.request.model": "glm-5-air",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.usage.input_tokens": 24,
    "gen_ai.usage.output_tokens": 17,
}
SPAN_BODIES = {
    "attributes": p.span(p.BASE | MESSAGES_NOW),
    "attributes as JSON text": p.span(p.BASE | {k: json.dumps(v) for k, v in MESSAGES_NOW.items()}),
    "the details event on the span": p.span(
        p.BASE, [{"name": otlp.DETAILS, "attributes": [p.attribute(k, v) for k, v in MESSAGES_NOW.items()]}]
    ),
    "the details event as a log": p.logs(log(otlp.DETAILS, p.BASE | MESSAGES_NOW)),
    "older span events": p.span(
        OLD,
        [
            {"name": "gen_ai.content.prompt", "attributes": [p.attribute("gen_ai.prompt", p.PROMPT)]},
            {"name": "gen_ai.content.completion", "attributes": [p.attribute("gen_ai.completion", p.ANSWER)]},
        ],
    ),
    "older events by role": p.span(
        OLD,
        [
            {"name": "gen_ai.user.message", "attributes": [p.attribute("content", p.PROMPT)]},
            {"name": "gen_ai.choice", "attributes": [p.attribute("message", {"content": p.ANSWER})]},
        ],
    ),
    "numbered attributes": p.span(
        OLD
        | {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": p.PROMPT,
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": p.ANSWER,
        }
    ),
    "OpenInference": p.span(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "glm-5-air",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": p.PROMPT,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": p.ANSWER,
            "llm.token_count.prompt": 24,
            "llm.token_count.completion": 17,
        }
    ),
}


@pytest.mark.parametrize("name", SPAN_BODIES)
def test_the_answer_is_found_wherever_the_convention_puts_it(name: str) -> None:
    (record,) = outputs(SPAN_BODIES[name])
    assert record["output"] == p.ANSWER
    assert p.PROMPT in record["prompt"]
    assert record["ts"] == p.END
    assert (record["prompt_tokens"], record["output_tokens"]) == (24, 17)
    assert record["model"] == "glm-5-air"
    assert record["id"] == ("b7ad6b7169203331" if name == "OpenInference" else "chatcmpl-1")


def test_contents_in_separate_log_events_join_the_span_of_the_same_body() -> None:
    body = p.span(OLD) | p.logs(
        log("gen_ai.user.message", {}, {"content": p.PROMPT}),
        log(
            "gen_ai.choice",
            {},
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": p.ANSWER}},
        ),
    )
    (record,) = outputs(body)
    assert (record["output"], record["finish_reason"]) == (p.ANSWER, "stop")


def test_tool_calls_of_every_convention_have_name_and_arguments() -> None:
    parts = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "look_up", "arguments": {"town": "Oulu"}}],
        }
    ]
    numbered = {
        "gen_ai.completion.0.tool_calls.0.name": "look_up",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"town": "Oulu"}',
    }
    found = []
    for attributes in (p.BASE | {"gen_ai.output.messages": parts}, OLD | numbered):
        ((record,),) = [list(Translator()(r)) for r in otlp.flat_records(p.span(attributes))]
        found.append(record["tool_calls"])
    assert found[0] == [{"name": "look_up", "arguments": {"town": "Oulu"}}]
    assert found[1] == [{"name": "look_up", "arguments": '{"town": "Oulu"}'}]


def test_spans_of_other_kinds_and_spans_without_contents_are_no_outputs() -> None:
    assert outputs(p.span(p.BASE)) == []
    assert outputs(p.span(p.BASE | MESSAGES_NOW | {"gen_ai.operation.name": "embeddings"})) == []
    assert outputs(p.span({"http.request.method": "GET"})) == []


def test_a_client_that_left_is_an_abort() -> None:
    (record,) = outputs(p.span(p.BASE | MESSAGES_NOW | {"error.type": "asyncio.CancelledError"}))
    assert record["aborted"] is True


def test_ids_of_protobuf_are_hexadecimal_like_those_of_json() -> None:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    data = p.span(OLD)
    item = data["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    wire = json.loads(json.dumps(data))
    for key in ("traceId", "spanId"):
        wire["resourceSpans"][0]["scopeSpans"][0]["spans"][0][key] = base64.b64encode(
            bytes.fromhex(item[key])
        ).decode()
    body = ParseDict(wire, ExportTraceServiceRequest()).SerializeToString()
    (flat,) = otlp.flat_records(otlp.decode(body, otlp.PROTOBUF, "traces"))
    assert (flat["trace_id"], flat["span_id"]) == (item["traceId"], item["spanId"])


def test_a_body_that_is_no_otlp_is_refused() -> None:
    for body, kind in ((b"[", otlp.JSON), (b"[]", otlp.JSON), (b"\xff\xff\xff\xff", otlp.PROTOBUF)):
        with pytest.raises(InputError):
            otlp.decode(body, kind, "traces")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.recursive(
        ANY,
        lambda inner: (
            st.dictionaries(
                st.sampled_from(
                    [
                        "resourceSpans",
                        "scopeSpans",
                        "spans",
                        "resourceLogs",
                        "scopeLogs",
                        "logRecords",
                        "attributes",
                        "key",
                        "value",
                        "stringValue",
                        "arrayValue",
                        "kvlistValue",
                        "values",
                        "events",
                        "name",
                        "body",
                        "spanId",
                        "timeUnixNano",
                        "resource",
                    ]
                ),
                inner,
                max_size=4,
            )
            | st.lists(inner, max_size=2)
        ),
        max_leaves=30,
    )
)
@settings(max_examples=300, deadline=None)
def test_no_body_breaks_the_reader(value: Any) -> None:
    for body in (value, {"resourceSpans": value}, {"resourceSpans": [{"scopeSpans": [{"spans": value}]}]}):
        if isinstance(body, dict):
            outputs(body)
