"""A post-mortem is filled in from what is known, and nothing in it is obeyed."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from app.services import lifecycle
from app.services.people import Principal
from app.services.postmortem import md, post_mortem
from core.config import load_config
from sql.store import Store
from tests.app.history import STORM, History, make

MARA = Principal("mara", "responder")


@pytest.fixture
def storm(tmp_path: Path) -> History:
    return make(tmp_path)


def test_it_tells_the_times_the_timeline_the_evidence_and_leaves_the_judgement_to_people(
    storm: History, tmp_path: Path
) -> None:
    with Store.open(storm.url) as store:
        lifecycle.acknowledge(store, "storm-1", MARA, at=STORM + 240)
        lifecycle.note(store, "storm-1", MARA, text="half of the sessions moved", at=STORM + 300)
        made = post_mortem(store, load_config(storm.config), "storm-1", base="https://gust.example/")
    heads = re.findall(r"^##? (.+)$", made.text, re.M)
    assert heads[0].startswith("Post-mortem: KV eviction storm on coder")
    assert heads[1:] == [
        "Summary",
        "Impact",
        "Timeline (UTC)",
        "Cause and evidence",
        "Ruled out",
        "What ended it, and what to do",
        "Earlier incidents like it",
        "For people to write",
    ]
    assert "half of the sessions moved" in made.text
    assert "mara" in made.text
    assert "https://gust.example/incident?id=storm-1" in made.text
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", made.text)
    assert shown
    assert set(shown) <= {p.name for p in made.pictures}
    written = made.write(tmp_path / "out")
    assert [p.name for p in written] == ["postmortem.md", *(p.name for p in made.pictures)]
    names = zipfile.ZipFile(BytesIO(made.zip())).namelist()
    assert names == [f"{made.name}/{p.name}" for p in written]
    assert "](data:image/svg+xml;base64," in made.inline()


def test_a_note_cannot_write_markdown_into_it(storm: History) -> None:
    hostile = "![x](http://evil.invalid/p.png) <script>alert(1)</script>\n# Head | cell | [a](javascript:b)"
    with Store.open(storm.url) as store:
        lifecycle.note(store, "storm-1", MARA, text=hostile, at=STORM + 300)
        text = post_mortem(store, load_config(storm.config), "storm-1").text
    assert "<script>" not in text
    assert re.search(r"(?<!\\)\]\((?:http|javascript)", text) is None
    assert "\n# Head" not in text


@pytest.mark.parametrize(
    ("text", "written"),
    [("a|b", r"a\|b"), ("# x", r"\# x"), ("1. x", r"1\. x"), ("<b>", r"\<b\>"), ("a\nb", "a b")],
)
def test_every_character_that_markdown_obeys_is_escaped(text: str, written: str) -> None:
    assert md(text) == written
