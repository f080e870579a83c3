"""What engines and the gateway record of single events. Times are Unix seconds, durations seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A change that operators would log: deploy, restart, scale, flag."""

    kind: str
    pool: str
    ts: float
    text: str


@dataclass(slots=True)
class FirstToken:
    """Seconds: ``queue`` engine's waiting line, ``prefill`` scheduled to first token."""

    t: float
    workload: str
    ttft: float
    queue: float
    prefill: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class TokenGaps:
    """``count`` gaps of ``gap`` seconds between engine outputs, together ``tokens`` tokens."""

    t: float
    workload: str
    gap: float
    count: int
    tokens: float


@dataclass(slots=True)
class Steps:
    """``count`` engine steps, each of ``seconds`` and ``tokens`` scheduled tokens (decode + prefill)."""

    t: float
    seconds: float
    tokens: float
    count: int


@dataclass(slots=True)
class BlockEvents:
    """``blocks`` KV blocks evicted (``lifetime``, ``idle`` seconds) or reused (``idle`` = reuse gap)."""

    t: float
    event: Literal["evict", "reuse"]
    lifetime: float
    idle: float
    blocks: int


@dataclass(slots=True)
class Transfer:
    """A KV transfer into this engine (decode) or out of it (prefill)."""

    t: float
    seconds: float
    bytes: float
    ok: bool = True


@dataclass(slots=True)
class Finish:
    """A request that left the engine. ``running``, ``waiting``, ``kv_usage`` are its rank's load at
    admission without itself. ``corrupt`` names what is wrong with the text ('' = clean): loop, garble,
    foreign, flood, mojibake, empty, truncated, bad_tool_call, leak. ``cache_source``: none, device, host, transfer.
    """

    id: str
    t: float
    workload: str
    tenant: str
    session: str
    turn: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    ttft: float
    e2e: float
    queue: float
    prefill: float
    decode: float
    max_tokens: int
    accept_length: float | None
    preempted: int
    finish_reason: FinishReason
    running: int
    waiting: int
    kv_usage: float
    ordinal: int
    cache_source: str = "none"
    adapter: str = ""
    corrupt: str = ""
    rank: int = 0


@dataclass(slots=True)
class Abort:
    """A request whose client went away. ``phase``: queue, prefill or decode; ``age`` seconds since arrival."""

    id: str
    t: float
    workload: str
    phase: Literal["queue", "prefill", "decode", "transfer"]
    age: float
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Attempt:
    """One line of the gateway log; ``upstream`` is address:port ('' = never sent). ``ttft`` None = no token."""

    ts: float
    workload: str
    tenant: str
    pool: str
    upstream: str
    status: int
    ttft: float | None
    duration: float
    prompt_tokens: int
    output_tokens: int
    session: str
    turn: int
    retry: int
    id: str


@dataclass(slots=True)
class Observations:
    """Append-only since the last drain. ``drain`` hands the lists over and starts empty ones."""

    first_tokens: list[FirstToken] = field(default_factory=list)
    gaps: list[TokenGaps] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    aborts: list[Abort] = field(default_factory=list)
    blocks: list[BlockEvents] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    def drain(self) -> Observations:
        """What came since the last drain."""
        out = Observations(
            self.first_tokens, self.gaps, self.steps, self.finishes, self.aborts, self.blocks, self.transfers
        )
        self.first_tokens, self.gaps, self.steps, self.finishes = [], [], [], []
        self.aborts, self.blocks, self.transfers = [], [], []
        return out
