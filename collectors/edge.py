"""Scoring where the texts are: records in, records without a word of them out (``gustfront score``).

What goes out: ids, times, places, counts, latencies, the scores and how the record was sampled. Prompt, output, tool calls,
schemas and log-probabilities stay. The intake works the verdict out again from the rules, so that nobody can send a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from collectors.fields import BadRecord, instant, number, text
from collectors.output_reader import content
from collectors.scoring import Scorer, suspicious
from core.sampling import Reservoir, fraction
from core.text import TextScore

PASSED = (
    "id", "ts", "instance", "upstream", "pool", "model", "workload", "class", "release", "tenant", "session", "turn",
    "prompt_tokens", "output_tokens", "cached_tokens", "ttft_s", "e2e_s", "queue_s", "accept_length", "accept_rate",
    "max_tokens", "finish_reason", "aborted", "cache_source", "source",
)  # fmt: skip
"""Fields that leave as they are."""
_MAX_VALUE = 512


class Edge:
    """Scores records one by one; ``share`` of them are the random part, suspicious ones go out besides."""

    def __init__(self, share: float = 1.0) -> None:
        self._share, self._scorer = share, Scorer()

    def scored(self, data: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """(the record without its texts, whether it is suspicious). ``BadRecord`` where it cannot be used."""
        id_ = text(data, "id")
        if not id_:
            raise BadRecord("no_id", "has no id", "give every output the id of its request")
        ts = instant(data)
        finish = "abort" if data.get("aborted") is True else text(data, "finish_reason")
        score = self._scorer.score(
            content(data.get("output")), finish, data, text(data, "session") or id_, ts
        )
        return _bare(data, score), suspicious(score)

    def __call__(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record to send, None where the sample does not want it."""
        out, keep = self.scored(data)
        if data.get("random") is False or fraction(out["id"]) >= self._share:
            return {**out, "random": False, "weight": 1.0} if keep else None
        return {**out, "random": True, "weight": (number(data, "weight") or 1.0) / self._share}


def _bare(data: Mapping[str, Any], score: TextScore | None) -> dict[str, Any]:
    """Only known fields, only numbers, booleans and short text: a text cannot leave under another name."""
    out: dict[str, Any] = {}
    for name in PASSED:
        value = data.get(name)
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _MAX_VALUE):
            out[name] = value
    structured = data.get("structured")
    if data.get("tool_calls") or structured is not None:
        out["structured"] = bool(data.get("tool_calls") or structured)
    if score is not None:
        out |= {"rules": dict(score.rules), "features": dict(score.features), "language": score.language}
    return out


def in_windows(
    records: Iterable[tuple[dict[str, Any], bool]], size: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """A fixed number of random records a window and class, and every suspicious one; windows are closed as time goes on.

    Records have to come roughly in order: one that is late by more than a window begins a window of its own.
    """
    open_: dict[tuple[float, str], Reservoir[dict[str, Any]]] = {}
    newest = -math.inf
    for record, keep in records:
        start = math.floor(float(instant(record)) / seconds) * seconds
        name = str(record.get("workload") or record.get("class") or record.get("pool") or "")
        open_.setdefault((start, name), Reservoir(size)).add(record["id"], record, suspicious=keep)
        if start > newest:
            newest = start
            for key in [k for k in open_ if k[0] < newest - seconds]:
                yield from _closed(open_.pop(key))
    for reservoir in open_.values():
        yield from _closed(reservoir)


def _closed(reservoir: Reservoir[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for kept in reservoir.items():
        yield {**kept.item, "random": kept.random, "weight": round(kept.weight, 6)}
