"""A running fleet over HTTP on loopback: one path per target, a list of them for discovery, and a lever for faults.

``GET /sd``: http_sd. ``GET /t/NAME/metrics``: one exposition. ``GET /story``: what is being played. ``GET /faults``: what can
be triggered; ``POST /faults`` with JSON ``{"fault": NAME}`` and the header ``X-Gustfront-Demo: 1`` triggers it.
Only requests whose Host is this loopback address are answered, so that no web page of elsewhere can reach it through the
visitor's browser.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from fleet.director import Director
from fleet.faces.common import Fleet
from fleet.faces.targets import FleetFaces, Seen
from fleet.model import FaultSpec

log = logging.getLogger(__name__)

TICK = 2.5
SLICE = 15.0
HEADER = "X-Gustfront-Demo"
ASLEEP = 3600.0
"""After a longer pause (a laptop put to sleep) the fleet is begun anew instead of being caught up with."""

TRIGGERS: dict[str, FaultSpec] = {
    "slow replica": FaultSpec("slow", 0.0, 600.0, "chat-a", (1,), {"factor": 0.45}),
    "garbled answers": FaultSpec(
        "corrupt", 0.0, 600.0, "chat-a", (2,), {"share": 0.3, "kinds": ("garble", "loop")}
    ),
    "eviction storm": FaultSpec("knobs", 0.0, 900.0, "coder-a", None, {"rate": 2.6, "ramp": 120.0}),
    "wedged replica": FaultSpec("wedge", 0.0, 420.0, "mixed-s", (0,), {}),
    "rolling restart": FaultSpec("rolling", 0.0, None, "chat-a", None, {"gap": 45.0}),
}
"""What a viewer can trigger: name and fault."""


class Asleep(Exception):
    """The machine was away for so long that catching up makes no sense."""


@dataclass
class LiveFleet:
    """A simulation that keeps up with the clock. ``sink`` gets what happened at each tick."""

    sim: Fleet
    faces: FleetFaces
    director: Director | None = None
    sink: Callable[[Seen], None] | None = None
    clock: Callable[[], float] = time.time
    ready: bool = True
    triggers: dict[str, FaultSpec] = field(default_factory=lambda: dict(TRIGGERS))
    log: list[dict[str, Any]] = field(default_factory=list)

    async def keep_up(self) -> None:
        """For ever: run to now, take in, hand on. Raises Asleep after a long pause of the machine."""
        while True:
            behind = self.clock() - self.sim.now
            if behind > ASLEEP:
                raise Asleep(f"{behind:.0f} s passed unseen")
            await self.step(self.clock())
            await asyncio.sleep(TICK)

    async def step(self, now: float) -> None:
        """Run to ``now`` in slices, letting others in between."""
        while self.sim.now < now:
            until = min(now, self.sim.now + SLICE)
            if self.director is not None:
                for scene in self.director.advance(self.sim, until):
                    self.log.append({"ts": until, "scene": scene.name, "text": scene.text})
                    log.info("scene: %s", scene.name)
                del self.log[:-50]
            self.sim.run(until)
            seen = self.faces.observe()
            if self.sink is not None:
                self.sink(seen)
            await asyncio.sleep(0)

    def trigger(self, name: str) -> FaultSpec:
        """Begin a fault now. KeyError for an unknown one, ValueError where this fleet has no such pool."""
        fault = self.triggers[name]
        pools = {p.name for p in self.sim.spec.pools}
        if fault.pool and fault.pool not in pools:
            raise ValueError(f"this fleet has no pool {fault.pool}")
        fault = replace(fault, start=self.sim.now)
        self.sim.inject(fault)
        self.log.append({"ts": self.sim.now, "scene": "triggered", "text": name})
        return fault


def application(fleet: LiveFleet, port: int) -> web.Application:
    """The web application; ``port`` is where it will listen (for discovery and the check of Host)."""
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    @web.middleware
    async def only_loopback(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.host not in hosts:
            return web.json_response({"error": "only for this machine"}, status=403)
        return await handler(request)

    async def discovery(_: web.Request) -> web.Response:
        if not fleet.ready:
            return web.json_response([])
        groups = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {**t.labels, "__metrics_path__": f"/t/{t.name}/metrics"},
            }
            for t in fleet.faces.targets()
        ]
        return web.json_response(groups)

    async def metrics(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        target = next((t for t in fleet.faces.targets() if t.name == name), None)
        if target is None:
            return web.Response(status=404, text="no such target\n")
        if target.silent:
            await asyncio.sleep(30.0)
        body = target.body()
        if body is None:  # nothing listens there: the connection ends without an answer
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        return web.Response(
            body=body.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def story(_: web.Request) -> web.Response:
        director = fleet.director
        scene = None if director is None else director.scene
        return web.json_response(
            {
                "now": fleet.sim.now,
                "ready": fleet.ready,
                "scene": None if scene is None else scene.name,
                "text": "" if scene is None else scene.text,
                "next_at": None if director is None else director.next_at,
                "log": fleet.log,
            }
        )

    async def faults(_: web.Request) -> web.Response:
        return web.json_response({"faults": sorted(fleet.triggers)})

    async def trigger(request: web.Request) -> web.Response:
        if HEADER not in request.headers:
            return web.json_response({"error": f"the header {HEADER} is missing"}, status=403)
        try:
            data = await request.json()
            name = data["fault"]
            fault = fleet.trigger(name)
        except (ValueError, KeyError, TypeError) as error:
            known = ", ".join(sorted(fleet.triggers))
            text = (
                str(error)
                if isinstance(error, ValueError) and not isinstance(error, KeyError)
                else "no such fault"
            )
            return web.json_response(
                {"error": f'{text}; send {{"fault": NAME}}, one of: {known}'}, status=400
            )
        return web.json_response({"fault": name, "pool": fault.pool, "seconds": fault.duration}, status=202)

    app = web.Application(middlewares=[only_loopback], client_max_size=4096)
    app.add_routes(
        [
            web.get("/sd", discovery),
            web.get("/t/{name}/metrics", metrics),
            web.get("/story", story),
            web.get("/faults", faults),
            web.post("/faults", trigger),
        ]
    )
    return app
