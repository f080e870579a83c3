"""Texts for finished requests: a function of the request alone, so that any sample of them is the same."""

from __future__ import annotations

from random import Random

from fleet.model import Finish
from fleet.outputs import machine
from fleet.outputs.broken import BREAKERS
from fleet.outputs.languages import GRAMMARS, SHARES, Grammar

MAX_CHARS = 1600
CHARS_PER_TOKEN = 4.0


class Writer:
    """``text(finish)`` writes the answer of a request, broken if the simulation says so."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._languages, self._weights = list(SHARES), list(SHARES.values())

    def text(self, finish: Finish) -> str:
        """The answer: one language for the whole session, about as long as its tokens (at most 1,600 characters)."""
        rng = Random(f"{self.seed}:{finish.id}")
        session = Random(f"{self.seed}:{finish.session}")
        grammar = GRAMMARS[session.choices(self._languages, self._weights)[0]]
        per_token = CHARS_PER_TOKEN if grammar.gap else 1.6
        chars = int(min(MAX_CHARS, max(40.0, finish.output_tokens * per_token)))
        clean = self._clean(finish.workload, grammar, rng, chars)
        breaker = BREAKERS.get(finish.corrupt)
        return clean if breaker is None else breaker(clean, rng)

    def _clean(self, workload: str, grammar: Grammar, rng: Random, chars: int) -> str:
        x = rng.random()
        if workload == "coding-agent":
            if x < 0.5:
                return machine.tool_call(rng)
            if x < 0.7:
                return machine.patch(rng, chars)
            return f"{grammar.sentence(rng)}\n\n{machine.code(rng, chars)}"
        if workload == "batch" and x < 0.6:
            return machine.records(rng, max(1, chars // 70))
        if x < 0.08:
            return f"{grammar.sentence(rng)}\n\n{machine.table(rng, max(2, min(12, chars // 50)))}"
        if x < 0.2:
            return f"{grammar.sentence(rng)}\n\n{machine.code(rng, chars)}"
        return grammar.prose(rng, chars)
