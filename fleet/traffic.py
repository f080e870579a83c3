"""Traffic sources: sessions that begin, ask, wait, think and end. One source per class and tenant.

Open sources start sessions at a rate; closed ones keep a number of users busy, whose next question waits for
the last answer. Demand moves with the day, the week, bursts of one tenant, and the knobs that faults turn.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from fleet.model import TrafficSpec
from fleet.sequence import Request
from fleet.sessions import Knobs, Session, Zipf, draw, next_request, retry_of

if TYPE_CHECKING:
    from fleet.simulation import Simulation

CONTROL = 15.0  # seconds between looks at demand
SETTLED = 0.5  # share of closed sessions that are mid-life when the simulation begins


class Source:
    """One tenant's sessions of one class."""

    def __init__(self, sim: Simulation, spec: TrafficSpec, tenant: str, weight: float, seed: str) -> None:
        self.sim = sim
        self.spec = spec
        self.tenant = tenant
        self.weight = weight
        self.rng = Random(seed)
        self.knobs = Knobs()
        self.live = 0
        self.begun = 0
        self.zipf = Zipf(spec.documents, spec.zipf) if spec.documents else None
        self.level = 1.0
        self.is_on = False
        self.epoch = 0
        self.burst_until = 0.0
        self.burst_size = 1.0
        pool = sim.pool_specs[spec.pool]
        self.block = pool.block_tokens
        self.accept_rate = pool.accept_rate

    # ------------------------------------------------------------------------------------------------- demand

    def demand(self, now: float) -> float:
        """Factor on rate or users now."""
        shape = self.spec.shape
        factor = self.knobs.rate * self.knobs.tenant_rate.get(self.tenant, 1.0)
        if shape.day_amplitude:
            hour = (now / 3600.0) % 24.0
            factor *= 1.0 + shape.day_amplitude * math.cos((hour - shape.peak_hour) / 24.0 * 2 * math.pi)
        if shape.weekend != 1.0 and int(now // 86400 + 3) % 7 >= 5:  # 1970-01-01 was a Thursday
            factor *= shape.weekend
        if now < self.burst_until:
            factor *= self.burst_size
        return factor * self.level

    def _stretch(self, now: float) -> None:
        """The next stretch of an on/off source; its arrivals begin anew with the new level."""
        shape = self.spec.shape
        self.is_on = not self.is_on
        sigma = shape.on_sigma
        self.level = (
            math.exp(sigma * self.rng.gauss(0.0, 1.0) - sigma * sigma / 2) if self.is_on else shape.off_share
        )
        self.epoch += 1
        self._arrivals(now)
        self.sim.at(now + self.rng.expovariate(1.0 / (shape.on if self.is_on else shape.off)), self._stretch)

    def _bursts(self, now: float) -> None:
        shape = self.spec.shape
        if not shape.burst_per_day or now < self.burst_until:
            return
        if self.rng.random() < shape.burst_per_day * CONTROL / 86400.0:
            self.burst_size = 1.0 + (shape.burst_size - 1.0) * self.rng.random()
            self.burst_until = now + self.rng.expovariate(1.0 / shape.burst_seconds)

    def begin(self, now: float) -> None:
        """Start the machinery."""
        if self.spec.mode == "open":
            if self.spec.shape.on:
                self._stretch(now)
            else:
                self._arrivals(now)
            self.sim.at(now + CONTROL, self._open_control)
        else:
            self._control(now, first=True)

    def _open_control(self, now: float) -> None:
        self._bursts(now)
        self.sim.at(now + CONTROL, self._open_control)

    def _arrivals(self, now: float) -> None:
        rate = self.spec.rate * self.weight * self.demand(now)
        gap = self.rng.expovariate(rate) if rate > 0 else math.inf
        epoch = self.epoch

        def arrive(t: float) -> None:
            if epoch == self.epoch:
                if gap <= CONTROL:
                    self._start(t, 0.0)
                self._arrivals(t)

        # The exponential law forgets: after a while look again, with the rate of then.
        self.sim.at(now + min(gap, CONTROL), arrive)

    def _control(self, now: float, first: bool = False) -> None:
        self._bursts(now)
        missing = round(self.spec.users * self.weight * self.demand(now)) - self.live
        for _ in range(max(0, missing)):
            self._start(now + self.rng.random() * (60.0 if first else CONTROL), SETTLED if first else 0.0)
        self.sim.at(now + CONTROL, self._control)

    def _start(self, at: float, settled: float) -> None:
        spec, rng = self.spec, self.rng
        self.live += 1
        self.begun += 1
        turns = 1 + int(rng.expovariate(1.0 / max(1e-9, spec.turns - 1.0))) if spec.turns > 1 else 1
        adapter = ""
        if spec.loras:
            which = rng.randrange(spec.loras) if self.knobs.lora_uniform else int(rng.expovariate(1.0))
            adapter = f"adapter-{min(which, spec.loras - 1)}"
        session = Session(
            f"{spec.pool}-{spec.workload}-{self.tenant}-{self.begun}", self.tenant, self, turns, adapter
        )
        if settled and rng.random() < settled:
            # Someone who has been at it for a while: a context between fresh and full.
            low = draw(rng, spec.first)
            session.context = int(low + rng.random() * max(0.0, spec.max_context * 0.9 - low))
        self.sim.at(at, lambda now: self.ask(session, now))

    # ------------------------------------------------------------------------------------------------- turns

    def ask(self, session: Session, now: float) -> None:
        """Send the session's next turn."""
        request = next_request(
            session, self.spec, self.knobs, self.rng, self.zipf, self.block, self.accept_rate
        )
        self.sim.gateway_flow.submit(request, now)

    def answered(self, request: Request, output: int, now: float) -> None:
        """A turn went well: think, then ask again, or stop."""
        session = request.session
        session.turn += 1
        session.last_output = output
        spec, rng = self.spec, self.rng
        over = spec.mode == "closed" and self.live > round(spec.users * self.weight * self.demand(now)) + 1
        if session.turn >= session.turns or over:
            self._end(now)
            return
        pause = spec.pause_share and rng.random() < spec.pause_share
        wait = draw(rng, spec.pause if pause else spec.think) * self.knobs.think
        self.sim.at(now + wait, lambda t: self.ask(session, t))

    def failed(self, request: Request, status: int, now: float) -> None:
        """An attempt failed: try again for a while, then give up this turn."""
        spec, rng = self.spec, self.rng
        if request.attempt < spec.retries + self.knobs.retries:
            wait = spec.backoff * 2.0 ** min(request.attempt, 4) * (0.5 + rng.random())
            if self.knobs.retries:
                wait = 0.2 + 0.3 * rng.random()  # impatient clients do not back off
            again = retry_of(request)
            self.sim.gateway.retries[request.pool] = self.sim.gateway.retries.get(request.pool, 0.0) + 1
            self.sim.at(now + wait, lambda t: self.sim.gateway_flow.submit(again, t))
            return
        session = request.session
        session.turn += 1
        session.last_output = 0
        if spec.mode == "open" or session.turn >= session.turns:
            self._end(now)
        else:
            wait = 10.0 + draw(rng, spec.think)
            self.sim.at(now + wait, lambda t: self.ask(session, t))

    def refused(self, request: Request, now: float) -> None:
        """The engine says that the prompt is impossible: the session is over."""
        self._end(now)

    def _end(self, now: float) -> None:
        spec = self.spec
        if spec.mode == "open":
            self.live -= 1
            return
        wait = draw(self.rng, spec.off)

        def leave(_: float) -> None:
            self.live -= 1
            missing = round(spec.users * self.weight * self.demand(self.sim.now)) - self.live
            if missing > 0:
                self._start(self.sim.now, 0.0)

        self.sim.at(now + wait, leave)
