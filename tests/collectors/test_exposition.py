"""Reading exposition text: what is valid agrees with the official parser, what is not costs only itself."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as official_openmetrics
from prometheus_client.parser import text_string_to_metric_families as official

from collectors.exposition import Exposition, Limits, parse


def values(found: Exposition) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Value by name and sorted labels."""
    return {
        (n, tuple(sorted(ls.items()))): v
        for (n, ls), v in zip(found.series, found.values.tolist(), strict=True)
    }


def one(line: str) -> tuple[str, dict[str, str], float]:
    """The only series of a line that must be readable."""
    found = parse(line + "\n")
    assert found.problems == []
    ((name, labels),) = found.series
    return name, labels, float(found.values[0])


def codes(found: Exposition) -> list[str]:
    return [p.code for p in found.problems]


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        ("a 1", "a", {}, 1.0),
        ("a{} 1", "a", {}, 1.0),
        ('a{b="c"} 1', "a", {"b": "c"}, 1.0),
        ('a{b="c",} 2', "a", {"b": "c"}, 2.0),
        ('a{b="c", d="e"} 2', "a", {"b": "c", "d": "e"}, 2.0),
        ('a   {  b = "c" }   3   1700000000000', "a", {"b": "c"}, 3.0),
        ("a\t4", "a", {}, 4.0),
        ("  a 5", "a", {}, 5.0),
        ("a 1.1701968896e+010", "a", {}, 11701968896.0),
        ("a 1e-09", "a", {}, 1e-9),
        ("a .5", "a", {}, 0.5),
        ("a +Inf", "a", {}, math.inf),
        ("a -Inf", "a", {}, -math.inf),
        ("a 9223372036854775807", "a", {}, 9.223372036854775807e18),
        ("a:b:c 1", "a:b:c", {}, 1.0),
        (r'a{b="x\\y",c="say \"hi\"",d="l1\nl2"} 1', "a", {"b": "x\\y", "c": 'say "hi"', "d": "l1\nl2"}, 1.0),
        (r'a{b="ends in a slash \\"} 1', "a", {"b": "ends in a slash \\"}, 1.0),
        ('a{b="{x=\\"y\\"}",c="x,y} 5"} 1', "a", {"b": '{x="y"}', "c": "x,y} 5"}, 1.0),
        ('a{b="模型"} 1', "a", {"b": "模型"}, 1.0),
        ('a{le="1",le2="="} 1', "a", {"le": "1", "le2": "="}, 1.0),
        ('{"my.metric",b="c"} 1', "my.metric", {"b": "c"}, 1.0),
        ('{"my.metric"} 1', "my.metric", {}, 1.0),
        ('a{"quoted.label"="c"} 1', "a", {"quoted.label": "c"}, 1.0),
        ('a_bucket{le="1.0"} 2 # {trace="b"} 0.5', "a_bucket", {"le": "1.0"}, 2.0),
        ('a_bucket{le="1.0"} 3 # {trace="b # c"} 4 123', "a_bucket", {"le": "1.0"}, 3.0),
        ("a_total 17.25 1520879607.789", "a_total", {}, 17.25),
    ],
)
def test_a_valid_line_is_read(line: str, name: str, labels: dict[str, str], value: float) -> None:
    assert one(line) == (name, labels, value)


@pytest.mark.parametrize("word", ["NaN", "nan", "-nan", "-NaN", "+NaN"])
def test_not_a_number_is_a_value_of_its_own(word: str) -> None:
    found = parse(f"a 1\nb {word}\nc 2\n")
    assert found.problems == []
    assert np.array_equal(found.values, [1.0, np.nan, 2.0], equal_nan=True)


@pytest.mark.parametrize(
    "line",
    [
        "...",
        "a",
        "a{",
        'a{b="c"',
        'a{b="c} 1',
        "a{b=c} 1",
        "a{b} 1",
        'a{b="c" d="e"} 1',
        'a{b="c",b="d"} 1',
        'a{="c"} 1',
        "a one",
        "a 1_000",
        "a infinite",
        "a 1 2 3",
        "a 1 soon",
        "a-b 1",
        "1a 2",
        '{b="c"} 1',
        'a{"b","c"} 1',
        'x{"y"} 1',
        "= 1",
    ],
)
def test_a_bad_line_costs_only_itself_and_is_named(line: str) -> None:
    found = parse(f"before 1\n{line}\nafter 2\n")
    assert [n for n, _ in found.series] == ["before", "after"]
    (problem,) = found.problems
    assert (problem.code, problem.subject) == ("bad_line", "line 2")
    assert line[:20] in problem.message
    assert found.dropped == {"bad_line": 1}


def test_problems_of_one_kind_are_capped_and_counted() -> None:
    found = parse("...\n" * 1000 + "a 1\n")
    assert len(found.problems) == 6
    assert found.problems[-1].count == 995
    assert found.dropped == {"bad_line": 1000}
    assert found.series == [("a", {})]


# ---------------------------------------------------------------- bodies


def test_line_ends_marks_and_blank_lines_do_not_matter() -> None:
    plain = parse('# TYPE a counter\na 1\n\nb{c="d"} 2\n')
    for body in (
        b'# TYPE a counter\r\na 1\r\n\r\nb{c="d"} 2\r\n',
        b'\xef\xbb\xbf# TYPE a counter\na 1\n\nb{c="d"} 2\n',
        b'# TYPE a counter\ra 1\rb{c="d"} 2\r',
    ):
        found = parse(body)
        assert values(found) == values(plain)
        assert found.types == {"a": "counter"}
        assert found.problems == []


def test_a_body_that_is_one_json_string_is_decoded() -> None:
    text = '# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2\na{b="c"} 1\n'
    found = parse(json.dumps(text))
    assert values(found) == values(parse(text))
    assert codes(found) == ["json_string"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<!DOCTYPE html><html><body>a 1\n</body></html>", "html_body"),
        (b"\n  <html>\nup 1\n", "html_body"),
        (b'{"error": "not found"}', "json_body"),
        (b'[{"iter": 1}]', "json_body"),
        (b'"a 1\\n', "json_body"),
        (b"\x1f\x8b\x08\x00rest", "compressed_body"),
    ],
)
def test_what_is_no_exposition_is_named_as_what_it_is(body: bytes, code: str) -> None:
    found = parse(body)
    assert found.series == []
    assert codes(found) == [code]


def test_nothing_at_all_is_no_problem_of_the_parser() -> None:
    for body in (b"", b"\n\n", b"# EOF\n"):
        found = parse(body)
        assert (found.series, found.problems) == ([], [])


def test_a_body_cut_in_the_middle_of_a_line_says_so() -> None:
    found = parse('a 1\nb{c="d')
    assert found.series == [("a", {})]
    assert codes(found) == ["truncated_body"]
    assert found.problems[0].subject == "line 2"


def test_a_missing_last_newline_is_read_and_mentioned() -> None:
    found = parse("a 1\nb 2")
    assert found.values.tolist() == [1.0, 2.0]
    assert codes(found) == ["no_final_newline"]


def test_of_duplicates_the_first_is_kept() -> None:
    found = parse('a{b="1",c="2"} 1\na{c="2",b="1"} 2\n')
    assert found.values.tolist() == [1.0]
    assert codes(found) == ["duplicate_series"]


def test_limits_cut_in_by_name() -> None:
    limits = Limits(max_series=2, max_label_length=5, max_labels=2, max_line=100)
    found = parse(
        'ok1 1\nlong{a="123456"} 1\nmany{a="1",b="2",c="3"} 1\n' + "wide 1" + " " * 100 + "\nok2 2\nmore 3\n",
        limits=limits,
    )
    assert [n for n, _ in found.series] == ["ok1", "ok2"]
    assert found.dropped == {
        "label_too_long": 1,
        "too_many_labels": 1,
        "line_too_long": 1,
        "too_many_series": 1,
    }


def test_a_body_over_the_limit_is_read_up_to_a_whole_line() -> None:
    body = b"".join(b"a%d 1\n" % i for i in range(1000))
    found = parse(body, limits=Limits(max_bytes=100))
    assert codes(found) == ["body_too_large"]
    assert 10 < len(found.series) < 30
    assert set(found.values.tolist()) == {1.0}


def test_bytes_that_are_not_utf_8_cost_no_other_line() -> None:
    found = parse(b'a{b="\xff\xfe"} 1\nc 2\n')
    assert [n for n, _ in found.series] == ["a", "c"]
    assert found.problems == []


def test_types_are_read_but_never_needed() -> None:
    found = parse(
        "# HELP a text\n# TYPE a histogram\n# UNIT a seconds\n#TYPE nothing\n# TYPE\na_count 1\n# EOF\n"
    )
    assert found.types == {"a": "histogram"}
    assert found.problems == []


@pytest.mark.timeout(120)
def test_a_hundred_thousand_series_in_twenty_megabytes_are_read_in_seconds() -> None:
    pad = "x" * 170
    body = "".join(f'family_{i % 50}{{a="{i}",pad="{pad}"}} {i}.5\n' for i in range(101_000)).encode()
    assert len(body) > 19_000_000
    began = time.process_time()
    found = parse(body)
    assert time.process_time() - began < 30
    assert len(found.series) == 100_000
    assert found.dropped == {"too_many_series": 1000}
    assert found.values[99_999] == 99_999.5


def test_long_runs_of_hostile_characters_take_linear_time() -> None:
    for piece in (
        'a{b="' + '\\"' * 100_000,
        "a" * 200_000,
        "{" * 200_000,
        "a{" + 'b="c",' * 30_000 + "} 1",
        " " * 200_000 + "x",
    ):
        began = time.process_time()
        found = parse(piece + "\nlast 1\n")
        assert time.process_time() - began < 5
        assert found.series[-1] == ("last", {})


# ---------------------------------------------------------------- against the official parsers

_names = st.from_regex(r"[a-z][a-z0-9_:]{0,10}", fullmatch=True).filter(
    lambda n: not n.endswith(("_total", "_bucket", "_count", "_sum", "_created"))
)
_keys = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(lambda k: k not in ("le", "quantile"))
_texts = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\x85\u2028\u2029"), max_size=12
).map(lambda t: t.strip())
_special = st.sampled_from(['"', "\\", "\n", '\\"', "{", "}", ",", "=", "# x", " ", "\\n", "a b"])
_labels = st.dictionaries(
    _keys, st.one_of(_texts, _special, st.tuples(_texts, _special, _texts).map("".join)), max_size=4
)
_numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**18), 10**18).map(str),
    st.sampled_from(["+Inf", "-Inf", "1e+06", "1.5e-010", "0", "1E5", "00.50"]),
)


def _line(name: str, labels: dict[str, str], value: str, gap: str, comma: bool, stamp: str) -> str:
    def quoted(v: str) -> str:
        return v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{k}="{quoted(v)}"' for k, v in labels.items()) + ("," if comma and labels else "")
    return f"{name}{{{inside}}}{gap}{value}{stamp}" if labels else f"{name}{gap}{value}{stamp}"


_lines = st.builds(
    _line,
    _names,
    _labels,
    _numbers,
    st.sampled_from([" ", "  ", "\t"]),
    st.booleans(),
    st.sampled_from(["", "", " 1700000000000"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_lines, max_size=8))
def test_valid_text_means_the_same_as_to_the_official_parser(lines: list[str]) -> None:
    body = "".join(line + "\n" for line in lines)
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in official(body):
        for sample in family.samples:
            expected.setdefault((sample.name, tuple(sorted(sample.labels.items()))), float(sample.value))
    found = parse(body)
    assert values(found) == expected
    assert set(codes(found)) <= {"duplicate_series"}


@settings(max_examples=100, deadline=None)
@given(_labels, st.sampled_from(["", ' # {a="b"} 0.5', ' # {a="b"} 4 123', " 123", " 5.5 # {} 1.0"]))
def test_openmetrics_lines_mean_the_same_as_to_the_official_parser(labels: dict[str, str], tail: str) -> None:
    body = "# TYPE a counter\n" + _line("a_total", labels, "2.5", " ", False, "") + tail + "\n# EOF\n"
    (family,) = official_openmetrics(body)
    (sample,) = family.samples
    found = parse(body)
    assert values(found) == {(sample.name, tuple(sorted(sample.labels.items()))): sample.value}
    assert found.problems == []


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_whatever_make_it_raise(body: bytes) -> None:
    found = parse(body)
    assert len(found.series) == len(found.values)


@settings(max_examples=200, deadline=None)
@given(st.lists(_lines, min_size=1, max_size=5), st.data())
def test_cutting_a_body_anywhere_keeps_every_whole_line(lines: list[str], data: st.DataObject) -> None:
    body = "".join(line + "\n" for line in lines).encode()
    at = data.draw(st.integers(0, len(body)))
    whole = values(parse(body[: body.rfind(b"\n", 0, at) + 1]))
    cut = values(parse(body[:at]))
    assert {k: v for k, v in cut.items() if k in whole} == whole
    assert len(cut) <= len(whole) + 1


@pytest.mark.shared
def test_captures_mean_the_same_as_to_the_official_parser(shared: Path) -> None:
    compared = 0
    for path in sorted((shared / "captures").glob("*.prom")):
        text = path.read_text()
        try:
            samples = [s for family in official(text) for s in family.samples]
        except ValueError:
            continue
        expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for s in samples:  # the official parser adds _total to counters that lack it
            expected.setdefault((s.name.removesuffix("_total"), tuple(sorted(s.labels.items()))), s.value)
        found = {
            (n.removesuffix("_total"), ls): v
            for (n, ls), v in values(parse(text, limits=Limits(max_labels=100))).items()
        }
        assert found.keys() == expected.keys(), path.name
        for key, v in found.items():
            assert v == float(expected[key]) or (math.isnan(v) and math.isnan(expected[key])), (
                path.name,
                key,
            )
        compared += len(found)
    assert compared > 10_000
