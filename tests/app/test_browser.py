"""The screens in a real browser: they render, ask nobody else for anything, keep their state in the URL.

Screenshots go to ``tests/screenshots`` (not under version control) to be looked at.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from app.services.wording import stamp
from sql.store import Store
from tests.app.browser import Browser, browser, find_chromium
from tests.app.history import END, STORM, History, make_live, storm
from tests.app.server import running_app

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed"),
]
SHOTS = Path(__file__).resolve().parent.parent / "screenshots"
AT = f"as_of={stamp(END)}"
PAGES = {
    "now": (f"/?{AT}", "Replicas against their own normal"),
    "incident": (f"/incident?id=storm-1&{AT}", "Ruled out"),
    "slos": (f"/slos?{AT}", "batch-ttft"),
    "quality": (f"/quality?{AT}", "stays clean"),
    "data-health": (f"/data-health?{AT}", "Signals found"),
    "kv-cache": (f"/kv-cache?{AT}", "advice aims"),
    "replicas": (f"/replicas?{AT}", "What happened"),
    "explore": (f"/explore?{AT}", "What was odd"),
    "settings": (f"/settings?{AT}", "Versions"),
}


@pytest.fixture(scope="module")
def app_url(storm_history: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_app(storm_history.config, tmp_path_factory.mktemp("folder")) as url:
        yield url


@pytest.fixture(scope="module", params=["light", "dark"])
def tab(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with browser(dark=request.param == "dark") as b:
        b.scheme = request.param
        yield b


@pytest.fixture(scope="module")
def light() -> Iterator[Browser]:
    with browser() as b:
        yield b


def look(b: Browser, url: str, text: str) -> None:
    """Open a page and wait until it is complete."""
    b.open(url)
    b.wait_for_text(text, seconds=60)
    b.wait_until_idle(seconds=60)


def assert_healthy(b: Browser, url: str) -> None:
    """No error box, nothing asked of any other host, nothing thrown."""
    boxes = b.evaluate(
        '[...document.querySelectorAll(\'[data-testid="stException"],[data-testid="stAlert"]\')].map(e => e.innerText)'
    )
    assert boxes == []
    here = urlsplit(
        url
    ).hostname  # other ports are servers of other tests, to which the tab tries to reconnect
    strangers = [
        r for r in b.requests if urlsplit(r).hostname != here and not r.startswith(("data:", "blob:"))
    ]
    assert strangers == []
    assert b.console == []


@pytest.mark.parametrize("page", PAGES)
def test_each_page_renders_in_light_and_dark_and_asks_nobody_else(
    page: str, tab: Browser, app_url: str
) -> None:
    path, text = PAGES[page]
    look(tab, app_url + path, text)
    assert_healthy(tab, app_url)
    scheme = tab.scheme
    tab.screenshot(SHOTS / f"{page}-{scheme}.png")
    background = tab.evaluate(
        "getComputedStyle(document.querySelector('[data-testid=\"stApp\"]')).backgroundColor"
    )
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(14, 21, 36)")


def test_no_word_is_cut_off_and_nothing_scrolls_sideways(light: Browser, app_url: str) -> None:
    for path, text in PAGES.values():
        look(light, app_url + path, text)
        assert light.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        cut = light.evaluate(
            "[...document.querySelectorAll('.gf-number, .gf-foot, .gf-v')].filter(e => e.scrollWidth > e.clientWidth + 1 "
            "|| e.scrollHeight > e.clientHeight + 2).filter(e => getComputedStyle(e).display != 'inline').map(e => e.innerText)"
        )
        assert cut == []


def test_the_url_carries_range_filters_and_time_to_the_next_person(light: Browser, app_url: str) -> None:
    look(light, f"{app_url}/?{AT}&pool=mixed&range=6h", "Replicas against their own normal")
    assert "coding-agent" not in light.evaluate(
        "document.querySelector('[data-testid=\"stMain\"]').innerText"
    )
    light.evaluate("[...document.querySelectorAll('button')].find(b => b.innerText.trim() == '24h').click()")
    light.wait_for("location.search.includes('range=24h')")
    light.wait_until_idle()
    query = parse_qs(urlsplit(light.evaluate("location.href")).query)
    assert query["pool"] == ["mixed"]
    assert query["as_of"] == [stamp(END)]


def test_filters_survive_the_way_to_another_page(light: Browser, app_url: str) -> None:
    look(light, f"{app_url}/?{AT}&class=chat", "Replicas against their own normal")
    light.evaluate(
        "[...document.querySelectorAll('[data-testid=\"stSidebar\"] a')].find(a => a.innerText.includes('SLOs')).click()"
    )
    light.wait_for_text("chat-ttft")
    light.wait_until_idle()
    text = light.text()
    assert "batch-ttft" not in text
    assert stamp(END)[:10] in text


def test_the_now_page_opens_the_incident_and_its_link_is_stable(light: Browser, app_url: str) -> None:
    look(light, f"{app_url}/?{AT}", "Open and recent")
    light.evaluate("document.querySelector('[class*=\"st-key-gf-open\"] a').click()")
    light.wait_for_text("Blast radius", seconds=60)
    address = light.evaluate("location.href")
    assert "id=storm-1" in address
    look(light, address, "Ruled out")
    assert_healthy(light, app_url)


def test_a_hostile_fleet_changes_nothing_on_the_page_and_fetches_nothing(
    hostile_history: History, tmp_path: Path, light: Browser
) -> None:
    with running_app(hostile_history.config, tmp_path) as url:
        light.requests.clear()
        for path, text in PAGES.values():
            look(light, url + path, text)
            assert light.evaluate("document.querySelectorAll('img[src=\"x\"], [onerror]').length") == 0
            assert light.evaluate(
                "[...document.querySelectorAll('a')].every(a => !/^javascript:/i.test(a.getAttribute('href') || ''))"
            )
        light.screenshot(SHOTS / "hostile.png")
        assert not [r for r in light.requests if "evil.invalid" in r]
        assert_healthy(light, url)


def test_an_empty_installation_is_welcomed(empty_history: History, tmp_path: Path, light: Browser) -> None:
    with running_app(empty_history.config, tmp_path) as url:
        light.requests.clear()
        look(light, f"{url}/", "No data yet")
        light.screenshot(SHOTS / "empty.png")
        assert_healthy(light, url)
        assert json.dumps("gustfront backfill")[1:-1] in light.text()


def test_a_live_page_refreshes_itself(tmp_path: Path, light: Browser) -> None:
    history, shift = make_live(tmp_path, time.time())
    with running_app(history.config, tmp_path) as url:
        look(light, f"{url}/", "Open and recent")
        text = light.text()
        assert "showing history" not in text
        assert "as of now" in text
        assert "s behind" in text.replace("\u00a0", " ")
        assert "No open incident" in text
        with Store.open(history.url) as store:
            at = STORM + shift
            store.save_incident(
                storm(
                    started_at=at,
                    announced_at=at,
                    detected_at=at,
                    diagnosed_at=at,
                    updated_at=at,
                    evidence=(),
                )
            )
        light.wait_for_text("KV eviction storm on coder", seconds=60)
        assert_healthy(light, url)
