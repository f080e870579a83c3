"""How long engine steps take, and the jump over many equal ones."""

from __future__ import annotations

import math

from fleet.model import Speeds
from fleet.sequence import Sequence


class Plan:
    """What an engine does next: one step with prompt chunks, or ``steps`` pure decode steps in one jump.

    Step i (from 0) of a jump takes ``first + i * growth`` seconds, since contexts grow by one step's tokens.
    """

    __slots__ = (
        "carried",
        "carry",
        "chunks",
        "count",
        "decodes",
        "emitted",
        "first",
        "growth",
        "rate",
        "stall",
        "start",
        "tokens",
    )

    def __init__(
        self, start: float, first: float, growth: float, count: int, decodes: int, rate: float
    ) -> None:
        self.start = start
        self.first = first
        self.growth = growth
        self.count = count
        self.decodes = decodes  # sequences that step
        self.rate = rate  # tokens a step
        self.chunks: list[tuple[Sequence, int]] = []
        self.tokens = 0  # prompt tokens
        self.stall = 0.0
        self.emitted = 0
        self.carry = 0.0  # ``carried`` of the sequences waited this long before the first step
        self.carried = 0

    def elapsed(self, steps: int) -> float:
        """Seconds that the first ``steps`` steps take."""
        return self.stall + steps * self.first + self.growth * steps * (steps - 1) / 2

    @property
    def end(self) -> float:
        return self.start + self.elapsed(self.count)

    def done_by(self, now: float) -> int:
        """Whole steps finished at ``now``."""
        span = now - self.start - self.stall
        if span <= 0:
            return 0
        # The root of span = b n + growth n^2 / 2 in the form that does not cancel for small growth.
        b = self.first - self.growth / 2
        steps = int(2 * span / (b + math.sqrt(b * b + 2 * self.growth * span)) + 1e-9)
        return max(0, min(self.count, steps))


def decode_seconds(speeds: Speeds, sequences: int, context: float, drafting: bool) -> float:
    """One step that gives ``sequences`` sequences their next token(s), ``context`` tokens of KV read."""
    return (
        speeds.step
        + speeds.sequence * sequences
        + speeds.context * context
        + (speeds.draft if drafting and sequences else 0.0)
    )


def prompt_seconds(speeds: Speeds, tokens: int, before: int) -> float:
    """Computing ``tokens`` prompt tokens after ``before`` ones."""
    return tokens * (speeds.prefill + speeds.attention * (before + tokens / 2))


def accept_length(rate: float, drafts: int) -> float:
    """Expected tokens of one verify step when each of ``drafts`` draft tokens is accepted with ``rate``."""
    if drafts <= 0 or rate <= 0:
        return 1.0
    if rate >= 1:
        return float(drafts + 1)
    return float((1 - rate ** (drafts + 1)) / (1 - rate))
