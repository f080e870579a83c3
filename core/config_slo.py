"""The ``slos`` and ``burn`` part of the configuration: what an objective may say, and what it must say for its kind."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core.core_schema import ValidationInfo

from core.config_sources import Section
from core.config_types import PositiveDuration, duration, fail
from core.errors import ConfigError
from core.objective import END_TO_END, SAMPLED, TPOT, TTFT
from core.requests import BAND_EDGES

DAY = 86400.0
CALENDARS: dict[str, float] = {"week": 7 * DAY, "month": 30 * DAY, "quarter": 91 * DAY}
JOINT_SIGNALS = (TTFT, TPOT, END_TO_END)
LENGTHS = ", ".join(str(n) for n in BAND_EDGES)


def _signals() -> Any:
    """The dictionary of signals; looked up when needed so that models can be built without it."""
    try:
        return importlib.import_module("core.signals")
    except ModuleNotFoundError as error:
        if error.name == "core.signals":
            return None
        raise


def _latency(value: str) -> str:
    """The id of a latency signal, of its id or alias."""
    signals = _signals()
    if signals is None:
        return value
    try:
        signal = signals.resolve(value)
    except ConfigError as error:
        fail(error.problem, error.fix)
    if signal.kind != "histogram":
        fail(f"{signal.id} is a {signal.kind}, not a histogram", "name a latency such as ttft_seconds")
    return str(signal.id)


class SloConfig(Section):
    """An objective: ``objective_percent`` of the requests of ``class`` have ``signal`` at most
    ``threshold``; other kinds of objective by ``sli``.
    """

    name: str = Field(min_length=1, max_length=100, description="Name of the objective")
    class_: str = Field(alias="class", min_length=1, description="Workload class it is about")
    sli: Literal[
        "latency", "availability", "goodput", "degraded", "tool_calls", "determinism", "throughput"
    ] = Field(
        default="latency",
        description="""What is counted as good: in time, answered, all thresholds at once, not degraded, a valid
    tool call, a canary's answer the same as its reference, tokens/s of a busy replica""",
    )
    signal: str = Field(
        default="", description="Id or alias of a latency signal, such as ttft_seconds or ttft"
    )
    threshold: float = Field(
        default=0.0,
        description="""Longest time that is still good, such as 5s (throughput: least tokens/s; availability:
    how long a client waits before leaving is our fault)""",
        validate_default=False,
    )
    thresholds: dict[str, float] = Field(
        default_factory=dict, description="For goodput: latencies and their thresholds, all to be kept"
    )
    objective_percent: float = Field(
        gt=0, lt=100, description="Share of good requests promised, such as 99 or 99.9"
    )
    window: PositiveDuration = Field(
        default=28 * DAY, description="Rolling window of the promise, or week, month, quarter of the calendar"
    )
    calendar: Literal["week", "month", "quarter"] | None = Field(
        default=None, description="Set by window: month and the like"
    )
    budgeting: Literal["occurrences", "timeslices"] = Field(
        default="occurrences", description="Requests are counted, or minutes"
    )
    slice_percent: float | None = Field(
        default=None,
        gt=0,
        lt=100,
        description="For timeslices: share of good requests that makes a minute good; objective_percent if absent",
    )
    point: Literal["auto", "client", "gateway", "router", "engine"] = Field(
        default="auto",
        description="Where it is measured; auto takes the gateway log where there is one, else the engine",
    )
    tenant: str = Field(default="", description="Only requests of this tenant")
    model: str = Field(default="", description="Only requests for this model")
    pool: str = Field(default="", description="Only requests served by this pool")
    prompt_above: int | None = Field(
        default=None, description=f"Only prompts of more tokens: one of {LENGTHS}"
    )
    prompt_below: int | None = Field(
        default=None, description=f"Only prompts of fewer tokens: one of {LENGTHS}"
    )
    min_coverage_percent: float = Field(
        default=95.0, ge=0, le=100, description="Share of the window that must have been seen to be reported"
    )
    owner: str = Field(default="", description="Team that answers for it")
    description: str = Field(default="", description="In words, for the month report")

    @model_validator(mode="before")
    @classmethod
    def _calendar_window(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("window") in CALENDARS:
            name = data["window"]
            return {**data, "window": f"{CALENDARS[name]:.0f}s", "calendar": name}
        return data

    @field_validator("signal")
    @classmethod
    def _known(cls, value: str) -> str:
        return _latency(value) if value else value

    @field_validator("threshold", mode="before")
    @classmethod
    def _seconds(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            value = duration(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            timed = info.data.get("sli") == "availability" or str(info.data.get("signal", "")).endswith(
                "_seconds"
            )
            if timed:
                fail("a threshold in time needs a unit", f"write {value}s if seconds are meant")
        else:
            fail("not a threshold", "write a duration such as 5s")
        if not 0 < value < float("inf"):
            fail("must be above zero", "write a duration such as 5s")
        return value

    @field_validator("thresholds", mode="before")
    @classmethod
    def _joint(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            fail("not a mapping", "write {ttft: 1s, tpot: 50ms}")
        out: dict[str, float] = {}
        for name, limit in value.items():
            signal = _latency(str(name))
            if signal not in JOINT_SIGNALS:
                fail(f"{signal} is not known of a single request", "name ttft, tpot or e2e")
            out[signal] = duration(limit)
            if not out[signal] > 0:
                fail("must be above zero", "write a duration such as 5s")
        return out

    @field_validator("prompt_above", "prompt_below")
    @classmethod
    def _a_band_edge(cls, value: int | None) -> int | None:
        if value is not None and value not in BAND_EDGES:
            fail("prompt lengths are counted in bands", f"write one of {LENGTHS}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> SloConfig:
        given = self.model_fields_set
        if self.sli == "latency":
            for name, example in (("signal", "signal: ttft_seconds"), ("threshold", "threshold: 5s")):
                if name not in given:
                    fail(f"{name} is missing", f"write {example}, or name another sli")
        elif self.sli == "throughput" and "threshold" not in given:
            fail("threshold is missing", "write the least tokens/s of a busy replica, such as threshold: 400")
        elif self.sli == "goodput" and len(self.thresholds) < 2:
            fail("goodput needs at least two thresholds", "write thresholds: {ttft: 1s, tpot: 50ms}")
        if self.sli != "latency" and self.signal:
            fail(f"{self.sli} has no signal", "leave signal out, or set sli: latency")
        if self.sli != "goodput" and self.thresholds:
            fail(f"{self.sli} has no thresholds", "set sli: goodput, or leave them out")
        if self.sli in (*SAMPLED, "throughput") and self.budgeting == "timeslices":
            fail(f"{self.sli} is not counted in minutes", "leave budgeting out")
        if self.slice_percent is not None and self.budgeting != "timeslices":
            fail("slice_percent is for budgeting: timeslices", "set budgeting: timeslices, or leave it out")
        if self.sli == "determinism" and (self.tenant or self.model or self.pool):
            fail("canaries are counted all together", "leave tenant, model and pool out")
        narrowed = self.tenant or self.prompt_above is not None or self.prompt_below is not None
        if narrowed and (self.point == "engine" or self.sli == "throughput"):
            fail(
                "engines know neither tenants nor the length of one prompt",
                "leave point out, or tenant and prompt_above",
            )
        if None not in (self.prompt_above, self.prompt_below) and not (
            (self.prompt_above or 0) < (self.prompt_below or 0)
        ):
            fail("no prompt is longer than prompt_above and shorter than prompt_below", "swap the two")
        return self
