"""Every kind that is found has a page, and the page is in the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.kinds import KINDS
from detectors.registry import detectors

DOCS = Path(__file__).resolve().parents[2] / "docs" / "detectors"


@pytest.mark.parametrize("kind", [d.kind for d in detectors()])
def test_a_page_says_what_it_is_and_what_it_is_not(kind: str) -> None:
    text = (DOCS / f"{kind}.md").read_text()
    assert text.startswith(f"# {KINDS[kind].title}\n")
    assert "**What it says.**" in text
    assert "**Signals.**" in text
    assert f"({kind}.md)" in (DOCS / "README.md").read_text()


def test_no_page_is_left_over() -> None:
    others = {"README", "confusion"}
    assert {p.stem for p in DOCS.glob("*.md")} - others == {d.kind for d in detectors()}
