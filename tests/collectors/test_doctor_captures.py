"""The doctor against every captured body, judged by the facts in engines.yaml and not by our own dictionaries."""

from __future__ import annotations

import csv
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from collectors.doctor import examine

pytestmark = pytest.mark.shared

_PREFIX = re.compile(r"^(?:kserve_|ray_)?(vllm|sglang|lmdeploy|lmcache|llamacpp|trtllm|pytrtllm)[:_]")
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:.]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*(?:#.*)?$")

CONTRADICTED = {
    "synthetic-counter-reset-1-before.prom": "its families say vLLM, the index says unknown",
    "synthetic-counter-reset-2-after.prom": "its families say vLLM, the index says unknown",
    "vllm-0.11-issue26762-windows-exponent.prom": "holds nothing but python_* and process_*",
    "live-dynamo-mocker-worker1-1.6.1-before.prom": "no engine family before the first request",
}
"""Bodies of which the index says something that their text cannot show."""


def _fold(name: str) -> str:
    return _PREFIX.sub(r"\1:", name).replace(".", "_")


@cache
def _samples(path: Path) -> list[tuple[str, str, float]]:
    """Name, label text and value of each line, read with a regular expression of this test's own."""
    out = []
    for line in path.read_text(errors="replace").splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found:
            try:
                out.append((_fold(found[1]), found[2] or "", float(found[3])))
            except ValueError:
                continue
    return out


def _usable(signal: str, kind: str, value: float) -> bool:
    if not math.isfinite(value) or value >= 9.2e18:
        return False
    return not (
        value == -1 and kind == "gauge" and ("rate" in signal or "latency" in signal or "health" in signal)
    )


def _present(signal: str, entry: dict[str, Any], samples: list[tuple[str, str, float]]) -> bool:
    """True where the family of an engines.yaml entry has at least one usable sample."""
    family, kind = _fold(entry["name"]), entry["type"]
    if kind in ("histogram", "summary"):
        names = {f"{family}_bucket", f"{family}_sum", f"{family}_count"}
    elif kind == "counter":
        names = {family, family.removesuffix("_total"), family.removesuffix("_total") + "_total"}
    else:
        names = {family}
    note = entry.get("note", "")
    wanted = re.findall(r"(\w+)=([A-Za-z_]\w*)", note) if "labels" in entry else []
    needs = [f'{k}="{v}"' for k, v in wanted if k in entry["labels"]]
    hits = [v for n, labels, v in samples if n in names and (not needs or any(x in labels for x in needs))]
    return any(_usable(signal, kind, v) for v in hits)


def _index(shared: Path) -> list[dict[str, str]]:
    with (shared / "captures" / "INDEX.tsv").open() as f:
        return list(csv.DictReader(f, delimiter="\t"))


def test_the_doctor_names_the_component_of_each_capture(shared: Path) -> None:
    wrong = {}
    for row in _index(shared):
        found = examine((shared / "captures" / row["file"]).read_bytes(), name=row["file"])
        if "+".join(found["components"]) != row["component"]:
            wrong[row["file"]] = (row["component"], found["components"])
    assert set(wrong) == set(CONTRADICTED)


def test_the_doctor_finds_each_signal_that_the_facts_say_is_there(shared: Path) -> None:
    facts = yaml.safe_load((shared / "engines.yaml").read_text())
    lost, checked = [], 0
    for row in _index(shared):
        path = shared / "captures" / row["file"]
        found = examine(path.read_bytes(), name=row["file"])
        samples = _samples(path)
        for signal in facts["signals"]:
            for component in found["components"]:
                entries = signal["engines"].get(component, [])
                if any(_present(signal["id"], e, samples) for e in entries):
                    checked += 1
                    if signal["id"] not in found["signals"]:
                        lost.append((row["file"], signal["id"], [e["name"] for e in entries]))
    assert lost == []
    assert checked > 600


def test_every_value_that_the_doctor_shows_is_a_number_or_nothing(shared: Path) -> None:
    for path in sorted((shared / "captures").glob("*.prom")):
        found = examine(path.read_bytes(), name=path.name)
        text = json.dumps(found, allow_nan=False)
        assert json.loads(text) == found
        for id, signal in found["signals"].items():
            assert signal["family"], (path.name, id)
            assert ("value" in signal) != ("count" in signal), (path.name, id)


def test_hidden_aborts_of_the_live_server_come_out_of_answers_and_successes(shared: Path) -> None:
    found = examine((shared / "captures" / "live-vllm-0.32.0-after.prom").read_bytes())
    aborted = found["signals"]["aborted_total"]
    assert aborted["count"] == 12
    assert aborted["families"] == ["http_requests_total", "vllm:request_success_total"]


def test_missing_signals_name_the_flag_that_would_export_them(shared: Path) -> None:
    found = examine((shared / "captures" / "live-vllm-0.32.0-after.prom").read_bytes())
    flags = {m["id"]: m["flag"] for m in found["missing"]}
    assert flags["kv_block_lifetime_seconds"] == "--kv-cache-metrics"
    assert flags["lora_info"] == "--enable-lora"
    assert "spec_draft_tokens_total" in flags
    assert all(m["flag"] or m.get("reason") for m in found["missing"])
