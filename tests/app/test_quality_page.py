"""The Quality × load page's parts that need no browser: marking damage, exports, words."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services import quality_page
from app.services.offending import CLOSE, OPEN, marked, span_of
from app.services.wording import stamp
from core.records import OutputRecord
from detectors.quality.analysis import Analysis, analyse, cascade
from detectors.quality.cascade import cascades
from sql.store import Store
from tests.app import history
from tests.app.history import END, HOSTILE
from tests.app.test_pages import markup, ok, open_page

T0 = 1_790_000_400.0


@pytest.mark.parametrize(
    ("text", "rules", "inside"),
    [
        ("fine " + "I check the file again. " * 20, ["loop_long"], "I check the file again. "),
        ("fine " + "!" * 80 + " end", ["char_run"], "!" * 80),
        ("the \ufffd\ufffdshard", ["broken_encoding"], "\ufffd\ufffd"),
        ("close the щель now", ["cjk_leak"], "щель"),
    ],
)
def test_the_damage_is_marked(text: str, rules: list[str], inside: str) -> None:
    span = span_of(text, rules)
    assert span is not None
    assert inside in text[span[0] : span[1]]
    assert f"{OPEN}{text[span[0] : span[1]]}"[:40] in marked(text, span)


def test_an_empty_answer_has_no_span() -> None:
    assert span_of("", ["empty"]) is None
    assert marked("", None) == ""


@given(st.text(max_size=300), st.sampled_from(["loop_long", "char_run", "script_soup", "empty"]))
def test_any_text_can_be_marked(text: str, rule: str) -> None:
    span = span_of(text, [rule])
    shown = marked(text, span)
    assert (OPEN in shown and CLOSE in shown) or span is None
    if span is not None:
        assert 0 <= span[0] < span[1] <= len(text)


def analysed(tmp_path: Path, records: list[OutputRecord]) -> Analysis:
    """The analysis of the hour that holds them."""
    with Store.open(f"sqlite:///{tmp_path / 'q.db'}") as store:
        store.add_outputs(records)
        return analyse(store, T0, T0 + 3600)


def output(i: int, bad: bool = False, **more: object) -> OutputRecord:
    """One output a second."""
    fields: dict[str, object] = {
        "pool": "a",
        "replica": "a-0",
        "session": f"s{i}",
        "prompt_tokens": 100,
        "e2e_s": 2.0,
    }
    return OutputRecord(
        f"o{i}", T0 + 60 + i, T0 + 58 + i, "chat", verdict="hard" if bad else "clean",
        rules={"char_run": 90.0} if bad else {}, **{**fields, **more},  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_spreadsheet_does_not_run_what_a_target_sent(tmp_path: Path) -> None:
    a = analysed(tmp_path, [output(0, True, replica="=HYPERLINK(1)"), output(1)])
    (row,) = csv.DictReader(io.StringIO(quality_page.to_csv(a).decode()))
    assert row["replica"] == "'=HYPERLINK(1)"
    assert row["first_of_session"] == "True"


def test_the_parquet_file_holds_every_output(tmp_path: Path) -> None:
    a = analysed(tmp_path, [output(i, i == 3) for i in range(50)])
    table = pq.read_table(io.BytesIO(quality_page.to_parquet(a)))
    assert sum(table["outputs"].to_pylist()) == 50
    assert sum(table["degraded"].to_pylist()) == 1


def test_later_turns_of_a_bad_session_count_once_and_suspicious_ones_never(tmp_path: Path) -> None:
    records = [output(i, True, session="s") for i in range(3)] + [output(9, True, random=False)]
    a = analysed(tmp_path, [*records, *(output(i) for i in range(10, 100))])
    assert (a.rate.k, a.history.later, a.history.aside) == (1, 2, 1)
    assert len(quality_page.samples(a)) == 4


@pytest.mark.parametrize(("records", "verdict"), [([output(1)], "baseline"), ([], "none")])
def test_json_has_no_nan(tmp_path: Path, records: list[OutputRecord], verdict: str) -> None:
    said = json.dumps(quality_page.as_json(analysed(tmp_path, records)), allow_nan=False)
    assert json.loads(said)["verdict"] == verdict


def test_survival_leaves_out_turns_after_the_first_bad_one() -> None:
    """A thousand sessions of three turns; ten go bad in turn 1 and stay bad: their third turns are not at risk."""
    counts = [("chat", turn, 1000) for turn in (0, 1, 2)]
    bad = [("chat", f"s{i}", turn, float(turn), turn >= 1) for i in range(10) for turn in (0, 1, 2)]
    (c,) = cascades(counts, bad)
    assert c.measured
    assert c.after == (10, 10)
    assert c.clean[1][0] == 1.0
    assert 5 not in c.clean


def test_without_turn_numbers_the_rate_stands_in_and_says_so() -> None:
    (c,) = cascades([("chat", None, 1000)], [("chat", "s1", None, 1.0, True)])
    assert not c.measured
    assert c.clean[10][0] == pytest.approx(0.999**10)


def test_tasks_are_read_from_the_store(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'q.db'}") as store:
        store.add_outputs([output(i, i == 5, session=f"s{i // 2}", turn=i % 2) for i in range(600)])
        (c,) = cascade(store, T0, T0 + 3600)
    assert (c.class_, c.measured, c.turns) == ("chat", True, 600)
    assert c.clean[1][0] == 1.0


def test_names_and_texts_of_strangers_are_shown_and_never_rendered(
    configured: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = history.make_hostile(tmp_path)
    evil = {
        "pool": HOSTILE,
        "replica": HOSTILE,
        "model": HOSTILE,
        "release": HOSTILE,
        "text": f"{HOSTILE} {'!' * 90}",
    }
    with Store.open(made.url) as store:
        records = [output(i, i % 9 == 0, **evil, session=f"{HOSTILE}{i}") for i in range(180)]
        store.add_outputs(
            [
                replace(o, id=f"evil{i}", ts=END - 900 + i, admitted=END - 902 + i, workload_class=HOSTILE)
                for i, o in enumerate(records)
            ]
        )
    configured.setenv("GUSTFRONT_CONFIG", str(made.config))
    app = open_page("quality", as_of=stamp(END))
    ok(app)
    html = re.sub(
        r'<img class="gf-img" alt="[^"<>]*" src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*">',
        "",
        markup(app),
    )
    assert "<img" not in html
    assert "&lt;img" in html
    assert any(HOSTILE in c.value for c in app.code), "the text itself is shown, as code"
    for kind in ("markdown", "caption", "error", "warning", "info"):
        assert not any("evil.invalid" in str(e.proto) for e in app.get(kind)), kind
