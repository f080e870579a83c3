"""Real engines, real requests: what Gustfront stores agrees with what the client measured, and no cancelled request is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from core.buckets import Hist, Quantile, quantile
from sql.store import Store
from tests.live.engines import Engine, dynamo, vllm
from tests.live.load import Seen, drive
from tests.live.prepare import HOME
from tests.servers import find_program, prometheus_server, stop

pytestmark = [pytest.mark.live, pytest.mark.timeout(2400)]
ROOT = Path(__file__).parents[2]
REQUESTS = 600
# More than the deployment has slots, so that one more request certainly waits.
CROWD = {"vllm": 24, "dynamo": 48}


def installed(name: str) -> None:
    if not (HOME / name / "bin" / "python").exists():
        pytest.skip(f"{name} is not installed: python -m tests.live.prepare")


@contextmanager
def collector(folder: Path, engine: Engine) -> Iterator[str]:
    """The real collector as a process, scraping each second; yields the database URL."""
    url = f"sqlite:///{folder / 'live.db'}"
    config = folder / "gustfront.yaml"
    targets = [{"url": t, "labels": {"pool": "live"}} for t in engine.metrics]
    config.write_text(
        json.dumps(
            {
                "database": url,
                "sources": [{"scrape": {"name": "live", "targets": targets, "every": "1s", "timeout": "1s"}}],
            }
        )
    )
    argv = [sys.executable, "-m", "app.cli", "--config", str(config), "collect"]
    with (
        (folder / "collect.log").open("wb") as log,
        subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log) as process,
    ):
        try:
            yield url
        finally:
            stop(process)


def raw(target: str) -> dict[str, float]:
    """The target's own counters, read by the reference parser."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    out: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                labels = {
                    k: v for k, v in sample.labels.items() if k not in ("model_name", "engine", "model")
                }
                out[f"{sample.name}{json.dumps(labels, sort_keys=True)}"] = sample.value
    return out


def moved(before: dict[str, float], after: dict[str, float], *words: str) -> dict[str, float]:
    """Which counters whose name holds one of ``words`` moved, and by how much."""
    found = {k: v - before.get(k, 0.0) for k, v in after.items() if any(w in k for w in words)}
    return {k: v for k, v in found.items() if v}


def stored_ttft(url: str, address: str) -> tuple[list[Hist], Quantile]:
    """TTFT of one target over everything stored."""
    merged: dict[tuple[float, ...], np.ndarray] = {}
    with Store.open(url, read_only=True) as store:
        wanted = [t.id for t in store.targets() if address in t.target.address]
        for frame in store.frames(0.0, time.time() + 60, target_ids=wanted):
            for column, (_, counts, _) in zip(frame.layout.columns, frame.layout.slots, strict=True):
                if column.signal == "ttft_seconds" and column.kind == "histogram":
                    values = np.maximum(frame.counts[counts], 0)
                    merged[column.edges] = merged.get(column.edges, 0) + values
    hists = list(merged.items())
    return hists, quantile(hists, 0.99)


def bucket_of(edges: tuple[float, ...], value: float) -> int:
    return int(np.searchsorted(edges, value, side="left"))


def within_one_bucket(hists: list[Hist], client_p99: float, ours: Quantile) -> bool:
    edges = hists[0][0]
    middle = ours.value if ours.value is not None else ours.low
    return abs(bucket_of(edges, client_p99) - bucket_of(edges, middle)) <= 1


def client_p99(seen: Seen) -> float:
    return float(np.quantile(seen.ttft, 0.99, method="higher"))


DEPLOYMENTS: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {"vllm": vllm, "dynamo": dynamo}


@pytest.mark.parametrize("name", list(DEPLOYMENTS))
def test_p99_agrees_with_the_client_and_cancelled_requests_are_accounted_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(name)
    if find_program("prometheus") is None:
        pytest.skip("prometheus is not installed")
    with DEPLOYMENTS[name](tmp_path) as engine:
        asyncio.run(
            drive(engine.url, engine.model, 8, 4, crowd=0)
        )  # warm up: the first requests pay for start-up work
        front = engine.metrics[0]
        jobs = "".join(f"'{t}'," for t in engine.metrics)
        scrape = (
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: live, static_configs: [{{targets: [{jobs}], labels: {{pool: live}}}}]}}]\n"
        )
        with (
            prometheus_server(tmp_path / "tsdb", scrape_config=scrape) as prometheus,
            collector(tmp_path, engine) as url,
        ):
            time.sleep(6)
            begun = time.time()
            before = {t: raw(t) for t in engine.metrics}
            seen = asyncio.run(drive(engine.url, engine.model, REQUESTS, 12, crowd=CROWD[name]))
            time.sleep(6)
            after = {t: raw(t) for t in engine.metrics}
            ended = time.time()
            command = [
                sys.executable, "-m", "app.cli", "--database", f"sqlite:///{tmp_path / 'through.db'}", "backfill",
                "--prometheus", prometheus, "--selector", '{job="live"}',
                "--start", str(begun - 4), "--end", str(ended), "--json",
            ]  # fmt: skip
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
        direct, ours = stored_ttft(url, front)
        through, theirs = stored_ttft(f"sqlite:///{tmp_path / 'through.db'}", front)

    counters = {t: moved(before[t], after[t], "success", "cancel", "abort", "error", "http_requests_total", "requests_total",
                         "disconnect", "first_token_seconds_count", "latency_seconds_count", "duration_seconds_count")
                for t in engine.metrics}  # fmt: skip
    with capsys.disabled():
        print(
            f"\n{name}: client n {len(seen.ttft)}, p99 TTFT {client_p99(seen):.3f} s; "
            f"scraped {ours.text()}; through Prometheus {theirs.text()}"
        )
        print(
            f"{name}: finished {seen.finished}, cancelled queued {seen.cancelled_queued}, streaming {seen.cancelled_streaming}"
        )
        for target, changes in counters.items():
            print(target, json.dumps(changes, indent=1))

    assert seen.failed == 0
    assert seen.cancelled_queued == seen.cancelled_streaming == 1
    # Warm-up requests come before the collector's first look, so both hold exactly this load.
    assert ours.n == theirs.n == len(seen.ttft)
    assert within_one_bucket(direct, client_p99(seen), ours)
    assert within_one_bucket(through, client_p99(seen), theirs)
    sent = seen.finished + 2
    if name == "vllm":
        ok = sum(
            v
            for k, v in counters[front].items()
            if k.startswith("http_requests_total") and "completions" in k and '"2xx"' in k
        )
        done = sum(v for k, v in counters[front].items() if k.startswith("vllm:request_success_total"))
        # Both cancelled requests hide: HTTP says 2xx for them, no success is counted, the abort reason stays 0.
        assert (ok, done) == (sent, seen.finished)
        assert not any('"abort"' in k for k in counters[front])
    else:
        total = {k: v for k, v in counters[front].items() if k.startswith("dynamo_frontend_requests_total")}
        assert sum(total.values()) == sent
        assert sum(v for k, v in total.items() if "cancelled" in k) == 2
