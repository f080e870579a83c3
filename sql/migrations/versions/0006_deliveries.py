"""What receivers are told of incidents and events (the outbox), and leases: who of several processes does a thing."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tables ``deliveries`` and ``leases``."""
    op.create_table(
        "deliveries",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("id", "receiver", "subject")),
        sa.Column("seq", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("action", "state", "place")),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("made_at", "due_at", "set_at")),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("sent_at", sa.Float(), nullable=True),
        *(
            sa.Column(name, sa.Text(), server_default="", nullable=False)
            for name in ("batch", "reference", "error", "reason")
        ),
        sa.Column("face", sa.Text(), server_default="{}", nullable=False),
        sa.Column("message", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_deliveries_subject", "deliveries", ["subject", "receiver", "seq"], unique=True)
    op.create_index("ix_deliveries_state", "deliveries", ["state", "receiver"], unique=False)
    op.create_index("ix_deliveries_made", "deliveries", ["made_at"], unique=False)
    op.create_index("ix_deliveries_sent", "deliveries", ["receiver", "sent_at"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
