"""The demonstration's own story in Chromium: announced, open, over. Takes half an hour: ``pytest -m slow``.

``gustfront demo`` from an empty folder to the end of the first storm, little faster than the story's own pace: engines and
latencies keep real time, and a storm needs its minutes. Pictures go to ``tests/screenshots/story`` to be looked at.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.errors import StoreError
from core.incidents import Incident
from sql.store import Store
from tests.app.browser import Browser, browser, find_chromium
from tests.app.server import free_port
from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(5400)]
SHOTS = ROOT / "tests" / "screenshots" / "story"
SPEED, PAGE, STORY = "1.25", 600.0, 2400.0
"""Pace; seconds until the first page is complete, and for each act of the story: the limits of a busy machine."""


@dataclass(frozen=True)
class Demo:
    """A demonstration that runs: its page and its database."""

    url: str
    database: str

    def storm(self) -> Incident | None:
        """The first incident of the coding agents' pool that is more than information."""
        try:
            with Store.open(self.database, read_only=True) as store:
                found = [i for i in store.incidents() if "coder-a" in i.pools and i.severity != "info"]
        except StoreError:
            return None
        return min(found, key=lambda i: i.started_at, default=None)

    def wait(self, what: str, until: Callable[[Incident], bool], seconds: float) -> Incident:
        """The storm as soon as it is what is waited for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.storm()
            if found is not None and until(found):
                return found
            time.sleep(2)
        pytest.fail(f"not {what} after {seconds:.0f} s: {self.storm()}")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    port = free_port()
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "app.cli", "demo", "--dir", str(folder), "--port", str(port)]
    command += ["--speed", SPEED]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GUSTFRONT_")}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield Demo(f"http://127.0.0.1:{port}", f"sqlite:///{folder / 'demo.db'}")
        finally:
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(60)
            finally:
                process.kill()
        assert code == 0, (tmp_path / "log").read_text()[-2000:]


def look(tab: Browser, url: str, text: str, name: str, seconds: float = 300.0) -> str:
    """Open a page, wait for a text, take a picture; what can be read on it."""
    end = time.monotonic() + seconds
    while True:
        tab.open(url)
        try:
            tab.wait_for_text(text, seconds=60)
            break
        except TimeoutError:
            if time.monotonic() > end:
                raise
    for _ in range(5):
        tab.wait_until_idle(seconds=90)
        tab.screenshot(SHOTS / f"{name}.png")
        if not tab.evaluate("Boolean(document.querySelector('[data-stale=\"true\"]'))"):
            break  # else the live part was being drawn again, and is pale
    shown = tab.text()
    assert "Traceback" not in shown
    assert "simulated" in shown
    return shown


def test_the_first_storm_is_announced_then_open_then_over(demo: Demo) -> None:
    with browser() as tab:
        began = time.monotonic()
        end = began + PAGE
        while True:
            try:
                shown = look(tab, demo.url, "Replicas against their own normal", "1-calm", seconds=PAGE)
            except TimeoutError:
                shown = ""
            # While the past is being written the page shows how far that has come, as history.
            present = "coding-agent" in shown and "showing history" not in shown
            if present or time.monotonic() > end:
                break
        first = time.monotonic() - began
        for name in ("chat", "coding-agent", "batch", "p99", "objective"):
            assert name in shown, f"{name} is not on the page after {first:.0f} s:\n{shown[:2000]}"

        early = demo.wait("announced", lambda i: i.announced_at is not None or i.state == "open", STORY)
        assert early.kind == "kv_eviction_storm"
        assert early.state == "announced", "the storm was not announced before it was there"
        shown = look(tab, demo.url, "KV eviction storm on coder-a", "2-announced-now")
        assert "KV eviction storm on coder-a announced" in shown
        look(tab, f"{demo.url}/incident?id={early.id}", "Ruled out", "2-announced-incident")

        bitten = demo.wait("open and paging", lambda i: i.state == "open" and i.severity == "page", STORY)
        assert (bitten.id, bitten.kind, bitten.pools) == (early.id, "kv_eviction_storm", ("coder-a",))
        assert bitten.announced_at is not None
        look(tab, demo.url, "KV eviction storm on coder-a", "3-open-now")
        look(tab, f"{demo.url}/incident?id={bitten.id}", "Ruled out", "3-open-incident")

        over = demo.wait("resolved", lambda i: i.state == "resolved", STORY)
        assert (over.id, over.kind) == (early.id, "kv_eviction_storm")
        assert over.ended_at is not None
        look(tab, demo.url, "Replicas against their own normal", "4-resolved-now")
        look(tab, f"{demo.url}/incident?id={over.id}", "Ruled out", "4-resolved-incident")
    times = [early.announced_at, bitten.detected_at, over.ended_at]
    print(f"page complete after {first:.0f} s; announced, open and over at {times}")
