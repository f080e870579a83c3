"""A text that sets out to be a tool call and is none; data that merely begins with a name is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.text import score_text
from core.text.calltext import FOLLOWED, MALFORMED, MISSPELT, call_text_rules

CALL = '{"name": "read_file", "arguments": {"path": "src/a.py", "limit": 40}}'


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        (CALL[:40], MALFORMED),
        (CALL.replace('"', "'"), MALFORMED),
        (CALL + CALL[30:], FOLLOWED),
        (CALL + " and then I will run it", FOLLOWED),
        (CALL.replace("arguments", "argments"), MISSPELT),
        (f"<tool_call>{CALL[:-1]}</tool_call>", MALFORMED),
    ],
)
def test_a_call_that_cannot_be_made_is_soft_and_says_what_is_wrong(text: str, measure: float) -> None:
    score = score_text(text)
    assert score.verdict == "soft"
    assert score.rules["call_text"] == measure
    assert score.features["calls"] == 1.0


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (CALL, 1.0),
        (f"{CALL}\n{CALL}", 2.0),
        (f"[{CALL}, {CALL}]", 2.0),
        (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>", 2.0),
        ('{"type": "function", "function": {"name": "x", "arguments": "{}"}}', 1.0),
    ],
)
def test_calls_that_can_be_made_are_counted_and_clean(text: str, calls: float) -> None:
    score = score_text(text)
    assert (score.verdict, score.features["calls"]) == ("clean", calls)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Alice", "age": 3}',
        '{"name": "left-pad", "version": "1.3.0", "dependencies": {"a": "1"',
        '[{"name": "Oslo", "country": "NO"}, {"name": "Bergen"}]',
        "The call is " + CALL[:40],
        '{"path": "a", "arguments": 1',
    ],
)
def test_data_and_prose_are_no_calls(text: str) -> None:
    score = score_text(text)
    assert "call_text" not in score.rules
    assert "calls" not in score.features


def test_calls_given_beside_the_text_are_judged_there_and_structured_output_by_its_schema() -> None:
    beside = score_text("", tool_calls=[{"name": "run", "arguments": '{"a": 1'}])
    assert set(beside.rules) == {"tool_json"}
    assert beside.features["calls"] == 1.0
    assert "call_text" not in score_text(CALL[:40], structured=True).rules


@given(st.text(max_size=200), st.integers(0, len(CALL)))
def test_no_text_raises(tail: str, cut: int) -> None:
    rules, features = call_text_rules(CALL[:cut] + tail)
    assert set(rules) <= {"call_text"}
    assert set(features) <= {"calls"}
    assert not rules or features
