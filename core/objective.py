"""What was promised to whom: an objective, as it is counted."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.requests import BAND_EDGES, BANDS

TTFT = "ttft_seconds"
END_TO_END = "request_latency_seconds"
TPOT = "time_per_output_token_seconds"
ITL = "inter_token_latency_seconds"
QUEUE = "queue_time_seconds"
SLI = Literal["latency", "availability", "goodput", "degraded", "tool_calls", "determinism", "throughput"]
Calendar = Literal["week", "month", "quarter"]
SAMPLED: frozenset[str] = frozenset({"degraded", "tool_calls", "determinism"})
"""Counted in the random sample of outputs: a sample, so attainment is an interval."""
Joint = tuple[tuple[str, float], ...]
"""Signals and thresholds that have to hold at once."""


@dataclass(frozen=True, slots=True)
class Objective:
    """``target`` (0.99) of the requests of ``class_`` are good over ``window`` seconds.

    Good is, by ``sli``: ``signal`` at most ``threshold`` (latency); answered (availability; a client that waited longer than
    ``threshold`` before it left was not); all of ``joint`` at once (goodput); not degraded, tool call valid (of sampled outputs);
    at least ``threshold`` tokens/s of a busy replica (throughput, counted in slices of five minutes).
    ``bands``, ``tenant``, ``model``, ``pool`` narrow it; empty means all. ``calendar``: the window is the current week, month or
    quarter (UTC). ``slice_target``: counted in minutes, each good where that share of its requests was; 0: counted in requests.
    """

    name: str
    class_: str
    signal: str
    threshold: float
    target: float
    window: float
    point: str = "auto"
    sli: str = "latency"
    joint: Joint = ()
    bands: tuple[str, ...] = ()
    tenant: str = ""
    model: str = ""
    pool: str = ""
    calendar: str = ""
    slice_target: float = 0.0
    min_coverage: float = 0.95

    @classmethod
    def from_config(cls, slo: Any) -> Objective:
        """Of a ``core.config.SloConfig``."""
        return cls(
            slo.name,
            slo.class_,
            slo.signal,
            slo.threshold,
            slo.objective_percent / 100,
            slo.window,
            slo.point,
            slo.sli,
            tuple(sorted(slo.thresholds.items())),
            bands_between(slo.prompt_above, slo.prompt_below),
            slo.tenant,
            slo.model,
            slo.pool,
            slo.calendar or "",
            (slo.slice_percent or slo.objective_percent) / 100 if slo.budgeting == "timeslices" else 0.0,
            slo.min_coverage_percent / 100,
        )

    @property
    def from_requests(self) -> bool:
        """True where gateway requests can measure it."""
        if self.point == "engine" or self.sli in SAMPLED or self.sli == "throughput":
            return False
        return self.sli != "latency" or self.signal in (TTFT, END_TO_END, TPOT)

    @property
    def from_engine(self) -> bool:
        """True where an engine's own metrics can measure it: they know neither tenants nor the length of one prompt."""
        return self.sli not in SAMPLED and not self.bands and not self.tenant

    @property
    def budget(self) -> float:
        """Share of requests that may be bad."""
        return 1.0 - self.target

    @property
    def version(self) -> str:
        """Eight hexadecimal digits that change with everything that changes what is counted."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    def definition(self) -> dict[str, Any]:
        """As plain data, to be kept for ever."""
        return asdict(self)


def bands_between(above: int | None, below: int | None) -> tuple[str, ...]:
    """The prompt-length bands from ``above`` up to ``below`` tokens; empty where neither is given (all, lengths unknown too).

    >>> bands_between(16_000, None)
    ('16-64k', '64k+')
    """
    if above is None and below is None:
        return ()
    first = 0 if above is None else BAND_EDGES.index(above) + 1
    last = len(BANDS) if below is None else BAND_EDGES.index(below) + 1
    return BANDS[first:last]


def joint_key(joint: Joint) -> str:
    """Name under which a cell counts requests that kept all of ``joint``: ``request_latency_seconds<=60;ttft_seconds<=1``."""
    return ";".join(f"{signal}<={limit:.9g}" for signal, limit in sorted(joint))
