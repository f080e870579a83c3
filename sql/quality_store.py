"""The part of the store about labels of outputs: a queue for people, their labels, a model judge's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sql import ratings as rows
from sql.engine import Database
from sql.ratings import Judgement, Queued, Rating


class QualityStore:
    """Labels of outputs; each method is one transaction."""

    database: Database

    def draw_ratings(
        self, batch: str, start: float, end: float, sizes: Mapping[str, int], now: float
    ) -> list[Queued]:
        """Choose outputs for people to label; a batch that exists is returned as it is. See :func:`sql.ratings.draw`."""
        with self.database.write(lock=True) as c:
            return rows.draw(c, batch, start, end, sizes, now)

    def rating_queue(self, batch: str) -> list[Queued]:
        """The outputs of a batch, in the order in which they are shown."""
        with self.database.read() as c:
            return rows.queue(c, batch)

    def rating_batches(self) -> list[tuple[str, float, int]]:
        """(batch, made at, outputs), the newest first."""
        with self.database.read() as c:
            return rows.batches(c)

    def rate_output(self, rating: Rating) -> None:
        """Store a label; one's own earlier label is overwritten."""
        with self.database.write() as c:
            rows.rate(c, rating)

    def output_ratings(self, batch: str) -> list[Rating]:
        """All labels of a batch."""
        with self.database.read() as c:
            return rows.labels(c, batch)

    def judgements(self, ids: Sequence[str]) -> list[Judgement]:
        """What judges said of outputs."""
        with self.database.read() as c:
            return rows.judged(c, ids)

    def judge_spent(self, judge: str, since: float) -> tuple[int, int]:
        """(answers, tokens) of a judge since a time."""
        with self.database.read() as c:
            return rows.judge_spent(c, judge, since)

    def outputs_to_judge(self, judge: str, start: float, end: float, most: int) -> list[tuple[str, str, str]]:
        """(id, text, class) of suspicious outputs that this judge has not seen, the newest first."""
        with self.database.read() as c:
            return rows.to_judge(c, judge, start, end, most)

    def add_judgements(self, new: Iterable[Judgement]) -> None:
        """Store answers of a judge, once each."""
        with self.database.write() as c:
            rows.add_judgements(c, new)
