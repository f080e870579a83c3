"""Which waiting deliveries go out together now. Pure.

Those of one incident go out in order, the next one only when the one before is out. Those about the same pools go together where
the receiver can show several. Where a receiver has had as many messages as it may get, the rest waits and comes as one digest.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from app.delivery.sender import Batch, Item, item_of
from core.deliveries import Delivery
from sql.ids import digest

BASE_S, CAP_S = 2.0, 120.0
PATIENT_AFTER = 3
"""After so many failures a delivery stands behind those that have not failed so often: one bad message blocks nobody."""
GIVE_UP_S = 3 * 86400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a receiver takes: messages that can hold several, how many of them in how long, how long an end is held back."""

    groups: bool
    limited: bool
    hold: float
    most: int = 20
    per: float = 600.0


def backoff(attempts: int, draw: float, wait: float | None = None) -> float:
    """Seconds until the next attempt after ``attempts`` failures; ``draw`` in [0, 1) is the jitter. At least ``wait``."""
    full = min(CAP_S, BASE_S * 2.0 ** min(max(0, attempts - 1), 20))
    return max(wait or 0.0, full * (0.5 + 0.5 * draw))


def jitter() -> float:
    """A number in [0, 1)."""
    return random.random()


def heads(waiting: Sequence[Delivery]) -> list[Delivery]:
    """The first waiting delivery of each subject, in the order in which they are to be tried."""
    first: dict[str, Delivery] = {}
    for d in waiting:
        known = first.get(d.subject)
        if known is None or d.seq < known.seq:
            first[d.subject] = d
    return sorted(first.values(), key=_urgency)


def _urgency(d: Delivery) -> tuple[bool, bool, float, str]:
    """Pages before tickets, the oldest first."""
    return (d.attempts >= PATIENT_AFTER, d.face.severity != "page", d.made_at, d.subject)


def _free(
    d: Delivery, told: Mapping[str, Delivery], now: float, hold: float, failed: Container[str] | None = None
) -> bool:
    """Whether it may be tried: its time has come, and an end does not come right after the first notice."""
    again = failed is not None and d.attempts > 0
    if failed is not None and d.id in failed:
        return False
    if not d.due(now) and not again:
        return False
    before = told.get(d.subject)
    if d.action != "resolve" or hold <= 0 or before is None or before.sent_at is None:
        return True
    return not 0 <= now - before.sent_at < hold


def batches(
    waiting: Sequence[Delivery],
    told: Mapping[str, Delivery],
    recent: Sequence[float],
    limits: Limits,
    now: float,
    failed: Container[str] | None = None,
) -> list[Batch]:
    """Messages to send now, in order.

    ``waiting``: all pending deliveries of the receiver. ``told``: subject → what it got last. ``recent``: when it got messages
    within the last ``per`` seconds. ``failed``: the receiver has just taken something, so that what failed before need not wait
    any longer, save these, which have failed since.
    """
    first = heads(waiting)
    ready = [d for d in first if _free(d, told, now, limits.hold, failed)]
    if not ready:
        return []
    groups: dict[str, list[Delivery]] = {}
    for d in ready:
        # What has failed often is tried alone, so that it takes no other with it.
        apart = not limits.groups or d.attempts >= PATIENT_AFTER
        groups.setdefault(d.id if apart else d.place, []).append(d)
    if limits.groups:
        for d in first:  # others of the same place need not wait any longer
            if (
                d not in ready
                and d.attempts == 0
                and d.place in groups
                and _company(d, told, now, limits.hold)
            ):
                groups[d.place].append(d)
    left = limits.most - len(recent) if limits.limited else len(groups)
    if left <= 0:
        return []
    if limits.limited and limits.groups and len(groups) > left:
        # The last message that is left takes all that would not fit.
        chosen = list(groups.values())
        single, rest = chosen[: left - 1], chosen[left - 1 :]
        many = [d for g in rest for d in g]
        late = [d for d in waiting if d.subject in {x.subject for x in many} and d not in many]
        ordered = sorted([*many, *late], key=lambda d: (d.made_at, d.subject, d.seq))
        return [*(_batch(g, told) for g in single), _batch(ordered, told, summed_up=True)]
    return [_batch(g, told) for g in list(groups.values())[:left]]


def _company(d: Delivery, told: Mapping[str, Delivery], now: float, hold: float) -> bool:
    return d.action == "open" or _free(d, told, now, hold)


def _batch(rows: Sequence[Delivery], told: Mapping[str, Delivery], *, summed_up: bool = False) -> Batch:
    items: tuple[Item, ...] = tuple(item_of(d, told.get(d.subject)) for d in rows)
    key = rows[0].id if len(rows) == 1 else digest("batch", *(d.id for d in rows))
    return Batch(key, items, summed_up and len(rows) > 1)
