"""The product owner's month report in Chromium: from the first page to the file in three clicks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.app.browser import browser, find_chromium
from tests.app.history import History
from tests.app.server import running_app

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
CLICK = """(() => {{ const e = [...document.querySelectorAll('{tag}')].find(e => e.innerText.trim().endsWith('{text}'));
 if (e) e.click(); return !!e; }})()"""


def test_the_month_report_is_a_file_after_three_clicks_at_most(
    storm_history: History, tmp_path: Path
) -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    files = tmp_path / "files"
    files.mkdir()
    with running_app(storm_history.config, tmp_path) as url, browser() as tab:
        tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(files))
        tab.open(url)
        tab.wait_for_text("SLOs", seconds=90)
        tab.wait_until_idle(seconds=90)
        assert tab.evaluate(CLICK.format(tag="a", text="SLOs"))
        tab.wait_for_text("Download HTML", seconds=90)
        tab.wait_until_idle(seconds=90)
        assert tab.evaluate(CLICK.format(tag="button", text="Download HTML"))
        deadline = time.monotonic() + 90
        while not (found := list(files.glob("*.html"))) and time.monotonic() < deadline:
            time.sleep(0.2)
    (file,) = found
    assert file.name == "gustfront-2026-09.html"
    text = file.read_text()
    assert "coding-agent-ttft" in text
    assert "What ate the budget" in text
    assert "KV eviction storm" in text
    assert "<script" not in text
