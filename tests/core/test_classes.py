import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.classes import OTHER, Cap, ClassRules, Matcher, parse_matchers
from core.errors import ConfigError

RULES = ClassRules.from_config(
    [
        {"name": "coding-agent", "match": ['workload="coding-agent"', 'pool=~"coder-.*"']},
        {"name": "chat", "match": ['pool="chat-a",tenant!="test"']},
        {"name": "rest", "match": ['pool!~"batch.*",pool!=""']},
    ]
)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"workload": "coding-agent", "pool": "mixed"}, "coding-agent"),
        ({"pool": "coder-a"}, "coding-agent"),
        ({"pool": "my-coder-a"}, "rest"),
        ({"pool": "chat-a", "tenant": "acme"}, "chat"),
        ({"pool": "chat-a"}, "chat"),
        ({"pool": "chat-a", "tenant": "test"}, "rest"),
        ({"pool": "batch-7"}, None),
        ({}, None),
        ({"pool": ""}, None),
    ],
)
def test_the_first_rule_with_a_matching_alternative_gives_the_class(
    labels: dict[str, str], expected: str | None
) -> None:
    assert RULES.classify(labels) == expected


def test_regular_expressions_are_anchored_at_both_ends_as_in_promql() -> None:
    (matcher,) = parse_matchers('pool=~"chat|code"')
    assert matcher.matches({"pool": "chat"})
    assert not matcher.matches({"pool": "chat-a"})
    assert not matcher.matches({"pool": "a-code"})


def test_an_empty_label_is_an_absent_label() -> None:
    (absent,) = parse_matchers('tenant=""')
    assert absent.matches({})
    assert absent.matches({"tenant": ""})
    (anything,) = parse_matchers('tenant=~".*"')
    assert anything.matches({})
    (something,) = parse_matchers('tenant=~".+"')
    assert not something.matches({"tenant": ""})


def test_without_rules_the_class_is_the_workload_else_the_pool() -> None:
    rules = ClassRules()
    assert rules.classify({"workload": "chat", "pool": "p"}) == "chat"
    assert rules.classify({"workload": "", "pool": "p"}) == "p"
    assert rules.classify({"job": "vllm"}) is None
    assert rules.labels == {"workload", "pool"}


def test_a_comma_inside_quotes_does_not_split_and_braces_may_surround() -> None:
    matchers = parse_matchers("""{ a="x,y" , b=~'\\d+' , }""")
    assert [(m.label, m.op, m.value) for m in matchers] == [("a", "=", "x,y"), ("b", "=~", "\\d+")]
    assert matchers[1].matches({"b": "12"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "pool",
        'pool="a" tenant="b"',
        "pool=a",
        'pool=="a"',
        'pool=~"("',
        '1a="b"',
        'a="b',
        'a="b",,c="d"',
    ],
)
def test_unreadable_matchers_name_the_entry_and_show_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        ClassRules.from_config([{"name": "a", "match": ['x="y"', text]}])
    assert error.value.path == "classes[0].match[1]"
    assert 'workload="chat"' in error.value.fix


@given(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True),
    st.sampled_from(["=", "!="]),
    st.text(max_size=20),
)
def test_written_matchers_read_back(label: str, op: str, value: str) -> None:
    (read,) = parse_matchers(str(Matcher.of(label, op, value)))
    assert (read.label, read.op, read.value) == (label, op, value)
    assert read.matches({label: value}) == (op == "=")


@given(st.text(max_size=20))
def test_escaped_text_as_a_regular_expression_matches_only_itself(value: str) -> None:
    quoted = str(Matcher.of("a", "=~", re.escape(value)))
    (read,) = parse_matchers(quoted)
    assert read.matches({"a": value})
    assert not read.matches({"a": value + "x"})


@given(st.text(max_size=40))
def test_no_text_crashes_the_matcher_parser(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_matchers(text)


def test_label_values_beyond_the_cap_become_other_and_configured_ones_always_stay() -> None:
    cap = Cap(2, keep=["gold"])
    assert [cap(v) for v in ("a", "b", "c", "a", "gold", "", "d")] == [
        "a",
        "b",
        OTHER,
        "a",
        "gold",
        "",
        OTHER,
    ]
    assert cap.folded == 2


def test_names_and_labels_of_the_rules_are_known() -> None:
    assert RULES.names == ("coding-agent", "chat", "rest")
    assert RULES.labels == {"workload", "pool", "tenant"}
