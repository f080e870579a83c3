"""Sampled outputs counted by what they share, kept by the same transaction that stores them: a million outputs are read as some
ten thousand rows. Bad outputs are few and are read one by one (an index holds only them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, and_, case, cast, func, or_, select, text
from sqlalchemy.sql import ColumnElement

from sql.bulk import upsert
from sql.schema import output_counts, outputs, requests

BIN = 300
"""Seconds of admission that one row spans: the resolution of roll-ups per replica."""
BANDS = (1024, 8192, 32768)
"""Edges of prompt length in tokens; band 4 = not known."""
BEYOND = ("cpu", "host", "disk", "remote")
KEYS = ("bin", "class_", "pool", "replica", "model", "release", "band", "cache", "structured")
GAVE_UP = 499
BAD = "verdict IN ('hard', 'soft')"
"""Word for word the condition of the index of bad outputs: a bound parameter would not use it."""
SUMS = ("n", "weight", "weight2", "hard", "hard_weight", "soft", "seconds", "aside")


class OutputCount(NamedTuple):
    """Outputs admitted in ``[bin, bin + 300)`` that share the other keys.

    ``cache``: 0 nothing came from a cache, 1 from the GPU (or unsaid), 2 from a host or remote tier, -1 not known;
    ``structured`` 1, 0, or -1 where not known. ``n``, ``weight``, ``weight2`` (sum of squares), ``hard``, ``hard_weight``,
    ``soft`` and ``seconds`` (end-to-end time) count the random part alone; ``aside`` what was kept only as suspicious.
    """

    bin: int
    class_: str
    pool: str
    replica: str
    model: str
    release: str
    band: int
    cache: int
    structured: int
    n: int
    weight: float
    weight2: float
    hard: int
    hard_weight: float
    soft: int
    seconds: float
    aside: int


class BadOutput(NamedTuple):
    """A degraded or suspicious output, without its text."""

    id: str
    ts: float
    admitted: float
    class_: str
    pool: str
    replica: str
    model: str
    release: str
    session: str
    turn: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    e2e_s: float | None
    verdict: str
    rules: str
    random: bool
    weight: float
    structured: bool | None
    language: str
    cache_source: str


def band(prompt_tokens: int | None) -> int:
    """0 to 3 by :data:`BANDS`, 4 where the length is not known."""
    if prompt_tokens is None:
        return len(BANDS) + 1
    return sum(prompt_tokens >= edge for edge in BANDS)


def cache(cached_tokens: int | None, source: str) -> int:
    """The code of :class:`OutputCount`."""
    if source in BEYOND:
        return 2
    return -1 if cached_tokens is None else int(cached_tokens > 0)


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a row of ``outputs``."""
    structured = row["structured"]
    return (
        int(row["admitted"] // BIN * BIN),
        row["class_"],
        row["pool"],
        row["replica"],
        row["model"],
        row["release"],
        band(row["prompt_tokens"]),
        cache(row["cached_tokens"], row["cache_source"]),
        -1 if structured is None else int(structured),
    )


def add(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Count rows that have just been inserted into ``outputs``."""
    total: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        at = total.setdefault(key_of(row), [0, 0.0, 0.0, 0, 0.0, 0, 0.0, 0])
        if not row["random"]:
            at[7] += 1
            continue
        w, hard = float(row["weight"]), row["verdict"] == "hard"
        more = (1, w, w * w, hard, w * hard, row["verdict"] == "soft", float(row["e2e_s"] or 0.0), 0)
        for i, x in enumerate(more):
            at[i] += x
    new = [
        {
            **dict(zip(KEYS, key, strict=True)),
            **{
                s: int(v) if s in ("n", "hard", "soft", "aside") else v
                for s, v in zip(SUMS, sums, strict=True)
            },
        }
        for key, sums in total.items()
    ]
    upsert(connection, output_counts, new, update=_plus)


def _plus(table: Any, new: Any) -> Mapping[str, Any]:
    return {name: table.c[name] + new[name] for name in SUMS}


def recount(connection: Connection, bins: Sequence[int]) -> None:
    """Count some bins anew from ``outputs``: after rows were deleted from them."""
    if not bins:
        return
    c, o = output_counts.c, outputs.c
    for at in sorted(set(bins)):
        connection.execute(output_counts.delete().where(c.bin == at))
        found = connection.execute(_grouped().where(o.admitted >= at, o.admitted < at + BIN)).all()
        upsert(connection, output_counts, [dict(zip((*KEYS, *SUMS), row, strict=True)) for row in found])


def fill(connection: Connection) -> None:
    """Count everything that is stored."""
    connection.execute(output_counts.delete())
    found = connection.execute(_grouped()).all()
    upsert(connection, output_counts, [dict(zip((*KEYS, *SUMS), row, strict=True)) for row in found])


def _grouped() -> Any:
    """``outputs`` grouped as :func:`key_of` says."""
    o = outputs.c
    over = sum(
        (case((o.prompt_tokens >= edge, 1), else_=0) for edge in BANDS[1:]),
        case((o.prompt_tokens >= BANDS[0], 1), else_=0),
    )
    keys = (
        (cast(func.floor(o.admitted / BIN), BigInteger) * BIN).label("bin"),
        o.class_,
        o.pool,
        o.replica,
        o.model,
        o.release,
        case((o.prompt_tokens.is_(None), len(BANDS) + 1), else_=over).label("band"),
        case(
            (o.cache_source.in_(BEYOND), 2),
            (o.cached_tokens.is_(None), -1),
            (o.cached_tokens > 0, 1),
            else_=0,
        ).label("cache"),
        case((o.structured.is_(None), -1), (o.structured, 1), else_=0).label("structured"),
    )

    def count(test: ColumnElement[bool], value: Any = 1, zero: Any = 0) -> Any:
        return func.sum(case((test, value), else_=zero))

    random, hard = o.random, and_(o.random, o.verdict == "hard")
    return select(
        *keys,
        count(random),
        count(random, o.weight, 0.0),
        count(random, o.weight * o.weight, 0.0),
        count(hard),
        count(hard, o.weight, 0.0),
        count(and_(random, o.verdict == "soft")),
        count(random, func.coalesce(o.e2e_s, 0.0), 0.0),
        count(~random),
    ).group_by(*keys)


def read(
    connection: Connection,
    start: float,
    end: float,
    *,
    pools: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
) -> list[OutputCount]:
    """Counts of the bins that begin in [start, end), by bin."""
    c = output_counts.c
    query = select(*(c[k] for k in (*KEYS, *SUMS))).where(c.bin >= int(start), c.bin < int(-(-end // 1)))
    for column, allowed in ((c.pool, pools), (c.class_, classes), (c.model, models)):
        if allowed is not None:
            query = query.where(column.in_(list(allowed)))
    # All rows at once: a hundred thousand of them one by one take three times as long.
    return list(map(OutputCount._make, connection.execute(query.order_by(c.bin)).all()))


def read_bad(
    connection: Connection,
    start: float,
    end: float,
    *,
    pools: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    soft: bool = False,
    most: int = 200_000,
) -> list[BadOutput]:
    """Outputs with a hard (and with ``soft``, a soft) verdict admitted in [start, end), by finish; the newest ``most``."""
    o = outputs.c
    columns = [o[k] for k in BadOutput._fields]
    # the index holds finishes: what was admitted in the span finished after its start
    query = select(*columns).where(text(BAD), o.ts >= start, o.admitted >= start, o.admitted < end)
    if not soft:
        query = query.where(o.verdict == "hard")
    for column, allowed in ((o.pool, pools), (o.class_, classes), (o.model, models)):
        if allowed is not None:
            query = query.where(column.in_(list(allowed)))
    rows = connection.execute(query.order_by(o.ts.desc(), o.id).limit(most)).all()
    return [BadOutput._make(row) for row in reversed(rows)]


def texts(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Texts of outputs, where the configuration kept them."""
    o = outputs.c
    query = select(o.id, o.text).where(o.id.in_(list(ids)), o.text.is_not(None))
    return {row[0]: row[1] for row in connection.execute(query)}


def turn_counts(
    connection: Connection, start: float, end: float, *, classes: Sequence[str] | None = None
) -> list[tuple[str, int | None, int]]:
    """(class, turn, outputs) of the random outputs that finished in [start, end) and name a session."""
    o = outputs.c
    query = (
        select(o.class_, o.turn, func.count())
        .where(o.ts >= start, o.ts < end, o.session != "", o.random)
        .group_by(o.class_, o.turn)
    )
    if classes is not None:
        query = query.where(o.class_.in_(list(classes)))
    return [(c, None if t is None else int(t), int(n)) for c, t, n in connection.execute(query)]


def bad_sessions(
    connection: Connection, start: float, end: float, *, classes: Sequence[str] | None = None
) -> list[tuple[str, str, int | None, float, bool]]:
    """(class, session, turn, finish, hard) of the random outputs of sessions with a hard verdict in [start, end), in order."""
    o = outputs.c
    gone = select(o.session).where(text(BAD), o.verdict == "hard", o.ts >= start, o.ts < end, o.session != "")
    query = select(o.class_, o.session, o.turn, o.ts, o.verdict == "hard").where(
        o.session.in_(gone), o.ts >= start, o.ts < end, o.random
    )
    if classes is not None:
        query = query.where(o.class_.in_(list(classes)))
    rows = connection.execute(query).all()
    return sorted(
        ((r[0], r[1], r[2], float(r[3]), bool(r[4])) for r in rows),
        key=lambda r: (r[0], r[1], -1 if r[2] is None else r[2], r[3]),
    )


def given_up(
    connection: Connection, start: float, end: float, *, pools: Sequence[str] | None = None
) -> list[tuple[int, str, int, int]]:
    """(bin, pool, requests that a gateway let through, those among them that clients gave up) per five minutes and pool."""
    r = requests.c
    at = (cast(func.floor(r.minute / BIN), BigInteger) * BIN).label("bin")
    reached = or_(r.status < 400, r.status == GAVE_UP)
    query = (
        select(
            at,
            r.pool,
            func.sum(case((reached, r.n), else_=0)),
            func.sum(case((r.status == GAVE_UP, r.n), else_=0)),
        )
        .where(r.minute >= int(start), r.minute < int(-(-end // 1)))
        .group_by(at, r.pool)
    )
    if pools is not None:
        query = query.where(r.pool.in_(list(pools)))
    return [(int(b), p, int(n), int(k)) for b, p, n, k in connection.execute(query)]
