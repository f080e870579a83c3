"""A fleet's incidents and a clock that a test turns, before a real store and a real dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from app.delivery.dispatcher import Dispatcher
from core.config import Config, parse_config
from core.incidents import Incident, RuledOut
from sql.store import Store

T0 = 1_790_000_000.0


@dataclass
class Time:
    """Wall clock and a clock that only goes forward; ``jump`` moves the wall clock alone."""

    now: float = T0
    steady: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.steady

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.steady += seconds

    def jump(self, seconds: float) -> None:
        self.now += seconds


def incident(id_: str, at: float, **more: Any) -> Incident:
    """An incident as a detector writes it."""
    made = Incident(
        id_, "kv_eviction_storm", "page", "open", "KV eviction storm on coder-a: 96 → 12 % cache hits",
        started_at=at - 60, detected_at=at, diagnosed_at=at, classes=("coding-agent",), pools=("coder-a",),
        replicas=("coder-a-0", "coder-a-1"), cause="the KV cache is too small for 48 sessions", confidence=0.92,
        runner_up="capacity_shortfall", updated_at=at,
        ruled_out=(RuledOut("slow_replica", "peers", "all alike"), RuledOut("wedged", "progress", "tokens flow")),
    )  # fmt: skip
    return replace(made, **more)


def config_of(receivers: list[dict[str, Any]], **more: Any) -> Config:
    """A checked configuration with these receivers."""
    return parse_config(yaml.safe_dump({"receivers": receivers, **more}))


@dataclass
class World:
    """``step`` lets time pass and the dispatcher tick."""

    store: Store
    config: Config
    time: Time = field(default_factory=Time)
    incidents: dict[str, Incident] = field(default_factory=dict)
    dispatcher: Dispatcher | None = None

    def start(self, holder: str = "a") -> Dispatcher:
        """A dispatcher that sends in this thread."""
        self.dispatcher = Dispatcher(
            self.store,
            self.config,
            clock=self.time,
            monotonic=self.time.monotonic,
            holder=holder,
            parallel=False,
            lease_clock=self.time.monotonic,
        )
        return self.dispatcher

    def step(self, seconds: float = 5.0, *, ticks: int = 1) -> None:
        """Time passes, detectors touch what is open, the dispatcher ticks."""
        for _ in range(ticks):
            self.time.pass_(seconds)
            for i in self.incidents.values():
                if i.state != "resolved":
                    self.put(replace(i, updated_at=self.time.now))
            if self.dispatcher is not None:
                self.dispatcher.tick()

    def put(self, one: Incident) -> None:
        """Write an incident."""
        self.incidents[one.id] = one
        self.store.save_incident(one)

    def open(self, id_: str, **more: Any) -> None:
        """A new incident."""
        self.put(incident(id_, self.time.now, **more))
        self.store.log_incident(id_, self.time.now, "opened", "", "detector")

    def change(self, id_: str, **more: Any) -> None:
        """An incident becomes another."""
        self.put(replace(self.incidents[id_], updated_at=self.time.now, **more))

    def end(self, id_: str) -> None:
        """An incident is over."""
        self.change(id_, state="resolved", ended_at=self.time.now)
        self.store.log_incident(id_, self.time.now, "resolved", "", "detector")
