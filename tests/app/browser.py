"""A small driver for headless Chromium over the DevTools protocol: enough to open a page, wait for it, and look at it.

One :class:`Browser` is one Chromium process with one tab. Every request of the page is remembered, so that a test can show
that nothing outside the app was asked for.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Path of a Chromium binary, or None."""
    return next((p for p in map(shutil.which, CHROMIUM_NAMES) if p), None)


class Browser:
    """Headless Chromium with one tab of ``width`` by ``height`` CSS pixels; ``dark`` sets the preferred colour scheme;
    ``arguments`` are further ones of the command line."""

    scheme: str = ""

    def __init__(
        self,
        binary: str,
        *,
        width: int = 1440,
        height: int = 1000,
        dark: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        self._profile = tempfile.mkdtemp(prefix="gustfront-chromium-")
        self._process = subprocess.Popen(
            [
                binary,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-port=0",
                f"--user-data-dir={self._profile}",
                f"--window-size={width},{height}",
                *arguments,
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._id = 0
        self._stack = contextlib.ExitStack()
        self.requests: list[str] = []
        self.console: list[str] = []
        self.width, self.height = width, height
        try:
            self._socket: ClientConnection = self._stack.enter_context(
                connect(self._tab_address(), max_size=None, open_timeout=20, ping_interval=None)
            )
            self._prepare("dark" if dark else "light")
        except BaseException:
            self.close()
            raise

    def _prepare(self, scheme: str) -> None:
        """Ask for events and set size and colour scheme."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self._resize(self.height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _resize(self, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def _tab_address(self) -> str:
        port_file = Path(self._profile) / "DevToolsActivePort"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if port_file.exists() and (lines := port_file.read_text().split()):
                with contextlib.suppress(OSError):
                    with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json", timeout=5) as answer:
                        tabs = json.load(answer)
                    for tab in tabs:
                        if tab["type"] == "page":
                            return str(tab["webSocketDebuggerUrl"])
            time.sleep(0.05)
        raise TimeoutError("Chromium did not open its DevTools port")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile are noted."""
        self._id += 1
        self._socket.send(json.dumps({"id": self._id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(params["url"])
        elif method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.console.append(str(params["entry"]["text"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"].get("text")))

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Navigate; returns before the page has rendered."""
        self.call("Page.navigate", url=url)

    def text(self) -> str:
        """What a person can read on the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''") or "")

    def wait_for(self, condition: str, *, seconds: float = 30.0) -> float:
        """Wait until a JavaScript condition is true; returns the seconds it took."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            if self.evaluate(f"Boolean({condition})"):
                return time.monotonic() - begin
            time.sleep(0.02)
        raise TimeoutError(
            f"not true after {seconds} s: {condition}\n--- page says ---\n{self.text()[:3000]}"
        )

    def wait_for_text(self, text: str, *, seconds: float = 30.0) -> float:
        """Wait until ``text`` can be read on the page."""
        return self.wait_for(
            f"document.body && document.body.innerText.includes({json.dumps(text)})", seconds=seconds
        )

    def wait_until_idle(self, *, seconds: float = 30.0) -> None:
        """Wait until the script run is over, nothing is stale or a skeleton, and every chart has been drawn."""
        self.wait_for(
            "!document.querySelector('[data-testid=\"stStatusWidget\"]') && "
            "!document.querySelector('[data-stale=\"true\"]') && "
            "!document.querySelector('[data-testid=\"stSkeleton\"]') && "
            'document.querySelector(\'[data-testid="stApp"][data-test-script-state="notRunning"]\') && '
            "[...document.querySelectorAll('[data-testid=\"stPlotlyChart\"]')].every(c => c.querySelector('.main-svg'))",
            seconds=seconds,
        )
        time.sleep(0.3)

    def page_height(self) -> int:
        """Height of the scrolled content of the app."""
        return int(
            self.evaluate(
                'Math.max(...[...document.querySelectorAll(\'[data-testid="stMain"], [data-testid="stAppViewContainer"]\')]'
                ".map(e => e.scrollHeight), document.body.scrollHeight)"
            )
        )

    def screenshot(self, path: Path, *, full: bool = True) -> None:
        """Write a PNG; ``full`` makes the window as tall as the page first."""
        if full:
            for _ in range(2):
                self._resize(max(self.height, self.page_height()))
                time.sleep(0.5)
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
        if full:
            self._resize(self.height)

    def close(self) -> None:
        """End Chromium and remove its profile."""
        with contextlib.suppress(Exception):
            self._stack.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        shutil.rmtree(self._profile, ignore_errors=True)


@contextlib.contextmanager
def browser(**options: Any) -> Iterator[Browser]:
    """A Chromium that ends with the block; raises FileNotFoundError where none is installed."""
    binary = find_chromium()
    if binary is None:
        raise FileNotFoundError("no chromium on this machine")
    tab = Browser(binary, **options)
    try:
        yield tab
    finally:
        tab.close()
