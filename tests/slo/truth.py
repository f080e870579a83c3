"""A gateway log read line by line: what really happened per class and hour, by code that shares nothing with the product's."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import zstandard

HOUR = 3600


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a log, packed or not."""
    with path.open("rb") as raw:
        if path.suffix == ".zst":
            stream = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(raw)
            text = io.TextIOWrapper(stream, encoding="utf-8")
        else:
            text = io.TextIOWrapper(raw, encoding="utf-8")
        for line in text:
            yield json.loads(line)


def verdict(row: Mapping[str, Any], limit: float) -> str:
    """Good, bad or excluded, for a time to first token of at most ``limit`` seconds."""
    status, first = row["status"], row.get("ttft_s")
    if status == 200:
        return "good" if first is not None and first <= limit else "bad"
    if status in (0, 499):
        waited = first if first is not None else row["duration_s"]
        return "bad" if waited > limit else "excluded"
    return "bad" if status >= 500 or status == 429 else "excluded"


def per_class_and_hour(
    path: Path, limits: Mapping[str, float], class_of: Callable[[Mapping[str, Any]], str | None]
) -> dict[tuple[str, int], dict[str, int]]:
    """(class, start of the hour) → how many were good, bad and excluded."""
    out: dict[tuple[str, int], dict[str, int]] = {}
    for row in lines(path):
        name = class_of(row)
        if name in limits:
            key = (name, int(row["ts"] // HOUR) * HOUR)
            counts = out.setdefault(key, {"good": 0, "bad": 0, "excluded": 0})
            counts[verdict(row, limits[name])] += 1
    return out


def scenario_class(row: Mapping[str, Any]) -> str | None:
    """The classes meant by the labelled histories and by the simulator's standard fleets."""
    return {"coder-a": "coding-agent", "chat-a": "chat"}.get(str(row.get("pool")), row.get("workload"))
