"""What can be wrong with an exposition while the service is well (``ReplicaState.telemetry``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fleet.faces.page import Floats, Page

ENGINES = Path(__file__).resolve().parents[2] / "collectors" / "engines"
SHORT = {
    "ttft": "ttft_seconds",
    "itl": "inter_token_latency_seconds",
    "e2e": "request_latency_seconds",
    "queue": "queue_time_seconds",
    "kv_usage": "kv_cache_usage_ratio",
    "running": "requests_running",
    "waiting": "requests_waiting",
    "generation_tokens": "generation_tokens_total",
    "prompt_tokens": "prompt_tokens_total",
    "hits": "prefix_cache_hit_tokens_total",
    "queries": "prefix_cache_queries_tokens_total",
    "success": "request_success_total",
}
SATURATED_AT = 0.25
"""With ``saturate`` first-token buckets end here, as when somebody set them too low."""
ODD = frozenset({"drop", "nan", "negative", "saturate", "le_spelling", "duplicate"})


def canonical(name: str) -> str:
    """A family's name as the dictionaries write it: ``trtllm_x`` and ``vllm_x`` become ``trtllm:x``, ``vllm:x``."""
    for engine in ("vllm", "sglang", "trtllm"):
        if name.startswith(f"{engine}_"):
            return f"{engine}:{name[len(engine) + 1 :]}"
    return name


@cache
def families_of(signal: str) -> frozenset[str]:
    """All raw families that any component exports a canonical signal (or one of ``SHORT``) as."""
    wanted = SHORT.get(signal, signal)
    out: set[str] = set()
    for path in sorted(ENGINES.glob("*.yaml")):
        entry = yaml.safe_load(path.read_text("utf8")).get("signals", {}).get(wanted)
        sources: Any = entry.get("sources", []) if isinstance(entry, Mapping) else entry or []
        for source in sources:
            out.add(source["family"])
            out.update(source.get("also", ()))
    return frozenset(out)


def slots_of(page: Page, signals: Iterable[str]) -> list[int]:
    """The slots of all series of these signals on a page."""
    names = frozenset().union(*(families_of(s) for s in signals))
    return [i for i, family in enumerate(page.family_of) if canonical(family) in names]


def distorted(page: Page, wrong: Mapping[str, Any]) -> tuple[Floats, set[int]]:
    """Values as exported and the slots that are not exported at all."""
    values, hidden = page.snapshot(), set(slots_of(page, wrong.get("drop", ())))
    for i in slots_of(page, wrong.get("nan", ())):
        values[i] = np.nan
    for i in slots_of(page, wrong.get("negative", ())):
        values[i] = -1.0
    if wrong.get("saturate"):
        for i in slots_of(page, ("ttft_seconds",)):
            edge = dict(page.series[i][1]).get("le")
            if edge is not None and SATURATED_AT < float(edge) < float("inf"):
                hidden.add(i)
    return values, hidden


def body_of(page: Page, wrong: Mapping[str, Any]) -> str:
    """The text, with what ``wrong`` asks for."""
    if not ODD & {k for k, v in wrong.items() if v}:
        return page.text()
    values, hidden = distorted(page, wrong)
    text = page.altered(values, hidden)
    if wrong.get("le_spelling") == "short":
        text = text.replace('.0"} ', '"} ')
    if wrong.get("duplicate"):
        text += "".join(f"{line}\n" for line in text.splitlines() if line and line[0] != "#")
    return text
