"""How long the screens take with 200 replicas and 14 days of history: in Chromium, and for many visitors at once.

    python -m bench.screens [FOLDER] [--repeat 3] [--sessions 25] [--pages now,slos,...] [--json]

``FOLDER`` is what ``python -m bench.large_history FOLDER`` wrote. *First render*: a tab opens a page of a server that is up
(*cold*: the first time; nothing is remembered of that page), until the script has ended and everything is drawn. *Rerun*: from
a click on a control to the last change. *Sessions*: raw WebSocket clients that join one after the other, each asks for the page
and again every 15 s as a live page does; the seconds from asking to the end of the script. CPU seconds of the server stand
beside all of them, because a busy machine changes the others. Goals: first render under 2 s, rerun
under 0.4 s, sessions under 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from app.services.wording import stamp
from bench.app import click
from bench.large_history import END, write
from core.config import load_config
from sql.store import Store
from tests.app.browser import Browser, browser
from tests.app.server import running_app

AT = stamp(END)
PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "now": ("/", "Open and recent", ("Hit rate", "KV in use", "Waiting", "TTFT p99")),
    "incident": ("/incident?id=bench-39", "Ruled out", ()),
    "slos": ("/slos", "tools-ttft", ("6h", "1h")),
    "quality": ("/quality?range=6h", "stays clean", ()),
    "kv-cache": ("/kv-cache", "advice aims", ("KV in use", "Preemptions", "Hit rate")),
    "replicas": ("/replicas", "What happened", ("TTFT p99", "Prefix hit rate", "Worst of all")),
    "explore": ("/explore", "What was odd", ("6h", "1h")),
    "data-health": ("/data-health", "Signals found", ()),
    "settings": ("/settings", "Versions", ()),
}
DONE = (
    'document.querySelector(\'[data-testid="stApp"][data-test-script-state="notRunning"]\') && '
    '!document.querySelector(\'[data-stale="true"],[data-testid="stSkeleton"],[data-testid="stSpinner"]\') && '
    "[...document.querySelectorAll('.gf-img')].every(i => i.complete) && "
    "[...document.querySelectorAll('[data-testid=\"stPlotlyChart\"]')].every(c => c.querySelector('.main-svg')) && "
    "document.body.innerText.includes(TEXT)"
)


def server_cpu() -> float:
    """CPU seconds that the server, a child of this process, has used: what a busy machine does not change."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            words = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"uvicorn" in words:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def address(base: str, path: str) -> str:
    """The page at the end of the history."""
    return f"{base}{path}{'&' if '?' in path else '?'}as_of={AT}"


def first_render(b: Browser, url: str, text: str) -> float:
    """Seconds from navigation until all is drawn."""
    b.open("about:blank")
    begin = time.perf_counter()
    b.open(url)
    b.wait_for(DONE.replace("TEXT", json.dumps(text)), seconds=60)
    return time.perf_counter() - begin


def pages(base: str, names: list[str], repeat: int) -> dict[str, dict[str, float]]:
    """First render (server cold, then warm) and reruns of each page."""
    out = {}
    for name in names:
        path, text, labels = PAGES[name]
        with browser() as b:
            url = address(base, path)
            used = [server_cpu()]
            renders = []
            for _ in range(repeat + 1):
                renders.append(first_render(b, url, text))
                used.append(server_cpu())
            b.wait_until_idle(seconds=60)
            cold = [click(b, x) for x in labels]
            before = server_cpu()
            warm = [click(b, x) for _ in range(repeat) for x in labels]
            again = (server_cpu() - before) / max(len(warm), 1)
        out[name] = {
            "first_render_cold_s": round(renders[0], 2),
            "first_render_s": round(statistics.median(renders[1:]), 2),
            "server_cpu_cold_s": round(used[1] - used[0], 2),
            "server_cpu_s": round((used[-1] - used[1]) / max(repeat, 1), 2),
        }
        if labels:
            out[name] |= {
                "rerun_first_s": round(statistics.median(cold), 2),
                "rerun_s": round(statistics.median(warm), 2),
                "rerun_server_cpu_s": round(again, 2),
            }
    return out


class Visitor(threading.Thread):
    """One raw WebSocket client: asks for a page, waits for the end of the script, asks again."""

    def __init__(self, base: str, asks: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.base, self.asks, self.pause = base, asks, pause
        self.seconds: list[float] = []
        self.error = ""

    def run(self) -> None:
        """Never raises: what went wrong stands in ``error``."""
        try:
            url = self.base.replace("http", "ws") + "/_stcore/stream"
            with connect(
                url, subprotocols=[Subprotocol("streamlit")], max_size=None, origin=Origin(self.base)
            ) as socket:
                hashes: list[str] = []
                for _ in range(self.asks):
                    begin = time.perf_counter()
                    ask = BackMsg()
                    ask.rerun_script.query_string = urlencode({"as_of": AT})
                    ask.rerun_script.cached_message_hashes.extend(hashes)
                    socket.send(ask.SerializeToString())
                    while True:
                        data = socket.recv(timeout=60)
                        message = ForwardMsg()
                        message.ParseFromString(data if isinstance(data, bytes) else data.encode())
                        if message.hash and message.metadata.cacheable:
                            hashes.append(message.hash)
                        if message.WhichOneof("type") == "script_finished":
                            break
                    self.seconds.append(time.perf_counter() - begin)
                    time.sleep(self.pause)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"


def visitors(
    base: str, many: int, *, asks: int = 3, pause: float = 15.0, apart: float = 0.6
) -> dict[str, object]:
    """``many`` sessions on the Now page, joining ``apart`` seconds after each other, asking again every ``pause`` seconds."""
    all_ = [Visitor(base, asks, pause) for _ in range(many)]
    before = server_cpu()
    for v in all_:
        v.start()
        time.sleep(apart)
    for v in all_:
        v.join(120)
    seconds = sorted(s for v in all_ for s in v.seconds)
    errors = [v.error for v in all_ if v.error]
    return {
        "sessions": many,
        "answers": len(seconds),
        "median_s": round(statistics.median(seconds), 2) if seconds else None,
        "p95_s": round(seconds[int(0.95 * (len(seconds) - 1))], 2) if seconds else None,
        "worst_s": round(seconds[-1], 2) if seconds else None,
        "server_cpu_each_s": round((server_cpu() - before) / max(len(seconds), 1), 2),
        "load_average": round(os.getloadavg()[0], 1),
        "errors": errors[:3],
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="of bench.large_history; by default one is written first"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=25)
    parser.add_argument("--pages", default=",".join(PAGES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if options.folder is None:
            config = write(folder, replicas=200, days=14.0, frame_hours=3.0)
        else:
            config = options.folder.absolute() / "gustfront.yaml"
        if not config.exists():
            raise SystemExit(f"{config} does not exist. Fix: python -m bench.large_history {options.folder}")
        # A database written by an earlier release is brought up to this one.
        Store.open(load_config(config).database).close()
        with running_app(config, folder) as base:
            names = [p for p in options.pages.split(",") if p]
            found: dict[str, object] = dict(pages(base, names, options.repeat))
            if options.sessions:
                found["sessions"] = visitors(base, options.sessions)
    print(json.dumps(found) if options.json else "\n".join(f"{k:12} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
