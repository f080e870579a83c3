"""The part of the store about people and programs: API tokens and the audit log."""

from __future__ import annotations

from sql import people
from sql.engine import Database
from sql.people import AuditRow, TokenRow


class PeopleStore:
    """Tokens and audit; each method is one transaction."""

    database: Database

    def add_token(self, row: TokenRow) -> None:
        """Keep a new token."""
        with self.database.write() as c:
            people.add_token(c, row)

    def tokens(self) -> list[TokenRow]:
        """All tokens, the oldest first."""
        with self.database.read() as c:
            return people.read_tokens(c)

    def token(self, token_id: str) -> TokenRow | None:
        """The token of that id."""
        with self.database.read() as c:
            return next(iter(people.read_tokens(c, token_id)), None)

    def revoke_token(self, token_id: str, who: str, when: float) -> bool:
        """Whether there was one to revoke."""
        with self.database.write() as c:
            return people.revoke_token(c, token_id, who, when)

    def use_token(self, token_id: str, when: float, origin: str) -> None:
        """Note when and from where it was used last."""
        with self.database.write() as c:
            people.use_token(c, token_id, when, origin)

    def add_audit(self, row: AuditRow) -> None:
        """Add a line to the audit log; no method changes or removes one."""
        with self.database.write() as c:
            people.add_audit(c, row)

    def audit(
        self,
        *,
        limit: int,
        before: tuple[float, str] | None = None,
        start: float | None = None,
        end: float | None = None,
        who: str | None = None,
        action: str | None = None,
    ) -> list[AuditRow]:
        """Lines in [start, end), the newest first, after ``before`` = (ts, id) of the last one seen."""
        with self.database.read() as c:
            return people.read_audit(
                c, limit=limit, before=before, start=start, end=end, who=who, action=action
            )
