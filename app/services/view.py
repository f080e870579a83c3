"""What a page is asked to show: a time range that ends at ``as_of``, and filters. Hashable, times rounded: a cache key."""

from __future__ import annotations

from dataclasses import dataclass

RANGES: dict[str, float] = {
    "15m": 900.0,
    "1h": 3600.0,
    "6h": 21600.0,
    "24h": 86400.0,
    "7d": 604800.0,
    "28d": 2419200.0,
}
CUSTOM = "custom"
FRESH_SECONDS = 300.0
"""Data younger than this counts as live."""
TICK = 15.0
MAX_POINTS = 500


@dataclass(frozen=True, slots=True)
class View:
    """``start`` and ``as_of`` in Unix seconds, ``as_of`` exclusive; empty filters mean everything.

    ``live``: ``as_of`` follows the clock. ``newest`` is the newest data in the store, None where it is empty.
    """

    start: float
    as_of: float
    live: bool = True
    class_: str = ""
    pool: str = ""
    model: str = ""
    newest: float | None = None
    zone: str = ""
    """The time zone in which times are said; empty is UTC. Part of the key of whatever holds finished sentences."""

    @property
    def length(self) -> float:
        """Length of the range in seconds."""
        return self.as_of - self.start

    @property
    def step(self) -> float:
        """Seconds a point of a chart stands for: whole minutes, at most :data:`MAX_POINTS` points."""
        return step_for(self.length)

    def has(self, *, class_: str | None = None, pool: str | None = None, model: str | None = None) -> bool:
        """Whether something with these labels passes the filters (None: not known, passes)."""
        return (
            (not self.class_ or class_ is None or class_ == self.class_)
            and (not self.pool or pool is None or pool == self.pool)
            and (not self.model or not model or model == self.model)
        )


def step_for(length: float) -> float:
    """The shortest usual step that needs at most :data:`MAX_POINTS` points for ``length`` seconds."""
    for step in (60.0, 300.0, 900.0, 3600.0, 7200.0, 21600.0, 86400.0):
        if length / step <= MAX_POINTS:
            return step
    return 604800.0


def make_view(
    now: float,
    newest: float | None,
    *,
    length: float = 3600.0,
    as_of: float | None = None,
    start: float | None = None,
    class_: str = "",
    pool: str = "",
    model: str = "",
    zone: str = "",
) -> View:
    """The view for a clock, the newest data and what was asked for.

    Without ``as_of`` the range ends now if data is fresh, else at the newest data: history is shown as history.
    """
    live = False
    if as_of is None:
        if newest is None or now - newest <= FRESH_SECONDS:
            end, live = now, True
        else:
            end = newest + TICK
    else:
        end = as_of
    end = round_up(end, TICK)
    begin = end - length if start is None or start >= end else start
    return View(round_up(begin, TICK), end, live, class_, pool, model, newest, zone)


def round_up(t: float, step: float) -> float:
    """The first multiple of ``step`` at or after ``t``."""
    return -(-t // step) * step
