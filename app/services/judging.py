"""A model judge on the suspicious part: asked within its budget, its word stored beside the rules."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from app.services import audit
from app.services.people import Principal
from collectors.judge import ask, key_of
from core.config import Config
from core.errors import ConfigError, SourceError
from sql.ratings import Judgement
from sql.store import Store

DAY = 86400.0
ACTION = "sent output text to judge"


@dataclass(frozen=True)
class Judged:
    """What one run asked. ``stopped``: why it ended early, empty where it did not."""

    judge: str
    asked: int
    labels: dict[str, int]
    tokens: int
    stopped: str

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "judge": self.judge,
            "asked": self.asked,
            "labels": self.labels,
            "tokens": self.tokens,
            "stopped": self.stopped or None,
        }

    def sentence(self) -> str:
        """For people."""
        said = ", ".join(f"{n} {label}" for label, n in sorted(self.labels.items())) or "nothing to ask"
        end = f" It stopped early: {self.stopped}." if self.stopped else ""
        return f"{self.judge}: {self.asked} suspicious outputs asked about ({said}), {self.tokens:,} tokens.{end}"


async def judge(store: Store, config: Config, start: float, end: float, *, most: int) -> Judged:
    """Ask about suspicious outputs that finished in [start, end) and that this judge has not seen, the newest first.

    ``ConfigError`` where no judge is configured. Each answer is stored at once; each text that leaves is in the audit log first.
    """
    settings = config.outputs.judge
    if settings is None:
        raise ConfigError(
            "outputs.judge", "no model judge is configured", "set url and model; texts will be sent there"
        )
    name, now = settings.model, time.time()
    questions, tokens = store.judge_spent(name, now - DAY)
    room = min(most, settings.per_day - questions)
    if room <= 0:
        return Judged(
            name, 0, {}, 0, f"{questions} questions in 24 hours, outputs.judge.per_day is {settings.per_day}"
        )
    todo = [(i, text) for i, text, _ in store.outputs_to_judge(name, start, end, room)]
    me = Principal(f"judge {name}"[:100], "viewer")
    said: Counter[str] = Counter()
    spent, stopped = 0, ""

    def logged() -> Any:
        for i, text in todo:
            audit.record(store, me, ACTION, i, origin=settings.url)
            yield i, text

    try:
        async for i, answer, used in ask(settings, logged(), key_of(settings)):
            row = Judgement(i, name, answer.label, answer.damage, answer.confidence, used, time.time())
            store.add_judgements([row])
            said[answer.label] += 1
            spent += used
            if tokens + spent >= settings.tokens_per_day:
                stopped = f"outputs.judge.tokens_per_day ({settings.tokens_per_day:,}) is used up"
                break
    except SourceError as error:
        stopped = str(error)
    return Judged(name, sum(said.values()), dict(said), spent, stopped)
