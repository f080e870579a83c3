"""What Prometheus itself holds, read the slow and simple way: no code of ours between the server and the sum."""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from core.frames import Frame

CLASSES = [
    {"name": "coding-agent", "match": ['workload="coding-agent"', 'pool="coder-a"']},
    {"name": "chat", "match": ['workload="chat"', 'pool="chat-a"']},
    {"name": "batch", "match": ['workload="batch"']},
]
SELECTOR = '{job=~"vllm|sglang|dcgm"}'


def ask(url: str, query: str, at: float) -> list[dict[str, Any]]:
    """The result of an instant query."""
    args = urllib.parse.urlencode({"query": query, "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{args}", timeout=60) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def class_of(labels: Mapping[str, str]) -> str:
    """The class by the rules of :data:`CLASSES`, written out."""
    if "workload" in labels:
        return labels["workload"]
    return {"coder-a": "coding-agent", "chat-a": "chat"}.get(labels["pool"], "shared")


def increases(
    url: str, names: Sequence[str], start: float, end: float, key: Callable[[Mapping[str, str]], Any]
) -> dict[Any, float]:
    """Sum of the increases from first to last sample in [start, end) of the series ``names``, by ``key``.

    Last minus first, plus what was lost at each fall.
    """
    out: dict[Any, float] = defaultdict(float)
    for name in names:
        for row in ask(url, f'{{__name__="{name}"}}[{math.ceil(end - start)}s]', end - 0.001):
            values = [float(v) for t, v in row["values"] if t >= start]
            lost = sum(a for a, b in pairwise(values) if b < a)
            out[key(row["metric"])] += values[-1] - values[0] + lost
    return dict(out)


def count_samples(url: str, selector: str, start: float, end: float) -> int:
    """How many samples a selector in braces has in [start, end), one metric name after the other."""
    names = {r["metric"]["__name__"] for r in ask(url, f"count by (__name__) ({selector})", end - 60)}
    total = 0
    for name in names:
        query = f'sum(count_over_time({{__name__="{name}",{selector[1:-1]}}}[{round(end - start)}s]))'
        total += int(ask(url, query, end - 0.001)[0]["value"][1])
    return total


def frame_sums(frames: Sequence[Frame], signal: str) -> dict[tuple[str, tuple[float, ...]], list[int]]:
    """Counts by bucket (or one for a counter) summed over frames, by class and edges; gaps are left out."""
    out: dict[tuple[str, tuple[float, ...]], list[int]] = {}
    for f in frames:
        for column, (_, slots, _) in zip(f.layout.columns, f.layout.slots, strict=True):
            if column.signal != signal or column.kind == "gauge":
                continue
            counts = f.counts[slots].tolist()
            total = out.setdefault((column.label("class"), column.edges), [0] * len(counts))
            for i, c in enumerate(counts):
                total[i] += max(c, 0)
    return out
