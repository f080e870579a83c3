"""Every page in Chromium with a labelled history loaded, at a moment inside its fault: pictures to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.acceptance.conftest import Run
from tests.app.browser import browser, find_chromium
from tests.app.server import running_app

pytestmark = [pytest.mark.shared, pytest.mark.prometheus, pytest.mark.browser, pytest.mark.timeout(900)]
SHOTS = Path(__file__).parents[1] / "screenshots" / "histories"
FAULTS = {"storm_load-11": "KV eviction storm on coder-a", "garble_replica-11": "chat-a-2"}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_each_page_shows_the_fault_of_a_labelled_history(
    name: str, run: Callable[[str], Run], tmp_path: Path
) -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    one = run(name)
    (incident,) = [i for i in one.incidents if i["severity"] == "page"]
    fault = one.scenario.truth["incidents"][0]
    at = datetime.fromtimestamp(fault["start"] + 1800, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pages = {
        "now": (f"/?as_of={at}", "Replicas against their own normal"),
        "incident": (f"/incident?id={incident['id']}&as_of={at}", "Ruled out"),
        "quality": (f"/quality?range=6h&as_of={at}", "stays clean"),
        "slos": (f"/slos?as_of={at}", "coding-agent-ttft"),
        "data-health": (f"/data-health?as_of={at}", "Signals found"),
    }
    with running_app(one.config, tmp_path) as url, browser() as tab:
        for page, (path, text) in pages.items():
            tab.open(url + path)
            tab.wait_for_text(text, seconds=90)
            tab.wait_until_idle(seconds=90)
            tab.screenshot(SHOTS / f"{name}-{page}.png")
            shown = tab.text()
            assert "Traceback" not in shown
            if page in ("now", "incident"):
                assert FAULTS[name] in shown, shown[:2000]
