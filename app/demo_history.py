"""The demonstration's past: minutes that were simulated, and before them two hours and two weeks drawn from those."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from app.fleet_ingest import Gather
from collectors.labelling import Labelling
from collectors.pseudonyms import Pseudonyms
from collectors.requests import read_request
from core.classes import ClassRules
from core.config_models import Config
from core.records import RequestRecord
from core.requests import RequestCell, RequestKey, fine_edges, fold
from core.roles import Roles
from fleet.faces.common import Fleet
from fleet.faces.targets import FleetFaces, Seen
from fleet.history import EVERY, play
from fleet.history_past import BLOCK_TICKS, Past, Recording, Slot
from fleet.model import Attempt
from fleet.outputs.files import Sampler, attempt
from sql.store import Store

log = logging.getLogger(__name__)

WARM = 150.0
FRESH = 600.0
RECENT = 2 * 3600.0
LONG = 14 * 86400.0
BATCH = 4000
NEAR, NEAR_STEP, FAR_STEP = 2 * 86400.0, 3600.0, 3 * 3600.0
PAST_SHARE = 0.02
AGENTS = "coding-agent"
"""Their sessions are counted from the sample (how much KV cache they need), so their past is sampled as their present is."""
ANY_MINUTE = 1_700_000_040
Lines = Callable[[list[str]], None]


def faces_of(sim: Fleet) -> FleetFaces:
    """The fleet's faces without those of gateway and front end: the gateway's log says the same, request by request."""
    return FleetFaces(sim, edge=False)


class Requests:
    """Gateway attempts of the past, as the importer would fold them."""

    def __init__(self, store: Store, config: Config) -> None:
        rules, roles = ClassRules.from_config(config.classes), Roles.from_config(config.roles)
        self._labelling = Labelling(rules, roles, config, Pseudonyms.of(store))
        self._edges = fine_edges(config.request_thresholds)
        self._joints = config.request_joints

    def cells(self, attempts: list[Attempt], minute: int = ANY_MINUTE) -> dict[RequestKey, RequestCell]:
        """All attempts as if they had ended in one minute."""
        records: list[RequestRecord] = []
        for a in attempts:
            data = attempt(a, tenants=True)
            data["ts"] = float(minute)
            records.append(read_request(data, self._labelling))
        return fold(records, self._edges, joints=self._joints)


def times(cells: Mapping[RequestKey, RequestCell], n: int, minute: int) -> dict[RequestKey, RequestCell]:
    """The cells ``n``-fold, in another minute."""
    out: dict[RequestKey, RequestCell] = {}
    for k, c in cells.items():
        key = RequestKey(minute, k.point, k.class_, k.tenant, k.model, k.pool, k.band, k.status, k.release)
        out[key] = RequestCell(
            c.n * n,
            c.prompt_tokens * n,
            c.output_tokens * n,
            (c.edges, c.ttft[1] * n),
            (c.edges, c.age[1] * n),
            (c.edges, c.duration[1] * n),
            c.ttft_sum * n,
            c.duration_sum * n,
            None if c.tpot is None else (c.edges, c.tpot[1] * n),
            {name: (good * n, unknown * n) for name, (good, unknown) in c.joint.items()},
        )
    return out


def merge(into: dict[RequestKey, RequestCell], more: Mapping[RequestKey, RequestCell]) -> None:
    """Add cells to cells."""
    for key, cell in more.items():
        into[key] = into[key] + cell if key in into else cell


class HistoryMaker:
    """Writes the past of one simulation into a store; ``log_answers`` and ``log_attempts`` get lines for the two logs."""

    def __init__(
        self,
        store: Store,
        config: Config,
        sim: Fleet,
        gather: Gather,
        *,
        log_answers: Lines,
        log_attempts: Callable[[list[Attempt]], None],
        share: float = 0.25,
        long: float = LONG,
        recent: float = RECENT,
        fresh: float = FRESH,
    ) -> None:
        self.store, self.sim, self.gather = store, sim, gather
        self.faces = faces_of(sim)
        self._requests = Requests(store, config)
        self._answers, self._attempts = log_answers, log_attempts
        self._long, self._recent, self._fresh = long, recent, fresh
        self._all, self._sampler = Sampler(sim.spec.seed, 1.0), Sampler(sim.spec.seed, share)
        self._share = share
        self._by_tick: list[dict[RequestKey, RequestCell]] = []
        self._pending = 0

    def write(self) -> None:
        """Simulate, draw the past, and store all of it in order of time."""
        spec = self.sim.spec
        minutes = (self._fresh + spec.lead) / 60
        log.info("simulating %.0f minutes of %d replicas", minutes, sum(p.replicas for p in spec.pools))
        recording = Recording()
        for tick in play(self.sim, self.faces, spec.start + self._fresh):
            recording.add(tick)
        past = Past(recording, self.sim.spec.seed)
        recent = recording.times[-1] - self._recent
        self._by_tick = [self._requests.cells(attempts) for attempts in recording.attempts]
        log.info("writing %.0f days of coarse history", self._long / 86400)
        self._coarse(past, recent - self._long, recent)
        log.info("writing %.0f minutes of history", self._recent / 60)
        self._fine(past, recent, recording.times[0])
        for slot in past.settle():
            self._put(slot)
        self._flush()
        self._answers(self._sampler.lines(f for tick in recording.finishes[1:] for f in tick))
        self._attempts([a for tick in recording.attempts[1:] for a in tick])

    def catch_up(self, now: float, sink: Callable[[Seen], None]) -> None:
        """What passed while the past was written."""
        for tick in play(self.sim, self.faces, now - EVERY):
            for target in tick.targets:
                self.gather.add(tick.t, target)
            sink(tick.seen)
        self._flush()

    def _coarse(self, past: Past, start: float, end: float) -> None:
        by_block: dict[int, dict[RequestKey, RequestCell]] = {}
        for block in past.starts:
            whole = by_block[block] = {}
            for tick in range(block + 1, block + BLOCK_TICKS + 1):
                merge(whole, self._by_tick[tick])
        cells: dict[RequestKey, RequestCell] = {}
        near = max(start, end - NEAR)
        for slot in (*past.coarse(start, near, FAR_STEP), *past.coarse(near, end, NEAR_STEP)):
            self._put(slot)
            minute = int(slot.t // 60) * 60 - 60
            for block, n in Counter(slot.blocks).items():
                merge(cells, times(by_block[block], n, minute))
        self._flush()
        self.store.add_requests(cells)

    def _fine(self, past: Past, start: float, end: float) -> None:
        cells: dict[RequestKey, RequestCell] = {}
        for slot in past.fine(start, end):
            self._put(slot)
            tick = self._by_tick[slot.blocks[0] + slot.step + 1]
            merge(cells, times(tick, 1, int((slot.t - 1) // 60) * 60))
            self._answers(self._all.lines(past.finishes(slot, PAST_SHARE, {AGENTS: self._share})))
        self._flush()
        self.store.add_requests(cells)

    def _put(self, slot: Slot) -> None:
        for exposed, sample in slot.samples:
            self.gather.put(slot.t, exposed, sample)
            self._pending += 1
        if self._pending >= BATCH:
            self._flush()

    def _flush(self) -> None:
        self.store.append(self.gather.take(), events=False)
        self._pending = 0
