"""Every page in Chromium with a labelled history, at a moment inside its fault, light and dark: pictures to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.acceptance.conftest import Run
from tests.app.browser import Browser, browser, find_chromium
from tests.app.server import running_app

pytestmark = [pytest.mark.shared, pytest.mark.prometheus, pytest.mark.browser, pytest.mark.timeout(900)]
SHOTS = Path(__file__).parents[1] / "screenshots" / "histories"
FAULTS = {"storm_load-11": "KV eviction storm on coder-a", "garble_replica-11": "chat-a-2"}


def pages(incident: str, at: str) -> dict[str, tuple[str, str]]:
    """Path and a text near its end of every page."""
    return {
        "now": (f"/?as_of={at}", "Replicas against their own normal"),
        "incident": (f"/incident?id={incident}&as_of={at}", "Ruled out"),
        "quality": (f"/quality?range=6h&as_of={at}", "stays clean"),
        "slos": (f"/slos?as_of={at}", "coding-agent-ttft"),
        "kv-cache": (f"/kv-cache?as_of={at}", "advice aims"),
        "replicas": (f"/replicas?as_of={at}", "What happened"),
        "explore": (f"/explore?range=15m&odd=true&as_of={at}", "series tested against"),
        "data-health": (f"/data-health?as_of={at}", "Signals found"),
        "settings": (f"/settings?as_of={at}", "Versions"),
    }


def errors(tab: Browser) -> list[str]:
    """Boxes that say that something went wrong."""
    found = tab.evaluate(
        "[...document.querySelectorAll('[data-testid=\"stException\"]')].map(e => e.innerText)"
    )
    return list(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_each_page_shows_the_fault_of_a_labelled_history(
    name: str, scheme: str, run: Callable[[str], Run], tmp_path: Path
) -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    one = run(name)
    (incident,) = [i for i in one.incidents if i["severity"] == "page"]
    fault = one.scenario.truth["incidents"][0]
    at = datetime.fromtimestamp(fault["start"] + 1800, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with running_app(one.config, tmp_path) as url, browser(dark=scheme == "dark") as tab:
        for page, (path, text) in pages(str(incident["id"]), at).items():
            tab.open(url + path)
            tab.wait_for_text(text, seconds=90)
            tab.wait_until_idle(seconds=90)
            tab.screenshot(SHOTS / f"{name}-{page}-{scheme}.png")
            shown = tab.text()
            assert "Traceback" not in shown
            assert errors(tab) == []
            assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            if page in ("now", "incident"):
                assert FAULTS[name] in shown, shown[:2000]
            if page == "kv-cache":
                wrong = "The cache is what is wrong on coder-a."
                assert (wrong in shown) == (name == "storm_load-11")


@pytest.mark.parametrize(("page", "text"), [("/", "Open and recent"), ("/incident", "Ruled out")])
def test_now_and_incident_can_be_read_on_a_phone(
    page: str, text: str, run: Callable[[str], Run], tmp_path: Path
) -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    one = run("storm_load-11")
    (incident,) = [i for i in one.incidents if i["severity"] == "page"]
    query = f"?id={incident['id']}&as_of=2026-09-21T15:58:00Z"
    with running_app(one.config, tmp_path) as url, browser(width=390, height=844) as tab:
        tab.open(url + page + query)
        tab.wait_for_text(text, seconds=90)
        tab.wait_until_idle(seconds=90)
        tab.screenshot(SHOTS / f"phone{page.replace('/', '-')}.png")
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        top = tab.evaluate(
            "[...document.querySelectorAll('.gf-title, .gf-big-title')].map(e => e.getBoundingClientRect().top)[0]"
        )
        assert top < 500, "the sentence stands on the first screen"


def click(tab: Browser, words: str) -> None:
    """Click what carries these words."""
    tab.evaluate(
        "[...document.querySelectorAll('a, button')].find(e => e.innerText.includes("
        f"{words!r}) && e.getBoundingClientRect().width > 0).click()"
    )
    tab.wait_until_idle(seconds=60)


def test_a_months_report_is_two_clicks_away_and_the_load_verdict_one(
    run: Callable[[str], Run], tmp_path: Path
) -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    one = run("storm_load-11")
    with running_app(one.config, tmp_path) as url, browser() as tab:
        tab.open(f"{url}/?as_of=2026-09-21T15:58:00Z")
        tab.wait_for_text("Open and recent", seconds=90)
        tab.wait_until_idle(seconds=90)
        click(tab, "SLOs")
        tab.wait_for_text("Download HTML", seconds=60)
        click(tab, "Quality × load")
        tab.wait_for_text("The rate is this deployment's usual one", seconds=60)
