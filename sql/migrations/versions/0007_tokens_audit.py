"""API tokens and the audit log, which can only be added to."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tables ``tokens`` and ``audit``, and triggers that refuse to change or delete a line of the audit log."""
    op.create_table(
        "tokens",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("id", "name", "digest", "role", "scopes")),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        *(
            sa.Column(name, sa.Float(), nullable=True)
            for name in ("expires_at", "revoked_at", "last_used_at")
        ),
        *(
            sa.Column(name, sa.Text(), server_default="", nullable=False)
            for name in ("revoked_by", "last_used_from")
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("ts", sa.Float(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("who", "role", "via", "action", "subject", "origin")
        ),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_ts", "audit", ["ts"], unique=False)
    if op.get_bind().dialect.name == "sqlite":
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_no_{act.lower()} BEFORE {act} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
    else:
        op.execute(
            "CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
            "FOR EACH ROW EXECUTE FUNCTION audit_append_only()"
        )
