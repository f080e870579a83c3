"""Which replicas are there and which were seen: the coverage chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.services.view import View
from app.services.wording import instant, listing, span
from core.config import Config
from sql.store import Store

SEEN_WITHIN = 60.0
"""A replica counts as seen when a target of it delivered a frame in the last minute before ``as_of``."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Replicas known and seen at ``as_of``; ``behind`` seconds from the newest frame to ``as_of``; ``unseen`` by name."""

    known: int
    seen: int
    behind: float | None
    unseen: tuple[str, ...]
    as_of: float
    live: bool

    @property
    def complete(self) -> bool:
        """Every known replica was seen."""
        return self.known > 0 and self.seen == self.known

    def text(self) -> str:
        """``11 of 11 replicas seen, 4 s behind``."""
        if self.known == 0:
            return "no replicas known"
        behind = f", {span(self.behind)} behind" if self.live and self.behind is not None else ""
        missing = f" · not seen: {listing(self.unseen, 3)}" if self.unseen else ""
        return f"{self.seen} of {self.known} replicas seen{behind}{missing}"

    def history(self) -> str:
        """The words of the history chip; empty while live."""
        return "" if self.live else f"showing history as of {instant(self.as_of)}"


def place(row: Any) -> tuple[str, str]:
    """(pool, replica) of a target row; the address stands in where no replica is named."""
    return (row.target.pool, row.target.replica or row.target.address)


def places(rows: list[Any]) -> dict[int, tuple[str, str]]:
    """Target id → (pool, replica)."""
    return {row.id: place(row) for row in rows}


def known_at(rows: list[Any], view: View) -> list[Any]:
    """Targets that existed at ``as_of`` and pass the filters; gone for a day before it, they are not expected any more."""
    return [
        r
        for r in rows
        if r.first_seen <= view.as_of
        and r.last_seen >= view.as_of - 86400
        and view.has(pool=r.target.pool, model=r.target.model or None)
    ]


def coverage(store: Store, view: View) -> Coverage:
    """Coverage at the view's ``as_of``."""
    rows = known_at(list(store.targets()), view)
    where = places(rows)
    newest: float | None = None
    seen: set[tuple[str, str]] = set()
    if rows:
        for frame in store.frames(view.as_of - SEEN_WITHIN, view.as_of + 1e-6):
            if frame.target_id in where:
                seen.add(where[frame.target_id])
                newest = frame.t1 if newest is None else max(newest, frame.t1)
    known = set(where.values())
    if newest is None and view.newest is not None and view.newest <= view.as_of:
        newest = view.newest
    return Coverage(
        known=len(known),
        seen=len(seen & known),
        behind=None if newest is None else max(0.0, view.as_of - newest),
        unseen=tuple(sorted(replica for pool, replica in known - seen)),
        as_of=view.as_of,
        live=view.live,
    )


def dimensions(
    store: Store, config: Config, at: float | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(classes, pools, models) that can be filtered by, around ``at``."""
    rows = list(store.targets())
    pools = sorted({r.target.pool for r in rows if r.target.pool})
    models = {r.target.model for r in rows if r.target.model}
    classes = set(config.class_names)
    if at is not None:
        for signal in ("ttft_seconds", "request_latency_seconds"):
            for class_, _, _, model, _ in store.rollup_matrix(signal, at - 6 * 3600, at + 600, step=60):
                classes.add(class_)
                models.add(model)
    ordered = [*config.class_names, *sorted(c for c in classes if c and c not in config.class_names)]
    return (tuple(ordered), tuple(pools), tuple(sorted(m for m in models if m)))
