"""When a text goes wrong: rules that look at what really happened to the request, and mark it.

A marked request also behaves so: loops run to the token limit with near-perfect acceptance of drafts, garbled
text has drafts rejected. So loops can be the load that they seem to follow from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fleet.engine_base import EngineBase
from fleet.sequence import Sequence

NATURAL = ("loop", "loop", "foreign", "truncated", "mojibake", "bad_tool_call", "empty", "flood")
BAD = frozenset(
    {"loop", "garble", "foreign", "flood", "mojibake", "empty", "truncated", "bad_tool_call", "leak"}
)


@dataclass(slots=True)
class Rule:
    """``share(engine, seq, now)`` is the probability; ``kinds`` are drawn evenly. ``hits`` counts."""

    share: Callable[[EngineBase, Sequence, float], float]
    kinds: tuple[str, ...]
    poison: float = 0.0  # probability that the session's later turns are bad too
    hits: int = 0


def mark(seq: Sequence, kind: str, rng: Random) -> None:
    """Make the request's course that of a broken one."""
    request = seq.request
    request.corrupt = kind
    if kind in ("loop", "flood"):
        if rng.random() < 0.75:
            request.output = request.max_tokens + 1
        else:
            request.output = max(request.output, 600)
        request.accept = 0.975
    elif kind in ("garble", "mojibake", "leak"):
        request.accept = 0.05 + 0.12 * rng.random()
        request.output = max(request.output, 60)
    elif kind == "foreign":
        request.accept *= 0.7
        request.output = max(request.output, 30)
    elif kind == "empty":
        request.output = 1
    elif kind == "truncated":
        request.output = max(1, request.output // 4)


class Corruption:
    """All rules of a fleet, asked once per request at its first admission."""

    def __init__(self, base: float, seed: int) -> None:
        self.base = base
        self.rules: list[Rule] = []
        self._rng = Random(f"{seed}:corruption")

    def admitted(self, engine: EngineBase, seq: Sequence, now: float) -> None:
        """Decide over this request's text."""
        if engine.spec.role == "prefill" or seq.request.corrupt:
            return
        rng = self._rng
        session = seq.request.session
        if session.poisoned and rng.random() < 0.9:
            mark(seq, session.poisoned, rng)
            return
        for rule in self.rules:
            share = rule.share(engine, seq, now)
            if share and rng.random() < share:
                kind = rng.choice(rule.kinds)
                mark(seq, kind, rng)
                rule.hits += 1
                if rule.poison and rng.random() < rule.poison:
                    session.poisoned = kind
                return
        if self.base and rng.random() < self.base:
            mark(seq, rng.choice(NATURAL), rng)
