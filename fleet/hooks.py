"""What an engine asks of the world around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fleet.model import FinishReason
from fleet.sequence import Sequence

if TYPE_CHECKING:
    from fleet.engine import Engine
    from fleet.engine_base import EngineBase


class EngineHooks(Protocol):
    """Implemented by the simulation; all calls happen at ``clock()``."""

    def clock(self) -> float:
        """Seconds now."""

    def chance(self, share: float) -> bool:
        """True with probability ``share``."""

    def wait(self, mean: float) -> float:
        """An exponential time with that mean."""

    def admitted(self, engine: EngineBase, seq: Sequence, now: float) -> None:
        """First admission: the load and the cache source are known."""

    def later(self, seq: Sequence, at: float) -> None:
        """Resume the sequence in its engine at that time."""

    def prefilled(self, engine: Engine, seq: Sequence, now: float) -> None:
        """Prefill role: the prompt's KV is ready to be transferred."""

    def first_token(self, engine: EngineBase, seq: Sequence, now: float) -> None:
        """The client sees the first token."""

    def left(self, engine: EngineBase, seq: Sequence, reason: FinishReason, now: float) -> None:
        """The sequence is gone from the engine, whatever the reason."""
