"""All processes of a fleet as a scraper finds them: engines, their GPUs, the gateway, Dynamo's front end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fleet.faces.common import Face, Fleet
from fleet.faces.dcgm import DcgmFace
from fleet.faces.dynamo import DynamoFrontendFace, DynamoWorkerFace
from fleet.faces.gateway import GatewayFace
from fleet.faces.page import Floats, Labels, Page
from fleet.faces.sglang import SglangFace
from fleet.faces.telemetry import ODD, body_of, distorted
from fleet.faces.trtllm import TrtllmFace
from fleet.faces.vllm import VllmFace
from fleet.model import Attempt, EngineState, Finish, PoolSpec, ReplicaState

GPU_PORT = 9400
GATEWAY = "gateway-0:4000"
FRONTEND = "dynamo-frontend-0:8000"


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape in numbers: series with their labels, one value each; a series that is not exported has none."""

    series: list[tuple[str, Labels]]
    values: Floats
    hidden: frozenset[int] = frozenset()


@dataclass(slots=True)
class Exposed:
    """One address. ``labels`` are the target's, as service discovery gives them (``job`` and ``instance`` too).

    ``page`` None: nothing listens there now. ``silent``: it listens, and no answer comes.
    """

    name: str
    labels: dict[str, str]
    page: Page | None
    wrong: dict[str, object] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    frozen: tuple[str, Sample] | None = None
    start: float = 0.0

    @property
    def silent(self) -> bool:
        """A scrape runs into its time-out."""
        return bool(self.wrong.get("gap"))

    def body(self) -> str | None:
        """What a scrape gets now; None where it fails."""
        if self.page is None or self.silent:
            return None
        if self.wrong.get("stale") and self.frozen is not None:
            return self.frozen[0]
        if self.gone:
            return self.page.altered(self.page.snapshot(), self.gone)
        return body_of(self.page, self.wrong)

    def sample(self) -> Sample | None:
        """The same in numbers; None where a scrape fails."""
        page = self.page
        if page is None or self.silent:
            return None
        if self.wrong.get("stale") and self.frozen is not None:
            return self.frozen[1]
        values, hidden = page.snapshot(), set(self.gone)
        if ODD & self.wrong.keys():
            values, more = distorted(page, self.wrong)
            hidden |= more
        return Sample(page.series, values, frozenset(hidden))


@dataclass(slots=True)
class Seen:
    """What happened since the last look: finished requests with the replica that served them, gateway attempts."""

    finishes: list[tuple[ReplicaState, Finish]]
    attempts: list[Attempt]


class FleetFaces:
    """The faces of a running simulation. ``observe`` first, then ``targets``."""

    def __init__(self, sim: Fleet, *, created: bool = False, edge: bool = True) -> None:
        """``created``: vLLM writes ``_created``. ``edge``: gateway and Dynamo's front end are targets too; what they measure is
        what the engines and the gateway's log measure, of all classes together."""
        self.sim, self.created = sim, created
        self.pools = {p.name: p for p in sim.spec.pools}
        start = sim.spec.start
        self.gateway = GatewayFace({n: p.model for n, p in self.pools.items()}, start) if edge else None
        dynamo = [p for p in sim.spec.pools if p.engine == "dynamo"]
        self.frontend = DynamoFrontendFace(start) if dynamo and edge else None
        self._by_model = {p.model: p for p in dynamo}
        self._faces: dict[str, tuple[float, Face]] = {}
        self._gpus: dict[str, DcgmFace] = {}
        self._engines: dict[str, tuple[ReplicaState, list[EngineState]]] = {}
        self._frozen: dict[str, tuple[str, Sample]] = {}

    # --------------------------------------------------------------------------------------------- taking in

    def observe(self) -> Seen:
        """Take in everything that happened since the last call; counters and gauges are as of ``sim.now``."""
        seen = Seen([], self.sim.drain_attempts())
        for replica in self.sim.replicas:
            before = self._engines.get(replica.address)
            if before is not None:
                for engine in before[1]:
                    if not any(engine is e for e in replica.engines):  # a process that is gone
                        seen.finishes += [(before[0], f) for f in engine.observations.drain().finishes]
            self._engines[replica.address] = (replica, list(replica.engines))
            face = self._face(replica)
            for engine in replica.engines:
                new = engine.observations.drain()
                face.observe(engine, new)
                seen.finishes += [(replica, f) for f in new.finishes]
            face.refresh(replica, self.sim.now)
            self._gpus.setdefault(replica.name, DcgmFace(replica)).refresh(replica)
        self._edge(seen)
        return seen

    def _face(self, replica: ReplicaState) -> Face:
        known = self._faces.get(replica.address)
        if known is None or known[0] != replica.process_start:
            known = (replica.process_start, self._new(self.pools[replica.pool], replica))
            self._faces[replica.address] = known
        return known[1]

    def _new(self, spec: PoolSpec, replica: ReplicaState) -> Face:
        if replica.engine == "sglang":
            return SglangFace(spec, replica)
        if replica.engine == "tensorrt_llm":
            return TrtllmFace(spec, replica)
        if replica.engine == "dynamo":
            return DynamoWorkerFace(spec, replica)
        return VllmFace(spec, replica, created=self.created)

    def _edge(self, seen: Seen) -> None:
        state = self.sim.gateway
        if self.gateway is not None:
            self.gateway.observe(seen.attempts)
            self.gateway.refresh(state)
        if self.frontend is None:
            return
        for a in seen.attempts:
            if (pool := self.pools.get(a.pool)) is not None and pool.engine == "dynamo":
                self.frontend.observe_attempt(a, pool.model)
        for model, spec in self._by_model.items():
            cached = [
                float(f.cached_tokens) for r, f in seen.finishes if r.model == model and r.role != "decode"
            ]
            self.frontend.observe_cached(model, cached)
            inside = sum(
                n for p, n in state.in_flight.items() if p in self.pools and self.pools[p].model == model
            )
            mine = [r for r in self.sim.replicas if r.pool == spec.name]
            queued = sum(e.gauges["waiting"] for r in mine for e in r.engines)
            self.frontend.refresh({model: (float(inside), queued)}, self._by_model, self.sim.now)

    # ----------------------------------------------------------------------------------------------- showing

    def targets(self) -> list[Exposed]:
        """Every address now, engines first."""
        out = list(self._replicas())
        cluster = self.sim.spec.pools[0].cluster
        start = self.sim.spec.start
        if self.frontend is not None:
            labels = {"job": "dynamo-frontend", "instance": FRONTEND, "pool": "frontend", "cluster": cluster}
            out.append(Exposed("dynamo-frontend-0", labels, self.frontend.page, start=start))
        if self.gateway is not None:
            labels = {"job": "litellm", "instance": GATEWAY, "pool": "gateway", "cluster": cluster}
            out.append(Exposed("gateway-0", labels, self.gateway.page, start=start))
        return out

    def _replicas(self) -> Iterator[Exposed]:
        for r in self.sim.replicas:
            known = self._faces.get(r.address)
            page = known[1].page if known is not None and r.up else None
            common = {"pool": r.pool, "cluster": r.cluster}
            labels = {**common, "job": r.engine, "instance": r.address}
            wrong = dict(r.telemetry)
            target = Exposed(r.name, labels, page, wrong, start=r.process_start)
            if wrong.get("stale") and page is not None:
                if r.address not in self._frozen:
                    self._frozen[r.address] = (page.text(), Sample(list(page.series), page.snapshot()))
                target.frozen = self._frozen[r.address]
            else:
                self._frozen.pop(r.address, None)
            yield target
            gpu = self._gpus.get(r.name)
            if gpu is not None:
                instance = f"{r.name}:{GPU_PORT}"
                silent: dict[str, object] = {"gap": True} if wrong.get("gap") else {}
                yield Exposed(
                    f"{r.name}-gpu",
                    {**common, "job": "dcgm", "instance": instance},
                    gpu.page,
                    silent,
                    frozenset(gpu.gone),
                )


def series_key(sample: Sample) -> tuple[int, frozenset[int]]:
    """Changes when a page has other series than before."""
    return (len(sample.series), sample.hidden)


def visible(sample: Sample) -> tuple[list[tuple[str, dict[str, str]]], Floats]:
    """The exported series as (name, labels) and their values."""
    if not sample.hidden:
        series = sample.series[: len(sample.values)]
        return [(n, dict(p)) for n, p in series], sample.values
    keep = [i for i in range(len(sample.values)) if i not in sample.hidden]
    return [(sample.series[i][0], dict(sample.series[i][1])) for i in keep], sample.values[
        np.asarray(keep, np.intp)
    ]
