"""Outputs that people label, their labels, and a model judge's: rows without any text."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, select, text

from sql.bulk import upsert
from sql.output_counts import BAD
from sql.schema import judgements, outputs, rating_queue, ratings

STRATA = ("hard", "soft", "clean")


class Queued(NamedTuple):
    """An output of a batch: drawn from ``stratum_size`` outputs of its ``stratum``; ``place`` is its turn for every rater."""

    batch: str
    output: str
    stratum: str
    stratum_size: int
    place: int
    verdict: str
    rules: str
    made_at: float


class Rating(NamedTuple):
    """What one person says of one output: ``degraded``, ``fine`` or ``unsure``."""

    batch: str
    output: str
    rater: str
    label: str
    ts: float


class Judgement(NamedTuple):
    """What a model judge says: ``label`` as above, ``damage`` a fixed word, ``confidence`` 0 to 1 or None, tokens spent."""

    output: str
    judge: str
    label: str
    damage: str
    confidence: float | None
    tokens: int
    ts: float


def _order(batch: str, output: str) -> bytes:
    return blake2b(f"{batch}\0{output}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def draw(
    connection: Connection, batch: str, start: float, end: float, sizes: Mapping[str, int], now: float
) -> list[Queued]:
    """Choose outputs of the random part that finished in [start, end) and whose text is kept: ``sizes`` of each stratum, by a
    hash of batch and id, so that nobody chose. The batch is stored; one that exists is returned as it is."""
    known = queue(connection, batch)
    if known:
        return known
    o = outputs.c
    query = select(o.id, o.verdict, o.rules).where(
        o.ts >= start, o.ts < end, o.random, o.text.is_not(None), o.verdict.in_(STRATA)
    )
    total = dict.fromkeys(STRATA, 0)
    best: dict[str, list[tuple[bytes, str, str]]] = {s: [] for s in STRATA}
    for id_, verdict, rules in connection.execute(query):
        total[verdict] += 1
        if sizes.get(verdict, 0) > 0:
            # A heap of the smallest hashes: the largest of them stands in front, so bytes are turned round.
            item = (bytes(255 - b for b in _order(batch, id_)), id_, rules)
            if len(best[verdict]) < sizes[verdict]:
                heapq.heappush(best[verdict], item)
            else:
                heapq.heappushpop(best[verdict], item)
    chosen = [(_order("place" + batch, i), i, s, r) for s in STRATA for _, i, r in best[s]]
    rows = [
        Queued(batch, i, s, total[s], place, s, r, now) for place, (_, i, s, r) in enumerate(sorted(chosen))
    ]
    if rows:
        upsert(connection, rating_queue, [r._asdict() for r in rows])
    return rows


def queue(connection: Connection, batch: str) -> list[Queued]:
    """The outputs of a batch in their order."""
    c = rating_queue.c
    query = select(*(c[f] for f in Queued._fields)).where(c.batch == batch).order_by(c.place)
    return [Queued._make(r) for r in connection.execute(query)]


def batches(connection: Connection) -> list[tuple[str, float, int]]:
    """(batch, made at, outputs), the newest first."""
    c = rating_queue.c
    query = select(c.batch, func.min(c.made_at), func.count()).group_by(c.batch)
    return sorted(
        ((str(b), float(t), int(n)) for b, t, n in connection.execute(query)), key=lambda r: (-r[1], r[0])
    )


def rate(connection: Connection, rating: Rating) -> None:
    """Store a label; a rater who changes their mind overwrites their own, never another's."""
    upsert(
        connection,
        ratings,
        [rating._asdict()],
        update=lambda table, new: {"label": new["label"], "ts": new["ts"]},
    )


def labels(connection: Connection, batch: str) -> list[Rating]:
    """All labels of a batch."""
    c = ratings.c
    query = select(*(c[f] for f in Rating._fields)).where(c.batch == batch).order_by(c.output, c.rater)
    return [Rating._make(r) for r in connection.execute(query)]


def judged(connection: Connection, ids: Sequence[str]) -> list[Judgement]:
    """What judges said of these outputs."""
    c, found = judgements.c, []
    for i in range(0, len(ids), 500):
        query = select(*(c[f] for f in Judgement._fields)).where(c.output.in_(list(ids[i : i + 500])))
        found += [Judgement._make(r) for r in connection.execute(query.order_by(c.output, c.judge))]
    return found


def judge_spent(connection: Connection, judge: str, since: float) -> tuple[int, int]:
    """(answers, tokens) of a judge since a time."""
    c = judgements.c
    query = select(func.count(), func.coalesce(func.sum(c.tokens), 0)).where(c.judge == judge, c.ts >= since)
    n, tokens = connection.execute(query).one()
    return int(n), int(tokens)


def to_judge(
    connection: Connection, judge: str, start: float, end: float, most: int
) -> list[tuple[str, str, str]]:
    """(id, text, class) of suspicious outputs with a kept text that this judge has not seen, the newest first."""
    o, j = outputs.c, judgements.c
    seen = select(j.output).where(j.judge == judge)
    query = (
        select(o.id, o.text, o.class_)
        .where(text(BAD), o.ts >= start, o.ts < end, o.text.is_not(None), o.id.not_in(seen))
        .order_by(o.ts.desc(), o.id)
        .limit(most)
    )
    return [(str(i), str(t), str(c)) for i, t, c in connection.execute(query)]


def add_judgements(connection: Connection, rows: Iterable[Judgement]) -> None:
    """Store what a judge said; what it said before stays."""
    new = [r._asdict() for r in rows]
    if new:
        upsert(connection, judgements, new)


def forget(connection: Connection, ids: Sequence[str]) -> None:
    """Drop what refers to outputs that were erased."""
    for i in range(0, len(ids), 500):
        part = list(ids[i : i + 500])
        for table in (rating_queue, ratings, judgements):
            connection.execute(delete(table).where(table.c.output.in_(part)))
