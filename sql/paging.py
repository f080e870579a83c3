"""Pages by the last row seen: steady while rows are added, and as fast for the last page as for the first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_


def newest_first(
    query: Select[Any],
    time: ColumnElement[float],
    key: ColumnElement[str],
    limit: int,
    before: tuple[float, str] | None,
) -> Select[Any]:
    """Rows by time and key, the newest first, at most ``limit``, after ``before`` = (time, key) of the last one seen."""
    query = query.order_by(time.desc(), key.desc()).limit(limit)
    if before is None:
        return query
    return query.where(or_(time < before[0], and_(time == before[0], key < before[1])))
