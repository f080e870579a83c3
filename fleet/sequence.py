"""A request as the gateway knows it and as an engine works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.kvcache import Chain, Segment

if TYPE_CHECKING:
    from fleet.engine import Engine
    from fleet.sessions import Session


class Request:
    """One attempt: what is asked, and the client behind it. ``chain`` in blocks of the pool; ``output`` is the
    number of tokens after which the model would stop by itself.
    """

    __slots__ = (
        "accept",
        "adapter",
        "arrival",
        "attempt",
        "chain",
        "corrupt",
        "done",
        "first_at",
        "id",
        "max_tokens",
        "output",
        "pool",
        "prompt",
        "session",
        "stage",
        "tenant",
        "timeout",
        "turn",
        "upstream",
        "where",
        "workload",
    )

    def __init__(
        self,
        *,
        id: str,
        workload: str,
        tenant: str,
        pool: str,
        session: Session,
        turn: int,
        chain: Chain,
        prompt: int,
        output: int,
        max_tokens: int,
        accept: float,
        adapter: str,
        timeout: float,
    ) -> None:
        self.id = id
        self.workload = workload
        self.tenant = tenant
        self.pool = pool
        self.session = session
        self.turn = turn
        self.chain = chain
        self.prompt = prompt
        self.output = output
        self.max_tokens = max_tokens
        self.accept = accept
        self.adapter = adapter
        self.timeout = timeout
        self.arrival = 0.0
        self.attempt = 0
        self.first_at: float | None = None
        self.done = False
        self.corrupt = ""
        self.upstream = ""
        self.where: Engine | None = None
        self.stage: Sequence | None = None  # where it is worked on now


class Sequence:
    """A request inside one engine."""

    __slots__ = (
        "blocks",
        "cached",
        "computed",
        "epoch",
        "finish_step",
        "first_at",
        "first_step",
        "generated",
        "held",
        "host_cached",
        "kv_usage",
        "left",
        "next_block_step",
        "ordinal",
        "own",
        "preempted",
        "queue",
        "queued_at",
        "rate",
        "request",
        "running",
        "scheduled_at",
        "source",
        "state",
        "stuck_at",
        "target",
        "verified",
        "waiting",
    )

    def __init__(self, request: Request, now: float) -> None:
        self.request = request
        self.state = "waiting"  # waiting, loading, prefill, decode, outgoing, stuck, gone
        self.target = 0  # tokens it will generate here
        self.queued_at = now
        self.scheduled_at: float | None = None
        self.first_at: float | None = None
        self.queue = 0.0
        self.left = 0  # prompt tokens still to compute
        self.computed = 0  # tokens whose KV is in place
        self.cached = 0
        self.host_cached = 0
        self.generated = 0.0
        self.rate = 1.0
        self.first_step = 0
        self.finish_step = 0
        self.next_block_step = 0
        self.epoch = 0
        self.blocks = 0  # all its blocks, pinned and own
        self.own = 0
        self.held: tuple[Segment, ...] = ()
        self.preempted = 0
        self.stuck_at = 0.0
        self.verified = 0  # decode steps that it took part in
        self.ordinal = 0
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        self.source = "none"

    def finish_blocks(self, block: int) -> int:
        """Blocks that it holds when it ends."""
        return (self.request.prompt + self.target) // block + 1
