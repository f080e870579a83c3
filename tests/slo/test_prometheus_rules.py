"""The exported rules: Prometheus's own tools accept them, and they fire when Gustfront's burn alerts do on the same data."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.services.prometheus_rules import make
from core.burn import MinuteTallies, burns
from core.config import Config, parse_config
from core.slo import Objective, Tally
from tests.servers import build_tsdb, find_program, prometheus_server

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]
CONFIG = """
classes:
  - {name: coding, match: ['pool="coder"']}
  - {name: chat, match: ['workload="chat"', 'pool="chat-a"']}
slos:
  - {name: chat-ttft, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, owner: assist}
  - {name: chat-goodput, class: chat, sli: goodput, thresholds: {ttft: 1s, tpot: 50ms}, objective_percent: 95}
  - {name: chat-acme, class: chat, signal: ttft, threshold: 1s, objective_percent: 99, tenant: acme}
"""
START = 1_790_000_400
PER_SCRAPE = 25
MINUTES = 260
BROKEN = range(120, 150)
"""Minutes in which four of ten requests are late."""


@pytest.fixture(scope="module")
def promtool() -> str:
    program = find_program("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    return program


@pytest.fixture(scope="module")
def config() -> Config:
    return parse_config(CONFIG)


@pytest.fixture(scope="module")
def rules_file(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.yml"
    path.write_text(make(None, config).text())
    return path


def late_at(minute: int) -> int:
    return PER_SCRAPE * 4 // 10 if minute in BROKEN else 0


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules_and_what_cannot_be_asked_is_named(
    promtool: str, rules_file: Path, config: Config
) -> None:
    assert "SUCCESS" in run(promtool, "check", "rules", str(rules_file))
    left_out = make(None, config).left_out
    assert set(left_out) == {"chat-goodput", "chat-acme"}
    assert "tenant" in left_out["chat-acme"]
    text = rules_file.read_text()
    assert all(f"# Not here: {name}" in text for name in left_out)
    assert 'pool="coder"' in text, "series of an earlier class are not this one's"


def test_promtool_tests_of_the_rules_pass(promtool: str, rules_file: Path) -> None:
    """An outage of all requests fires the fast page in the minute of the formula, and not in the one before."""
    quiet = "_count", "_bucket"
    labels = 'workload="chat",pool="chat-a",instance="a:8000"'
    family = "vllm:time_to_first_token_seconds"
    steady = f"0+100x{120}"
    series = [
        {"series": f"{family}{quiet[0]}{{{labels}}}", "values": "0+100x180"},
        # 100 a minute in time for two hours, then none
        {"series": f'{family}{quiet[1]}{{{labels},le="1.0"}}', "values": f"{steady} 12000x60"},
    ]
    # 14.4 % of an hour's 6,000 requests are bad between the eighth and the ninth minute.
    count = 'count(ALERTS{alertname="GustfrontBudgetBurn",long_window="1h",alertstate="firing"}) or vector(0)'
    cases = [
        {"expr": count, "eval_time": "128m", "exp_samples": [{"labels": "{}", "value": 0}]},
        {"expr": count, "eval_time": "129m", "exp_samples": [{"labels": "{}", "value": 1}]},
    ]
    folder = rules_file.parent
    test = {
        "rule_files": [rules_file.name],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": cases}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(test, sort_keys=False))
    shown = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr


def exposition() -> list[str]:
    """Scrapes of one replica every 15 s; its own class and another one's."""
    out = []
    good = every = 0
    for i in range(MINUTES * 4 + 1):
        t = START + 15 * i
        for labels in ('pool="chat-a",workload="chat"', 'pool="coder",workload="chat"'):
            name = "vllm:time_to_first_token_seconds"
            out.append(f'{name}_count{{{labels},instance="a"}} {every} {t}')
            out.append(f'{name}_bucket{{{labels},instance="a",le="1.0"}} {good} {t}')
            out.append(f'{name}_bucket{{{labels},instance="a",le="+Inf"}} {every} {t}')
        minute = 15 * i // 60
        every += PER_SCRAPE
        good += PER_SCRAPE - late_at(minute)
    return out


def test_a_real_prometheus_fires_in_the_same_minutes_as_gustfront(
    promtool: str, rules_file: Path, config: Config, tmp_path: Path
) -> None:
    o = Objective.from_config(config.slos[0])
    per_minute = {
        START + 60 * m: Tally(good=4 * (PER_SCRAPE - late_at(m)), bad=4 * late_at(m)) for m in range(MINUTES)
    }
    series = MinuteTallies(per_minute)
    ours: dict[str, set[int]] = {}
    for m in range(70, MINUTES):
        for b in burns(o, series, START + 60.0 * m):
            if b.firing:
                ours.setdefault(f"{b.rule.long / 3600:g}h", set()).add(m)
    tsdb = build_tsdb(exposition(), tmp_path / "tsdb")
    end = START + 60 * (MINUTES - 1)
    with prometheus_server(tsdb) as url:
        run(
            promtool, "tsdb", "create-blocks-from", "rules", f"--start={START}", f"--end={end}", f"--url={url}",
            f"--output-dir={tsdb}", "--eval-interval=1m", str(rules_file),
        )  # fmt: skip
    groups = yaml.safe_load(rules_file.read_text())["groups"]
    alerts = [r for g in groups for r in g["rules"] if "alert" in r]
    theirs: dict[str, set[int]] = {}
    with prometheus_server(tsdb) as url:
        for rule in alerts:
            query = urllib.parse.urlencode(
                {"query": rule["expr"], "start": START + 70 * 60, "end": end, "step": 60}
            )
            with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}", timeout=60) as answer:
                data = json.load(answer)["data"]["result"]
            long = rule["labels"]["long_window"]
            hours = f"{ {'1h': 1, '6h': 6, '1d': 24, '3d': 72}[long] }h"
            for one in data:
                theirs.setdefault(hours, set()).update(round((t - START) / 60) for t, _ in one["values"])
    assert set(ours) == set(theirs)
    assert ours["1h"]
    for rule, minutes in ours.items():
        other = theirs[rule]
        # Prometheus evaluates on scrapes of its own clock and extrapolates to the ends of a window: a minute either way.
        assert abs(min(minutes) - min(other)) <= 1, rule
        assert abs(max(minutes) - max(other)) <= 1, rule
        assert np.mean([m in other for m in minutes]) > 0.9
