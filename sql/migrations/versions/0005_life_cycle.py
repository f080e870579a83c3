"""What people do to incidents: data of log entries, silences, mute windows, incidents that a person holds open."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New columns of ``incidents`` and ``incident_log``, tables ``silences`` and ``mutes``."""
    op.add_column("incidents", sa.Column("held_open_at", sa.Float(), nullable=True))
    op.add_column("incident_log", sa.Column("data", sa.Text(), server_default="{}", nullable=False))
    op.create_table(
        "silences",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("author", "reason", "matchers")),
        sa.Column("starts_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=False),
        sa.Column("withdrawn_by", sa.Text(), server_default="", nullable=False),
        sa.Column("withdrawn_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_silences_ends", "silences", ["ends_at"], unique=False)
    op.create_table(
        "mutes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("author", "reason", "matchers", "days", "start_clock", "end_clock", "zone")
        ),
        sa.Column("withdrawn_by", sa.Text(), server_default="", nullable=False),
        sa.Column("withdrawn_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
