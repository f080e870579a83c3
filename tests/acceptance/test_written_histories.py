"""Labelled histories that ``gustfront demo --write`` makes are in the form of the given ones, and can be judged by both scorers.

A quarter of an hour of each is enough for the form; what the detectors make of longer ones is measured by ``bench``.
"""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bench.labelled import through
from bench.score import score
from core.kinds import KINDS
from core.text.score import score_text
from fleet import scenarios
from fleet.history import write_scenario
from fleet.simulation import Simulation
from tests.conftest import ROOT, find_program, shared_folder

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(900)]
HOURS = 0.25
BY_COMMAND = ("storm_load", "kv_transfer_slow", "calm_scale_down")
"""One of each look: a fault of the standard fleet, one of a disaggregated one, and nothing wrong."""


@pytest.fixture(autouse=True)
def programs() -> None:
    if find_program("promtool") is None or find_program("prometheus") is None:
        pytest.skip("prometheus and promtool are not installed")


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as raw:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw), "utf-8")
        return [json.loads(line) for line in text]


def given(name: str) -> Path | None:
    folder = shared_folder()
    return None if folder is None else folder / "scenarios" / name


def check_form(folder: Path, name: str) -> dict[str, Any]:
    """Files and fields, beside those of a given history where there is one; the truth."""
    assert sorted(p.name for p in folder.iterdir()) == [
        "gateway.jsonl.zst", "requests.jsonl.zst", "truth.json", "tsdb.tar.zst",
    ]  # fmt: skip
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    assert truth["scenario"] == name
    assert truth["end"] - truth["start"] == HOURS * 3600
    answers, attempts = rows(folder / "requests.jsonl.zst"), rows(folder / "gateway.jsonl.zst")
    assert len(answers) > 20
    assert len(attempts) > len(answers)
    for row in (*answers, *attempts):
        assert truth["start"] - 60 <= row["ts"] <= truth["end"]
    assert sum(score_text(r["output"]).verdict == "hard" for r in answers) <= 0.5 * len(answers)
    for incident in truth["incidents"]:
        assert incident["kind"] in KINDS
        assert set(incident["accept"]) <= set(KINDS)
        assert incident["replicas"]
        assert truth["start"] < incident["start"] < incident["end"] <= truth["end"]
    example = given("garble_load-11")
    if example is not None:
        theirs = json.loads((example / "truth.json").read_text())
        assert theirs.keys() <= truth.keys()
        for incident in truth["incidents"]:
            assert incident.keys() == theirs["incidents"][0].keys()
        for file, ours in (("requests.jsonl.zst", answers), ("gateway.jsonl.zst", attempts)):
            need = set.intersection(*(set(r) for r in rows(example / file)[:200]))
            assert need <= set.intersection(*(set(r) for r in ours[:200])), file
    return truth


def check_scores(folder: Path, truth: dict[str, Any], tmp_path: Path) -> None:
    """Back-filled, judged and scored; the scorer that came with the given histories says the same."""
    found = through(folder)
    got = score(truth, found)
    assert len(got.rows) == len(truth["incidents"])
    program = shared_folder()
    if program is None or not (program / "score.py").is_file():
        return
    spec = importlib.util.spec_from_file_location("other_score", program / "score.py")
    assert spec is not None
    assert spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    (tmp_path / "found.json").write_text(json.dumps(found))
    want = other.score([(folder, tmp_path / "found.json")])
    assert {k: want[k] for k in got.summary()} == got.summary()


@pytest.mark.parametrize("name", BY_COMMAND)
def test_a_history_written_by_the_command_has_the_given_form(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    command = [sys.executable, "-m", "app.cli", "demo", "--scenario", name, "--write", str(folder)]
    subprocess.run([*command, "--hours", str(HOURS)], cwd=ROOT, check=True, capture_output=True, timeout=600)
    truth = check_form(folder, name)
    kind = scenarios.scenarios()[name].kind
    assert [i["kind"] for i in truth["incidents"]] == ([kind] if kind else [])
    check_scores(folder, truth, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", scenarios.names())
def test_a_history_of_every_scenario_has_the_given_form(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    spec = scenarios.build(name, 3, hours=HOURS, most=6)
    write_scenario(spec, Simulation, folder)
    truth = check_form(folder, name)
    assert [i["kind"] for i in truth["incidents"]] == [f.label for f in spec.faults if f.label]
    check_scores(folder, truth, tmp_path)
