"""How each output was sampled, what kind of output it is, and what became of it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New columns of ``outputs`` and the table ``outcomes``. What was stored before counts as random, weight 1."""
    for column in (
        sa.Column("random", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("weight", sa.Float(), nullable=False, server_default="1"),
        sa.Column("structured", sa.Boolean(), nullable=True),
        sa.Column("language", sa.Text(), nullable=False, server_default=""),
        sa.Column("cache_source", sa.Text(), nullable=False, server_default=""),
        sa.Column("source", sa.Text(), nullable=False, server_default=""),
    ):
        op.add_column("outputs", column)
    op.create_index("ix_outputs_session", "outputs", ["session"], unique=False)
    op.create_table(
        "outcomes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("ts", sa.Float(), nullable=False),
        sa.Column("request", sa.Text(), server_default="", nullable=False),
        sa.Column("session", sa.Text(), server_default="", nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_outcomes_ts", "outcomes", ["ts"], unique=False)
    op.create_index("ix_outcomes_request", "outcomes", ["request"], unique=False)
    op.create_index("ix_outcomes_session", "outcomes", ["session"], unique=False)
