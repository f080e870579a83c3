"""Writing rows: the one place that knows how each dialect upserts, and how values are made storable."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from sqlalchemy import ARRAY, Connection, Table, UpdateBase, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

Update = tuple[str, ...] | Callable[[Table, Any], Mapping[str, Any]] | None
"""What an upsert does with a row that exists: columns taken from the new row; or a function ``(table, excluded) → {key:
expression}``; or None: leave it."""


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, update: Update = None
) -> None:
    """Insert ``rows``, all with the keys of the first; what happens to existing ones is said by ``update``."""
    if rows:
        keys = tuple(c.key for c in table.columns if c.key in rows[0])
        bulk(connection, table, keys, [tuple(_plain(r[k]) for k in keys) for r in rows], update=update)


def clean(text: str) -> str:
    """Text that both databases can hold: NUL and lone surrogates become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _plain(value: Any) -> Any:
    """A numpy scalar as the Python value it is: SQLite would store an ``int64`` as bytes. Text that can be stored."""
    if isinstance(value, str):
        return clean(value)
    return value.item() if isinstance(value, np.generic) else value


def to_json(value: Any) -> str:
    """Compact JSON text; NaN and infinities become null, numpy values and sets what they hold."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    try:
        text = orjson.dumps(value, default=_jsonable, option=options).decode()
    except TypeError as error:
        if "surrogates" not in str(error):
            raise
        text = "\\u0000"
    if "\\u0000" in text:
        text = orjson.dumps(_cleaned(value), default=_jsonable, option=options).decode()
    return text


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(k): _cleaned(v) for k, v in value.items()}
    return [_cleaned(v) for v in value] if isinstance(value, (list, tuple)) else value


def _jsonable(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")


def bulk(
    connection: Connection,
    table: Table,
    keys: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
    *,
    update: Update = None,
    conflict: bool = True,
) -> None:
    """As :func:`upsert` with the values as tuples in the order of ``keys``, which is the table's.

    ``conflict`` False makes an existing row an error.

    The statement is compiled once and handed to the driver with plain Python values: SQLAlchemy's own executemany spends more
    time on naming parameters than SQLite on writing them. PostgreSQL gets the rows as one array a column, in one statement
    (a fifth of the time of a statement a row); no key may then come twice. This and what it calls are all that knows of
    dialects.
    """
    sql = _compiled(connection.dialect.name, table, keys, update, conflict) if rows else ""
    if connection.dialect.name == "sqlite":
        if rows:
            connection.exec_driver_sql(sql, list(rows))
        return
    for start in range(0, len(rows), 5000):
        columns = zip(*rows[start : start + 5000], strict=True)
        connection.exec_driver_sql(sql, tuple(list(c) for c in columns))


def many(connection: Connection, statement: UpdateBase, rows: Sequence[Mapping[str, Any]]) -> None:
    """Run a statement with named parameters, a constant of its module, once for each row."""
    if rows:
        sql, order = _rendered(connection.dialect.name, statement)
        connection.exec_driver_sql(sql, [tuple(r[k] for k in order) for r in rows])


@lru_cache(maxsize=256)
def _compiled(dialect: str, table: Table, keys: tuple[str, ...], update: Update, conflict: bool) -> str:
    if dialect == "sqlite":
        statement: Any = sqlite.insert(table).values({k: bindparam(k) for k in keys})
    else:
        arrays = [bindparam(k, type_=ARRAY(table.c[k].type)) for k in keys]
        rows = func.unnest(*arrays).table_valued(*keys, name="new").render_derived()
        statement = postgresql.insert(table).from_select([table.c[k] for k in keys], select(*rows.c))
    primary = list(table.primary_key.columns)
    if conflict and update is None:
        statement = statement.on_conflict_do_nothing(index_elements=primary)
    elif conflict:
        excluded = statement.excluded
        chosen = update(table, excluded) if callable(update) else {k: excluded[k] for k in update or ()}
        values = {table.c[k]: v for k, v in chosen.items()}
        statement = statement.on_conflict_do_update(index_elements=primary, set_=values)
    sql, order = _rendered(dialect, statement)
    if order != keys:
        raise ValueError(f"the columns of {table.name} must be given in the order {order}, not {keys}")
    return sql


@lru_cache(maxsize=256)
def _rendered(dialect: str, statement: UpdateBase) -> tuple[str, tuple[str, ...]]:
    """The driver's own SQL of a statement, and the order of its parameters."""
    if dialect == "sqlite":
        form: Any = sqlite.dialect(paramstyle="qmark")
    else:
        form = PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]
    compiled: Any = statement.compile(dialect=form)
    return str(compiled), tuple(compiled.positiontup)
