"""The story that a demonstration plays again and again, as faults with times; nothing else makes it happen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.faces.common import Fleet
from fleet.model import FaultSpec, FleetSpec


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the story: ``seconds`` long at speed 1; ``fault`` begins with it and lasts as long."""

    name: str
    text: str
    seconds: float
    fault: FaultSpec | None = None


def _fault(kind: str, pool: str, replicas: tuple[int, ...] | None = None, **params: object) -> FaultSpec:
    return FaultSpec(kind, 0.0, None, pool, replicas, params)


STORY: tuple[Scene, ...] = (
    Scene("calm", "All is well.", 240.0),
    Scene(
        "contexts grow",
        "More and more coding agents with growing contexts: their sessions need more of the KV cache than there is.",
        1080.0,
        _fault("knobs", "coder-a", rate=2.6, context=1.3, new=1.2, ramp=720.0),
    ),
    Scene("recovery", "The agents are back to normal; caches fill again.", 600.0),
    Scene(
        "bad replica",
        "One chat replica answers garbage, fast and with HTTP 200.",
        480.0,
        _fault("corrupt", "chat-a", (2,), share=0.25, kinds=("garble", "loop", "flood")),
    ),
    Scene("calm again", "The replica was replaced.", 240.0),
    Scene(
        "rolling release",
        "A new release rolls over the chat pool, one replica after the other.",
        480.0,
        _fault("rolling", "chat-a", gap=60.0, release="r2"),
    ),
)
"""The story of the standard demonstration."""


def scripted(spec: FleetSpec) -> tuple[Scene, ...]:
    """A story around the faults of a scenario: calm, the fault for as long as it lasts, calm."""
    if not spec.faults:
        return (Scene("calm", "All is well.", 3600.0),)
    first = min(f.start for f in spec.faults)
    last = max(f.start + (f.duration if f.duration is not None else 1800.0) for f in spec.faults)
    scenes = [Scene("calm", "All is well.", 240.0)]
    for fault in sorted(spec.faults, key=lambda f: f.start):
        seconds = fault.duration if fault.duration is not None else last - fault.start
        about = fault.note or fault.label or fault.kind
        scenes.append(Scene(spec.name, about, max(60.0, seconds), replace(fault, start=fault.start - first)))
    scenes.append(Scene("calm again", "Nothing happens.", 900.0))
    return tuple(scenes)


class Director:
    """Plays ``story`` from ``start`` on, ``speed`` times as fast; ``advance`` before each run of the simulation."""

    def __init__(self, story: tuple[Scene, ...], start: float, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed is {speed}; it must be more than 0")
        self.story, self.speed = story, speed
        self._index, self._begins, self.round = -1, start, 0
        self._last = False

    @property
    def scene(self) -> Scene | None:
        """What is on now; None before the beginning."""
        return self.story[self._index] if self._index >= 0 else None

    @property
    def next_at(self) -> float:
        """When the next scene begins."""
        return self._begins

    def advance(self, sim: Fleet, now: float) -> list[Scene]:
        """Begin all scenes that are due; those that began."""
        begun: list[Scene] = []
        while now >= self._begins:
            self._index = (self._index + 1) % len(self.story)
            if self._index == 0:
                self.round += 1
            scene = self.story[self._index]
            seconds = scene.seconds / self.speed
            if scene.fault is not None:
                fault = scene.fault
                lasts = seconds if fault.kind != "rolling" else fault.duration
                params = dict(fault.params)
                for name in ("ramp", "gap"):
                    if name in params:
                        params[name] = float(params[name]) / self.speed
                sim.inject(replace(fault, start=self._begins, duration=lasts, params=params))
            begun.append(scene)
            self._begins += seconds
        return begun
