"""Gateway requests folded at intake, one cell for each minute, class, tenant, model, pool, prompt band, status and release.

A cell keeps counts, token totals and fine latency buckets, so that objectives and percentiles over any span are sums of cells and
no single request is stored. Bucket edges include the thresholds of the configured objectives: attainment is then exact.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from core.frames import FloatArray, IntArray
from core.records import RequestRecord

Hist = tuple[tuple[float, ...], IntArray]

FINEST, WIDEST, PER_OCTAVE = 0.001, 1e4, 8
BANDS: tuple[str, ...] = ("0-1k", "1-4k", "4-16k", "16-64k", "64k+")
BAND_EDGES: tuple[int, ...] = (1_000, 4_000, 16_000, 64_000)
UNKNOWN_BAND = "unknown"


def fine_edges(thresholds: Iterable[float] = ()) -> tuple[float, ...]:
    """Upper bucket edges in seconds, 1 ms to 10,000 s by a factor of 2^(1/8), with ``thresholds`` among them (exactly).

    A grid edge within 0.1 % of a threshold gives way to it.
    """
    exact = sorted({float(t) for t in thresholds if math.isfinite(t) and t > 0})
    steps = math.ceil(math.log2(WIDEST / FINEST) * PER_OCTAVE)
    grid = [float(f"{FINEST * 2 ** (i / PER_OCTAVE):.6g}") for i in range(steps)] + [WIDEST]
    kept = [g for g in grid if all(abs(g - t) > 0.001 * t for t in exact)]
    return tuple(sorted({*kept, *exact}))


def band(prompt_tokens: int | None) -> str:
    """The prompt-length band; ``unknown`` without a length."""
    if prompt_tokens is None or prompt_tokens < 0:
        return UNKNOWN_BAND
    return BANDS[bisect_right(BAND_EDGES, prompt_tokens)]


@dataclass(frozen=True, slots=True, order=True)
class RequestKey:
    """What the attempts of a cell have in common; ``minute`` is the Unix time of the start of the minute in which they ended."""

    minute: int
    point: str = "gateway"
    class_: str = ""
    tenant: str = ""
    model: str = ""
    pool: str = ""
    band: str = UNKNOWN_BAND
    status: int = 200
    release: str = ""


class RequestCount(NamedTuple):
    """Attempts of a minute as detectors count them: ``ttft`` maps buckets of ``edges`` (overflow last) to counts."""

    minute: int
    point: str
    class_: str
    tenant: str
    pool: str
    status: int
    n: int
    prompt_tokens: int
    output_tokens: int
    ttft_sum: float
    duration_sum: float
    edges: tuple[float, ...]
    ttft: Mapping[int, int]


@dataclass(slots=True)
class RequestCell:
    """Attempts of one key.

    ``ttft``: time to first token of those that got one. ``age``: duration of those that did *not* get a first token (or
    whose log does not say), a lower bound of what they would have waited. ``duration``: all with a known duration. Counts
    per bucket, overflow last; what is in none of ``ttft`` and ``age`` is unknown: ``n - ttft.sum() - age.sum()``.
    ``tpot``: seconds per output token after the first, of those with at least two; None where it was not counted. ``joint``: name
    of a set of thresholds (:func:`core.objective.joint_key`) → (how many kept all of them, how many nobody knows of).
    """

    n: int
    prompt_tokens: int
    output_tokens: int
    ttft: Hist
    age: Hist
    duration: Hist
    ttft_sum: float = 0.0
    duration_sum: float = 0.0
    tpot: Hist | None = None
    joint: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def empty(cls, edges: tuple[float, ...]) -> RequestCell:
        """A cell without attempts."""
        zeros = [np.zeros(len(edges) + 1, dtype=np.int64) for _ in range(3)]
        return cls(0, 0, 0, (edges, zeros[0]), (edges, zeros[1]), (edges, zeros[2]))

    @property
    def edges(self) -> tuple[float, ...]:
        """Edges of all three histograms."""
        return self.ttft[0]

    def __add__(self, other: RequestCell) -> RequestCell:
        """Both together; ValueError where their edges differ (add such cells per edges)."""
        if self.edges != other.edges:
            raise ValueError("cells with different edges cannot be added")
        edges = self.edges
        tpot = None
        if self.tpot is not None and other.tpot is not None:
            tpot = (edges, self.tpot[1] + other.tpot[1])
        # Thresholds that one of the two was not counted with are counted in neither.
        joint = {
            k: (a + other.joint[k][0], b + other.joint[k][1])
            for k, (a, b) in self.joint.items()
            if k in other.joint
        }
        return RequestCell(
            self.n + other.n,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            (edges, self.ttft[1] + other.ttft[1]),
            (edges, self.age[1] + other.age[1]),
            (edges, self.duration[1] + other.duration[1]),
            self.ttft_sum + other.ttft_sum,
            self.duration_sum + other.duration_sum,
            tpot,
            joint,
        )


def fold(
    records: Iterable[RequestRecord],
    edges: tuple[float, ...],
    *,
    point: str = "gateway",
    joints: Mapping[str, Sequence[tuple[str, float]]] | None = None,
) -> dict[RequestKey, RequestCell]:
    """Cells of the records, in order of first appearance. Latencies that are negative or not finite count as unknown.

    ``joints``: sets of (signal, threshold) to be counted as kept together.
    """
    groups: dict[tuple[int, str, str, str, str, str, int, str], list[RequestRecord]] = {}
    for r in records:
        key = (
            int(r.ts // 60) * 60,
            r.workload_class,
            r.tenant,
            r.model,
            r.pool,
            band(r.prompt_tokens),
            r.status,
            r.release,
        )
        group = groups.get(key)
        if group is None:
            groups[key] = [r]
        else:
            group.append(r)
    grid = np.asarray(edges)
    out: dict[RequestKey, RequestCell] = {}
    for (minute, class_, tenant, model, pool, band_, status, release), group in groups.items():
        ttft = [r.ttft_s for r in group if _known(r.ttft_s)]
        duration = [r.duration_s for r in group if _known(r.duration_s)]
        age = [r.duration_s for r in group if _known(r.duration_s) and not _known(r.ttft_s)]
        out[RequestKey(minute, point, class_, tenant, model, pool, band_, status, release)] = RequestCell(
            n=len(group),
            prompt_tokens=sum(r.prompt_tokens or 0 for r in group),
            output_tokens=sum(r.output_tokens or 0 for r in group),
            ttft=(edges, _buckets(grid, ttft)),
            age=(edges, _buckets(grid, age)),
            duration=(edges, _buckets(grid, duration)),
            ttft_sum=math.fsum(v for v in ttft if v is not None),
            duration_sum=math.fsum(v for v in duration if v is not None),
            tpot=(edges, _buckets(grid, [v for v in map(per_token, group) if v is not None])),
            joint={name: _kept(group, limits) for name, limits in (joints or {}).items()},
        )
    return out


def per_token(r: RequestRecord) -> float | None:
    """Seconds per output token after the first; None where it is not known or there is only one token."""
    if not (_known(r.ttft_s) and _known(r.duration_s)) or (r.output_tokens or 0) < 2:
        return None
    assert r.ttft_s is not None
    assert r.duration_s is not None
    assert r.output_tokens is not None
    return max(0.0, r.duration_s - r.ttft_s) / (r.output_tokens - 1)


def _kept(group: Sequence[RequestRecord], limits: Sequence[tuple[str, float]]) -> tuple[int, int]:
    """(requests that kept all limits, requests that may have or not)."""
    good = unknown = 0
    for r in group:
        verdicts = [_keeps(r, signal, limit) for signal, limit in limits]
        if False in verdicts:
            continue
        if None in verdicts:
            unknown += 1
        else:
            good += 1
    return good, unknown


def _keeps(r: RequestRecord, signal: str, limit: float) -> bool | None:
    """Whether a request kept one limit; None: not known."""
    if signal == "ttft_seconds" and _known(r.ttft_s):
        value = r.ttft_s
    elif signal == "ttft_seconds":
        # The first token came before the end.
        return True if _known(r.duration_s) and (r.duration_s or 0.0) <= limit else None
    elif signal == "request_latency_seconds":
        value = r.duration_s if _known(r.duration_s) else None
    elif r.output_tokens is not None and r.output_tokens < 2:
        return True
    else:
        value = per_token(r)
    return None if value is None else value <= limit


def add_cells(into: dict[RequestKey, RequestCell], more: Mapping[RequestKey, RequestCell]) -> None:
    """Add ``more`` to ``into`` in place."""
    for key, cell in more.items():
        known = into.get(key)
        into[key] = cell if known is None else known + cell


def _known(value: float | None) -> bool:
    return value is not None and 0 <= value < math.inf


def _buckets(grid: FloatArray, values: list[float | None]) -> IntArray:
    """Counts per bucket: an edge belongs to the bucket below it, as in Prometheus (``le``)."""
    if not values:
        return np.zeros(len(grid) + 1, dtype=np.int64)
    at = np.searchsorted(grid, np.asarray(values, dtype=np.float64), side="left")
    return np.bincount(at, minlength=len(grid) + 1).astype(np.int64)
