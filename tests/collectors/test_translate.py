"""Records of other tools become Gustfront's, each format by its mapping file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.messages import answer, prompt
from collectors.translate import FOLDER, NATIVE, Translator, check_format, format_names, formats
from core.errors import ConfigError
from tests.collectors import payloads as p

ALL = {
    "litellm": [p.LITELLM, {"standard_logging_object": p.LITELLM, "other": 1}],
    "langfuse": [p.LANGFUSE, p.LANGFUSE_BLOB, {"data": [p.LANGFUSE], "meta": {"page": 1}}],
    "phoenix": [p.PHOENIX, p.PHOENIX_FLAT],
    "openai": [p.OPENAI, p.RESPONSES, p.ANTHROPIC],
}
CASES = [(name, i) for name, many in ALL.items() for i in range(len(many))]


@pytest.mark.parametrize(("name", "i"), CASES)
@pytest.mark.parametrize("how", ["auto", "named"])
def test_the_same_answer_comes_out_of_every_format(name: str, i: int, how: str) -> None:
    (record,) = Translator("auto" if how == "auto" else name)(ALL[name][i])
    assert record["id"] == "chatcmpl-1"
    assert record["ts"] == p.END
    assert record["e2e_s"] == pytest.approx(2.5)
    assert record["output"] == p.ANSWER
    assert p.PROMPT in record["prompt"]
    assert record["model"] == "glm-5-air"
    assert (record["prompt_tokens"], record["output_tokens"]) == (24, 17)
    assert record["cached_tokens"] == 16


def test_what_each_format_says_beyond_that() -> None:
    (litellm,) = Translator()(p.LITELLM)
    assert litellm["ttft_s"] == pytest.approx(0.5)
    assert litellm["finish_reason"] == "stop"
    assert litellm["logprobs"] == [-0.25, -1.5]
    assert litellm["tools"] == {"look_up": p.TOOLS[0]["function"]["parameters"]}  # type: ignore[index]
    assert (litellm["tenant"], litellm["session"], litellm["workload"]) == ("shop", "trace-7", "chat")
    assert litellm["instance"] == "http://chat-a-1:8000"
    (langfuse,) = Translator()(p.LANGFUSE)
    assert langfuse["ttft_s"] == pytest.approx(0.5)
    assert (langfuse["session"], langfuse["tenant"], langfuse["max_tokens"]) == ("trace-7", "shop", 64)
    (responses,) = Translator()(p.RESPONSES)
    assert responses["tool_calls"] == [{"name": "look_up", "arguments": '{"town": "Oulu"}'}]
    (anthropic,) = Translator()(p.ANTHROPIC)
    assert anthropic["tool_calls"] == [{"name": "look_up", "arguments": {"town": "Oulu"}}]
    assert anthropic["finish_reason"] == "tool_use"
    assert anthropic["prompt"].startswith("Be brief.")


def test_calls_that_answer_nothing_are_left_out() -> None:
    assert list(Translator()({**p.LITELLM, "call_type": "aembedding"})) == []
    assert list(Translator()({**p.LITELLM, "cache_hit": True})) == []
    assert list(Translator()({**p.LANGFUSE, "type": "SPAN"})) == []
    assert list(Translator()({**p.PHOENIX, "span_kind": "CHAIN"})) == []


def test_a_schema_in_the_request_is_what_the_answer_has_to_fit() -> None:
    schema = {"type": "object", "required": ["a"]}
    for asked, wanted in (
        ({"type": "json_object"}, True),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, schema),
        ({"type": "text"}, False),
    ):
        request = {**p.OPENAI["request"], "response_format": asked}
        (record,) = Translator()({**p.OPENAI, "request": request})
        assert record["structured"] == wanted
    (record,) = Translator()(p.OPENAI)
    assert "structured" not in record


def test_gustfronts_own_records_pass_as_they_are() -> None:
    own = {"id": "a", "ts": 1.0, "output": "x", "attributes": {}}
    for name in ("auto", NATIVE):
        assert list(Translator(name)(own)) == [own]


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="litellm, openai, otel, phoenix"):
        check_format("helicone")
    assert format_names()[:2] == ("auto", NATIVE)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda f: f.stem)
def test_a_mapping_file_is_named_like_its_format_and_says_where_it_is_documented(path: Path) -> None:
    data = yaml.safe_load(path.read_text())
    assert data["id"] == path.stem
    assert data["documentation"].startswith("https://")
    assert {"id", "ts", "output", "model", "prompt_tokens", "output_tokens", "session"} <= set(data["fields"])


def test_an_answer_written_in_json_stays_text() -> None:
    for text in ('{"choices_made": 3}', "[1, 2]", '{"role": "admin"}', '{"a": {"content": "x"}}', "{}", "[]"):
        assert answer(text).text == text
    assert prompt('{"a": 1}') == '{"a": 1}'


def test_the_answer_of_several_messages_is_the_last_of_a_transcript_and_the_first_of_alternatives() -> None:
    one, two = ({"role": "assistant", "content": c} for c in ("one", "two"))
    assert (
        answer([{"role": "user", "content": "?"}, one, {"role": "user", "content": "!"}, two]).text == "two"
    )
    assert answer([one, two]).text == "one"
    assert answer({"choices": []}).text is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "content",
                    "message",
                    "choices",
                    "parts",
                    "type",
                    "role",
                    "tool_calls",
                    "text",
                    "logprobs",
                    "function",
                    "response",
                    "request",
                    "attributes",
                    "data",
                    "traceId",
                    "startTime",
                    "call_type",
                    "span_kind",
                    "usage",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(JSON, st.sampled_from(["message", "attributes", "response"]))
@settings(max_examples=300, deadline=None)
def test_no_shape_of_json_breaks_a_mapping(value: Any, key: str) -> None:
    data = value if isinstance(value, dict) else {key: value}
    for name in formats():
        for record in Translator(name)(data):
            assert isinstance(record, dict)
    list(Translator()(data))
    answer(value)
    prompt(json.dumps(value))
