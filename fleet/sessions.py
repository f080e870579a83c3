"""Sessions: what one user or agent asks, turn after turn, over a context that grows and is compacted."""

from __future__ import annotations

import bisect
import math
from random import Random
from typing import TYPE_CHECKING

from fleet.kvcache import Chain
from fleet.model import LogNormal, TrafficSpec
from fleet.sequence import Request

if TYPE_CHECKING:
    from fleet.traffic import Source


def draw(rng: Random, law: LogNormal) -> float:
    """One value of a bounded log-normal law."""
    value = law.median * math.exp(law.sigma * rng.gauss(0.0, 1.0)) if law.sigma else law.median
    return min(law.high, max(law.low, value))


class Zipf:
    """Ranks 0..n-1 with probability proportional to 1 / (rank + 1) ** ``exponent``."""

    def __init__(self, n: int, exponent: float) -> None:
        total = 0.0
        self._edges: list[float] = []
        for rank in range(n):
            total += (rank + 1) ** -exponent
            self._edges.append(total)
        self._total = total

    def draw(self, rng: Random) -> int:
        """A rank."""

        return bisect.bisect_left(self._edges, rng.random() * self._total)


class Session:
    """The state of one conversation. ``context``: tokens of its own part, behind shared prompt and document."""

    __slots__ = (
        "adapter",
        "context",
        "generation",
        "id",
        "last_output",
        "poisoned",
        "rank",
        "replica",
        "source",
        "tenant",
        "turn",
        "turns",
    )

    def __init__(self, id: str, tenant: str, source: Source, turns: int, adapter: str) -> None:
        self.id = id
        self.tenant = tenant
        self.source = source
        self.turns = turns
        self.adapter = adapter
        self.turn = 0
        self.context = 0
        self.generation = 0
        self.last_output = 0
        self.replica: int | None = None
        self.rank: int | None = None
        self.poisoned = ""


class Knobs:
    """What faults and calm events turn on a traffic source; 1 and 0 mean nothing is special."""

    __slots__ = (
        "aborts",
        "aborts_under_load",
        "context",
        "deadline",
        "documents_off",
        "length",
        "lora_uniform",
        "new",
        "output",
        "patience",
        "rate",
        "reset",
        "retries",
        "salt",
        "tenant_rate",
        "think",
    )

    def __init__(self) -> None:
        self.rate = 1.0
        self.tenant_rate: dict[str, float] = {}
        self.context = 1.0  # factor on first prompts and on the size at which contexts are compacted
        self.new = 1.0
        self.output = 1.0
        self.length = 1.0
        self.reset = 0.0
        self.salt = False  # something that changes stands in front of the shared prompt
        self.think = 1.0
        self.patience = 1.0
        self.retries = 0
        self.aborts = 0.0
        self.aborts_under_load = 0.0
        self.deadline = 0.0  # seconds after which clients drop even an answer that has begun; 0 = never
        self.documents_off = False
        self.lora_uniform = False


def next_request(
    session: Session,
    spec: TrafficSpec,
    knobs: Knobs,
    rng: Random,
    zipf: Zipf | None,
    block: int,
    accept_rate: float,
) -> Request:
    """The session's next turn as a request. Moves the session's context on."""
    cap = spec.max_context * max(1.0, knobs.context)
    if session.turn == 0 and session.context == 0:
        session.context = int(draw(rng, spec.first) * knobs.context)
    elif session.turn > 0:
        session.context += session.last_output + int(draw(rng, spec.new) * knobs.new)
        reset = spec.reset_share + knobs.reset
        if session.context > cap or (reset and rng.random() < reset):
            session.context = int(draw(rng, spec.compact_to) * knobs.context)
            session.generation += 1
    session.context = min(session.context, int(cap) + 1)
    own = max(1, int(session.context * knobs.length))
    document = 0
    pieces: list[tuple[object, int]] = []
    shared_blocks = spec.shared_tokens // block
    if shared_blocks:
        pieces.append((("shared", spec.workload, spec.pool, session.tenant), shared_blocks))
    if zipf is not None and not knobs.documents_off:
        which = zipf.draw(rng)
        document = int(draw(Random(which * 7919 + 13), spec.document))
        pieces.append((("document", spec.workload, which), document // block))
    prompt = spec.shared_tokens + document + own
    rest = prompt // block - sum(n for _, n in pieces)
    if rest > 0:
        name = (session.id, session.generation, session.turn if zipf is not None else 0)
        pieces.append((name, rest))
    if knobs.salt:
        pieces = [((session.id, "salt", session.turn, rng.random()), prompt // block)]
    chain: Chain = tuple((key, n) for key, n in pieces if n > 0)
    output = max(1, int(draw(rng, spec.output) * knobs.output))
    return Request(
        id=f"{session.id}-{session.turn}",
        workload=spec.workload,
        tenant=session.tenant,
        pool=spec.pool,
        session=session,
        turn=session.turn,
        chain=chain,
        prompt=prompt,
        output=output,
        max_tokens=spec.max_tokens,
        accept=min(0.98, max(0.02, rng.gauss(accept_rate, 0.06))),
        adapter=session.adapter,
        timeout=spec.timeout * knobs.patience,
    )


def retry_of(request: Request) -> Request:
    """The same question again, as the next attempt."""
    again = Request(
        id=request.id,
        workload=request.workload,
        tenant=request.tenant,
        pool=request.pool,
        session=request.session,
        turn=request.turn,
        chain=request.chain,
        prompt=request.prompt,
        output=request.output,
        max_tokens=request.max_tokens,
        accept=request.accept,
        adapter=request.adapter,
        timeout=request.timeout,
    )
    again.attempt = request.attempt + 1
    return again
