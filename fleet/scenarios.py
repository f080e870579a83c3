"""Every fault and every calm event as a scenario: name -> a fleet with what happens to it (scenarios.yaml).

``build(name, seed)`` gives three hours with the fault after about half of them. A scenario has one fault, or is a
pair of things that look alike, the second an hour after the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from core.errors import ConfigError
from fleet import fleets
from fleet.model import FaultSpec, FleetSpec

START = 1_790_064_000.0
HOURS = 3.0
PAIR = "pair_"
_LASTING = ("scale", "rolling", "restart")  # mechanisms that have no end to be brought forward
_FLEETS: dict[str, Callable[[int], FleetSpec]] = {
    "standard": fleets.standard,
    "roomy_chat": fleets.roomy_chat,
    "disaggregated": fleets.disaggregated,
    "adapters": fleets.adapters,
    "data_parallel": fleets.data_parallel,
    "tiered": fleets.tiered,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """``faults(t)``: what happens when it begins at ``t``. ``kind`` None: must stay silent."""

    name: str
    fleet: Callable[[int], FleetSpec]
    kind: str | None
    about: str
    accept: tuple[str, ...]
    load_correlated: bool | None
    do: tuple[Mapping[str, Any], ...]

    def faults(self, t: float) -> tuple[FaultSpec, ...]:
        """The main fault first."""
        out = []
        for i, entry in enumerate(self.do):
            params = dict(entry)
            mechanism, pool = params.pop("mechanism"), params.pop("pool")
            minutes, replicas = params.pop("minutes", None), params.pop("replicas", None)
            classes = params.pop("classes", None)
            main = i == 0
            out.append(
                FaultSpec(
                    mechanism,
                    t,
                    None if minutes is None else minutes * 60.0,
                    pool,
                    None if replicas is None else tuple(replicas),
                    params,
                    self.kind if main else None,
                    self.accept if main else (),
                    self.load_correlated if main else None,
                    None if classes is None else tuple(classes),
                    self.about if main else "",
                )
            )
        return tuple(out)


@cache
def _read() -> tuple[dict[str, Scenario], dict[str, tuple[str, str]]]:
    content = yaml.safe_load(Path(__file__).with_name("scenarios.yaml").read_text(encoding="utf-8"))
    scenarios = {
        name: Scenario(
            name,
            _FLEETS[entry["fleet"]],
            entry.get("kind"),
            entry["about"],
            tuple(entry.get("accept", ())),
            entry.get("load_correlated"),
            tuple(entry["do"]),
        )
        for name, entry in content["scenarios"].items()
    }
    pairs = {PAIR + name: (first, second) for name, (first, second) in content["pairs"].items()}
    return scenarios, pairs


def scenarios() -> dict[str, Scenario]:
    """The single ones by name."""
    return _read()[0]


def pairs() -> dict[str, tuple[str, str]]:
    """Pairs by name: the two scenarios that they are made of."""
    return _read()[1]


def names() -> list[str]:
    """All scenarios, pairs last."""
    return [*scenarios(), *pairs()]


def about(name: str) -> str:
    """One line for people. KeyError for an unknown name."""
    if name in pairs():
        return " · then: ".join(scenarios()[part].about for part in pairs()[name])
    return scenarios()[name].about


def build(
    name: str,
    seed: int = 11,
    *,
    start: float = START,
    hours: float = HOURS,
    fault_at: float | None = None,
    most: int | None = None,
) -> FleetSpec:
    """The fleet and faults of a scenario. ``fault_at``: seconds after ``start`` (about half of ``hours`` by
    default, moved a little by ``seed``). ``most``: keep only so many replicas, see :func:`smaller`. ConfigError for
    an unknown name."""
    if name not in names():
        raise ConfigError("scenario", "no such scenario", f"one of {', '.join(names())}", name)
    seconds = hours * 3600.0
    if name in pairs():
        first, second = (scenarios()[n] for n in pairs()[name])
        fleet = fleets.merged(second.fleet(seed), first.fleet(seed))
        early = start + round(seconds * 0.2 / 15.0) * 15.0
        limit = seconds * 0.25
        opening = tuple(
            f if f.kind in _LASTING else replace(f, duration=min(limit, f.duration or limit))
            for f in first.faults(early)
        )
        faults = opening + second.faults(early + seconds / 3.0)
    else:
        moved = Random(f"{seed}:{name}").random()
        offset = fault_at if fault_at is not None else seconds * (0.42 + 0.1 * moved)
        scenario = scenarios()[name]
        fleet = scenario.fleet(seed)
        faults = scenario.faults(start + round(offset / 15.0) * 15.0)
    if most is not None:
        fleet = smaller(fleet, {f.pool for f in faults if f.pool}, most)
    return replace(fleet, faults=faults, start=start, end=start + seconds, seed=seed, name=name)


def smaller(fleet: FleetSpec, needed: AbstractSet[str], most: int) -> FleetSpec:
    """The fleet with the ``needed`` pools, their prefill or decode partners, and others while at most ``most`` replicas stay."""
    keep = set(needed)
    for p in fleet.pools:
        if p.decode_pool and keep & {p.name, p.decode_pool}:
            keep |= {p.name, p.decode_pool}
    for p in fleet.pools:
        if sum(q.replicas for q in fleet.pools if q.name in keep | {p.name}) <= most:
            keep.add(p.name)
    return replace(
        fleet,
        pools=tuple(p for p in fleet.pools if p.name in keep),
        traffic=tuple(t for t in fleet.traffic if t.pool in keep),
    )
