"""Reported cases of broken outputs (texts rebuilt from their descriptions)."""

from __future__ import annotations

import json
from pathlib import Path

from core.text import RULES, score_text
from tests.core.text_samples import PROSE, sprinkle

SCHEMA = {
    "run": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
        "required": ["command"],
        "additionalProperties": False,
    }
}


def test_only_exclamation_marks_is_hard() -> None:
    """vllm#13035, #14126: NaN logits decode to token 0."""
    assert score_text("!" * 512, finish_reason="length").verdict == "hard"


def test_replies_of_length_zero_are_a_rate_of_their_own() -> None:
    """vllm#3209, halogen#84: empty answers are never hard alone; their share against the own normal decides."""
    assert score_text("").rules == {"empty": 1.0}
    assert score_text(" \n\t ").rules == {"empty": 1.0}
    assert score_text("\n" * 500).rules == {"empty": 1.0, "whitespace": 500.0}
    assert score_text("").verdict == "soft"


def test_no_text_beside_a_tool_call_is_not_empty() -> None:
    assert score_text("", tool_calls=[{"name": "run", "arguments": "{}"}]).verdict == "clean"


def test_whitespace_to_the_cap_is_a_rate() -> None:
    """C5, structured output: HTTP 200 and nothing but spaces."""
    assert score_text('{"a":' + " " * 900).rules["whitespace"] == 900.0


def test_empty_or_glued_arguments_are_found_by_their_schema() -> None:
    """vllm#56077: ``{}``, ``{"command=ls": ""}``, a name with the argument glued in."""
    good = {"name": "run", "arguments": '{"command": "ls"}'}
    assert score_text("", tool_calls=[good], tools=SCHEMA).verdict == "clean"
    assert score_text("", tool_calls=[{"name": "run", "arguments": "{}"}], tools=SCHEMA).rules == {
        "tool_schema": 1.0
    }
    glued = {"name": "run", "arguments": '{"command=ls": ""}'}
    assert score_text("", tool_calls=[glued]).rules == {"tool_schema": 1.0}
    assert score_text("", tool_calls=[{"name": 'run{"command": "ls"', "arguments": "{}"}]).rules == {
        "tool_name": 1.0
    }
    assert score_text("", tool_calls=[{"name": "rm", "arguments": "{}"}], tools=SCHEMA).rules == {
        "tool_schema": 1.0
    }


def test_cut_or_doubled_arguments_are_no_json() -> None:
    whole = json.dumps({"command": "ls -l", "timeout": 5})
    for broken in (
        whole[:-4],
        whole + whole[5:],
        "```json\n" + whole + "\n```",
        whole.replace('"', "'"),
        "",
        "[1]",
    ):
        assert score_text("", tool_calls=[{"function": {"name": "run", "arguments": broken}}]).rules == {
            "tool_json": 1.0
        }


def test_wrong_types_and_values_break_a_schema() -> None:
    for arguments in (
        {"command": 5},
        {"command": "ls", "timeout": "5"},
        {"command": "ls", "x": 1},
        {"command": "ls", "timeout": True},
    ):
        rules = score_text("", tool_calls=[{"name": "run", "arguments": arguments}], tools=SCHEMA).rules
        assert rules == {"tool_schema": 1.0}, arguments


def test_garbage_inside_a_string_argument_is_hard() -> None:
    body = sprinkle(PROSE, "\ufffd", 6)
    call = {"name": "write", "arguments": json.dumps({"path": "a.txt", "content": body})}
    assert score_text("", tool_calls=[call]).verdict == "hard"
    assert score_text(json.dumps({"content": body}, ensure_ascii=True), structured=True).verdict == "hard"


def test_structured_output_must_be_json_and_fit_its_schema() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"pattern": "^z"}},
    }
    assert score_text('{"a": "x", "b": "zz"}', structured=schema).verdict == "clean"
    assert score_text('{"a": "q", "b": "k"}', structured=schema).rules == {"json_schema": 2.0}
    assert score_text('{"a": "x"', structured=schema).rules == {"not_json": 1.0}
    assert score_text('{"a": "x"', structured=True, finish_reason="length").rules == {
        "not_json": 2.0,
        "truncated": 1.0,
    }
    assert score_text('{"a": "x"').verdict == "clean"


def test_stray_chinese_words_are_a_rate_not_a_verdict() -> None:
    """GLM-5#142: a model's own trait at a low constant rate; a step of the rate would be an incident, one text is not."""
    score = score_text(PROSE + " Please check the设置of the cache before the next run.")
    assert score.rules == {"cjk_leak": 2.0}
    assert score.verdict == "soft"


def test_special_tokens_in_the_text_are_a_rate() -> None:
    assert score_text(PROSE + "<|im_end|>\n<|im_start|>").rules == {"token_leak": 2.0}


def test_thinking_to_the_cap_without_a_loop_is_clean() -> None:
    """vllm#30599: a long thought is no loop; its length is another signal's matter."""
    thought = " ".join(
        f"Step {i}: consider case {i * 37 % 101} of {PROSE[i % 90 : i % 90 + 60]}." for i in range(120)
    )
    assert score_text(thought, finish_reason="length").verdict != "hard"


def test_a_fluent_invention_is_beyond_text_rules() -> None:
    """sglang#38031: prose that invents a tool's result reads well; text rules must not pretend to know."""
    text = "I have read the file and it contains three functions, all of which are tested. Nothing else needs to change."
    assert score_text(text, finish_reason="stop").verdict == "clean"


def test_a_script_that_changes_half_way_is_a_rate() -> None:
    russian = (
        "Сначала система проверяет очередь, затем освобождает память и снова запускает обработку запросов. "
        * 3
    )
    score = score_text(PROSE[:320] + " " + russian)
    assert "script_flip" in score.rules
    assert score.verdict == "soft"


def test_every_rule_is_described() -> None:
    page = (Path(__file__).parents[2] / "docs" / "text-rules.md").read_text()
    assert [rule for rule in sorted(RULES) if f"`{rule}`" not in page] == []
