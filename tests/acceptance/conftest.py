"""Each labelled history goes once through the whole product: Prometheus, back-fill, imports, backtest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, PrometheusStarter, Scenario

NAMES = (
    "calm-11", "calm_deploy-11", "calm_mix-11", "garble_load-11", "garble_replica-11", "overload-11", "slow_replica-11",
    "storm_load-11", "storm_preempt-11",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A scenario that went through the product: its database, configuration, incidents and how long each step took."""

    scenario: Scenario
    config: Path
    database: str
    incidents: list[dict[str, Any]]
    incidents_file: Path
    seconds: dict[str, float]


def gustfront(config: Path, *words: str, timeout: float = 600) -> str:
    """Run the command from another folder, as a user would; returns stdout, fails with stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "--config", str(config), *words],
        cwd=config.parent, env=environment, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(f"gustfront {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


@pytest.fixture(scope="session")
def run(
    shared: Path,
    scenario: Callable[[str], Scenario],
    prometheus: PrometheusStarter,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Run]:
    """``run("calm-11")``: that history through the whole product, once a session."""
    done: dict[str, Run] = {}

    def get(name: str) -> Run:
        if name not in done:
            done[name] = _through(scenario(name), shared, prometheus, tmp_path_factory.mktemp(f"run-{name}"))
        return done[name]

    return get


def _through(one: Scenario, shared: Path, prometheus: PrometheusStarter, folder: Path) -> Run:
    config, database = folder / "gustfront.yaml", folder / "fleet.db"
    seconds: dict[str, float] = {}

    def step(*words: str) -> str:
        begun = time.perf_counter()
        out = gustfront(config, *words)
        seconds[words[0]] = round(time.perf_counter() - begun, 1)
        return out

    with prometheus(one.tsdb) as url:
        text = (shared / "scenarios" / "gustfront.yaml").read_text()
        config.write_text(text.replace("http://127.0.0.1:PORT", url).replace("FILE", str(database)))
        span = ("--start", str(one.start), "--end", str(one.end))
        step("backfill", *span, "--json")
    step("import-outputs", str(one.requests), "--json")
    step("import-requests", str(one.gateway), "--json")
    out = step("backtest", *span, "--save", "--json")
    file = folder / "incidents.json"
    file.write_text(out)
    return Run(one, config, f"sqlite:///{database}", json.loads(out), file, seconds)
