"""The part of the store about deliveries and leases; each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.deliveries import Delivery, Lease, Tally
from sql import deliveries as rows
from sql import leases
from sql.engine import Database


class DeliveryStore:
    """The outbox, and who of several processes empties it."""

    database: Database

    def add_deliveries(self, new: Iterable[Delivery]) -> int:
        """Insert rows that are not there yet; returns how many."""
        with self.database.write(lock=True) as c:
            return rows.add(c, new)

    def pending_deliveries(self, receiver: str | None = None) -> list[Delivery]:
        """Rows not sent yet, the oldest first, those of one subject in order."""
        with self.database.read() as c:
            return rows.pending(c, receiver)

    def last_deliveries(self, subjects: Sequence[str]) -> dict[tuple[str, str], Delivery]:
        """(receiver, subject) → the last row made about these subjects, without its message."""
        with self.database.read() as c:
            return rows.last_of(c, subjects)

    def living_subjects(self) -> set[str]:
        """Subjects that some receiver was last told to be wrong."""
        with self.database.read() as c:
            return rows.living(c)

    def deliveries_of(self, subject: str) -> list[Delivery]:
        """All rows about one incident or event, as they were made."""
        with self.database.read() as c:
            return rows.of_subject(c, subject)

    def last_sent(self, receiver: str, subjects: Sequence[str] | None = None) -> dict[str, Delivery]:
        """Subject → the last row that a receiver got: about these subjects, or about all."""
        with self.database.read() as c:
            return rows.last_sent(c, receiver, subjects)

    def sent_batches(self, receiver: str, start: float, end: float) -> list[float]:
        """When messages went to a receiver in (start, end]."""
        with self.database.read() as c:
            return rows.sent_batches(c, receiver, start, end)

    def deliveries_sent(self, ids: Sequence[str], at: float, batch: str, reference: str = "") -> None:
        """A receiver has taken these."""
        with self.database.write() as c:
            rows.mark_sent(c, ids, at, batch, reference)

    def deliveries_failed(self, ids: Sequence[str], at: float, error: str, due_at: float | None) -> None:
        """Tried in vain: again at ``due_at``, or parked (None)."""
        with self.database.write() as c:
            rows.mark_failed(c, ids, at, error, due_at)

    def retry_deliveries(self, ids: Sequence[str], at: float) -> list[str]:
        """Unsent rows are tried again, and what was said after them goes out behind them; ids of all that is tried."""
        with self.database.write() as c:
            return rows.retry(c, ids, at)

    def delivery_page(
        self,
        *,
        limit: int,
        before: tuple[float, str] | None = None,
        receiver: str | None = None,
        state: str | None = None,
        subject: str | None = None,
    ) -> list[Delivery]:
        """Rows, the newest first, after ``before`` = (made_at, id)."""
        with self.database.read() as c:
            return rows.page(c, limit=limit, before=before, receiver=receiver, state=state, subject=subject)

    def deliveries_like(self, prefix: str) -> list[Delivery]:
        """Rows whose id begins with ``prefix``; at most ten."""
        with self.database.read() as c:
            return rows.get(c, prefix)

    def delivery_tallies(self) -> dict[str, Tally]:
        """Receiver → how it stands, of those with rows."""
        with self.database.read() as c:
            return rows.tallies(c)

    def forget_deliveries(self, before: float) -> int:
        """Delete what is over and was sent before a time; returns how many rows."""
        with self.database.write() as c:
            return rows.forget(c, before)

    # --- leases

    def acquire_lease(self, name: str, holder: str, seconds: float, now: float | None = None) -> Lease | None:
        """Take or renew a lease; None where somebody else holds it."""
        with self.database.write(lock=True) as c:
            return leases.acquire(c, name, holder, seconds, now)

    def release_lease(self, name: str, holder: str) -> None:
        """Give a lease back."""
        with self.database.write(lock=True) as c:
            leases.release(c, name, holder)

    def lease(self, name: str) -> Lease | None:
        """A lease as it stands, whether or not it has run out."""
        with self.database.read() as c:
            return leases.get(c, name)

    def clock(self) -> float:
        """Unix seconds by the database's clock."""
        with self.database.read() as c:
            return leases.clock(c)
