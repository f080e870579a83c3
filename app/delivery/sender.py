"""What every kind of receiver offers: :meth:`Sender.send` for a batch, and what it can do with several messages at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.delivery.message import Message
from core.deliveries import Delivery


@dataclass(frozen=True, slots=True)
class Item:
    """One delivery with its message. ``told``: what the receiver was told last of the same subject, None at first."""

    delivery: Delivery
    message: Message
    told: Delivery | None = None

    @property
    def reference(self) -> str:
        """What the receiver called it."""
        return self.told.reference if self.told is not None else ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes out as one message. ``digest``: more than the receiver takes one by one, so only a line each."""

    id: str
    items: tuple[Item, ...]
    digest: bool = False

    @property
    def retried(self) -> bool:
        """Whether an earlier attempt may have arrived although it seemed to fail."""
        return any(i.delivery.attempts for i in self.items)


class Sender(Protocol):
    """One receiver.

    ``groups``: several incidents can go out in one message; ``limited``: messages are for people, so that there can be too many.
    ``hold``: seconds between the first notice of an incident and its end.
    """

    groups: bool
    limited: bool
    hold: float

    def send(self, batch: Batch, at: float) -> str:
        """Send; returns what the receiver calls it ("" if it does not say). SendError where it was not taken."""


def item_of(delivery: Delivery, told: Delivery | None = None) -> Item:
    """A delivery with its message."""
    return Item(delivery, Message.from_row(delivery.message), told)


WORDS = {"open": "opened", "update": "changed", "resolve": "over"}


def summary(items: Sequence[Item]) -> str:
    """One line for several: ``3 incidents on coder: 2 opened, 1 over``; ``2 incidents and 1 event on coder: 2 opened``."""
    if len(items) == 1:
        return items[0].message.headline
    incidents = {i.delivery.subject for i in items if i.message.type == "incident"}
    others = len({i.delivery.subject for i in items}) - len(incidents)
    whats = [_many(len(incidents), "incident"), _many(others, "event")]
    pools = sorted({p for i in items for p in i.message.pools})
    where = f" on {', '.join(pools[:3])}{' and others' if len(pools) > 3 else ''}" if pools else ""
    counts = Counter(WORDS[i.message.action] for i in items if i.message.action in WORDS)
    told = ", ".join(f"{n} {w}" for w, n in counts.items())
    return " and ".join(w for w in whats if w) + where + (f": {told}" if told else "")


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n > 1 else ''}" if n else ""


def alone(item: Item) -> Batch:
    """A batch of one."""
    return Batch(item.delivery.id, (item,))
