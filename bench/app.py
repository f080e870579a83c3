"""How long the Now page takes in headless Chromium with a labelled history loaded: first render, and reruns.

    python -m bench.app [--scenario storm_load-11] [--config FILE --as-of TIME] [--repeat 5] [--json]

Without ``--config`` the scenario goes through Prometheus, back-fill, imports and back-test first. *First render*: a fresh browser
(empty cache) opens the page of a server that is up; until the last picture is drawn. *Rerun*: from a click on a control to the
last change on the page: another measure of the heat map, another range. Goals: first render under 3 s, rerun under 0.5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.times import parse_time
from tests.app.browser import Browser, browser
from tests.app.server import ROOT, running_app
from tests.conftest import shared_folder, unpack_scenario
from tests.servers import prometheus_server

STORM = "2026-09-21T15:58:00Z"
CLICK = """
new Promise(resolve => {
  const begin = performance.now();
  let last = begin, sent = false;
  const watch = new MutationObserver(() => { last = performance.now(); });
  watch.observe(document.querySelector('[data-testid="stMain"]'), {subtree: true, childList: true, characterData: true});
  const app = document.querySelector('[data-testid="stApp"]');
  [...document.querySelectorAll('button')].find(b => b.innerText.trim() === LABEL).click();
  const ask = () => {
    if (app.dataset.testScriptState !== 'notRunning') { sent = true; }
    const quiet = performance.now() - last > 400;
    const stale = document.querySelector('[data-stale="true"]');
    if ((quiet && !stale && app.dataset.testScriptState === 'notRunning' && performance.now() - begin > 450) ||
        performance.now() - begin > 20000) {
      watch.disconnect();
      resolve((last - begin) / 1000);
    } else { setTimeout(ask, 10); }
  };
  ask();
})
"""


@contextmanager
def scenario_config(name: str) -> Iterator[Path]:
    """The scenario in a database of its own; yields its configuration."""
    shared = shared_folder()
    if shared is None:
        raise SystemExit("the labelled histories are not here: give --config and --as-of")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        one = unpack_scenario(shared / "scenarios" / name, folder / "data")
        config = folder / "gustfront.yaml"
        with prometheus_server(one.tsdb) as url:
            template = (shared / "scenarios" / "gustfront.yaml").read_text()
            config.write_text(
                template.replace("http://127.0.0.1:PORT", url).replace("FILE", str(folder / "f.db"))
            )
            span = ["--start", str(one.start), "--end", str(one.end)]
            for words in (
                ["backfill", "--prometheus", url, *span],
                ["import-outputs", str(one.requests)],
                ["import-requests", str(one.gateway)],
                ["backtest", *span, "--save"],
            ):
                subprocess.run(
                    [sys.executable, "-m", "app.cli", "--config", str(config), *words],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
        yield config


def first_render(url: str) -> float:
    """Seconds from navigation to the last picture, in a fresh browser."""
    with browser() as b:
        begin = time.perf_counter()
        b.open(url)
        b.wait_for(
            'document.querySelector(\'[data-testid="stApp"][data-test-script-state="notRunning"]\') && '
            "document.querySelectorAll('.gf-heat').length >= 2 && document.querySelectorAll('.gf-img').length >= 3 && "
            "[...document.querySelectorAll('.gf-img')].every(i => i.complete)",
            seconds=60,
        )
        return time.perf_counter() - begin


def click(b: Browser, label: str) -> float:
    """Seconds from a click on a control to the last change of the page."""
    return float(b.evaluate(CLICK.replace("LABEL", json.dumps(label))))


def run(config: Path, as_of: str, repeat: int) -> dict[str, object]:
    """All measurements against one server."""
    parse_time(as_of)
    with tempfile.TemporaryDirectory() as folder, running_app(config, Path(folder)) as base:
        url = f"{base}/?as_of={as_of}"
        renders = [first_render(url) for _ in range(repeat)]
        with browser() as b:
            b.open(url)
            b.wait_for_text("Open and recent", seconds=60)
            b.wait_until_idle(seconds=60)
            labels = ["Hit rate", "KV in use", "Waiting", "TTFT p99"]
            ranges = ["6h", "15m", "1h"]
            cold = {x: [click(b, x)] for x in (*labels, *ranges)}
            warm = [click(b, x) for _ in range(repeat) for x in labels]
            warm_ranges = [click(b, x) for _ in range(repeat) for x in ranges]
    return {
        "first_render_server_cold_s": round(renders[0], 2),
        "first_render_s": round(statistics.median(renders[1:] or renders), 2),
        "rerun_heat_map_first_s": round(statistics.median(v[0] for k, v in cold.items() if k in labels), 2),
        "rerun_heat_map_s": round(statistics.median(warm), 2),
        "rerun_range_first_s": round(statistics.median(v[0] for k, v in cold.items() if k in ranges), 2),
        "rerun_range_s": round(statistics.median(warm_ranges), 2),
        "goal_first_render_s": 3.0,
        "goal_rerun_s": 0.5,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", default="storm_load-11")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--as-of", default=STORM)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.config is not None:
        result = run(options.config.resolve(), options.as_of, options.repeat)
    else:
        with scenario_config(options.scenario) as config:
            result = run(config, options.as_of, options.repeat)
    print(json.dumps(result) if options.json else "\n".join(f"{k:28} {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
