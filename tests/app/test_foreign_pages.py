"""What a hostile web page, a hostile name, hostile labels and outputs can do in a real browser: nothing. And nothing leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app.services.wording import stamp
from core.records import OutputRecord
from sql.store import Store
from tests.app import history
from tests.app.browser import Browser, browser, find_chromium
from tests.app.history import END, History
from tests.app.server import ROOT, free_port, running_app

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed"),
]

ATTACK = """<!doctype html><title>a foreign page</title><iframe id="frame" src="APP/"></iframe>
<form id="form" method="post" action="APP/api/v1/incidents/storm-1/note" target="hidden" enctype="text/plain">
<input name='{"text": "from a form", "x": "' value='"}'></form><iframe name="hidden"></iframe>
<script>
const app = "APP", note = app + "/api/v1/incidents/storm-1/note", body = JSON.stringify({text: "from a page"});
const tried = {};
async function attempt(name, run) {
  try { tried[name] = await run(); } catch (error) { tried[name] = "refused: " + error.name; }
}
function socket(path) {
  return new Promise(done => {
    const s = new WebSocket(app.replace("http", "ws") + path, ["streamlit"]);
    s.onopen = () => done("open"); s.onerror = () => done("refused: socket");
  });
}
(async () => {
  const json = {"content-type": "application/json"};
  await attempt("post json", async () => (await fetch(note, {method: "POST", headers: json, body})).status);
  const mine = {method: "POST", credentials: "include", headers: json, body};
  await attempt("post cookies", async () => (await fetch(note, mine)).status);
  await attempt("post plain", async () => (await fetch(note, {method: "POST", mode: "no-cors", body})).type);
  await attempt("beacon", async () => String(navigator.sendBeacon(note, new Blob([body], {type: "text/plain"}))));
  await attempt("delete", async () => (await fetch(app + "/api/v1/silences/x", {method: "DELETE"})).status);
  await attempt("read", async () => (await (await fetch(app + "/api/v1/incidents")).text()).length);
  await attempt("read page", async () => (await (await fetch(app + "/")).text()).length);
  await attempt("read host config", async () => (await (await fetch(app + "/_stcore/host-config")).text()).length);
  await attempt("socket", () => socket("/_stcore/stream"));
  document.getElementById("form").submit();
  window.done = tried;
})();
</script>"""


class Elsewhere:
    """A server that is not the app: it serves one page and notes what is asked of it."""

    def __init__(self) -> None:
        self.page, self.asked = "", list[str]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = outer.page.encode()
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    made = Elsewhere()
    yield made
    made.close()


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A history of this module's own: its tests write."""
    return history.make(tmp_path_factory.mktemp("foreign"))


def said(history: History) -> list[str]:
    with Store.open(history.url, read_only=True) as store:
        return [e.text for e in store.incident_log("storm-1")]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "evil.example"])
def test_a_foreign_page_can_neither_act_nor_read_nor_frame(
    name: str, mine: History, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    before = said(mine)
    with (
        running_app(mine.config, tmp_path) as url,
        browser(arguments=["--host-resolver-rules=MAP evil.example 127.0.0.1"]) as tab,
    ):
        elsewhere.page = ATTACK.replace("APP", url)
        tab.open(elsewhere.url.replace("127.0.0.1", name))
        tab.wait_for("window.done", seconds=60)
        tried = json.loads(tab.evaluate("JSON.stringify(window.done)"))
        assert tried == {
            "post json": "refused: TypeError",
            "post cookies": "refused: TypeError",
            "post plain": "refused: TypeError",
            "beacon": "true",  # on its way; what matters is that nothing was done
            "delete": "refused: TypeError",
            "read": "refused: TypeError",
            "read page": "refused: TypeError",
            "read host config": "refused: TypeError",
            "socket": "refused: socket",
        }
        tab.wait_for("document.getElementById('frame').contentWindow.length === 0")
        assert any("frame" in text and "frame-ancestors" in text for text in tab.console), tab.console
    assert said(mine) == before
    assert "from a form" not in str(said(mine))


def test_a_name_pointed_at_this_machine_gets_no_page_and_no_data(mine: History, tmp_path: Path) -> None:
    with (
        running_app(mine.config, tmp_path) as url,
        browser(arguments=["--host-resolver-rules=MAP rebound.example 127.0.0.1"]) as tab,
    ):
        tab.open(url.replace("127.0.0.1", "rebound.example"))
        tab.wait_for_text("This server is not known as 'rebound.example")
        assert tab.evaluate("fetch('/api/v1/incidents').then(r => r.status)") == 403


def test_an_output_with_a_remote_image_and_a_script_in_a_label_are_inert(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    made = history.make(tmp_path)
    leak = f"{elsewhere.url}/leak"
    hostile = (
        f"![x]({leak}-markdown.png) <img src='{leak}-html.png' onerror='window.hit=1'> "
        f"<script>window.hit=1;fetch('{leak}-script')</script> [click](javascript:window.hit=1) "
        f"<svg onload=window.hit=1><image href='{leak}-svg.png'/></svg> \ufffd\ufffd\ufffd $x^2$ :red[x] :material/home:"
    )
    with Store.open(made.url) as store:
        store.add_outputs(
            [
                OutputRecord(
                    f"hostile-{i}", END - 30 + i, END - 60, "coding-agent", pool="coder", replica="coder-0",
                    session=hostile[:60], release=f"<script>fetch('{leak}-label')</script>", verdict="hard",
                    rules={"char_run": 64.0}, text=hostile, random=True,
                )
                for i in range(3)
            ]
        )  # fmt: skip
        store.log_incident("storm-1", END - 10, "note", hostile, f"<img src='{leak}-author.png'>")
    at = f"as_of={stamp(END)}"
    with running_app(made.config, tmp_path) as url, browser() as tab:
        for page, text in (
            (f"/quality?{at}", "Degraded outputs"),
            (f"/incident?id=storm-1&{at}", "Ruled out"),
        ):
            tab.open(url + page)
            tab.wait_for_text(text, seconds=90)
            tab.wait_until_idle(seconds=60)
            shown = tab.text()
            assert "leak" in shown, page  # it is there to be read
            assert tab.evaluate("window.hit === undefined")
            pictures = tab.evaluate(
                "[...document.querySelectorAll('img, image')].map(i => i.outerHTML).join()"
            )
            assert "leak" not in pictures
        assert not [r for r in tab.requests if "leak" in r]
    assert elsewhere.asked == []


NO_NETWORK = """
import socket, os
LOG = {log!r}
S = socket.socket
_connect, _connect_ex, _resolve, _sendto = S.connect, S.connect_ex, socket.getaddrinfo, S.sendto
def _inside(address):
    return not isinstance(address, tuple) or str(address[0]).startswith("127.") or address[0] in ("::1", "localhost", "0.0.0.0")
def _note(what):
    with open(LOG, "a") as out:
        out.write(what + "\\n")
    raise OSError(101, "this test allows no network: " + what)
def connect(self, address):
    return _connect(self, address) if _inside(address) else _note(f"connect {{address}}")
def connect_ex(self, address):
    return _connect_ex(self, address) if _inside(address) else _note(f"connect {{address}}")
def sendto(self, data, *rest):
    return _sendto(self, data, *rest) if _inside(rest[-1]) else _note(f"sendto {{rest[-1]}}")
def getaddrinfo(host, *rest, **more):
    return _resolve(host, *rest, **more) if host is None or _inside((host,)) else _note(f"resolve {{host}}")
S.connect, S.connect_ex, S.sendto, socket.getaddrinfo = connect, connect_ex, sendto, getaddrinfo
"""


def pages() -> list[str]:
    """Paths of all pages, from the router."""
    text = (ROOT / "app" / "streamlit_app.py").read_text()
    return ["", *re.findall(r'url_path="([\w-]+)"', text)]


def settle(tab: Browser, url: str) -> None:
    """Open a page and wait until it stands still."""
    tab.open(url)
    tab.wait_for("document.querySelector('[data-testid=\"stMain\"]')?.innerText.length > 40", seconds=90)
    tab.wait_until_idle(seconds=90)


def test_no_request_leaves_the_machine_while_every_page_is_open(mine: History, tmp_path: Path) -> None:
    log = tmp_path / "left.log"
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)))
    assert len(pages()) >= 9
    with running_app(mine.config, tmp_path, first_path=tmp_path / "first") as url, browser() as tab:
        for page in pages():
            settle(tab, f"{url}/{page}?as_of={stamp(END)}" + ("&id=storm-1" if page == "incident" else ""))
        for origin in ("https://evil.example", "http://127.0.0.1:1"):
            with pytest.raises(InvalidStatus):  # Streamlit would ask the internet for its own address here
                connect(url.replace("http", "ws") + "/_stcore/stream", origin=origin, proxy=None).close()  # type: ignore[arg-type]
        strangers = {
            r
            for r in tab.requests
            if urlsplit(r).hostname != "127.0.0.1" and not r.startswith(("data:", "blob:"))
        }
        assert strangers == set()
        assert tab.console == []
    assert not log.exists(), log.read_text()


def test_no_request_leaves_at_a_start_on_all_addresses(tmp_path: Path) -> None:
    log, port = tmp_path / "left.log", free_port()
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)))
    Store.open(f"sqlite:///{tmp_path / 'gustfront.db'}").close()
    env = {k: v for k, v in os.environ.items() if not k.startswith("GUSTFRONT_")}
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
    words = ["serve", "--host", "0.0.0.0", "--port", str(port), "--insecure-listen"]
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", *words], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        assert process.poll() is None
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert f"screens and API at http://0.0.0.0:{port}" in said
    assert not log.exists(), log.read_text()


def test_the_watch_on_outgoing_connections_sees_them(tmp_path: Path) -> None:
    log = tmp_path / "left.log"
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)))
    code = (
        "import urllib.request\ntry: urllib.request.urlopen('http://checkip.example/')\nexcept OSError: pass"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, check=True, timeout=60)
    assert "resolve checkip.example" in log.read_text()
